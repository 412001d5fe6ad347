"""A segment of a partition's log: consecutive batches and two sparse indexes.

The offset index has an entry for about every 4 KiB of batches; the time index has the largest
timestamp up to there. A search bisects an index, then walks the batches.

The log's store keeps the batches. The indexes are in memory, and are rebuilt when a segment is
loaded.

Owner: the log it belongs to.
Source: Java classes ``LogSegment``, ``OffsetIndex``, ``TimeIndex``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from pykclient.accel.batch_layout import HEADER_SIZE_BYTES, LENGTH_END
from pykclient.errors.base import CorruptRecordError
from pykclient.records.batch import RecordBatch
from pykclient.records.segment import LogSegment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing.fake.storage import SegmentData
    from pykclient.types import TopicPartition

INDEX_INTERVAL_BYTES = 4096
NO_TIMESTAMP = -1

_WALKED = Struct(">qi11xi")


class FoundTimestamp(NamedTuple):
    """The first record at or after a timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class BatchHeader(NamedTuple):
    """The header fields needed to step from batch to batch."""

    base_offset: int
    last_offset: int
    size_bytes: int

    @classmethod
    def of(cls, data: bytes, position: int) -> BatchHeader:
        base_offset, length, last_offset_delta = _WALKED.unpack_from(data, position)
        return cls(base_offset, base_offset + last_offset_delta, LENGTH_END + length)


class Segment:
    """Batches from `base_offset` on, in wire format, in `data`.

    `data` must be empty, unless `load` is called next.
    """

    def __init__(self, base_offset: int, data: SegmentData) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.max_timestamp_ms = NO_TIMESTAMP
        self.first_timestamp_ms = NO_TIMESTAMP
        """Largest timestamp of the first batch; the segment's age counts from it."""
        self._data = data
        self._unindexed_bytes = 0
        self._offsets: list[int] = []
        self._positions: list[int] = []
        self._times_ms: list[int] = []
        self._time_positions: list[int] = []

    @property
    def size_bytes(self) -> int:
        """Size of its batches in bytes."""
        return len(self._data)

    def append(self, batch: RecordBatch, data: bytes) -> None:
        """Append a batch; `data` is its encoded form."""
        position = self.size_bytes
        self._data.append(data)
        self._note(batch, position)

    def load(self, partition: TopicPartition) -> Iterator[RecordBatch]:
        """Yield the stored batches, each checked and added to the indexes.

        Raises:
            CorruptRecordError: a batch is damaged; the segment is truncated before it.
        """
        kept = LogSegment(self._data.read, self.size_bytes, partition=partition)
        end = 0
        try:
            for position, batch in kept.batches():
                if batch.base_offset < self.next_offset:
                    raise kept.corrupt(position, self.next_offset, "its offsets repeat others")
                self._note(batch, position)
                end = position + batch.size_bytes
                yield batch
        except CorruptRecordError:
            self._data.truncate(end)
            raise

    def _note(self, batch: RecordBatch, position: int) -> None:
        if self._unindexed_bytes > INDEX_INTERVAL_BYTES:
            self._offsets.append(batch.base_offset)
            self._positions.append(position)
            # All batches before this position have timestamps up to this one.
            self._times_ms.append(self.max_timestamp_ms)
            self._time_positions.append(position)
            self._unindexed_bytes = 0
        self._unindexed_bytes += batch.size_bytes
        if position == 0:
            self.first_timestamp_ms = batch.max_timestamp_ms
        self.next_offset = batch.last_offset + 1
        self.max_timestamp_ms = max(self.max_timestamp_ms, batch.max_timestamp_ms)

    def batches(self, offset: int = 0) -> Iterator[tuple[RecordBatch, bytes]]:
        """Yield the batches from the one with `offset` on."""
        position = self._position_of(offset)
        while position < self.size_bytes:
            data = self._data.read(position, self._header_at(position).size_bytes)
            batch = RecordBatch(memoryview(data), topic="", partition=0, check_crcs=False)
            position += len(data)
            if batch.last_offset >= offset:
                yield batch, data

    def damage(self, offset: int, at: int) -> None:
        """Flip a bit in byte `at` of the batch with `offset`, like a bad disk."""
        start = self._position_of(offset)
        while (header := self._header_at(start)).last_offset < offset:
            start += header.size_bytes
        position = start + at % header.size_bytes
        self._data.overwrite(position, bytes((self._data.read(position, 1)[0] ^ 0x04,)))

    def read(self, offset: int, end_offset: int, max_bytes: int, *, whole_first: bool) -> bytes:
        """Return batches from the one with `offset` up to those that begin at `end_offset`.

        The result has at most `max_bytes`, unless `whole_first`: then it has at least the first
        batch (KIP-74). A last batch that does not fit is cut off, as real brokers do.
        """
        start = self._position_of(offset)
        while start < self.size_bytes and self._header_at(start).last_offset < offset:
            start += self._header_at(start).size_bytes
        if start >= self.size_bytes:
            return b""
        header = self._header_at(start)
        if header.base_offset >= end_offset:
            return b""
        if whole_first:
            max_bytes = max(max_bytes, header.size_bytes)
        # Read everything at once: reading each header costs a system call.
        window = self._data.read(start, max_bytes + HEADER_SIZE_BYTES)
        end = 0
        while end < min(len(window), max_bytes):
            header = BatchHeader.of(window, end)
            if header.base_offset >= end_offset:
                break
            end += header.size_bytes
        return window[: min(end, max_bytes)]

    def find_timestamp(self, timestamp_ms: int, start_offset: int) -> FoundTimestamp | None:
        """Return the first record at or after the timestamp, from `start_offset` on, or None."""
        if self.max_timestamp_ms < timestamp_ms:
            return None
        entry = bisect_left(self._times_ms, timestamp_ms) - 1
        position = self._time_positions[entry] if entry >= 0 else 0
        for batch, _ in self.batches(max(start_offset, self._header_at(position).base_offset)):
            if batch.max_timestamp_ms < timestamp_ms or not batch.record_count:
                continue
            columns = batch.records()
            for offset, time_ms in zip(columns.offsets, columns.timestamps_ms, strict=True):
                if time_ms >= timestamp_ms and offset >= start_offset:
                    return FoundTimestamp(offset, time_ms, batch.partition_leader_epoch)
        return None

    def _position_of(self, offset: int) -> int:
        """Return a position at or before `offset`, where a search can start."""
        entry = bisect_right(self._offsets, offset) - 1
        return self._positions[entry] if entry >= 0 else 0

    def _header_at(self, position: int) -> BatchHeader:
        header = self._data.read(position, HEADER_SIZE_BYTES)
        assert len(header) == HEADER_SIZE_BYTES
        return BatchHeader.of(header, 0)
