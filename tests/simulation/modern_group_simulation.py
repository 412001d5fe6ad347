"""As `GroupSimulation`, with members of KIP-848: the coordinator assigns.

Members of one group differ in their epochs here, so what two of them hold is compared whatever
their epochs are, as long as the coordinator counts both as members.

Owner: the test that made it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pykclient.consumer.group.modern_state import ModernState
from pykclient.consumer.modern_coordinator import ModernCoordinator
from pykclient.errors.broker import (
    CoordinatorNotAvailableError,
    FencedMemberEpochError,
    NotCoordinatorError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake.groups.settings import GroupSettings
from tests.simulation.group_simulation import GROUP, GROUP_ERRORS, GroupSimulation
from tests.simulation.simulated_member import SimulatedMember

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.errors import BrokerError
    from pykclient.types import TopicPartition

__all__ = ["ModernGroupSimulation", "SimulatedModernMember"]

READING = frozenset({ModernState.RECONCILING, ModernState.ACKNOWLEDGING, ModernState.STABLE})


class SimulatedModernMember(SimulatedMember):
    """One member."""

    @property
    def holds(self) -> frozenset[TopicPartition]:
        """What it reads as a member; nothing when it is none for the coordinator any more."""
        assert isinstance(self._group, ModernCoordinator)
        group = self._network.cluster.groups.snapshot(GROUP)
        is_known = group is not None and self._group.identity.member_id in {
            member.member_id for member in group.members
        }
        is_reading = self._group._membership.state in READING
        return self._subscription.partitions if is_known and is_reading else frozenset()

    @property
    def generation(self) -> int:
        """The same for all."""
        return 0


class ModernGroupSimulation(GroupSimulation):
    """One run."""

    api_faults: ClassVar[Mapping[ApiKey, tuple[type[BrokerError], ...]]] = {
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
        self, seed: int, *, member_class: type[SimulatedMember] = SimulatedModernMember
    ) -> None:
        super().__init__(seed, member_class=member_class)

    def protocol_settings(self) -> dict[str, object]:
        """Say who assigns, and how."""
        assignor = self.random.choice(("", "uniform", "range"))
        return {"group_protocol": "consumer", "group_remote_assignor": assignor}
