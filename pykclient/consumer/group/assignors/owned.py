"""Claims: owned partitions of the members, made consistent; Racks: distances of members.

Two members may claim one partition, if one of them missed a rebalance. The later generation wins;
within one generation neither does.

Owner: created and used within one call of `assign`.
Source: Java class ``AbstractStickyAssignor``; KIP-341, KIP-881.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.consumer.group.assignors.assignor import is_rack_aware

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pykclient.consumer.group.assignors.assignor import GroupMember, TopicRacks
    from pykclient.types import TopicPartition

NO_GENERATION: Final = -1


class Claim(NamedTuple):
    """Partitions that a member says it owned, and the generation, if it sent one."""

    partitions: tuple[TopicPartition, ...]
    generation: int | None


class Claims:
    """The claims of all members. `owned` has no partition twice, and none that does not exist."""

    def __init__(self, topics: TopicRacks, by_member: Mapping[str, Claim]) -> None:
        self.owned: dict[str, dict[TopicPartition, None]] = {}
        self.contested: set[TopicPartition] = set()
        """Partitions that two members claim in one generation."""
        self._by_member = dict(sorted(by_member.items()))
        self._owners: dict[TopicPartition, str] = {}
        for member_id, claim in self._by_member.items():
            self.owned[member_id] = {}
            for partition in claim.partitions:
                if 0 <= partition.partition < len(topics.get(partition.topic, ())):
                    self._add(partition, member_id)

    def earlier(self) -> dict[TopicPartition, str]:
        """Return the owners of partitions in generations before the latest one."""
        latest = max(map(self._generation, self._by_member), default=NO_GENERATION)
        found: dict[TopicPartition, str] = {}
        for member_id, claim in self._by_member.items():
            generation = self._generation(member_id)
            if generation < latest:
                for partition in claim.partitions:
                    other = found.get(partition)
                    if other is None or generation > self._generation(other):
                        found[partition] = member_id
        return found

    def _add(self, partition: TopicPartition, member_id: str) -> None:
        other = self._owners.get(partition)
        if other is not None:
            generation, other_generation = self._generation(member_id), self._generation(other)
            if generation < other_generation:
                return
            self.owned[other].pop(partition, None)
            if generation == other_generation:
                self.contested.add(partition)
                self._owners[partition] = member_id
                return
        self.owned[member_id][partition] = None
        self._owners[partition] = member_id

    def _generation(self, member_id: str) -> int:
        generation = self._by_member[member_id].generation
        return NO_GENERATION if generation is None else generation


class Racks:
    """Distances of members and partitions; without rack awareness all are near."""

    def __init__(self, topics: TopicRacks, members: Mapping[str, GroupMember]) -> None:
        by_member = {member_id: m.rack for member_id, m in members.items() if m.rack}
        self._of_partitions = topics
        self._member_counts = Counter(by_member.values())
        everywhere = [racks for of_topic in topics.values() for racks in of_topic]
        is_aware = is_rack_aware(frozenset(by_member.values()), everywhere)
        self._of_members = by_member if is_aware else {}

    @property
    def are_used(self) -> bool:
        return bool(self._of_members)

    def are_apart(self, member_id: str, partition: TopicPartition) -> bool:
        """Return True if no replica of the partition is in the member's rack."""
        rack = self._of_members.get(member_id)
        return (
            rack is not None
            and rack not in self._of_partitions[partition.topic][partition.partition]
        )

    def are_together(self, member_id: str, partition: TopicPartition) -> bool:
        """Return True if the member's rack is known and has a replica of the partition."""
        return member_id in self._of_members and not self.are_apart(member_id, partition)

    def by_choice(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions, those with the fewest near members first."""
        counts = self._member_counts
        if not counts:
            return list(partitions)
        return sorted(
            partitions,
            key=lambda p: sum(counts[rack] for rack in self._of_partitions[p.topic][p.partition]),
        )
