"""State of a classic group, and what follows from it, without timers and requests.

States: *Empty*; *PreparingRebalance*, while members join; *CompletingRebalance*, while the leader
assigns; *Stable*; *Dead*. A `check_*` method changes nothing.

A new coordinator starts from the log. The group is written to it when the leader has assigned, when
the last member has left, and when a static member has returned.

Metadata and assignments of consumers are read as far as a broker needs them, every version as
version 0, which all later ones begin with.

Owner: the group.
Source: KIP-345 (static members), KIP-389 (size); Java classes ``ClassicGroup``,
``ConsumerProtocol``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pykclient.errors.base import DecodeError
from pykclient.errors.broker import (
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    NonEmptyGroupError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from pykclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from pykclient.protocol.messages.join_group import JoinGroupResponse
from pykclient.protocol.messages.sync_group import SyncGroupResponse
from pykclient.protocol.reader import Reader
from pykclient.testing.fake.groups.classic.members import ClassicMembers
from pykclient.testing.fake.groups.group import MemberSnapshot
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pykclient.protocol.messages.sync_group import SyncGroupRequest
    from pykclient.testing.fake.groups.classic.members import ClassicMember
    from pykclient.testing.fake.groups.group import Refusal

SKIPS_ASSIGNMENT_FROM_VERSION = 9
CONSUMER_PROTOCOL_TYPE = "consumer"
_OLDEST = 0


class ClassicState(Enum):
    """States of a group; the values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


NEXT: dict[ClassicState, frozenset[ClassicState]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING, ClassicState.DEAD}),
    ClassicState.PREPARING: frozenset(
        {ClassicState.EMPTY, ClassicState.COMPLETING, ClassicState.DEAD}
    ),
    ClassicState.COMPLETING: frozenset(
        {ClassicState.STABLE, ClassicState.PREPARING, ClassicState.DEAD}
    ),
    ClassicState.STABLE: frozenset({ClassicState.PREPARING, ClassicState.DEAD}),
    ClassicState.DEAD: frozenset(),
}


@dataclass(frozen=True, slots=True)
class _Written:
    """The group as stored in the log."""

    generation: int = 0
    protocol_type: str = ""
    protocol_name: str | None = None
    leader_id: str | None = None
    members: tuple[ClassicMember, ...] = ()


