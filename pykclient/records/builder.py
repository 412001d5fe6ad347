"""RecordBatchBuilder: one record batch being written.

It is open until `close`. A second `close` with another producer id, epoch and sequence writes a new
header without compressing again. The records are kept, so that a batch that is too large can be
split. It takes no lock itself and knows no partition.

Owner: `appender` has its lock; everything else belongs to whoever closes the batch.
Source: Kafka protocol guide, "Record Batch"; KIP-98; KIP-126 (splitting); Java class
``MemoryRecordsBuilder``.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from pykclient import accel
from pykclient.accel.batch_layout import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    CRC_AT,
    CRC_START,
    HEADER,
    HEADER_SIZE_BYTES,
    LENGTH_END,
    MAGIC,
)
from pykclient.accel.pure.appender import header_pairs
from pykclient.records.compression import Codec, compress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.accel.abc import DeliveryBatch, HeadersInput, Lock
    from pykclient.accel.pure import RecordAppender
    from pykclient.types import Headers

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

RECORD_OVERHEAD_BYTES_MAX: Final = 21
"""Maximum size of the fields before a record's key: length 5, attributes 1, timestamp delta 10,
offset delta 5."""
VARINT_SIZE_BYTES_MAX: Final = 5

T = TypeVar("T")

_ONE_THREAD: Final = nullcontext()
"""The lock of a batch that is used by a single thread."""


class RecordBatchBuilder(Generic[T]):
    """Collects records up to `batch_size_bytes`, including the batch's header.

    `batch` is the object that the deliveries of its records refer to; None if there are none.
    `lock` is taken for each append; None if a single thread does everything. The builder uses
    memory for the actual records, not for `batch_size_bytes`.
    """

    __slots__ = ("_compressed", "appender", "codec", "level")

    def __init__(
        self,
        *,
        batch_size_bytes: int,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        batch: DeliveryBatch[T] | None = None,
        lock: Lock | None = None,
    ) -> None:
        self.codec = codec
        self.level = level
        self.appender: RecordAppender[T] = accel.RecordAppender(
            batch_size_bytes - HEADER_SIZE_BYTES, batch, lock or _ONE_THREAD
        )
        """The appender, which `TopicAppenders` holds so that `send` appends without another
        layer."""
        self._compressed: bytes | None = None

    @property
    def size_bytes(self) -> int:
        """Size of the uncompressed batch, including its header."""
        return HEADER_SIZE_BYTES + self.appender.size_bytes

    def try_append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeadersInput | None = None,
    ) -> int | None:
        """Append one record; return its index, or None if the batch is full or closed.

        The first record is always accepted, whatever its size.

        Raises:
            SerializationError: the key, the value or a header is not bytes.
            EncodeError: the timestamp is negative or beyond 64 bits.
        """
        delivery = self.appender.append(timestamp_ms, key, value, headers)
        return None if delivery is None else delivery.index

    def close(
        self,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        base_offset: int = 0,
        partition_leader_epoch: int = NO_LEADER_EPOCH,
        log_append_time_ms: int | None = None,
    ) -> memoryview:
        """Close the batch and return it. Later results share no memory with it.

        A producer does not set the last three arguments: the broker does. `log_append_time_ms`
        replaces the time of all records (log-append time).

        Raises:
            ConfigError: the codec's library is not installed.
        """
        appender = self.appender
        assert appender.count
        appender.seal()
        attributes = int(self.codec)
        if is_transactional:
            attributes |= ATTRIBUTE_TRANSACTIONAL
        if is_control:
            attributes |= ATTRIBUTE_CONTROL
        max_timestamp_ms = appender.max_timestamp_ms
        if log_append_time_ms is not None:
            attributes |= ATTRIBUTE_LOG_APPEND_TIME
            max_timestamp_ms = log_append_time_ms
        batch = self._framed()
        HEADER.pack_into(
            batch,
            0,
            base_offset,
            len(batch) - LENGTH_END,
            partition_leader_epoch,
            MAGIC,
            0,
            attributes,
            appender.count - 1,
            appender.base_timestamp_ms,
            max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            appender.count,
        )
        with batch[CRC_START:] as covered:
            crc = accel.crc32c(covered)
        batch[CRC_AT:CRC_START] = crc.to_bytes(CRC_START - CRC_AT, "big")
        return batch

    def _framed(self) -> memoryview:
        """Return the encoded records, after space for the header."""
        if self.codec is Codec.NONE:
            return self.appender.frame(HEADER_SIZE_BYTES)
        if self._compressed is None:
            with self.appender.view() as view:
                self._compressed = compress(self.codec, view, self.level)
        batch = bytearray(HEADER_SIZE_BYTES)
        batch += self._compressed
        return memoryview(batch)

    def records(self) -> Iterator[tuple[int, int, bytes | None, bytes | None, Headers]]:
        """Yield the records again, with offsets from 0, for a split (KIP-126)."""
        appender = self.appender
        appender.seal()
        with appender.view() as view:
            data = bytes(view)
        position = index = 0
        while index < appender.count:
            columns, position = accel.decode_records(
                data, position, index, appender.count - index, 0, appender.base_timestamp_ms
            )
            index += len(columns)
            yield from columns


def batch_size_upper_bound(
    key: bytes | None, value: bytes | None, headers: HeadersInput | None = None
) -> int:
    """Return the maximum size of a batch with only this record, before compression."""
    size_bytes = HEADER_SIZE_BYTES + RECORD_OVERHEAD_BYTES_MAX
    for field in (key, value):
        size_bytes += VARINT_SIZE_BYTES_MAX + len(field or b"")
    size_bytes += VARINT_SIZE_BYTES_MAX
    if headers:
        for name, content in header_pairs(headers):
            size_bytes += 2 * VARINT_SIZE_BYTES_MAX + len(name.encode()) + len(content or b"")
    return size_bytes
