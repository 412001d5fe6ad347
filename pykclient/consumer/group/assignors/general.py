"""GeneralAssignmentBuilder: a sticky assignment for members that want different topics.

Members first keep their owned partitions. Free partitions go to the least loaded member that wants
them. Then partitions move, one at a time, from members with more to members with fewer, until no
move helps. The result is kept only if it is better balanced than before the moves.

Owner: created and used within one call of `assign`.
Source: Java class ``AbstractStickyAssignor`` (its general case); KIP-54, KIP-341, KIP-881.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from typing import TYPE_CHECKING

from pykclient.consumer.group.assignors.owned import Racks
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pykclient.consumer.group.assignors.assignor import GroupMember, TopicRacks
    from pykclient.consumer.group.assignors.owned import Claims

PartitionsByMember = dict[str, list[TopicPartition]]


class GeneralAssignmentBuilder:
    """See the module."""

    def __init__(
        self, topics: TopicRacks, members: Mapping[str, GroupMember], claims: Claims
    ) -> None:
        self._topics = topics
        self._members = members
        self._racks = Racks(topics, members)
        self._earlier = claims.earlier()
        self._assignment: PartitionsByMember = {m: list(claims.owned[m]) for m in sorted(members)}
        self._owners = {p: m for m, owned in self._assignment.items() for p in owned}
        self._wanted_by = {
            topic: [m for m in self._assignment if topic in members[m].topics] for topic in topics
        }
        self._by_load: list[tuple[int, str]] = []
        """Members with their number of partitions, the least loaded first."""
        self._movements = _Movements()
        self._must_revoke = False

    def assign(self) -> PartitionsByMember:
        self._drop_unwanted()
        order = sorted(self._topics, key=lambda topic: (len(self._wanted_by[topic]), topic))
        partitions = [TopicPartition(t, i) for t in order for i in range(len(self._topics[t]))]
        kept = {partition for owned in self._assignment.values() for partition in owned}
        free = [partition for partition in partitions if partition not in kept]
        self._by_load = sorted((len(owned), m) for m, owned in self._assignment.items())
        had_nothing = self._by_load[-1][0] == 0
        left = free
        if self._racks.are_used:
            left = [p for p in free if not self._give_away(p, self._racks.are_apart)]
        for partition in left:
            self._give_away(partition, lambda member_id, partition: False)
        fixed = self._set_fixed_members_aside()
        self._balance(partitions, free, had_nothing=had_nothing)
        return self._assignment | fixed

    def _drop_unwanted(self) -> None:
        for member_id, owned in self._assignment.items():
            kept = [
                partition
                for partition in owned
                if partition.topic in self._members[member_id].topics
                and not self._racks.are_apart(member_id, partition)
            ]
            self._must_revoke |= len(kept) < len(owned)
            owned[:] = kept

    def _give_away(
        self, partition: TopicPartition, is_barred: Callable[[str, TopicPartition], bool]
    ) -> bool:
        """Assign a free partition to the least loaded member that wants it; return True if any."""
        for _, member_id in self._by_load:
            if partition.topic in self._members[member_id].topics and not is_barred(
                member_id, partition
            ):
                self._change(member_id, lambda owned: owned.append(partition))
                self._owners[partition] = member_id
                return True
        return False

    def _change(self, member_id: str, change: Callable[[list[TopicPartition]], None]) -> None:
        owned = self._assignment[member_id]
        self._by_load.remove((len(owned), member_id))
        change(owned)
        insort(self._by_load, (len(owned), member_id))

    # Balancing.

    def _set_fixed_members_aside(self) -> PartitionsByMember:
        """Remove members that can neither give a partition to another member nor get one."""
        fixed = {m: owned for m, owned in self._assignment.items() if not self._may_change(m)}
        for member_id, owned in fixed.items():
            self._by_load.remove((len(owned), member_id))
            del self._assignment[member_id]
        return fixed

    def _may_change(self, member_id: str) -> bool:
        owned = self._assignment[member_id]
        topics = self._members[member_id].topics & self._topics.keys()
        return len(owned) < sum(len(self._topics[topic]) for topic in topics) or any(
            len(self._wanted_by[partition.topic]) > 1 for partition in owned
        )

    def _balance(
        self,
        partitions: Sequence[TopicPartition],
        free: Sequence[TopicPartition],
        *,
        had_nothing: bool,
    ) -> None:
        before = {member_id: list(owned) for member_id, owned in self._assignment.items()}
        if not self._must_revoke:
            # Moving a partition that had no owner costs nothing.
            self._move_while_it_helps([p for p in free if len(self._wanted_by[p.topic]) > 1])
        movable = [p for p in partitions if len(self._wanted_by[p.topic]) > 1]
        has_moved = self._move_while_it_helps(movable)
        if has_moved and not had_nothing and _unevenness(self._assignment) >= _unevenness(before):
            self._assignment = before

    def _move_while_it_helps(self, partitions: Iterable[TopicPartition]) -> bool:
        """Move partitions to less loaded members until nothing changes; return whether any did."""
        has_moved = False
        is_balanced = self._is_balanced()
        while not is_balanced:
            has_changed = False
            for partition in partitions:
                target = self._better_owner(partition)
                if target is not None:
                    self._move(self._movements.stand_in(partition, self._owners, target), target)
                    has_moved = has_changed = True
                    is_balanced = self._is_balanced()
                    if is_balanced:
                        break
            if not has_changed:
                break
        return has_moved

    def _better_owner(self, partition: TopicPartition) -> str | None:
        """Return the member that should have a partition instead; None if it is well placed."""
        load_max = len(self._assignment[self._owners[partition]]) - 2
        earlier = self._earlier.get(partition)
        if (
            earlier in self._assignment
            and partition.topic in self._members[earlier].topics
            and len(self._assignment[earlier]) <= load_max
        ):
            return earlier
        for load, member_id in self._by_load:
            if load > load_max:
                break
            if partition.topic in self._members[member_id].topics:
                return member_id
        return None

    def _move(self, partition: TopicPartition, target: str) -> None:
        owner = self._owners[partition]
        self._movements.add(partition, owner, target)
        self._change(owner, lambda owned: owned.remove(partition))
        self._change(target, lambda owned: owned.append(partition))
        self._owners[partition] = target

    def _is_balanced(self) -> bool:
        """Return True if no owner has two more than another member that wants the topic."""
        if not self._by_load or self._by_load[0][0] >= self._by_load[-1][0] - 1:
            return True
        heaviest: defaultdict[str, int] = defaultdict(int)
        for owned in self._assignment.values():
            for topic in {partition.topic for partition in owned}:
                heaviest[topic] = max(heaviest[topic], len(owned))
        return not any(
            heaviest[topic] > load + 1
            for load, member_id in self._by_load
            for topic in self._members[member_id].topics
        )


class _Movements:
    """Moves of partitions, so that none moves in the opposite direction of a similar one."""

    def __init__(self) -> None:
        self._moves: dict[TopicPartition, tuple[str, str]] = {}

    def add(self, partition: TopicPartition, source: str, target: str) -> None:
        """Record a move; a second move of a partition continues the first."""
        if partition in self._moves:
            source = self._moves.pop(partition)[0]
        if source != target:
            self._moves[partition] = (source, target)

    def stand_in(
        self, partition: TopicPartition, owners: Mapping[TopicPartition, str], target: str
    ) -> TopicPartition:
        """Return the partition to move instead of `partition`.

        If one of the same topic has moved in the opposite direction, it moves back instead.
        """
        source = self._moves[partition][0] if partition in self._moves else owners[partition]
        back = (target, source)
        returning = [
            moved
            for moved, way in self._moves.items()
            if way == back and moved.topic == partition.topic
        ]
        return min(returning, default=partition)


def _unevenness(assignment: PartitionsByMember) -> int:
    loads = sorted(map(len, assignment.values()))
    # In ascending order, the load at `place` is the larger in `place` pairs, the smaller in others.
    return sum(load * (2 * place - len(loads) + 1) for place, load in enumerate(loads))
