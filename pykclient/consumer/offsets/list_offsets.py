"""OffsetLookups: looks up the beginning, the end, and offsets by time, from leaders.

A lookup ends with an offset or with a final error. The call that started it has a deadline, and
cancels it then.

Owner: the driver of the engine.
Source: Java class ``OffsetFetcher``; KIP-79 (offsets by time), KIP-320 (leader epochs).
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final

from pykclient.errors import DecodeError, UnknownTopicOrPartitionError, error_for_code
from pykclient.network.manager import NEVER_MS, Operation, PollResult, Request, check_partitions
from pykclient.network.retry import Attempt
from pykclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pykclient.types import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pykclient.errors import KafkaError
    from pykclient.network.cluster.cluster import PartitionInfo
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.retry import Backoff
    from pykclient.protocol.message import Message
    from pykclient.protocol.messages.list_offsets import ListOffsetsPartitionResponse
    from pykclient.types import IsolationLevel

EARLIEST: Final = -2
"""Timestamp that stands for the first offset of the log."""

LATEST: Final = -1
"""Timestamp that stands for the end of the log, the offset of the next record."""

CONSUMER_REPLICA_ID: Final = -1
NO_OFFSET: Final = -1


class OffsetLookup:
    """One lookup in one partition.

    `operation` ends with the offset, or with None if no record is that late.
    """

    __slots__ = ("attempt", "operation", "partition", "timestamp")

    def __init__(self, partition: TopicPartition, timestamp: int, backoff: Backoff) -> None:
        self.partition = partition
        self.timestamp = timestamp
        self.operation: Operation[OffsetAndTimestamp | None] = Operation()
        self.attempt = Attempt(backoff)


class OffsetLookups:
    """Manager of all lookups under way. `metadata` must track their topics."""

    def __init__(
        self, metadata: Metadata, *, isolation_level: IsolationLevel, retry_backoff: Backoff
    ) -> None:
        self._metadata = metadata
        self._isolation_level = isolation_level
        self._retry_backoff = retry_backoff
        self._waiting: dict[OffsetLookup, None] = {}
        """Lookups neither done nor cancelled; some are in flight."""

    def start(self, partition: TopicPartition, timestamp: int) -> OffsetLookup:
        """Look up the first offset at or after a time in ms, or `EARLIEST` or `LATEST`."""
        lookup = OffsetLookup(partition, timestamp, self._retry_backoff)
        self._waiting[lookup] = None
        return lookup

    def cancel(self, lookup: OffsetLookup) -> None:
        self._waiting.pop(lookup, None)

    def poll(self, now_ms: int) -> PollResult:
        by_node: defaultdict[int, list[OffsetLookup]] = defaultdict(list)
        next_poll_ms = NEVER_MS
        for lookup in list(self._waiting):
            if not lookup.attempt.is_due(now_ms):
                next_poll_ms = min(next_poll_ms, lookup.attempt.next_ms)
                continue
            info = self._leadership(lookup)
            if info is not None and info.leader_id is not None:
                by_node[info.leader_id].append(lookup)
        requests = [
            request
            for node_id, lookups in by_node.items()
            for request in self._requests(node_id, lookups)
        ]
        return PollResult(requests, next_poll_ms)

    def restart(self, now_ms: int) -> None:
        del now_ms
        for lookup in self._waiting:
            lookup.attempt.lost()

    def _leadership(self, lookup: OffsetLookup) -> PartitionInfo | None:
        """Return a partition's metadata; without a leader, note why, or end the lookup."""
        cluster = self._metadata.cluster
        info = cluster.partition(lookup.partition)
        if info is not None and info.leader_id is not None:
            return info
        error = cluster.topic_errors.get(lookup.partition.topic)
        if error is not None and not error.retriable:
            self._end(lookup, error=error)
        elif error is not None:
            lookup.attempt.last_error = error
        elif info is None and (known := cluster.partitions_for(lookup.partition.topic)) is not None:
            lookup.attempt.last_error = UnknownTopicOrPartitionError(
                f"partition {lookup.partition} does not exist: the topic has {len(known)} "
                f"partitions, numbered from 0"
            )
            self._metadata.request_update()  # partitions may have been added
        return None

    def _requests(self, node_id: int, lookups: list[OffsetLookup]) -> Iterator[Request]:
        # A request may name a partition only once, but two lookups may be for the same one.
        while lookups:
            batch: dict[TopicPartition, OffsetLookup] = {}
            for lookup in lookups:
                batch.setdefault(lookup.partition, lookup)
            yield self._request(node_id, batch)
            lookups = [lookup for lookup in lookups if batch[lookup.partition] is not lookup]

    def _request(self, node_id: int, batch: dict[TopicPartition, OffsetLookup]) -> Request:
        topics: dict[str, ListOffsetsTopic] = {}
        for (topic, index), lookup in batch.items():
            lookup.attempt.sent()
            info = self._metadata.cluster.partition(lookup.partition)
            epoch = None if info is None else info.leader_epoch
            topics.setdefault(topic, ListOffsetsTopic(name=topic)).partitions.append(
                ListOffsetsPartition(
                    partition_index=index,
                    current_leader_epoch=-1 if epoch is None else epoch,
                    timestamp=lookup.timestamp,
                )
            )
        message = ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            isolation_level=self._isolation_level,
            topics=list(topics.values()),
        )
        return Request(
            message,
            node_id,
            on_response=partial(self._on_response, batch),
            on_failure=partial(self._on_failure, batch),
            check=partial(_check, batch),
        )

    def _on_response(
        self, batch: dict[TopicPartition, OffsetLookup], message: Message | None, now_ms: int
    ) -> None:
        assert isinstance(message, ListOffsetsResponse)
        for topic in message.topics:
            for reported in topic.partitions:
                lookup = batch[TopicPartition(topic.name, reported.partition_index)]
                self._on_partition(lookup, reported, now_ms)

    def _on_partition(
        self, lookup: OffsetLookup, reported: ListOffsetsPartitionResponse, now_ms: int
    ) -> None:
        if reported.error_code != 0:
            self._on_error(
                lookup,
                error_for_code(reported.error_code, f"ListOffsets of {lookup.partition}"),
                now_ms,
            )
        elif reported.offset >= 0:
            epoch = None if reported.leader_epoch < 0 else reported.leader_epoch
            found = OffsetAndTimestamp(reported.offset, reported.timestamp, epoch)
            self._end(lookup, found=found)
        elif reported.offset == NO_OFFSET and lookup.timestamp >= 0:
            self._end(lookup, found=None)
        else:
            error = DecodeError(
                f"a ListOffsets response gives {lookup.partition} the offset {reported.offset}"
            )
            self._end(lookup, error=error)

    def _on_failure(
        self, batch: dict[TopicPartition, OffsetLookup], error: KafkaError, now_ms: int
    ) -> None:
        for lookup in batch.values():
            self._on_error(lookup, error, now_ms)

    def _on_error(self, lookup: OffsetLookup, error: KafkaError, now_ms: int) -> None:
        final_error = lookup.attempt.failed(error, now_ms)
        if final_error is not None:
            self._end(lookup, error=final_error)
        elif lookup.attempt.last_error is error:  # else the response could not be decoded
            self._metadata.request_update()  # the leader may have changed, whatever the error is

    def _end(
        self,
        lookup: OffsetLookup,
        *,
        found: OffsetAndTimestamp | None = None,
        error: KafkaError | None = None,
    ) -> None:
        self._waiting.pop(lookup, None)
        lookup.attempt.lost()
        if error is not None:
            lookup.operation.fail(error)
        else:
            lookup.operation.succeed(found)


def _check(batch: Mapping[TopicPartition, OffsetLookup], message: Message) -> None:
    assert isinstance(message, ListOffsetsResponse)
    responded = (
        (topic.name, reported.partition_index)
        for topic in message.topics
        for reported in topic.partitions
    )
    check_partitions("ListOffsets", batch, responded)