class ClassicGroupState:
    """A group, at first empty; `protocol_type` is empty until it has a member."""

    def __init__(self) -> None:
        self.state = ClassicState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.members = ClassicMembers()
        self._topics: frozenset[str] | None = None
        self._written = _Written()

    @property
    def is_empty(self) -> bool:
        """True in the state Empty."""
        return self.state is ClassicState.EMPTY

    @property
    def is_consumers(self) -> bool:
        """True if the members are consumers, whose metadata a broker can read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    # Changes.

    def to(self, state: ClassicState) -> None:
        """Change the state; `NEXT` must allow it."""
        assert state in NEXT[self.state], f"{self.state} cannot become {state}"
        self.state = state

    def begin_generation(self) -> None:
        """Begin a generation with the current members; without any, the group is empty."""
        self.generation += 1
        self.members.unsynced.clear()
        if len(self.members):
            self.protocol_name = self.members.chosen_protocol()
            self.to(ClassicState.COMPLETING)
        else:
            self.protocol_name = None
            self.to(ClassicState.EMPTY)
            self.write()
        self._topics = self._subscribed_topics()

    def assign(self, assignments: dict[str, bytes]) -> None:
        """Store the leader's assignments; members without one get nothing."""
        for member in self.members:
            member.assignment = assignments.get(member.member_id, b"")
        self.to(ClassicState.STABLE)
        self.write()

    def write(self) -> None:
        """Write the group to the log."""
        self._written = _Written(
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.members.leader_id,
            tuple(member.written(self.protocol_name) for member in self.members),
        )

    def load(self) -> None:
        """Load the group from the log, on another broker; this is not a transition."""
        written = self._written
        self.generation = written.generation
        self.protocol_type = written.protocol_type
        self.protocol_name = written.protocol_name
        members = [member.written(written.protocol_name) for member in written.members]
        self.members = ClassicMembers(members, written.leader_id)
        self.state = ClassicState.STABLE if members else ClassicState.EMPTY
        self._topics = self._subscribed_topics()

    def _subscribed_topics(self) -> frozenset[str] | None:
        if not self.is_consumers:
            return None
        return subscribed_topics(member.metadata(self.protocol_name) for member in self.members)

    # Checks.

    def check_join(
        self, member_id: str, protocol_type: str, protocol_names: Collection[str], size_max: int
    ) -> Refusal | None:
        """Check that the group has room, and that all members support one of these protocols."""
        if not self._has_room(member_id, size_max):
            return GroupMaxSizeReachedError
        if self.state is ClassicState.EMPTY:
            is_consistent = bool(protocol_type and protocol_names)
        else:
            is_consistent = protocol_type == self.protocol_type and self.members.can_speak_any_of(
                protocol_names
            )
        return None if is_consistent else InconsistentGroupProtocolError

    def _has_room(self, member_id: str, size_max: int) -> bool:
        member = self.members.get(member_id)
        if self.state is ClassicState.EMPTY:
            return True
        if self.state is ClassicState.PREPARING:
            # The first to join stay: the group may have been larger than the limit.
            is_counted = member is not None and member.is_joining
            return is_counted or self.members.joining_count < size_max
        return member is not None or len(self.members) < size_max

    def check_sync(self, request: SyncGroupRequest) -> Refusal | None:
        """Check that a member may have its assignment, and need not join again."""
        refusal = self.check_member(
            request.member_id, request.group_instance_id, request.generation_id
        )
        if refusal is not None:
            return refusal
        for named, own in (
            (request.protocol_type, self.protocol_type),
            (request.protocol_name, self.protocol_name),
        ):
            if named is not None and named != own:
                return InconsistentGroupProtocolError
        return RebalanceInProgressError if self.state is ClassicState.PREPARING else None

    def check_member(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> Refusal | None:
        """Check that this is a member of this generation."""
        refusal = self.members.check(member_id, instance_id)
        if refusal is not None:
            return refusal
        return None if generation == self.generation else IllegalGenerationError

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, is_transactional: bool
    ) -> Refusal | None:
        """Check that a member may commit; any client may if the group is empty."""
        if generation < 0 and self.state is ClassicState.EMPTY:
            return None
        if generation >= 0 or member_id or instance_id is not None:
            refusal = self.check_member(member_id, instance_id, generation)
            if refusal is not None:
                return refusal
        elif not is_transactional:
            return UnknownMemberIdError
        is_too_early = self.state is ClassicState.COMPLETING and not is_transactional
        return RebalanceInProgressError if is_too_early else None

    def check_offset_delete(self) -> Refusal | None:
        """Refuse unless topics in use are known, as they are for consumers."""
        return None if self.is_empty or self.is_consumers else NonEmptyGroupError

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member may read the topic; True if subscriptions are unreadable."""
        return self.is_consumers if self._topics is None else topic in self._topics

    # Responses.

    def generation_for(
        self,
        member: ClassicMember,
        *,
        is_leader: bool,
        leader_id: str | None = None,
        skips_assignment: bool = False,
    ) -> JoinGroupResponse:
        """Return a member's JoinGroup response; for the leader, with all members."""
        members = self.members.for_leader(self.protocol_name) if is_leader else []
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader_id or self.members.leader_id or "",
            skip_assignment=skips_assignment,
            member_id=member.member_id,
            members=members,
        )

    def generation_again(
        self, member: ClassicMember, old_leader_id: str | None, version: int
    ) -> JoinGroupResponse:
        """Return the current generation's response for a static member that returned."""
        if version < SKIPS_ASSIGNMENT_FROM_VERSION:
            # Such a leader would assign again, so its former id is named as the leader.
            return self.generation_for(member, is_leader=False, leader_id=old_leader_id)
        is_leader = member.member_id == self.members.leader_id
        return self.generation_for(member, is_leader=is_leader, skips_assignment=is_leader)

    def assignment_of(self, member: ClassicMember) -> SyncGroupResponse:
        """Return the SyncGroup response with a member's assignment."""
        return SyncGroupResponse(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    def snapshots(self) -> tuple[MemberSnapshot, ...]:
        """Return the members, oldest first."""
        return tuple(
            MemberSnapshot(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                partitions=assigned_partitions(member.assignment) if self.is_consumers else (),
                assignment=member.assignment,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.members
        )


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return all subscribed topics; None if a subscription is unreadable."""
    topics: set[str] = set()
    try:
        for data in subscriptions:
            reader = Reader(data)
            reader.int16()  # the version
            topics.update(ConsumerProtocolSubscription.read(reader, _OLDEST).topics)
    except DecodeError:
        return None
    return frozenset(topics)


def assigned_partitions(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of an assignment; none if it is empty or unreadable."""
    try:
        reader = Reader(data)
        reader.int16()  # the version
        assignment = ConsumerProtocolAssignment.read(reader, _OLDEST)
    except DecodeError:
        return ()
    return tuple(
        TopicPartition(topic.topic, number)
        for topic in assignment.assigned_partitions
        for number in topic.partitions
    )
