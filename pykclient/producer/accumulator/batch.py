"""ProducerBatch: records of one partition that are sent together, and their state.

States: *open* (records are appended), *closed* (waits to be sent, first or again), *in flight* (a
request carries it), *done*. A batch that expires in flight is done at once, while its request is
still under way: see `is_in_request`.

`may_be_written` is set when an attempt ends without a response that says whether the broker
appended the batch. It is never reset: a broker that was paused may read the bytes of an old attempt
late, and a later response says nothing about them.

Owner: the partition's lock while the batch is open; then the sender thread.
Source: Java class ``ProducerBatch``; KIP-126 (splitting).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from pykclient.accel.batch_layout import HEADER_SIZE_BYTES
from pykclient.records.builder import RecordBatchBuilder
from pykclient.records.compression import Codec, require_library

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from typing import Self

    from pykclient.accel.pure import RecordAppender
    from pykclient.errors import KafkaError
    from pykclient.producer.config import ProducerConfig
    from pykclient.producer.delivery import ProduceResult
    from pykclient.producer.record import RecordMetadata
    from pykclient.types import TopicPartition


class BatchState(Enum):
    __hash__ = object.__hash__  # faster than Enum's: a batch changes its state several times

    OPEN = "open"
    CLOSED = "closed"
    IN_FLIGHT = "in_flight"
    DONE = "done"


NEXT: dict[BatchState, frozenset[BatchState]] = {
    BatchState.OPEN: frozenset({BatchState.CLOSED}),
    BatchState.CLOSED: frozenset({BatchState.IN_FLIGHT, BatchState.DONE}),
    BatchState.IN_FLIGHT: frozenset({BatchState.CLOSED, BatchState.DONE}),
    BatchState.DONE: frozenset(),
}


def batch_size_bytes(config: ProducerConfig) -> int:
    """Return the size, before compression, at which a batch is full."""
    return max(1, min(config.batch_size, config.max_request_size))


class Compression(NamedTuple):
    """Codec and level of batches; `level` None is the codec's default (KIP-390)."""

    codec: Codec
    level: int | None

    @classmethod
    def from_config(cls, config: ProducerConfig) -> Self:
        codec = Codec[config.compression_type.upper()]
        require_library(codec)
        level = {
            Codec.GZIP: config.compression_gzip_level,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }.get(codec)
        return cls(codec, level)


class Batching(NamedTuple):
    """Linger time and compression of a topic's batches."""

    linger_ms: int
    compression: Compression

    @classmethod
    def from_config(cls, config: ProducerConfig) -> Self:
        return cls(config.linger_ms, Compression.from_config(config))


class ProducerIdentity(NamedTuple):
    """Producer id and epoch, by which a broker tells producers apart (KIP-98)."""

    producer_id: int
    epoch: int


NO_IDENTITY = ProducerIdentity(-1, -1)


class Leader(NamedTuple):
    """Leader of a partition in the metadata; `node_id` None if it has none."""

    node_id: int | None
    epoch: int | None


