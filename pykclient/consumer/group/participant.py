"""Participant and GroupCoordinator: what a membership knows of the consumer around it.

Owner: no state.
Source: the abstract methods of Java class ``AbstractCoordinator``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.consumer.group.member import GroupMetadata
    from pykclient.network.manager import Operation
    from pykclient.protocol.messages.join_group import JoinGroupResponse

__all__ = ["GroupCoordinator", "Participant"]


class GroupCoordinator(Protocol):
    """Where the group's coordinator is."""

    def node_id(self) -> int | None:
        """Return whom to ask; None while it is looked up."""
        ...

    def other_node_id(self) -> int | None:
        """Return the same broker by its connection for data, which no JoinGroup holds up."""
        ...

    def mark_unknown(self, node_id: int, reason: object) -> None:
        """Have it looked up again, if it is still this one."""
        ...


class Participant(Protocol):
    """The consumer behind the membership: what it wants, and what becomes of its partitions."""

    def protocols(self, member: GroupMetadata) -> Sequence[tuple[str, bytes]]:
        """Return the assignors that it has, with what its leader shall know for each."""
        ...

    def prepare(self, *, is_member: bool, now_ms: int) -> Operation[None]:
        """Give up what must not be held while joining; everything is lost unless `is_member`."""
        ...

    def lead(
        self, protocol: str, response: JoinGroupResponse
    ) -> Sequence[tuple[str, bytes]] | None:
        """Share out as the group's leader; None while not all is known that this needs."""
        ...

    def take(self, protocol: str, assignment: bytes, now_ms: int) -> Operation[str | None]:
        """Take an assignment. The result is why to join again at once; None if nothing is."""
        ...

    def give_up(self, *, is_member: bool, now_ms: int) -> Operation[None]:
        """Give up everything, because this consumer leaves."""
        ...
