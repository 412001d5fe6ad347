"""One fetched record batch: header, checks, records.

Reads only. A batch is a view on the frame it came in; its records are decoded when asked for.

Owner: whoever iterates; a batch itself is never changed.
Source: Kafka protocol guide, "Record Batch"; KIP-98; Java class ``DefaultRecordBatch``.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from pykclient import accel
from pykclient.errors.base import CorruptRecordError, DecodeError
from pykclient.records.compression import Codec, decompress
from pykclient.types import TimestampType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.accel.abc import RecordColumns

__all__ = ["HEADER_SIZE_BYTES", "RecordBatch", "first_batch_size_bytes", "iterate_batches"]

LOG_OVERHEAD_BYTES: Final = 12
HEADER_SIZE_BYTES: Final = 61
CRC_START: Final = 21
DECOMPRESSED_SIZE_BYTES_MAX: Final = 128 * 1024 * 1024
HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CODECS: Final = dict(enumerate(Codec))


class RecordBatch:
    """The header of a version 2 batch, and its records still encoded in `payload`."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp_ms",
        "codec",
        "crc",
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
        "topic",
    )

    def __init__(self, data: memoryview, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.size_bytes = len(data)
        (
            self.base_offset,
            _,
            self.partition_leader_epoch,
            self.magic,
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
        codec = _CODECS.get(self.attributes & 0x07)
        if codec is None:
            raise self.corrupt(f"unknown codec {self.attributes & 0x07}")
        self.codec = codec

    @property
    def last_offset(self) -> int:
        """The offset of the batch's last record, also when compaction has removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the timestamps: the producer, or the broker when it appended."""
        return TimestampType(self.attributes >> 3 & 1)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction (KIP-98)."""
        return bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a marker instead of application records (KIP-98)."""
        return bool(self.attributes & 0x20)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp is the time at which markers may go (KIP-534)."""
        return bool(self.attributes & 0x40)

    def corrupt(self, reason: str) -> CorruptRecordError:
        """Return the error that says that this batch is malformed."""
        return CorruptRecordError(
            f"{self.topic}-{self.partition}: the record batch at offset {self.base_offset} "
            f"is corrupt: {reason}",
            topic=self.topic,
            partition=self.partition,
            offset=self.base_offset,
        )

    def records(
        self,
        start_offset: int = 0,
        *,
        decompressed_size_bytes_max: int = DECOMPRESSED_SIZE_BYTES_MAX,
    ) -> RecordColumns:
        """Decode the records from `start_offset` on.

        Raises:
            CorruptRecordError: the records are malformed or too large once decompressed.
        """
        try:
            data = decompress(self.codec, self.payload, decompressed_size_bytes_max)
            columns = accel.decode_records(
                data, self.record_count, self.base_offset, self.base_timestamp_ms
            )
        except DecodeError as error:
            raise self.corrupt(str(error)) from error
        if self.timestamp_type is TimestampType.LOG_APPEND_TIME:
            columns = columns._replace(timestamps_ms=[self.max_timestamp_ms] * columns.count)
        if start_offset > self.base_offset:
            columns = columns.rows(bisect_left(columns.offsets, start_offset))
        return columns


def first_batch_size_bytes(buffer: memoryview) -> int | None:
    """Return how many bytes the first batch of `buffer` claims, or None when that is cut off too.

    More than `len(buffer)` means that the batch is incomplete and that a fetch must ask for more.
    """
    if len(buffer) < LOG_OVERHEAD_BYTES:
        return None
    return LOG_OVERHEAD_BYTES + int.from_bytes(buffer[8:12], "big", signed=True)


def iterate_batches(
    buffer: memoryview, *, topic: str, partition: int, check_crcs: bool = True
) -> Iterator[RecordBatch]:
    """Yield the whole batches of a fetched buffer; a truncated last one ends the iteration.

    Raises:
        CorruptRecordError: a batch is malformed or its checksum is wrong.
    """
    position = 0
    while len(buffer) - position >= LOG_OVERHEAD_BYTES:
        size = first_batch_size_bytes(buffer[position:])
        assert size is not None
        offset = int.from_bytes(buffer[position : position + 8], "big", signed=True)
        if size < HEADER_SIZE_BYTES:
            raise CorruptRecordError(
                f"{topic}-{partition}: the record batch at offset {offset} claims {size} bytes",
                topic=topic,
                partition=partition,
                offset=offset,
            )
        if position + size > len(buffer):
            return
        batch = RecordBatch(buffer[position : position + size], topic, partition)
        if batch.magic != 2:
            raise batch.corrupt(f"its magic is {batch.magic}, only 2 is supported")
        if check_crcs:
            crc = accel.crc32c(buffer[position + CRC_START : position + size])
            if crc != batch.crc:
                raise batch.corrupt(f"its checksum is {crc:#010x}, not {batch.crc:#010x}")
        yield batch
        position += size
