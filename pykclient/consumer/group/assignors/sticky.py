"""StickyAssignor and CooperativeStickyAssignor: even assignments with as few moves as possible.

`Claims` holds the members' owned partitions. `ConstrainedAssignmentBuilder` assigns to members that
all want the same topics, `GeneralAssignmentBuilder` to others.

Owner: the consumer that it belongs to, which reports each assignment to it.
Source: Java classes ``StickyAssignor``, ``CooperativeStickyAssignor``; KIP-54, KIP-341, KIP-429.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from pykclient.consumer.group.assignors.assignor import RebalanceProtocol
from pykclient.consumer.group.assignors.constrained import ConstrainedAssignmentBuilder
from pykclient.consumer.group.assignors.general import GeneralAssignmentBuilder
from pykclient.consumer.group.assignors.owned import NO_GENERATION, Claim, Claims
from pykclient.errors import DecodeError
from pykclient.protocol.primitives import INT32, write_count, write_numbers, write_string
from pykclient.protocol.reader import Reader
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pykclient.consumer.group.assignors.assignor import GroupMember, TopicRacks

PartitionsByMember = dict[str, list[TopicPartition]]


class StickyAssignor:
    """Members revoke everything, and get back what they had where possible."""

    name: Final = "sticky"
    protocols: Final = (RebalanceProtocol.EAGER,)

    def __init__(self) -> None:
        self._partitions: tuple[TopicPartition, ...] | None = None
        self._generation = NO_GENERATION

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        """Return the member's former partitions, which it has revoked before the leader assigns."""
        if self._partitions is None:
            return None
        out = bytearray()
        by_topic = groupby(sorted(self._partitions), key=lambda partition: partition.topic)
        owned = [(topic, [partition.partition for partition in rows]) for topic, rows in by_topic]
        write_count(out, owned)
        for topic, indexes in owned:
            write_string(out, topic)
            write_count(out, indexes)
            write_numbers(out, "i", indexes)
        out += INT32.pack(self._generation)
        return bytes(out)

    def assign(self, topics: TopicRacks, members: Mapping[str, GroupMember]) -> PartitionsByMember:
        """Return the partitions of every member."""
        claims = {member_id: _read_claim(member.user_data) for member_id, member in members.items()}
        return _share_out(topics, members, claims)[0]

    def on_assignment(
        self, partitions: Iterable[TopicPartition], generation: int, user_data: bytes | None = None
    ) -> None:
        """Store this member's partitions, to claim them again."""
        self._partitions, self._generation = tuple(partitions), generation


class CooperativeStickyAssignor:
    """An assignor that keeps partitions with their members; moves take two rebalances.

    The first rebalance revokes the partitions that move, and the second assigns them.

    It supports the eager protocol too, so that a group can migrate in two rolling restarts.
    """

    name: Final = "cooperative-sticky"
    protocols: Final = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def user_data(self, topics: frozenset[str]) -> bytes:
        """Return the generation, which older leaders read here."""
        return INT32.pack(self._generation)

    def assign(self, topics: TopicRacks, members: Mapping[str, GroupMember]) -> PartitionsByMember:
        """Return the partitions of every member, without those that another must revoke."""
        claims = {
            member_id: Claim(member.owned_partitions, _generation_of(member))
            for member_id, member in members.items()
        }
        assignment, moving = _share_out(topics, members, claims)
        if moving is None:
            moving = _moving(members, assignment)
        for member_id in set(moving.values()):
            assignment[member_id] = [
                each for each in assignment[member_id] if moving.get(each) != member_id
            ]
        return assignment

    def on_assignment(
        self, partitions: Iterable[TopicPartition], generation: int, user_data: bytes | None = None
    ) -> None:
        """Store the generation."""
        self._generation = generation


def _share_out(
    topics: TopicRacks, members: Mapping[str, GroupMember], by_member: Mapping[str, Claim]
) -> tuple[PartitionsByMember, dict[TopicPartition, str] | None]:
    """Return the assignment and, if known, the partitions that move between members."""
    claims = Claims(topics, by_member)
    if len({member.topics for member in members.values()}) <= 1:
        even = ConstrainedAssignmentBuilder(topics, members, claims)
        return even.assign(), even.moving
    return GeneralAssignmentBuilder(topics, members, claims).assign(), None


def _moving(
    members: Mapping[str, GroupMember], assignment: Mapping[str, Sequence[TopicPartition]]
) -> dict[TopicPartition, str]:
    added: dict[TopicPartition, str] = {}
    lost: set[TopicPartition] = set()
    for member_id, assigned in assignment.items():
        owned = members[member_id].owned_partitions
        added |= dict.fromkeys(set(assigned).difference(owned), member_id)
        lost.update(set(owned).difference(assigned))
    return {partition: member_id for partition, member_id in added.items() if partition in lost}


def _read_claim(user_data: bytes | None) -> Claim:
    """Read user data of `StickyAssignor` or Java's; malformed data claims nothing."""
    if not user_data:
        return Claim((), None)
    reader = Reader(user_data)
    try:
        owned = []
        for _ in range(reader.count(6)):
            topic = reader.string()
            owned += [TopicPartition(topic, i) for i in reader.numbers("i", reader.count(4))]
        # Members before Kafka 2.3 wrote no generation (KIP-341).
        generation = reader.int32() if reader.remaining else None
    except DecodeError:
        # Malformed data of one member must not prevent the group's assignment.
        return Claim((), NO_GENERATION)
    return Claim(tuple(dict.fromkeys(owned)), generation)


def _generation_of(member: GroupMember) -> int | None:
    if member.generation is not None or member.user_data is None:
        return member.generation
    try:
        return Reader(member.user_data).int32()
    except DecodeError:
        return NO_GENERATION
