"""One fetched record batch: its header, checks and records; and spans of plain batches.

A batch is an immutable view of the frame that it arrived in. Everything is checked before it is
trusted: the header when the batch is made, the records when they are decoded.

Owner: whoever iterates.
Source: Kafka protocol guide, "Record Batch"; KIP-98; KIP-534; Java class ``DefaultRecordBatch``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from pykclient import accel
from pykclient.accel.batch_layout import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_DELETE_HORIZON,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    CHUNK_RECORD_COUNT_MAX,
    CRC_START,
    HEADER,
    HEADER_SIZE_BYTES,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    OFFSET_MAX,
)
from pykclient.errors.base import CorruptRecordError, DecodeError
from pykclient.records.compression import DECOMPRESSED_SIZE_BYTES_MAX, Codec, decompress
from pykclient.types import TimestampType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.accel import ContiguousBatches
    from pykclient.accel.abc import RecordColumns
    from pykclient.records.compression import Data

LEGACY_MAGIC_MAX: Final = 1
LEGACY_SIZE_BYTES_MIN: Final = 26
"""Minimum size of a message in the old formats: anything shorter is invalid in every format."""

RECORD_COUNT_MAX: Final = 2**31 - 1
"""Maximum number of records in a batch: the count has 32 bits."""

_CODECS: Final = dict(enumerate(Codec))

UnitT = TypeVar("UnitT", bound="RecordBatch | BatchSpan")
"""A unit of fetched bytes: a batch, or several that are read as one."""


class RecordBatch:
    """The header of a version 2 batch, with its records still encoded in `payload`.

    `producer_id`, `producer_epoch` and `base_sequence` are -1 if the producer was not idempotent,
    `partition_leader_epoch` is -1 if the broker did not report it. Timestamps are in milliseconds.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp_ms",
        "codec",
        "crc",
        "last_offset",
        "last_offset_delta",
        "magic",
        "max_timestamp_ms",
        "partition",
        "partition_leader_epoch",
        "payload",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size_bytes",
        "timestamp_type",
        "topic",
    )

    def __init__(
        self, data: memoryview, *, topic: str, partition: int, check_crcs: bool = True
    ) -> None:
        """Parse and check the header of the one batch that fills `data`.

        Raises:
            CorruptRecordError: the batch is not version 2, its header contradicts itself, or, with
                `check_crcs`, its checksum is wrong.
        """
        self.topic = topic
        self.partition = partition
        self.size_bytes = len(data)
        self.magic: int = data[MAGIC_AT] if len(data) > MAGIC_AT else -1
        if self.magic != MAGIC:
            raise corrupt_batch(topic, partition, data, f"its magic is {self.magic}, not {MAGIC}")
        if len(data) < HEADER_SIZE_BYTES:
            raise corrupt_batch(topic, partition, data, f"it has only {len(data)} bytes")
        (
            self.base_offset,
            length,
            self.partition_leader_epoch,
            _,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp_ms,
            self.max_timestamp_ms,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = HEADER.unpack_from(data)
        self.payload = data[HEADER_SIZE_BYTES:]
        reason = self._contradiction(length)
        if reason is not None:
            error = corrupt_batch(topic, partition, data, reason)
            error.next_offset = self._sealed_end_offset(data)
            raise error
        if check_crcs:
            crc = accel.crc32c(data[CRC_START:])
            if crc != self.crc:
                reason = f"its checksum is {crc:#010x}, its header says {self.crc:#010x}"
                raise corrupt_batch(topic, partition, data, reason)
        self.last_offset: int = self.base_offset + self.last_offset_delta
        """Offset of the last record, even if compaction has removed it."""
        self.codec: Codec = _CODECS[self.attributes & ATTRIBUTE_CODEC]
        self.timestamp_type = (
            TimestampType.LOG_APPEND_TIME
            if self.attributes & ATTRIBUTE_LOG_APPEND_TIME
            else TimestampType.CREATE_TIME
        )

    @property
    def is_transactional(self) -> bool:
        """True if the batch is part of a transaction (KIP-98)."""
        return bool(self.attributes & ATTRIBUTE_TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """True if the batch holds a marker, which applications must not see (KIP-98)."""
        return bool(self.attributes & ATTRIBUTE_CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        """True if the base timestamp is the time from which markers may be deleted (KIP-534)."""
        return bool(self.attributes & ATTRIBUTE_DELETE_HORIZON)

    def corrupt(self, reason: str) -> CorruptRecordError:
        return _error(self.topic, self.partition, self.base_offset, reason)

    def records(self, start_offset: int = 0) -> RecordColumns:
        """Decode all records from `start_offset` on, up to `DECOMPRESSED_SIZE_BYTES_MAX`.

        Raises: the errors of `chunks`.
        """
        chunks = list(
            self.chunks(
                start_offset,
                decompressed_size_bytes_max=DECOMPRESSED_SIZE_BYTES_MAX,
                record_count_max=RECORD_COUNT_MAX,
            )
        )
        return chunks[0] if len(chunks) == 1 else _joined(chunks)

    def chunks(
        self,
        start_offset: int = 0,
        *,
        decompressed_size_bytes_max: int,
        record_count_max: int = CHUNK_RECORD_COUNT_MAX,
    ) -> Iterator[RecordColumns]:
        """Yield the records from `start_offset` on, decoding at most `record_count_max` at a time.

        Chunks may be shorter, for example if records have very many headers, but are never empty.
        With log-append time, every record has the time at which the broker appended the batch.

        Raises:
            CorruptRecordError: the records are malformed, do not fit the header, or decompress to
                more than `decompressed_size_bytes_max`.
            ConfigError: the codec's library is not installed.
        """
        if not self.record_count:
            return
        try:
            data = self._decompressed(decompressed_size_bytes_max)
            yield from self._decoded(data, start_offset, record_count_max)
        except DecodeError as error:
            raise self.corrupt(str(error)) from error

    def _decompressed(self, size_bytes_max: int) -> Data:
        return decompress(self.codec, self.payload, size_bytes_max)

    def _decoded(
        self, unpacked: Data, start_offset: int, record_count_max: int
    ) -> Iterator[RecordColumns]:
        """Yield the chunks of `chunks`. Raises `DecodeError`, without the batch's location."""
        decoder = accel.decode_records
        data = accel.record_bytes(unpacked)
        position = index = 0
        last_offset = self.base_offset - 1
        append_timestamp_ms = None
        if self.timestamp_type is TimestampType.LOG_APPEND_TIME:
            append_timestamp_ms = self.max_timestamp_ms
        while index < self.record_count:
            count = min(record_count_max, self.record_count - index)
            columns, position = decoder(
                data,
                position,
                index,
                count,
                self.base_offset,
                self.base_timestamp_ms,
                append_timestamp_ms,
            )
            index += len(columns)
            if columns.first_offset <= last_offset:
                raise DecodeError("the offsets of its records do not ascend")
            last_offset = columns.last_offset
            if last_offset > self.last_offset:
                raise DecodeError(
                    f"it has a record at offset {last_offset}, its header says {self.last_offset}"
                )
            if index == self.record_count and position != len(data):
                raise DecodeError(
                    f"its {self.record_count} records end at {position} of {len(data)} bytes"
                )
            if start_offset > columns.first_offset:
                columns = columns.rows(columns.find(start_offset))
            if len(columns):
                yield columns

    def _contradiction(self, length: int) -> str | None:
        """Return a contradiction in the header, or None."""
        if length != self.size_bytes - LENGTH_END:
            return f"its length is {length}, but it has {self.size_bytes} bytes"
        if self.attributes & ATTRIBUTE_CODEC not in _CODECS:
            return f"its codec {self.attributes & ATTRIBUTE_CODEC} is unknown"
        if not 0 <= self.base_offset <= OFFSET_MAX - max(0, self.last_offset_delta):
            return f"its base offset is {self.base_offset}"
        # Compaction removes records and keeps the last offset; it may remove all of them.
        if not 0 <= self.record_count <= self.last_offset_delta + 1 or self.last_offset_delta < 0:
            return f"it has {self.record_count} records up to offset delta {self.last_offset_delta}"
        return None

    def _sealed_end_offset(self, data: memoryview) -> int | None:
        """Return the offset after a batch if its checksum is right, else None.

        This is for intact batches that cannot be decoded, for example because of an unknown codec.
        """
        end_offset: int = self.base_offset + self.last_offset_delta + 1
        is_possible = self.last_offset_delta >= 0 and 0 < end_offset <= OFFSET_MAX
        return end_offset if is_possible and accel.crc32c(data[CRC_START:]) == self.crc else None


class BatchSpan:
    """Contiguous plain batches, checked and decoded together.

    Nearly all that a consumer reads is plain: whole batches without compression or markers. Work
    that would be done in Python per batch is then done once per span. A span consists of batches of
    version 2, or of messages of one older version.

    Only headers have been checked: each batch is checked right before its records are decoded, so
    that its bytes are in the cache for both. A batch that proves to be invalid is read separately,
    to report its error.
    """

    is_control = False

    __slots__ = (
        "_check_crcs",
        "_data",
        "base_offset",
        "head_last_offset",
        "last_offset",
        "partition",
        "partition_leader_epoch",
        "size_bytes",
        "timestamp_type",
        "topic",
    )

    def __init__(
        self,
        data: memoryview,
        found: ContiguousBatches,
        *,
        topic: str,
        partition: int,
        check_crcs: bool,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.size_bytes = found.size_bytes
        self.base_offset = found.base_offset
        self.head_last_offset = found.head_last_offset
        self.last_offset = found.last_offset
        self.partition_leader_epoch = found.leader_epoch
        self.timestamp_type = found.timestamp_type
        self._data = data[: found.size_bytes]
        self._check_crcs = check_crcs

    def corrupt(self, reason: str) -> CorruptRecordError:
        """Return the error for a malformed first batch, with its location."""
        return corrupt_batch(self.topic, self.partition, self._data, reason)

    def chunks(self, start_offset: int = 0) -> Iterator[RecordColumns]:
        """Yield the records from `start_offset` on, in non-empty chunks.

        Raises:
            CorruptRecordError: a batch is malformed, or its checksum is wrong.
        """
        position = 0
        while position < self.size_bytes:
            columns, position = accel.decode_contiguous(
                self._data, position, self.size_bytes, self._check_crcs
            )
            if columns is None:
                batch = self._batch_at(position)
                position += batch.size_bytes
                # No batch of a span is compressed.
                yield from batch.chunks(start_offset, decompressed_size_bytes_max=0)
                continue
            if start_offset > columns.first_offset:
                columns = columns.rows(columns.find(start_offset))
            if len(columns):
                yield columns

    def _batch_at(self, position: int) -> RecordBatch:
        batch = _first_batch(
            self._data[position:],
            topic=self.topic,
            partition=self.partition,
            check_crcs=self._check_crcs,
        )
        assert batch is not None, "a span has whole batches"
        return batch


def _joined(chunks: list[RecordColumns]) -> RecordColumns:
    return accel.ListColumns(
        [offset for chunk in chunks for offset in chunk.offsets],
        [timestamp_ms for chunk in chunks for timestamp_ms in chunk.timestamps_ms],
        [key for chunk in chunks for key in chunk.keys],
        [value for chunk in chunks for value in chunk.values],
        [headers for chunk in chunks for headers in chunk.headers],
        size_bytes=sum(chunk.size_bytes for chunk in chunks),
    )


def first_batch_size_bytes(buffer: memoryview) -> int | None:
    """Return the size of the first batch of `buffer`, or None if too few bytes arrived to know it.

    A result above ``len(buffer)`` means that the batch is incomplete: `iterate_batches` yields
    nothing, and a fetch must request that much. From Fetch version 3 on (KIP-74), brokers send the
    first batch whole, whatever its size.
    """
    if len(buffer) < LENGTH_END:
        return None
    return LENGTH_END + int.from_bytes(buffer[LENGTH_END - 4 : LENGTH_END], "big", signed=True)


def iterate_batches(
    buffer: memoryview,
    *,
    topic: str,
    partition: int,
    start_offset: int = 0,
    check_crcs: bool = True,
) -> Iterator[RecordBatch]:
    """Yield the batches of a fetched buffer in order, checked; a truncated last one is left out.

    Batches that end before `start_offset`, the fetched offset, are skipped.

    Raises:
        CorruptRecordError: a batch is malformed, its checksum is wrong, the offsets of batches do
            not ascend, or no whole batch reaches `start_offset`, so that every fetch would return
            the same.
    """

    def take(position: int) -> RecordBatch | None:
        rest = buffer[position:]
        return _first_batch(rest, topic=topic, partition=partition, check_crcs=check_crcs)

    return _in_order(take, topic=topic, partition=partition, start_offset=start_offset)


def iterate_spans(
    buffer: memoryview,
    *,
    topic: str,
    partition: int,
    start_offset: int = 0,
    check_crcs: bool = True,
    special: int = 0,
    readable_end: int | None = None,
) -> Iterator[RecordBatch | BatchSpan]:
    """Yield all of a fetched buffer in order, in the longest possible spans and batches between.

    `special` are attributes that exclude a batch from spans. A batch that follows a gap of offsets
    and reaches `readable_end` (None: never) starts a new unit. Batches that are yielded separately
    have been checked. In all else it is like `iterate_batches`.

    Raises:
        CorruptRecordError: as in `iterate_batches`.
    """
    end = OFFSET_MAX if readable_end is None else readable_end

    def take(position: int) -> RecordBatch | BatchSpan | None:
        found = accel.find_contiguous(buffer, position, special, end)
        rest = buffer[position:]
        if found is None:
            return _first_batch(rest, topic=topic, partition=partition, check_crcs=check_crcs)
        return BatchSpan(rest, found, topic=topic, partition=partition, check_crcs=check_crcs)

    return _in_order(take, topic=topic, partition=partition, start_offset=start_offset)


def _first_batch(
    buffer: memoryview, *, topic: str, partition: int, check_crcs: bool = True
) -> RecordBatch | None:
    """Return the batch at the start of `buffer`; None if it is truncated.

    Raises:
        CorruptRecordError: it is malformed, or its checksum is wrong.
    """
    size_bytes = first_batch_size_bytes(buffer)
    if size_bytes is None or size_bytes > len(buffer):
        return None
    if size_bytes < LEGACY_SIZE_BYTES_MIN:
        raise corrupt_batch(topic, partition, buffer, f"it claims to have {size_bytes} bytes")
    batch_type = _legacy_batch_type() if buffer[MAGIC_AT] <= LEGACY_MAGIC_MAX else RecordBatch
    return batch_type(buffer[:size_bytes], topic=topic, partition=partition, check_crcs=check_crcs)


def _in_order(
    take: Callable[[int], UnitT | None], *, topic: str, partition: int, start_offset: int
) -> Iterator[UnitT]:
    """Yield the results of `take` for successive positions, until it returns None.

    Raises: the errors of `iterate_batches` and of `take`.
    """
    position = 0
    next_offset = 0
    while (unit := take(position)) is not None:
        if unit.base_offset < next_offset:
            raise unit.corrupt(f"the batch before it ends at offset {next_offset - 1}")
        next_offset = unit.last_offset + 1
        position += unit.size_bytes
        if next_offset > start_offset:
            yield unit
    if 0 < next_offset <= start_offset:
        raise _error(
            topic, partition, start_offset, f"the batches that came end at {next_offset - 1}"
        )


def _legacy_batch_type() -> type[RecordBatch]:
    # Imported with the first such message: few processes ever see one.
    from pykclient.records.legacy import LegacyBatch

    return LegacyBatch


def corrupt_batch(topic: str, partition: int, data: memoryview, reason: str) -> CorruptRecordError:
    return _error(topic, partition, int.from_bytes(data[:8], "big", signed=True), reason)


def _error(topic: str, partition: int, offset: int, reason: str) -> CorruptRecordError:
    place = f"{topic}-{partition}: " if topic else ""  # a log of its own has no name for itself
    return CorruptRecordError(
        f"{place}the record batch at offset {offset} is corrupt: {reason}",
        topic=topic or None,
        partition=partition if topic else None,
        offset=offset,
    )