class ProducerBatch:
    """One batch. `serial` orders the batches of its partition, the parts of a split batch included.

    `due_ms` is the end of its linger time or, after a failed attempt, of its back-off.
    `reserved_bytes` is its share of the buffer pool, `capacity_bytes` its maximum size; the first
    record fits in any case. `identity` and `base_sequence` are set while the batch has a place in
    its partition's sequence (`base_sequence` -1: it has none).
    """

    __slots__ = (
        "_builder",
        "appender",
        "attempt_count",
        "base_sequence",
        "codec",
        "created_ms",
        "due_ms",
        "identity",
        "is_in_request",
        "last_error",
        "may_be_written",
        "partition",
        "record_count",
        "reserved_bytes",
        "result",
        "sent_to",
        "serial",
        "size_bytes",
        "state",
    )

    def __init__(
        self,
        result: ProduceResult,
        lock: AbstractContextManager[object],
        *,
        serial: tuple[int, ...],
        created_ms: int,
        due_ms: int,
        capacity_bytes: int,
        compression: Compression,
    ) -> None:
        self.partition: TopicPartition = result.partition
        self.result = result
        self.codec = compression.codec
        self.serial = serial
        self.created_ms = created_ms
        self.due_ms = due_ms
        self.reserved_bytes = 0
        self.state = BatchState.OPEN
        self.record_count = 0
        self.size_bytes = 0
        self.attempt_count = 0
        self.sent_to: Leader | None = None
        self.last_error: KafkaError | None = None
        self.may_be_written = False
        self.is_in_request = False
        self.identity = NO_IDENTITY
        self.base_sequence = -1
        builder: RecordBatchBuilder[RecordMetadata] = RecordBatchBuilder(
            batch_size_bytes=capacity_bytes,
            codec=compression.codec,
            level=compression.level,
            batch=result,
            lock=lock,
        )
        self._builder: RecordBatchBuilder[RecordMetadata] | None = builder
        self.appender: RecordAppender[RecordMetadata] = builder.appender
        """Appender of the records; deleted once the batch is done."""
        result.follow(self.appender)

    def has_appender(self, appender: RecordAppender[RecordMetadata]) -> bool:
        """Return True if this batch gets the records of `appender`; False once it is done."""
        return self._builder is not None and self.appender is appender

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence >= 0

    def grow(self) -> None:
        """Allow the appender to use all reserved bytes. Requires the partition lock."""
        self.appender.grow(self.reserved_bytes - HEADER_SIZE_BYTES)

    def seal(self) -> None:
        """Close the batch for records. Requires the partition lock.

        Sealing again does nothing, or completes a seal that was interrupted.
        """
        if self.state is BatchState.OPEN:
            self.appender.seal()
            self.record_count = self.appender.count
            self.size_bytes = self._content.size_bytes
            self._to(BatchState.CLOSED)

    def encode(self, *, is_transactional: bool = False) -> memoryview:
        """Return the encoded batch, with its current identity and sequence."""
        return self._content.close(
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self.base_sequence,
            is_transactional=is_transactional,
        )

    def on_sent(self, leader: Leader) -> None:
        self._to(BatchState.IN_FLIGHT)
        self.is_in_request = True
        self.sent_to = leader

    def on_retry(self, error: KafkaError, due_ms: int) -> None:
        self._to(BatchState.CLOSED)
        self.attempt_count += 1
        self.last_error = error
        self.due_ms = due_ms

    def retry_due_ms(self, leader: Leader) -> int:
        """Return when to send it again: at once if the leader has changed (KIP-951)."""
        return self.due_ms if self.sent_to == leader else 0

    def succeed(self, base_offset: int | None, log_append_time_ms: int | None) -> None:
        self._end()
        self.result.succeed(base_offset, log_append_time_ms)

    def fail(
        self, error: KafkaError, record_errors: Mapping[int, KafkaError] | None = None
    ) -> None:
        """Fail the batch. It waits or is in flight; seal an open one first."""
        self._end()
        self.result.fail(error, record_errors, record_count=self.record_count)

    def split(self, lock: AbstractContextManager[object]) -> tuple[ProducerBatch, ProducerBatch]:
        """End this batch; return two closed batches with half of its records each.

        They keep its age and its sequence numbers: the broker refused the whole batch, so it has
        seen none of those numbers.
        """
        assert self.record_count > 1
        middle = self.record_count // 2
        callbacks = dict(self.appender.callbacks)
        parts = first, second = self._part(lock, 0), self._part(lock, 1)
        for index, timestamp_ms, key, value, headers in self._content.records():
            part = first if index < middle else second
            part.appender.append(timestamp_ms, key, value, headers, callbacks.get(index))
        for part, start in ((first, 0), (second, middle)):
            part.seal()
            if self.has_sequence:
                part.base_sequence = sequence_after(self.base_sequence, start)
        self._end()
        self.result.split(((0, first.result), (middle, second.result)))
        return parts

    def _part(self, lock: AbstractContextManager[object], number: int) -> ProducerBatch:
        part = ProducerBatch(
            self.result.another(),
            lock,
            serial=(*self.serial, number),
            created_ms=self.created_ms,
            due_ms=0,
            capacity_bytes=self.size_bytes,
            compression=Compression(self._content.codec, self._content.level),
        )
        part.identity = self.identity
        part.may_be_written = self.may_be_written
        part.attempt_count = self.attempt_count
        part.last_error = self.last_error
        part.sent_to = self.sent_to
        return part

    @property
    def _content(self) -> RecordBatchBuilder[RecordMetadata]:
        assert self._builder is not None, "a batch that is done has no records"
        return self._builder

    def _end(self) -> None:
        self._to(BatchState.DONE)
        # Deliveries that the application keeps hold the result, not the records.
        self._builder = None
        del self.appender

    def _to(self, state: BatchState) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state

    def __repr__(self) -> str:
        return (
            f"<ProducerBatch {self.serial} of {self.partition}, {self.state.value}, "
            f"{self.record_count} records, sequence {self.base_sequence}>"
        )


SEQUENCE_LIMIT = 2**31
"""Sequence numbers wrap to 0 after 2**31 - 1."""


def sequence_after(sequence: int, record_count: int) -> int:
    return (sequence + record_count) % SEQUENCE_LIMIT
