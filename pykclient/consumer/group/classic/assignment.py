"""ListedAssignment: what the leader has assigned to this member, as far as metadata list it.

A partition costs the leader four bytes, and its holder a hundred times as much. Metadata pay for
what they list with more bytes. So the member takes what is listed, and the rest once it is: the
leader may have newer metadata than this member.

Owner: the core lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykclient.consumer.group.rebalance import GroupContext


class ListedAssignment:
    """One assignment at a time; `replace` when the leader has sent it, `forget` when it ends."""

    def __init__(self, context: GroupContext) -> None:
        self._metadata = context.metadata
        self._subscription = context.subscription
        self._assigned: Sequence[TopicPartition] = ()
        self._unlisted: Mapping[str, int] = {}
        """The topics with partitions that metadata did not list: the lowest number of each."""
        self._seen_version = 0
        """The cluster that the assignment was compared with last."""

    @property
    def unlisted(self) -> list[TopicPartition]:
        """One partition, the lowest, of each topic of which metadata do not list all."""
        return [TopicPartition(*each) for each in self._unlisted.items()]

    def replace(self, assigned: Sequence[TopicPartition]) -> None:
        self._assigned = assigned

    def forget(self) -> None:
        """Wait for nothing more: the assignment has ended."""
        self._assigned, self._unlisted = (), {}

    def take(self) -> list[TopicPartition]:
        """Return what metadata list, and what this member has already; request the rest."""
        counts = self._counts()
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
        """Return whether metadata list more than `take` returned last.

        Costs nothing while nothing is missing, or metadata are the same.
        """
        if not self._unlisted or self._metadata.cluster.version == self._seen_version:
            return False
        counts = self._counts()
        if any(number < counts.get(topic, 0) for topic, number in self._unlisted.items()):
            return True
        self._note_seen()
        return False

    def _counts(self) -> dict[str, int]:
        topics = self._metadata.cluster.topics.values()
        return {topic.name: len(topic.partitions) for topic in topics}

    def _note_seen(self) -> None:
        self._seen_version = self._metadata.cluster.version
        if self._unlisted:
            self._metadata.request_update()
