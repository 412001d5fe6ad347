"""One segment of a partition's log: batches in a row, and two sparse indexes into them.

The offset index has an entry for about every 4 KiB of batches, the time index beside it the largest
timestamp so far; both are searched by halves, and what is left batch by batch.

Owner: the log that it belongs to.
Source: Java classes ``LogSegment``, ``OffsetIndex``, ``TimeIndex``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from pykclient.accel.batch_layout import HEADER_SIZE_BYTES, LENGTH_END
from pykclient.records.batch import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

INDEX_INTERVAL_BYTES = 4096
NO_TIMESTAMP = -1


class FoundTimestamp(NamedTuple):
    """The first record at or after a time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class Segment:
    """Batches from `base_offset` on, as they stand on the wire."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.max_timestamp_ms = NO_TIMESTAMP
        self._data = bytearray()
        self._unindexed_bytes = 0
        self._offsets: list[int] = []
        self._positions: list[int] = []
        self._times_ms: list[int] = []
        self._time_positions: list[int] = []

    @property
    def size_bytes(self) -> int:
        """How many bytes its batches have."""
        return len(self._data)

    def append(self, batch: RecordBatch, data: bytes) -> None:
        """Append `data`, which is what `batch` was read from."""
        position = len(self._data)
        if self._unindexed_bytes > INDEX_INTERVAL_BYTES:
            self._offsets.append(batch.base_offset)
            self._positions.append(position)
            # What stands before this position is not later than this time.
            self._times_ms.append(self.max_timestamp_ms)
            self._time_positions.append(position)
            self._unindexed_bytes = 0
        self._data += data
        self._unindexed_bytes += len(data)
        self.next_offset = batch.last_offset + 1
        self.max_timestamp_ms = max(self.max_timestamp_ms, batch.max_timestamp_ms)

    def batches(self, offset: int = 0) -> Iterator[tuple[RecordBatch, bytes]]:
        """The batches from the one that holds `offset` on."""
        position = self._position_of(offset)
        while position < len(self._data):
            data = bytes(self._data[position : position + self._size_at(position)])
            batch = RecordBatch(memoryview(data), topic="", partition=0, check_crcs=False)
            position += len(data)
            if batch.last_offset >= offset:
                yield batch, data

    def damage(self, offset: int, at: int) -> None:
        """Change the byte at index `at` of the batch that holds `offset`, as a bad disk does."""
        start = self._position_of(offset)
        while self._last_offset_at(start) < offset:
            start += self._size_at(start)
        self._data[start + at % self._size_at(start)] ^= 0x04

    def read(self, offset: int, end_offset: int, max_bytes: int, *, whole_first: bool) -> bytes:
        """Whole batches from the one with `offset` up to those that begin at `end_offset`.

        The response is at most `max_bytes` long, unless `whole_first`: then the first batch comes
        whatever its size (KIP-74). A last batch that does not fit is cut off, as brokers do.
        """
        start = self._position_of(offset)
        while start < len(self._data) and self._last_offset_at(start) < offset:
            start += self._size_at(start)
        if start >= len(self._data) or self._base_offset_at(start) >= end_offset:
            return b""
        if whole_first:
            max_bytes = max(max_bytes, self._size_at(start))
        end = start
        while end < len(self._data) and end - start < max_bytes:
            if self._base_offset_at(end) >= end_offset:
                break
            end += self._size_at(end)
        return bytes(self._data[start : min(end, start + max_bytes)])

    def find_timestamp(self, timestamp_ms: int, start_offset: int) -> FoundTimestamp | None:
        """The first record from `start_offset` on that is not earlier; None when all are."""
        if self.max_timestamp_ms < timestamp_ms:
            return None
        entry = bisect_left(self._times_ms, timestamp_ms) - 1
        position = self._time_positions[entry] if entry >= 0 else 0
        for batch, _ in self.batches(max(start_offset, self._base_offset_at(position))):
            if batch.max_timestamp_ms < timestamp_ms:
                continue
            columns = batch.records()
            for offset, time_ms in zip(columns.offsets, columns.timestamps_ms, strict=True):
                if time_ms >= timestamp_ms and offset >= start_offset:
                    return FoundTimestamp(offset, time_ms, batch.partition_leader_epoch)
        return None

    def _position_of(self, offset: int) -> int:
        """Where to begin to look for `offset`: at or before it."""
        entry = bisect_right(self._offsets, offset) - 1
        return self._positions[entry] if entry >= 0 else 0

    def _base_offset_at(self, position: int) -> int:
        return int.from_bytes(self._data[position : position + 8], "big")

    def _last_offset_at(self, position: int) -> int:
        delta = self._data[position + 23 : position + 27]
        return self._base_offset_at(position) + int.from_bytes(delta, "big")

    def _size_at(self, position: int) -> int:
        assert len(self._data) >= position + HEADER_SIZE_BYTES
        length = self._data[position + LENGTH_END - 4 : position + LENGTH_END]
        return LENGTH_END + int.from_bytes(length, "big")
