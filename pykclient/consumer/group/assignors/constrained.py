"""ConstrainedAssignmentBuilder: a sticky assignment for members that all want the same topics.

Every member gets the same number of partitions, or one more. Each keeps its owned partitions up to
its quota; the others are distributed in turn. It makes one pass over the partitions.

Owner: created and used within one call of `assign`.
Source: Java class ``AbstractStickyAssignor`` (its constrained case); KAFKA-9987, KIP-881.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.consumer.group.assignors.owned import Racks
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pykclient.consumer.group.assignors.assignor import GroupMember, TopicRacks
    from pykclient.consumer.group.assignors.owned import Claims


class ConstrainedAssignmentBuilder:
    """Builds one assignment. `moving` has partitions that one member gets and another revokes."""

    def __init__(
        self, topics: TopicRacks, members: Mapping[str, GroupMember], claims: Claims
    ) -> None:
        self.moving: dict[TopicPartition, str] = {}
        wanted = frozenset[str]().union(*(member.topics for member in members.values()))
        self._partitions = [
            TopicPartition(topic, index)
            for topic in sorted(wanted & topics.keys())
            for index in range(len(topics[topic]))
        ]
        self._racks = Racks(topics, members)
        self._claims = claims
        self._quota, self._larger_count = divmod(len(self._partitions), len(members))
        """The smaller quota, and the number of members that get one more."""
        self._filled_count = 0
        """Number of members that already have one more."""
        self._assignment: dict[str, list[TopicPartition]] = {m: [] for m in sorted(members)}
        self._hungry: list[str] = []
        """Members below the smaller quota."""
        self._may_get_one_more: list[str] = []
        """Members that have the smaller quota."""
        self._former_owners: dict[TopicPartition, str] = {}
        """Former owners of partitions that they did not keep."""

    def assign(self) -> dict[str, list[TopicPartition]]:
        for member_id in self._assignment:
            self._keep(member_id)
        kept = {partition for assigned in self._assignment.values() for partition in assigned}
        free = self._racks.by_choice(p for p in self._partitions if p not in kept)
        if self._racks.are_used:
            free = self._deal_within_racks(free)
        self._deal(free)
        return self._assignment

    def _keep(self, member_id: str) -> None:
        """Keep a member's owned partitions, up to its quota."""
        owned = []
        for partition in sorted(
            self._claims.owned[member_id], key=lambda p: (p.partition, p.topic)
        ):
            if self._racks.are_apart(member_id, partition):
                self._former_owners[partition] = member_id
            elif partition not in self._claims.contested:
                owned.append(partition)
        quota = self._quota
        if len(owned) < quota:
            self._hungry.append(member_id)
        elif len(owned) > quota and self._filled_count < self._larger_count:
            quota += 1
            self._fill()
        elif self._filled_count < self._larger_count:
            self._may_get_one_more.append(member_id)
        self._assignment[member_id] += owned[:quota]
        self._former_owners |= dict.fromkeys(owned[quota:], member_id)

    def _fill(self) -> None:
        self._filled_count += 1
        if self._filled_count == self._larger_count:
            self._may_get_one_more.clear()

    def _deal_within_racks(self, free: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Assign partitions to members near them, in turn; return the rest."""
        left = []
        turn = 0
        for partition in free:
            place = self._next_near(partition, self._hungry, turn)
            if place is not None:
                member_id = self._hungry[place]
                self._give(partition, member_id)
                if len(self._assignment[member_id]) >= self._quota:
                    del self._hungry[place]
                    if self._filled_count < self._larger_count:
                        self._may_get_one_more.append(member_id)
                else:
                    place += 1
                turn = place % len(self._hungry) if self._hungry else 0
                continue
            place = self._next_near(partition, self._may_get_one_more, 0)
            if place is None:
                left.append(partition)
                continue
            self._give(partition, self._may_get_one_more.pop(place))
            self._fill()
        return left

    def _deal(self, free: Iterable[TopicPartition]) -> None:
        turn = 0
        for partition in free:
            if not self._hungry:
                self._give(partition, self._may_get_one_more.pop(0))
                continue
            turn %= len(self._hungry)
            member_id = self._hungry[turn]
            self._give(partition, member_id)
            if len(self._assignment[member_id]) == self._quota:
                del self._hungry[turn]
                self._may_get_one_more.append(member_id)
            else:
                turn += 1

    def _give(self, partition: TopicPartition, member_id: str) -> None:
        self._assignment[member_id].append(partition)
        is_from_another = self._former_owners.get(partition, member_id) != member_id
        if is_from_another or partition in self._claims.contested:
            self.moving[partition] = member_id

    def _next_near(
        self, partition: TopicPartition, members: Sequence[str], first: int
    ) -> int | None:
        """Return the index of the next member near a partition, from `first` on, cyclically."""
        for step in range(len(members)):
            place = (first + step) % len(members)
            if self._racks.are_together(members[place], partition):
                return place
        return None
