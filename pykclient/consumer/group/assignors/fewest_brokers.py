"""FewestBrokersAssignor: members get equal shares and read from as few brokers as possible.

A consumer has a connection, and a Fetch request in flight, for each broker that leads one of its
partitions. Members with the same topics get numbers of partitions that differ by at most one, and
have, all together, at most as many connections as there are brokers and members, minus one.

Topics with the same subscribers are assigned together. Topics with the fewest subscribers come
first, so that members with more topics can balance the numbers later. A member that needs more
partitions takes, in this order: the rest of a broker that it already reads from; a broker's rest
that fills its share exactly; the largest rest that fits; a part of the largest rest.

Owner: none, it has no state.
Source: our own.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final

from pykclient.consumer.group.assignors.assignor import RebalanceProtocol, member_order
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pykclient.consumer.group.assignors.assignor import GroupMember, TopicReplicas

    LeaderId = int | None


class FewestBrokersAssignor:
    """Assigns by the leaders of partitions at the time of the rebalance.

    The assignment stays when leaders move; `Consumer.enforce_rebalance` makes a new one.
    """

    name: Final = "fewest-brokers"
    protocols: Final = (RebalanceProtocol.EAGER,)

    def user_data(self, topics: frozenset[str]) -> None:
        """Return None: the leader needs only topics and their leaders."""

    def assign(
        self, topics: TopicReplicas, members: Mapping[str, GroupMember]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of every member."""
        shares = {member_id: _Share() for member_id, _ in sorted(members.items(), key=member_order)}
        alike: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        for topic in sorted(topics):
            subscribed = tuple(each for each in shares if topic in members[each].topics)
            if subscribed:
                alike[subscribed].append(topic)
        for subscribed, names in sorted(alike.items(), key=lambda item: (len(item[0]), item[1])):
            _assign_alike([shares[each] for each in subscribed], _by_leader(topics, names))
        return {member_id: sorted(share.partitions) for member_id, share in shares.items()}

    def on_assignment(
        self, partitions: Iterable[TopicPartition], generation: int, user_data: bytes | None = None
    ) -> None:
        """Ignore the assignment."""


class _Share:
    """Partitions of one member, and the brokers that lead them."""

    def __init__(self) -> None:
        self.partitions: list[TopicPartition] = []
        self.leader_ids: set[LeaderId] = set()

    def take(self, leader_id: LeaderId, rest: deque[TopicPartition], count: int) -> None:
        self.leader_ids.add(leader_id)
        self.partitions += (rest.popleft() for _ in range(count))

    def next_leader(self, rests: Mapping[LeaderId, deque[TopicPartition]], room: int) -> LeaderId:
        """Return the broker from which to take next."""

        def preference(leader_id: LeaderId) -> tuple[bool, bool, bool, int]:
            count = len(rests[leader_id])
            return leader_id in self.leader_ids, count == room, count <= room, count

        return max(rests, key=preference)  # the first of equals, which is the same on each member


def _by_leader(
    topics: TopicReplicas, names: Iterable[str]
) -> dict[LeaderId, deque[TopicPartition]]:
    """Return the partitions of topics by leader; those without a leader are in one group."""
    rests: defaultdict[LeaderId, deque[TopicPartition]] = defaultdict(deque)
    for name in names:
        for number, replicas in enumerate(topics[name]):
            leader_id = None if replicas.leader is None else replicas.leader.id
            rests[leader_id].append(TopicPartition(name, number))
    return {each: rests[each] for each in sorted(rests, key=lambda each: (each is None, each or 0))}


def _assign_alike(shares: Sequence[_Share], rests: dict[LeaderId, deque[TopicPartition]]) -> None:
    """Assign partitions to members that subscribe to all of them."""
    rooms = _rooms([len(share.partitions) for share in shares], sum(map(len, rests.values())))
    for share, given in zip(shares, rooms, strict=True):
        room = given
        while room:
            leader_id = share.next_leader(rests, room)
            count = min(room, len(rests[leader_id]))
            share.take(leader_id, rests[leader_id], count)
            room -= count
            if not rests[leader_id]:
                del rests[leader_id]


def _rooms(counts: Sequence[int], total: int) -> list[int]:
    """Return how many of `total` partitions each member gets, so that the sums are even.

    Members that already have more get none. If it does not divide, the first members get one more.
    """
    order = sorted(range(len(counts)), key=lambda index: counts[index])
    for size in range(len(order), 0, -1):
        level, extra_count = divmod(total + sum(counts[index] for index in order[:size]), size)
        if counts[order[size - 1]] <= level:
            break
    filled = sorted(order[:size])
    rooms = [0] * len(counts)
    for place, index in enumerate(filled):
        rooms[index] = level + (place < extra_count) - counts[index]
    return rooms
