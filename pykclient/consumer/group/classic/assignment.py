"""ListedAssignment: the assigned partitions of this member that metadata lists.

A partition takes four bytes in an assignment, and a hundred times as much in the memory of its
member. A response with metadata takes more bytes for each. So the member takes only partitions
that metadata lists. It takes the others once they are listed: the leader may have newer metadata.

Owner: the core lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykclient.consumer.group.rebalance import GroupContext


class ListedAssignment:
    """The present assignment; `replace` it when the leader sends one, `forget` it when it ends."""

    def __init__(self, context: GroupContext) -> None:
        self._metadata = context.metadata
        self._subscription = context.subscription
        self._assigned: Sequence[TopicPartition] = ()
        self._unlisted: Mapping[str, int] = {}
        """Lowest partition number that metadata did not list, by topic."""
        self._seen_version = 0
        """Version of the cluster that the assignment was last compared with."""

    @property
    def unlisted(self) -> list[TopicPartition]:
        """The lowest partition that metadata does not list, of each topic."""
        return [TopicPartition(*each) for each in self._unlisted.items()]

    def replace(self, assigned: Sequence[TopicPartition]) -> None:
        self._assigned = assigned

    def forget(self) -> None:
        """Stop waiting for partitions: the assignment has ended."""
        self._assigned, self._unlisted = (), {}

    def take(self) -> list[TopicPartition]:
        """Return partitions that are listed or owned already; request metadata for the others."""
        counts = self._metadata.cluster.partition_counts()
        owned = self._subscription.partitions
        found: list[TopicPartition] = []
        unlisted: dict[str, int] = {}
        for partition in self._assigned:
            topic, number = partition
            if number < counts.get(topic, 0) or partition in owned:
                found.append(partition)
            elif number < unlisted.get(topic, number + 1):
                unlisted[topic] = number
        self._unlisted = unlisted
        self._note_seen()
        return found

    def has_news(self) -> bool:
        """Return whether metadata lists more partitions than `take` returned last.

        It costs nothing while no partition is missing or metadata is unchanged.
        """
        if not self._unlisted or self._metadata.cluster.version == self._seen_version:
            return False
        counts = self._metadata.cluster.partition_counts()
        if any(number < counts.get(topic, 0) for topic, number in self._unlisted.items()):
            return True
        self._note_seen()
        return False

    def _note_seen(self) -> None:
        self._seen_version = self._metadata.cluster.version
        if self._unlisted:
            self._metadata.request_update()
