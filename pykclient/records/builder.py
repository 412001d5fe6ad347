"""One record batch being written: append until full, close to bytes.

Open until `close`; may be closed again with another producer id, epoch and sequence, without
compressing again. It takes no lock and knows no partition.

Owner: the accumulator's partition lock while open; then the sender.
Source: Kafka protocol guide, "Record Batch"; KIP-98; Java class ``MemoryRecordsBuilder``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient import accel
from pykclient.records.batch import CRC_START, HEADER, HEADER_SIZE_BYTES, LOG_OVERHEAD_BYTES
from pykclient.records.compression import Codec, compress

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.accel.abc import HeadersInput

__all__ = ["NO_PRODUCER_ID", "RecordBatchBuilder", "batch_size_upper_bound"]

NO_PRODUCER_ID: Final = -1
RECORD_OVERHEAD_BYTES_MAX: Final = 21
VARINT_SIZE_BYTES_MAX: Final = 5


class RecordBatchBuilder:
    """Collects records up to `batch_size_bytes`, the header included; always takes the first."""

    __slots__ = ("_appender", "_body", "codec", "level", "try_append")

    try_append: Callable[[int, bytes | None, bytes | None, HeadersInput | None], int | None]
    """`try_append(timestamp_ms, key, value, headers)`: the record's index, or None when full."""

    def __init__(
        self, *, batch_size_bytes: int, codec: Codec = Codec.NONE, level: int | None = None
    ) -> None:
        self.codec = codec
        self.level = level
        self._appender = accel.RecordAppender(batch_size_bytes - HEADER_SIZE_BYTES)
        self._body: bytes | None = None
        self.try_append = self._appender.append

    @property
    def record_count(self) -> int:
        """How many records have been appended."""
        return self._appender.count

    def size_bytes(self) -> int:
        """The batch's size without compression, its header included."""
        return HEADER_SIZE_BYTES + self._appender.size_bytes()

    def close(
        self,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
    ) -> bytearray:
        """Return the finished batch. Nothing may be appended afterwards; closing again may."""
        appender = self._appender
        if self._body is None:
            with appender.view() as view:
                self._body = compress(self.codec, view, self.level)
        batch = bytearray(HEADER_SIZE_BYTES)
        batch += self._body
        HEADER.pack_into(
            batch,
            0,
            0,
            len(batch) - LOG_OVERHEAD_BYTES,
            -1,
            2,
            0,
            self.codec | is_transactional << 4,
            appender.count - 1,
            appender.base_timestamp_ms,
            appender.max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            appender.count,
        )
        with memoryview(batch) as view, view[CRC_START:] as covered:
            crc = accel.crc32c(covered)
        batch[17:21] = crc.to_bytes(4, "big")
        return batch


def batch_size_upper_bound(
    key: bytes | None, value: bytes | None, headers: HeadersInput | None = None
) -> int:
    """Return the most bytes that a batch with this one record can take without compression."""
    size = HEADER_SIZE_BYTES + RECORD_OVERHEAD_BYTES_MAX
    size += len(key or b"") + len(value or b"")
    for name, content in headers or ():
        size += 2 * VARINT_SIZE_BYTES_MAX + len(name.encode()) + len(content or b"")
    return size
