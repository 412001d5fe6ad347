"""BrokerQueries: the calls of a consumer that ask brokers something and wait for the response.

Each waits until there is one or its time is up, and takes nothing from the records that are fetched
meanwhile.

Owner: the thread guard.
Source: the methods of Java's ``KafkaConsumer`` that take a ``Duration``, polling apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.consumer.offsets.list_offsets import EARLIEST, LATEST
from pykclient.consumer.partition_list import describe_partitions
from pykclient.errors import KafkaTimeoutError
from pykclient.types import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykclient.consumer.followed_topics import FollowedTopics
    from pykclient.consumer.list_topics import TopicListing
    from pykclient.consumer.offsets.list_offsets import OffsetLookup, OffsetLookups
    from pykclient.consumer.offsets.reset import PositionManager
    from pykclient.consumer.subscription import SubscriptionState
    from pykclient.consumer.waiting import Waiting
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.cluster import PartitionInfo
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.drive import Decisions
    from pykclient.types import OffsetAndTimestamp

__all__ = ["BrokerQueries"]


class BrokerQueries:
    """Where partitions begin and end, where this consumer is in them, and which there are."""

    def __init__(
        self,
        metadata: Metadata,
        subscription: SubscriptionState,
        *,
        topics: FollowedTopics,
        positions: PositionManager,
        lookups: OffsetLookups,
        listing: TopicListing,
        waiting: Waiting,
        isolation_level: IsolationLevel,
    ) -> None:
        self._metadata = metadata
        self._subscription = subscription
        self._topics = topics
        self._positions = positions
        self._lookups = lookups
        self._listing = listing
        self._waiting = waiting
        self._isolation_level = isolation_level

    def position(self, partition: TopicPartition, timeout_ms: int) -> Decisions[int]:
        """Return the offset of the next record, looking it up if need be."""
        assigned = self._subscription.require(partition)

        def is_ready() -> bool:
            return assigned.has_position or self._subscription.error_of(assigned) is not None

        if not is_ready():
            yield from self._waiting.until(
                is_ready,
                timeout_ms,
                lambda: f"the position of {partition}",
                lambda: self._positions.last_error(assigned),
                about=(partition,),
            )
        if assigned.has_position:
            return assigned.offset
        raise self._subscription.take_error_of(assigned)

    def beginning_offsets(
        self, partitions: Sequence[TopicPartition], timeout_ms: int
    ) -> Decisions[dict[TopicPartition, int]]:
        """Return the first offset that each partition has."""
        return self._edges(partitions, EARLIEST, timeout_ms)

    def end_offsets(
        self, partitions: Sequence[TopicPartition], timeout_ms: int
    ) -> Decisions[dict[TopicPartition, int]]:
        """Return the offset after the last readable record of each partition."""
        ends = yield from self._edges(partitions, LATEST, timeout_ms)
        is_committed = self._isolation_level is IsolationLevel.READ_COMMITTED
        for partition, end in ends.items():
            assigned = self._subscription.find(partition)
            if assigned is not None and is_committed:
                assigned.last_stable_offset = end
            elif assigned is not None:
                assigned.high_watermark = end
        return ends

    def _edges(
        self, partitions: Sequence[TopicPartition], timestamp: int, timeout_ms: int
    ) -> Decisions[dict[TopicPartition, int]]:
        found = yield from self.offsets_for_times(dict.fromkeys(partitions, timestamp), timeout_ms)
        return {partition: edge.offset for partition, edge in found.items() if edge is not None}

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int
    ) -> Decisions[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """Return the first record at or after a time, None where none is."""
        topics = {partition.topic for partition in timestamps}
        lookups: list[OffsetLookup] = []

        def missing() -> list[OffsetLookup]:
            return [lookup for lookup in lookups if not lookup.operation.is_done]

        def error() -> KafkaError | None:
            return next((each.operation.error for each in lookups if each.operation.error), None)

        try:
            lookups += [self._lookups.start(*lookup) for lookup in timestamps.items()]
            self._topics.add_for_call(topics)
            yield from self._waiting.until(
                lambda: error() is not None or not missing(),
                timeout_ms,
                lambda: f"offsets of {describe_partitions(each.partition for each in missing())}",
                lambda: missing()[0].attempt.last_error,
                about=tuple(timestamps),
            )
            if (failed := error()) is not None:
                raise failed
            return {lookup.partition: lookup.operation.result() for lookup in lookups}
        finally:
            for lookup in lookups:
                self._lookups.cancel(lookup)
            self._topics.remove_for_call(topics)

    def partitions_for(self, topic: str, timeout_ms: int) -> Decisions[tuple[PartitionInfo, ...]]:
        """Return a topic's partitions."""

        def error() -> KafkaError | None:
            return self._metadata.cluster.topic_errors.get(topic)

        def is_ready() -> bool:
            is_refused = (refusal := error()) is not None and not refusal.retriable
            return topic in self._metadata.cluster.topics or is_refused

        about = (TopicPartition(topic, 0),)
        late: KafkaTimeoutError | None = None
        try:
            self._topics.add_for_call((topic,))
            yield from self._waiting.until(
                is_ready, timeout_ms, lambda: f"topic {topic!r}", error, about=about
            )
        except KafkaTimeoutError as raised:
            late = raised
        finally:
            self._topics.remove_for_call((topic,))
        infos = self._metadata.cluster.partitions_for(topic)
        if infos is not None:
            return infos
        reason = error() or late
        assert reason is not None
        raise reason

    def list_topics(self, timeout_ms: int) -> Decisions[dict[str, tuple[PartitionInfo, ...]]]:
        """Return all topics, with their partitions."""
        listing = self._listing.start()
        try:
            yield from self._waiting.until(
                lambda: listing.operation.is_done,
                timeout_ms,
                lambda: "the list of topics",
                lambda: listing.last_error,
            )
            topics = listing.operation.result()
        finally:
            self._listing.cancel(listing)
        return {topic.name: topic.partitions for topic in topics}
