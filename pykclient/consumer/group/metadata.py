"""GroupMetadata and CoordinatorNode: a member of a group, and the broker that coordinates it.

Owner: none: the one is immutable, the other has no state.
Source: Java class ``ConsumerGroupMetadata``, KIP-447; the `coordinator` fields of Java's
``AbstractCoordinator``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.network.cluster.coordinators import CoordinatorType

if TYPE_CHECKING:
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.coordinators import Coordinators

__all__ = ["NO_GENERATION", "NO_MEMBER_ID", "CoordinatorNode", "GroupMetadata"]

NO_GENERATION: Final = -1
"""The generation in a request that does not come from a member."""

NO_MEMBER_ID: Final = ""


class GroupMetadata(NamedTuple):
    """A member as its coordinator knows it.

    `generation` is that of the last rebalance, -1 while this is no member; `member_id` is empty
    before the member has one. `group_instance_id` is set for static members (KIP-345).
    """

    group_id: str
    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None

    @property
    def is_member(self) -> bool:
        """Whether it has joined, as far as this consumer knows."""
        return self.generation != NO_GENERATION and self.member_id != NO_MEMBER_ID

    def without_generation(self) -> GroupMetadata:
        """The same member, which has to join again under its id."""
        return self._replace(generation=NO_GENERATION)

    def without_member_id(self) -> GroupMetadata:
        """One that the coordinator does not know."""
        return self._replace(generation=NO_GENERATION, member_id=NO_MEMBER_ID)


class CoordinatorNode:
    """The broker that coordinates the group `group_id`; `Coordinators` looks it up."""

    def __init__(self, coordinators: Coordinators, group_id: str) -> None:
        self.group_id = group_id
        self._coordinators = coordinators

    def node_id(self) -> int | None:
        """Return its connection for the group's requests; None while it is looked up."""
        node = self._coordinators.coordinator(CoordinatorType.GROUP, self.group_id)
        return None if node is None else node.id

    def data_node_id(self) -> int | None:
        """Return the same broker's connection for data, which no JoinGroup holds up."""
        node = self._coordinators.coordinator(CoordinatorType.GROUP, self.group_id)
        return None if node is None else node.broker_id

    def mark_unknown(self, node_id: int, reason: object) -> None:
        """Have it looked up again, if it is still this one."""
        self._coordinators.mark_unknown(
            CoordinatorType.GROUP, self.group_id, node_id=node_id, reason=reason
        )

    def failure(self) -> KafkaError | None:
        """Return why it cannot be found, if that does not cure itself."""
        return self._coordinators.failure(CoordinatorType.GROUP, self.group_id)
