"""RangeAssignor: every member gets a range of each topic's partitions; topics are aligned.

Members with the same topics get the same partition numbers of each, so that one member reads
partition 3 of all of them. With racks, partitions go first to members in a rack that has a
replica, with the same numbers in each topic (KIP-881).

Owner: none, it has no state.
Source: Java class ``RangeAssignor``; KIP-881.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING, Final

from pykclient.consumer.group.assignors.assignor import (
    RebalanceProtocol,
    is_rack_aware,
    member_order,
)
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pykclient.consumer.group.assignors.assignor import GroupMember, TopicRacks


class RangeAssignor:
    """Assigns each topic separately, in ranges; the first members get one more."""

    name: Final = "range"
    protocols: Final = (RebalanceProtocol.EAGER,)

    def user_data(self, topics: frozenset[str]) -> None:
        """Return None: the leader needs only topics and racks."""

    def assign(
        self, topics: TopicRacks, members: Mapping[str, GroupMember]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of every member."""
        assignments = [
            _TopicAssignment(topic, racks, members)
            for topic, racks in sorted(topics.items())
            if racks
        ]
        if any(topic.is_rack_aware for topic in assignments):
            _match_racks(assignments)
        assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        for topic in assignments:
            topic.assign_rest()
            for member_id, taken in topic.taken.items():
                assignment[member_id] += [TopicPartition(topic.name, i) for i in sorted(taken)]
        return assignment

    def on_assignment(
        self, partitions: Iterable[TopicPartition], generation: int, user_data: bytes | None = None
    ) -> None:
        """Ignore the assignment."""


class _TopicAssignment:
    """One topic: the partitions of each member so far, and how many more it may take."""

    def __init__(
        self, name: str, racks: Sequence[frozenset[str]], members: Mapping[str, GroupMember]
    ) -> None:
        subscribed = sorted(
            (item for item in members.items() if name in item[1].topics), key=member_order
        )
        self.name = name
        self.member_racks = {member_id: member.rack or None for member_id, member in subscribed}
        self.taken: dict[str, list[int]] = {member_id: [] for member_id in self.member_racks}
        self.has_racks = any(self.member_racks.values())
        self.is_rack_aware = is_rack_aware(
            frozenset(rack for rack in self.member_racks.values() if rack), racks
        )
        self.partition_count = len(racks)
        self._racks = racks
        self._free = dict.fromkeys(range(len(racks)))
        self._quota, self._extra_count = divmod(len(racks), len(subscribed) or 1)

    def racks_match(self, member_id: str, index: int) -> bool:
        rack = self.member_racks[member_id]
        return rack is None or rack in self._racks[index]

    def room(self, member_id: str) -> int:
        quota = self._quota + (self._extra_count > 0)
        return max(0, quota - len(self.taken[member_id]))

    def take(self, member_id: str, indexes: Iterable[int]) -> None:
        taken = self.taken[member_id]
        for index in indexes:
            del self._free[index]
            taken.append(index)
        if len(taken) > self._quota:
            self._extra_count -= 1

    def assign_near(self) -> None:
        """Assign to each member in turn the first free partitions within its rack."""
        for member_id in self.taken:
            near = (index for index in self._free if self.racks_match(member_id, index))
            self._take_some(member_id, list(islice(near, self.room(member_id))))

    def assign_rest(self) -> None:
        """Assign to each member in turn the first free partitions, up to its quota."""
        free = iter(list(self._free))
        for member_id in self.taken:
            self._take_some(member_id, list(islice(free, self.room(member_id))))

    def _take_some(self, member_id: str, indexes: Sequence[int]) -> None:
        if indexes:
            self.take(member_id, indexes)


def _match_racks(assignments: Iterable[_TopicAssignment]) -> None:
    """Assign partitions that can be read within a rack, keeping similar topics aligned."""
    alike: defaultdict[object, list[_TopicAssignment]] = defaultdict(list)
    for topic in assignments:
        alike[frozenset(topic.taken), topic.has_racks and topic.partition_count].append(topic)
    for group in alike.values():
        if len(group) > 1:
            _match_aligned(group)
        elif group[0].is_rack_aware:
            group[0].assign_near()


def _match_aligned(group: Sequence[_TopicAssignment]) -> None:
    """Assign each number of these topics to the first member with room and a matching rack."""
    if not group[0].has_racks:
        return
    waiting = list(group[0].taken)
    for index in range(group[0].partition_count):
        for member_id in waiting:
            if all(t.room(member_id) and t.racks_match(member_id, index) for t in group):
                for topic in group:
                    topic.take(member_id, [index])
                if not any(topic.room(member_id) for topic in group):
                    waiting.remove(member_id)
                break
