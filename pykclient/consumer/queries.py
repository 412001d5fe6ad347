"""BrokerQueries: the calls of a consumer about offsets and topics, which wait for a response.

They take nothing from the records that are fetched meanwhile.

Owner: the thread guard.
Source: the methods of Java's ``KafkaConsumer`` that take a ``Duration``, polling apart.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pykclient.consumer.offsets.list_offsets import EARLIEST, LATEST
from pykclient.consumer.subscription import describe_partitions
from pykclient.errors import DecodeError, KafkaTimeoutError
from pykclient.network.cluster.cluster import topic_info
from pykclient.network.manager import NEVER_MS, Operation, PollResult, Request
from pykclient.network.retry import Attempt
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.types import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykclient.consumer.followed_topics import FollowedTopics
    from pykclient.consumer.offsets.list_offsets import OffsetLookup, OffsetLookups
    from pykclient.consumer.offsets.reset import PositionManager
    from pykclient.consumer.subscription import SubscriptionState
    from pykclient.consumer.waiting import Waiting
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.cluster import PartitionInfo, TopicInfo
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.drive import Decisions
    from pykclient.network.retry import Backoff
    from pykclient.protocol.message import Message
    from pykclient.types import OffsetAndTimestamp

__all__ = ["BrokerQueries", "TopicLookups"]


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
        topic_lookups: TopicLookups,
        waiting: Waiting,
        isolation_level: IsolationLevel,
    ) -> None:
        self._metadata = metadata
        self._subscription = subscription
        self._topics = topics
        self._positions = positions
        self._lookups = lookups
        self._topic_lookups = topic_lookups
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
        lookup = self._topic_lookups.start()
        try:
            yield from self._waiting.until(
                lambda: lookup.operation.is_done,
                timeout_ms,
                lambda: "the list of topics",
                lambda: lookup.attempt.last_error,
            )
            topics = lookup.operation.result()
        finally:
            self._topic_lookups.cancel(lookup)
        return {topic.name: topic.partitions for topic in topics}


class TopicLookup:
    """One lookup of all topics, apart from the metadata that the consumer follows."""

    __slots__ = ("attempt", "operation")

    def __init__(self, backoff: Backoff) -> None:
        self.operation: Operation[tuple[TopicInfo, ...]] = Operation()
        self.attempt = Attempt(backoff)


class TopicLookups:
    """The manager of all such lookups under way; any broker may respond.

    Owner: the driver of the engine.
    Source: Java class ``TopicMetadataFetcher``.
    """

    def __init__(self, retry_backoff: Backoff) -> None:
        self._retry_backoff = retry_backoff
        self._waiting: dict[TopicLookup, None] = {}

    def start(self) -> TopicLookup:
        """Request every topic that this client may see, internal ones among them."""
        lookup = TopicLookup(self._retry_backoff)
        self._waiting[lookup] = None
        return lookup

    def cancel(self, lookup: TopicLookup) -> None:
        """Forget a lookup. Its operation does not end."""
        self._waiting.pop(lookup, None)

    def poll(self, now_ms: int) -> PollResult:
        """Request what is due."""
        requests = []
        next_poll_ms = NEVER_MS
        for lookup in self._waiting:
            if not lookup.attempt.is_due(now_ms):
                next_poll_ms = min(next_poll_ms, lookup.attempt.next_ms)
                continue
            lookup.attempt.sent()
            requests.append(
                Request(
                    MetadataRequest(topics=None, allow_auto_topic_creation=False),
                    node_id=None,
                    on_response=partial(self._on_response, lookup),
                    on_failure=partial(self._on_failure, lookup),
                )
            )
        return PollResult(requests, next_poll_ms)

    def restart(self, now_ms: int) -> None:
        """Send anew."""
        del now_ms
        for lookup in self._waiting:
            lookup.attempt.lost()

    def _on_response(self, lookup: TopicLookup, message: Message | None, now_ms: int) -> None:
        assert isinstance(message, MetadataResponse)
        try:
            # A topic with an error is one that is being made or deleted just now.
            topics = tuple(topic_info(each) for each in message.topics if each.error_code == 0)
        except DecodeError as error:
            self._on_failure(lookup, error, now_ms)
            return
        self._waiting.pop(lookup, None)
        lookup.operation.succeed(topics)

    def _on_failure(self, lookup: TopicLookup, error: KafkaError, now_ms: int) -> None:
        final_error = lookup.attempt.failed(error, now_ms)
        if final_error is not None:
            self._waiting.pop(lookup, None)
            lookup.operation.fail(final_error)
