"""As `GroupSimulation`, with members of KIP-848: the coordinator assigns.

Members of one group differ in their epochs here, so what two of them hold is compared whatever
their epochs are, as long as the coordinator counts both as members.

Owner: the test that made it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pykclient.consumer.group.kip848.coordinator import Kip848Coordinator
from pykclient.consumer.group.kip848.membership import MemberState
from pykclient.errors.broker import (
    CoordinatorNotAvailableError,
    FencedMemberEpochError,
    NotCoordinatorError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake.groups.group import GroupSettings
from pykclient.testing.fake.groups.kip848.group import ConsumerGroup
from tests.simulation.group_simulation import GROUP, GROUP_ERRORS, GroupSimulation
from tests.simulation.simulated_member import SimulatedMember

if TYPE_CHECKING:
    from pykclient.types import TopicPartition
    from tests.simulation.simulated_world import ApiFaults

__all__ = ["Kip848GroupSimulation", "SimulatedKip848Member"]

READING = frozenset({MemberState.RECONCILING, MemberState.ACKNOWLEDGING, MemberState.STABLE})


class SimulatedKip848Member(SimulatedMember):
    """One member."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        # What it drew before it was given the seed's randomness.
        member = self._group._membership.member
        self._group._membership.member = member._replace(member_id=str(settings["client_id"]))

    @property
    def _group(self) -> Kip848Coordinator:
        assert isinstance(self.consumer._wiring.group, Kip848Coordinator)
        return self.consumer._wiring.group

    @property
    def holds(self) -> frozenset[TopicPartition]:
        """What it reads as a member; nothing when it is none for the coordinator any more."""
        if self._group._membership.state not in READING:
            return frozenset()
        group = self._network.cluster.groups.find(GROUP)
        assert isinstance(group, ConsumerGroup)
        member_id = self._group.identity.member_id
        is_known = any(member.member_id == member_id for member, _ in group.member_targets())
        return self.consumer._wiring.subscription.partitions if is_known else frozenset()

    @property
    def generation(self) -> int:
        """The same for all."""
        return 0


class Kip848GroupSimulation(GroupSimulation):
    """One run."""

    api_faults: ClassVar[ApiFaults] = {
        ApiKey.FIND_COORDINATOR: (CoordinatorNotAvailableError,),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: (
            *GROUP_ERRORS,
            UnknownMemberIdError,
            FencedMemberEpochError,
        ),
        ApiKey.OFFSET_COMMIT: (*GROUP_ERRORS, StaleMemberEpochError, UnknownMemberIdError),
        ApiKey.OFFSET_FETCH: (NotCoordinatorError, *GROUP_ERRORS),
    }
    group_settings: ClassVar[GroupSettings] = GroupSettings(
        group_consumer_session_timeout_ms=6_000,
        group_consumer_heartbeat_interval_ms=1_000,
    )

    def __init__(
        self,
        seed: int,
        *,
        member_class: type[SimulatedMember] = SimulatedKip848Member,
        is_mild: bool = False,
    ) -> None:
        super().__init__(seed, member_class=member_class, is_mild=is_mild)

    def protocol_settings(self) -> dict[str, object]:
        """Say who assigns, and how."""
        assignor = self.random.choice(("", "uniform", "range"))
        return {"group_protocol": "consumer", "group_remote_assignor": assignor}
