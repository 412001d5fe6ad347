"""RoundRobinAssignor: assigns all partitions of all topics in order, to each member in turn.

Owner: none, it has no state.
Source: Java class ``RoundRobinAssignor``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.consumer.group.assignors.assignor import RebalanceProtocol, member_order
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pykclient.consumer.group.assignors.assignor import GroupMember, TopicRacks


class RoundRobinAssignor:
    """Assigns partitions in turn. Members that do not subscribe to a topic are skipped."""

    name: Final = "roundrobin"
    protocols: Final = (RebalanceProtocol.EAGER,)

    def user_data(self, topics: frozenset[str]) -> None:
        """Return None: the leader needs only the topics."""

    def assign(
        self, topics: TopicRacks, members: Mapping[str, GroupMember]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of every member."""
        assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        ring = [member_id for member_id, _ in sorted(members.items(), key=member_order)]
        wanted = frozenset[str]().union(*(member.topics for member in members.values()))
        turn = 0
        for topic in sorted(wanted & topics.keys()):
            for index in range(len(topics[topic])):
                while topic not in members[ring[turn]].topics:
                    turn = (turn + 1) % len(ring)
                assignment[ring[turn]].append(TopicPartition(topic, index))
                turn = (turn + 1) % len(ring)
        return assignment

    def on_assignment(
        self, partitions: Iterable[TopicPartition], generation: int, user_data: bytes | None = None
    ) -> None:
        """Ignore the assignment."""
