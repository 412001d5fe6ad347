"""Participants, GroupCoordinator and GroupMembership: what membership and consumer ask each other.

Owner: no state.
Source: the abstract methods of Java class ``AbstractCoordinator``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykclient.consumer.group.kip848.requests import Interest
    from pykclient.consumer.group.metadata import GroupMetadata
    from pykclient.errors import KafkaError
    from pykclient.network.manager import Operation, PollResult
    from pykclient.protocol.messages.join_group import JoinGroupResponse

    Assignment = dict[bytes, tuple[int, ...]]

__all__ = ["GroupCoordinator", "GroupMembership", "ModernParticipant", "Participant"]


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
    """The consumer behind the membership of a classic group."""

    def may_join(self) -> bool:
        """Whether it is known what to join with; membership goes on as it is until then."""
        ...

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


class ModernParticipant(Protocol):
    """The consumer behind the membership of a group of KIP-848, where topics go by their ids."""

    def interest(self) -> Interest:
        """Return what is subscribed to."""
        ...

    def resolve(self, target: Mapping[bytes, tuple[int, ...]]) -> Assignment:
        """Return the part of a target whose topics are known by name."""
        ...

    def ask_for_names(self) -> None:
        """Have the names of the other topics found out."""
        ...

    def reconcile(self, assigned: Assignment, now_ms: int) -> Operation[None]:
        """Give up what is not in `assigned`, then take the rest. All of it is known by name."""
        ...

    def give_up(self, *, is_member: bool, now_ms: int) -> Operation[None]:
        """Give everything up because this consumer leaves, or lose what others may have by now."""
        ...

    def stop(self, now_ms: int) -> None:
        """Let go of what is under way."""
        ...


class GroupMembership(Protocol):
    """This consumer as a member, whatever the protocol."""

    member: GroupMetadata
    """Who it is now, member or not."""

    trouble: KafkaError | None
    """Why the coordinator does not take this member in, as it said last; None if it does."""

    @property
    def can_commit(self) -> bool:
        """Whether a commit in the name of `member` has a chance."""
        ...

    @property
    def has_request_in_flight(self) -> bool:
        """Whether the coordinator owes an answer."""
        ...

    @property
    def has_error(self) -> bool:
        """Whether `take_error` would return one."""
        ...

    def take_error(self) -> KafkaError | None:
        """Return what the application must know, and forget it; what is fatal stays."""
        ...

    def on_commit_refused(self, error_code: int, sent: GroupMetadata) -> None:
        """Hear what a commit in the name of `sent` was told about the membership."""
        ...

    def note_poll(self, now_ms: int) -> None:
        """Note that the application asks for records, whether or not there is a turn for that."""
        ...

    def wants_turn(self, now_ms: int) -> bool:
        """Whether a poll by the application would change something now."""
        ...

    def restart(self, now_ms: int, *, is_wanted: bool) -> None:
        """Forget what is in flight or half done; be a member, or become one, if `is_wanted`."""
        ...

    def begin_leave(self, reason: str, *, sends: bool, now_ms: int) -> Operation[None]:
        """Give everything up and leave; return what ends when the coordinator has been told."""
        ...

    def poll(self, now_ms: int, *, may_rebalance: bool) -> PollResult:
        """Go on as far as it goes, and return what is to be sent."""
        ...
