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
from pykclient.types import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykclient.consumer.followed_topics import FollowedTopics
    from pykclient.consumer.list_topics import TopicListing
    from pykclient.consumer.offsets.list_offsets import OffsetLookup, OffsetLookups
    from pykclient.consumer.offsets.reset import PositionManager
    from pykclient.consumer.subscription import SubscriptionState
    from pykclient.consumer.waiting import Waiting
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
            found = yield from self._waiting.until(is_ready, timeout_ms, (partition,))
            if not found:
                last_error = self._positions.last_error(assigned)
                what = f"the position of {partition}"
                raise self._waiting.timed_out(what, timeout_ms, last_error)
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

        def is_ready() -> bool:
            return all(lookup.operation.is_done for lookup in lookups) or any(
                lookup.operation.error is not None for lookup in lookups
            )

        try:
            lookups += [self._lookups.start(*lookup) for lookup in timestamps.items()]
            self._topics.add_for_call(topics)
            yield from self._waiting.until(is_ready, timeout_ms, tuple(timestamps))
            self._raise_failed(lookups, timeout_ms)
            return {lookup.partition: lookup.operation.result() for lookup in lookups}
        finally:
            for lookup in lookups:
                self._lookups.cancel(lookup)
            self._topics.remove_for_call(topics)

    def _raise_failed(self, lookups: Sequence[OffsetLookup], timeout_ms: int) -> None:
        for lookup in lookups:
            if lookup.operation.error is not None:
                raise lookup.operation.error
        late = [lookup for lookup in lookups if not lookup.operation.is_done]
        if late:
            what = f"offsets of {describe_partitions(lookup.partition for lookup in late)}"
            raise self._waiting.timed_out(what, timeout_ms, late[0].attempt.last_error)

    def partitions_for(self, topic: str, timeout_ms: int) -> Decisions[tuple[PartitionInfo, ...]]:
        """Return a topic's partitions."""

        def is_known() -> bool:
            cluster = self._metadata.cluster
            error = cluster.topic_errors.get(topic)
            return topic in cluster.topics or (error is not None and not error.retriable)

        try:
            self._topics.add_for_call((topic,))
            yield from self._waiting.until(is_known, timeout_ms, (TopicPartition(topic, 0),))
            cluster = self._metadata.cluster
            infos = cluster.partitions_for(topic)
            if infos is not None:
                return infos
            error = cluster.topic_errors.get(topic)
            raise error or self._waiting.timed_out(f"topic {topic!r}", timeout_ms)
        finally:
            self._topics.remove_for_call((topic,))

    def list_topics(self, timeout_ms: int) -> Decisions[dict[str, tuple[PartitionInfo, ...]]]:
        """Return all topics, with their partitions."""
        what = "the list of topics"
        listing = self._listing.start()
        try:
            found = yield from self._waiting.until(
                lambda: listing.operation.is_done, timeout_ms, what=what
            )
            if not found:
                raise self._waiting.timed_out(what, timeout_ms, listing.last_error)
            topics = listing.operation.result()
        finally:
            self._listing.cancel(listing)
        return {topic.name: topic.partitions for topic in topics}
