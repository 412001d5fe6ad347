"""Members of a KIP-848 group, and how each moves from its assignment to its target.

A member is *stable*; *unrevoked*, while it must still revoke partitions and keeps its epoch; or
*unreleased*, in the target's epoch but waiting for partitions of others. Any state may follow any
other, because a new target can come at any time. Members are immutable: a change makes a new
object, so that a refused request leaves no traces.

Members are found by id, by instance id, and by their partitions. A partition has at most one owner,
including one that has yet to revoke it. Static members keep their place: one that left temporarily
(epoch -2) is replaced by the next with its instance id.

Owner: the group.
Source: KIP-848; Java classes ``ConsumerGroupMember``, ``CurrentAssignmentBuilder``,
``ConsumerGroup``, as of 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
)
from pykclient.testing.fake.groups.kip848.assignors import TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from pykclient.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
    )

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


class MemberState(Enum):
    """Progress of a member towards its target; the values are Kafka's."""

    STABLE = 1
    UNREVOKED_PARTITIONS = 2
    UNRELEASED_PARTITIONS = 3


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """A member at one moment.

    `assigned` and `pending_revocation` map each partition to the epoch in which the member got it
    (KIP-1251). A member that left temporarily has the epoch -2. `topic_regex` is empty if it
    subscribes only by names.
    """

    member_id: str
    epoch: int = 0
    previous_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    server_assignor: str | None = None
    state: MemberState = MemberState.STABLE
    assigned: Mapping[TopicIdPartition, int] = field(default_factory=dict)
    pending_revocation: Mapping[TopicIdPartition, int] = field(default_factory=dict)

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether it has exactly the target of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def moved_to(self, epoch: int, state: MemberState) -> ConsumerGroupMember:
        """Return the member with an epoch, possibly the same, and a state."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch, state=state)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """A step of a member towards the target of `epoch`.

    `topic_ids` are the member's subscribed topics; `owned` is what it reported to own, None if it
    did not report. `is_taken(partition)` is True if another member still owns the partition.
    """

    target: Collection[TopicIdPartition]
    epoch: int
    topic_ids: Collection[bytes]
    owned: Collection[TopicIdPartition] | None
    is_taken: Callable[[TopicIdPartition], bool]

    def step(
        self, member: ConsumerGroupMember, *, has_subscription_changed: bool
    ) -> ConsumerGroupMember:
        """Return the member after the step; unchanged if it cannot move."""
        if member.state is MemberState.STABLE and member.epoch == self.epoch:
            return self._unsubscribed(member) if has_subscription_changed else member
        is_waiting = member.state is MemberState.UNREVOKED_PARTITIONS
        if is_waiting and self._owns_any(member.pending_revocation):
            return self._unsubscribed(member) if has_subscription_changed else member
        return self._towards_target(member)

    def _towards_target(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        wanted = {name for name in self.target if name.topic_id in self.topic_ids}
        kept = {name: epoch for name, epoch in member.assigned.items() if name in wanted}
        surplus = {name: epoch for name, epoch in member.assigned.items() if name not in wanted}
        if surplus and self._owns_any(surplus):
            waiting = member.moved_to(member.epoch, MemberState.UNREVOKED_PARTITIONS)
            return replace(waiting, assigned=kept, pending_revocation=surplus)
        missing = sorted(wanted.difference(kept))
        free = [name for name in missing if not self.is_taken(name)]
        is_complete = len(free) == len(missing)
        state = MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS
        return replace(
            member.moved_to(self.epoch, state),
            assigned=kept | dict.fromkeys(free, self.epoch),
            pending_revocation={},
        )

    def _unsubscribed(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        """Revoke unsubscribed topics before there is a new target."""
        surplus = {
            name: epoch
            for name, epoch in member.assigned.items()
            if name.topic_id not in self.topic_ids
        }
        if not surplus:
            return member
        kept = {name: epoch for name, epoch in member.assigned.items() if name not in surplus}
        pending = {**member.pending_revocation, **surplus}
        if self._owns_any(pending):
            waiting = member.moved_to(member.epoch, MemberState.UNREVOKED_PARTITIONS)
            return replace(waiting, assigned=kept, pending_revocation=pending)
        return replace(member.moved_to(member.epoch, member.state), assigned=kept)

    def _owns_any(self, names: Collection[TopicIdPartition]) -> bool:
        return self.owned is None or any(name in names for name in self.owned)


class ConsumerGroupMembers:
    """All members of a group, oldest first."""

    def __init__(self, group_name: str) -> None:
        self._group_name = group_name
        self._members: dict[str, ConsumerGroupMember] = {}
        self._static_ids: dict[str, str] = {}
        self._owners: dict[TopicIdPartition, str] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ConsumerGroupMember]:
        return iter(self._members.values())

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> ConsumerGroupMember | None:
        """Return a member, or None."""
        return self._members.get(member_id)

    def owner_id(self, name: TopicIdPartition) -> str | None:
        """Return the member that owns a partition or must still revoke it; None if it is free."""
        return self._owners.get(name)

    def sender(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupMember:
        """Return the member that sent a heartbeat, before the change; a new one if it joins.

        Raises:
            UnknownMemberIdError, FencedMemberEpochError, FencedInstanceIdError,
            UnreleasedInstanceIdError: the member is refused.
        """
        is_join = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            if is_join and request.member_id not in self._members:
                return ConsumerGroupMember(request.member_id)
            member = self.member(request.member_id)
        else:
            if is_join:
                return self._joining_static_member(request.instance_id, request.member_id)
            member = self.static_member(request.instance_id, request.member_id)
        _check_epoch(member, request)
        return member

    def _joining_static_member(self, instance_id: str, member_id: str) -> ConsumerGroupMember:
        existing_id = self._static_ids.get(instance_id)
        if existing_id is None:
            return self._members.get(member_id) or ConsumerGroupMember(member_id)
        existing = self._members[existing_id]
        if existing.epoch != STATIC_LEAVE_EPOCH:
            raise UnreleasedInstanceIdError(
                f"the instance id {instance_id} belongs to the member {existing_id}, which has "
                f"not left: {member_id} cannot join"
            )
        return replace(existing, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)

    def member(self, member_id: str) -> ConsumerGroupMember:
        """Return a member. Raises `UnknownMemberIdError`."""
        member = self._members.get(member_id)
        if member is None:
            raise UnknownMemberIdError(f"{member_id} is no member of the group {self._group_name}")
        return member

    def static_member(self, instance_id: str, member_id: str) -> ConsumerGroupMember:
        """Return a member by both ids. Raises `UnknownMemberIdError`, `FencedInstanceIdError`."""
        existing_id = self._static_ids.get(instance_id)
        if existing_id is None:
            raise UnknownMemberIdError(f"the instance id {instance_id} is unknown")
        if existing_id != member_id:
            raise FencedInstanceIdError(
                f"{member_id} with the instance id {instance_id} was fenced by {existing_id}"
            )
        return self._members[existing_id]

    def replaced_id(self, member: ConsumerGroupMember) -> str | None:
        """Return the id of the static member that this one replaces, or None."""
        existing_id = self._static_ids.get(member.instance_id or "")
        return None if existing_id == member.member_id else existing_id

    def put(self, member: ConsumerGroupMember) -> None:
        """Add or update a member."""
        self._disown(member.member_id)
        for name in (*member.assigned, *member.pending_revocation):
            assert name not in self._owners, "a partition has one owner"
            self._owners[name] = member.member_id
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._static_ids[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        """Remove a member and free its partitions."""
        self._disown(member_id)
        member = self._members.pop(member_id)
        if member.instance_id is not None and self._static_ids[member.instance_id] == member_id:
            del self._static_ids[member.instance_id]

    def _disown(self, member_id: str) -> None:
        member = self._members.get(member_id)
        if member is not None:
            for name in (*member.assigned, *member.pending_revocation):
                del self._owners[name]


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> frozenset[TopicIdPartition] | None:
    """Return the partitions that a member reports to own; None if it does not report."""
    if request.topic_partitions is None:
        return None
    return frozenset(
        TopicIdPartition(topic.topic_id, number)
        for topic in request.topic_partitions
        for number in topic.partitions
    )


def _check_epoch(member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Refuse a wrong epoch; one epoch behind is allowed, as a response may have been lost."""
    said = request.member_epoch
    if said in (JOIN_EPOCH, member.epoch):
        return
    owned = owned_partitions(request)
    is_response_lost = (
        said < member.epoch
        and said == member.previous_epoch
        and owned is not None
        and owned <= member.assigned.keys()
    )
    if not is_response_lost:
        raise FencedMemberEpochError(
            f"the member {member.member_id} is in epoch {member.epoch}, not {said}: it must "
            "give up all its partitions and join again"
        )
