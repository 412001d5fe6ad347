"""A member of a KIP-848 group, and how it gets from the partitions it has to those it shall have.

A member is *stable*; *unrevoked*, while it has yet to give up partitions, which keeps its epoch; or
*unreleased*, in the target's epoch but waiting for partitions that others have not given up yet. It
may go from each of them to each: a new target can come at any time. A member never changes: what
happens to it makes another one, so that a request that is refused half way leaves nothing behind.

Owner: the group that has it.
Source: KIP-848; Java classes ``ConsumerGroupMember``, ``CurrentAssignmentBuilder``, as of 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pykclient.testing.fake.groups.server_assignors import TopicIdPartition

__all__ = ["MemberState", "ModernMember", "Reconciliation"]


class MemberState(Enum):
    """How far a member is from its target; the values are Kafka's numbers."""

    STABLE = 1
    UNREVOKED_PARTITIONS = 2
    UNRELEASED_PARTITIONS = 3


@dataclass(frozen=True, slots=True)
class ModernMember:
    """A member as it stands.

    `assigned` and `pending_revocation` say of each partition in which epoch the member got it
    (KIP-1251). A member that left for a while has the epoch -2. `topic_regex` is empty when it
    subscribes by names alone.
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
        """Whether it has all that the target of this epoch gives it, and no more."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def moved_to(self, epoch: int, state: MemberState) -> ModernMember:
        """The same member in an epoch, which may be the one it is in, and a state."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch, state=state)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """One step of a member towards the target of `epoch`.

    `topic_ids` are the topics that the member subscribes to by now, `owned` what it says it has,
    None when it did not say. `is_taken(partition)` tells what another member has not given up.
    """

    target: Collection[TopicIdPartition]
    epoch: int
    topic_ids: Collection[bytes]
    owned: Collection[TopicIdPartition] | None
    is_taken: Callable[[TopicIdPartition], bool]

    def step(self, member: ModernMember, *, has_subscription_changed: bool) -> ModernMember:
        """The member after the step, or as it was when it cannot move."""
        if member.state is MemberState.STABLE and member.epoch == self.epoch:
            return self._unsubscribed(member) if has_subscription_changed else member
        is_waiting = member.state is MemberState.UNREVOKED_PARTITIONS
        if is_waiting and self._owns_any(member.pending_revocation):
            return self._unsubscribed(member) if has_subscription_changed else member
        return self._towards_target(member)

    def _towards_target(self, member: ModernMember) -> ModernMember:
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

    def _unsubscribed(self, member: ModernMember) -> ModernMember:
        """Take away what it no longer subscribes to, before there is a target without it."""
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
