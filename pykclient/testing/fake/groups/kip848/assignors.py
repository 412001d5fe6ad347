"""Server-side assignors: they assign a group's partitions to its members.

*uniform* gives members equal numbers of partitions and moves as few as possible; *range* gives each
member a range of every topic. Both are pure functions of the subscriptions and the previous target.

Owner: none; it holds no state.
Source: KIP-848; Java classes ``UniformAssignor`` and ``RangeAssignor`` of the group coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Assignor = Callable[
        [Sequence["AssignableMember"], Mapping[bytes, int]], dict[str, "Partitions"]
    ]


class TopicIdPartition(NamedTuple):
    """A partition by topic id, which differs after the topic is recreated."""

    topic_id: bytes
    partition: int


Partitions = frozenset[TopicIdPartition]


@dataclass(frozen=True, slots=True)
class AssignableMember:
    """A member as an assignor sees it: its existing topics, and its previous target."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[bytes]
    target: Partitions


def assign_uniform(
    members: Sequence[AssignableMember], partition_counts: Mapping[bytes, int]
) -> dict[str, Partitions]:
    """Balance partitions to within one, and keep as many as possible."""
    loads = _Loads(members, partition_counts)
    loads.assign_free()
    loads.balance()
    return loads.assignment()


def assign_range(
    members: Sequence[AssignableMember], partition_counts: Mapping[bytes, int]
) -> dict[str, Partitions]:
    """Give each member a range of every topic; static members come first, by instance id."""
    assigned: dict[str, set[TopicIdPartition]] = {member.member_id: set() for member in members}
    ordered = sorted(members, key=_range_order)
    for topic_id, count in partition_counts.items():
        subscribers = [member for member in ordered if topic_id in member.topic_ids]
        start = 0
        for place, member in enumerate(subscribers):
            least, extra = divmod(count, len(subscribers))
            end = start + least + (place < extra)
            assigned[member.member_id].update(
                TopicIdPartition(topic_id, number) for number in range(start, end)
            )
            start = end
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}


SERVER_ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""Assignors by name."""

DEFAULT_ASSIGNOR = "uniform"


def _range_order(member: AssignableMember) -> tuple[bool, str]:
    if member.instance_id is not None:
        return False, member.instance_id
    return True, member.member_id


class _Loads:
    """The assignment while partitions move; `_assigned` is in the order of `members`."""

    def __init__(
        self, members: Sequence[AssignableMember], partition_counts: Mapping[bytes, int]
    ) -> None:
        self._counts = partition_counts
        self._subscribers: dict[bytes, list[str]] = {topic_id: [] for topic_id in partition_counts}
        self._assigned: dict[str, set[TopicIdPartition]] = {}
        self._taken: set[TopicIdPartition] = set()
        for member in members:
            kept = {name for name in member.target if self._is_kept(member, name)}
            self._assigned[member.member_id] = kept
            self._taken |= kept
            for topic_id in member.topic_ids:
                self._subscribers[topic_id].append(member.member_id)

    def assign_free(self) -> None:
        """Assign free partitions to the least loaded members, topics with few subscribers first."""
        for topic_id in self._topics_by_need():
            subscribers = self._subscribers[topic_id]
            for number in range(self._counts[topic_id]):
                name = TopicIdPartition(topic_id, number)
                if name not in self._taken:
                    self._assigned[min(subscribers, key=self._load)].add(name)

    def balance(self) -> None:
        """Move partitions from the most to the least loaded members, until they differ by one.

        Each move lowers the sum of the squared loads, so it terminates.
        """
        topics = self._topics_by_need()
        has_moved = True
        while has_moved:
            has_moved = False
            for topic_id in topics:
                has_moved |= self._balance_topic(topic_id)

    def assignment(self) -> dict[str, Partitions]:
        """Return the current assignment."""
        return {
            member_id: frozenset(partitions) for member_id, partitions in self._assigned.items()
        }

    def _balance_topic(self, topic_id: bytes) -> bool:
        owned = {
            member_id: sorted(name for name in self._assigned[member_id] if name[0] == topic_id)
            for member_id in self._subscribers[topic_id]
        }
        has_moved = False
        while True:
            poorest = min(owned, key=self._load)
            richest = max((each for each in owned if owned[each]), key=self._load, default=poorest)
            if self._load(richest) - self._load(poorest) <= 1:
                return has_moved
            name = owned[richest].pop()
            owned[poorest].append(name)
            self._assigned[richest].remove(name)
            self._assigned[poorest].add(name)
            has_moved = True

    def _is_kept(self, member: AssignableMember, name: TopicIdPartition) -> bool:
        is_wanted = name.topic_id in member.topic_ids
        return (
            is_wanted and name.partition < self._counts[name.topic_id] and name not in self._taken
        )

    def _load(self, member_id: str) -> int:
        return len(self._assigned[member_id])

    def _topics_by_need(self) -> list[bytes]:
        wanted = [topic_id for topic_id, members in self._subscribers.items() if members]
        return sorted(wanted, key=lambda each: (len(self._subscribers[each]), each))
