"""One segment of a partition, as a broker keeps it in a file: batches, one after the other.

It is read in pieces, so a segment of any size costs the memory of one piece or of one batch, and
nothing is believed before it was checked: a segment that is cut, damaged or no segment at all gives
its good batches and then one error that says where and why it ends. With the indexes that lie
beside it, an offset or a time is found as a broker finds it: the last index entry before it, and
from there batch by batch.

Owner: whoever made it.
Source: Java classes ``LogSegment``, ``FileRecords`` and ``FileLogInputStream``; KIP-33 (search by
time).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.accel.batch_layout import HEADER_SIZE_BYTES
from pykclient.errors.base import CorruptRecordError
from pykclient.records.batch import (
    RecordBatch,
    first_batch_size_bytes,
    iterate_batches,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.records.index import OffsetIndex, ReadAt, TimeIndex
    from pykclient.types import TopicPartition

WINDOW_BYTES: Final = 1024 * 1024
"""Size of one read, unless a batch is larger."""

BATCH_SIZE_BYTES_MAX: Final = 104_857_600
"""Default of a broker's ``socket.request.max.bytes``, which limits the size of batches."""

FIRST_BYTES_SHOWN: Final = 16


class PlacedBatch(NamedTuple):
    """A batch, and its position in the file."""

    position: int
    batch: RecordBatch


class Start(NamedTuple):
    """A place to read from: the batch at byte `position`, and its records from `offset` on."""

    position: int
    offset: int


class LogSegment:
    """The segment in a file of `size_bytes` bytes, read through `read_at`.

    `partition` is for errors. `offset_index` and `time_index` None mean to search from the start. A
    batch above `batch_size_bytes_max` bytes, compressed or not, is refused.
    """

    def __init__(
        self,
        read_at: ReadAt,
        size_bytes: int,
        *,
        partition: TopicPartition,
        offset_index: OffsetIndex | None = None,
        time_index: TimeIndex | None = None,
        batch_size_bytes_max: int = BATCH_SIZE_BYTES_MAX,
    ) -> None:
        self._read_at = read_at
        self.size_bytes: Final = size_bytes
        self.partition: Final = partition
        self._offset_index = offset_index
        self._time_index = time_index
        self._batch_size_bytes_max = batch_size_bytes_max

    def batches(self, position: int = 0) -> Iterator[PlacedBatch]:
        """Yield the batches from byte `position` on, which must be the start of one, each checked.

        Raises:
            CorruptRecordError: no valid batch follows the last one, and the file continues.
        """
        next_offset = 0
        while position < self.size_bytes:
            window = self._window(position, next_offset)
            window_position = position
            try:
                for batch in iterate_batches(window, **self.partition._asdict()):
                    if batch.base_offset < next_offset:
                        raise batch.corrupt(f"the batch before it ends at offset {next_offset - 1}")
                    yield PlacedBatch(position, batch)
                    position += batch.size_bytes
                    next_offset = batch.last_offset + 1
            except CorruptRecordError as error:
                reason = self._zeros_at(window[position - window_position :], position)
                raise self.corrupt(position, next_offset, reason or str(error)) from error

    def find_offset(self, offset: int) -> Start | None:
        """Find `offset`, or the next one if it was compacted away; None if all are before it.

        Raises:
            CorruptIndexError: the index points to a place without such a batch.
            CorruptRecordError: the segment ends before the offset was found.
        """
        for placed in self._batches_near(offset):
            if placed.batch.last_offset >= offset:
                return Start(placed.position, offset)
        return None

    def find_time(self, timestamp_ms: int) -> Start | None:
        """Find the first record at or after a time, in milliseconds; None if all are before it.

        Raises:
            CorruptIndexError: an index points to a place without such a batch.
            CorruptRecordError: the segment ends before the time was found.
        """
        entry = self._time_index.lookup(timestamp_ms) if self._time_index is not None else None
        for placed in self._batches_near(0 if entry is None else entry.offset):
            if placed.batch.max_timestamp_ms >= timestamp_ms:
                offset = self._first_at_or_after(placed, timestamp_ms)
                if offset is not None:
                    return Start(placed.position, offset)
        return None

    def corrupt(self, position: int, next_offset: int, reason: str) -> CorruptRecordError:
        """Return the error for a segment that ends at a byte, after the offsets before."""
        seen = f"after offset {next_offset - 1}, " if next_offset else ""
        message = f"{seen}at byte {position} of {self.size_bytes}: {reason}"
        return CorruptRecordError(message, **self.partition._asdict(), offset=next_offset)

    def _batches_near(self, offset: int) -> Iterator[PlacedBatch]:
        """Yield the batches from the last index entry before `offset` on."""
        index = self._offset_index
        entry = index.lookup(offset) if index is not None else None
        if index is None or entry is None:
            yield from self.batches()
            return
        claim = f"it says that offset {entry.offset} stands at byte {entry.position}"
        if not 0 <= entry.position < self.size_bytes:
            raise index.corrupt(f"{claim}, and the segment has {self.size_bytes} bytes")
        batches = self.batches(entry.position)
        try:
            first = next(batches)
        except CorruptRecordError as error:
            raise index.corrupt(f"{claim}, where no good batch begins ({error})") from error
        if first.batch.base_offset > entry.offset:
            raise index.corrupt(f"{claim}, where offset {first.batch.base_offset} is")
        yield first
        yield from batches

    def _first_at_or_after(self, placed: PlacedBatch, timestamp_ms: int) -> int | None:
        batch = placed.batch
        try:
            for chunk in batch.chunks(decompressed_size_bytes_max=self._batch_size_bytes_max):
                for offset, at_ms in zip(chunk.offsets, chunk.timestamps_ms, strict=True):
                    if at_ms >= timestamp_ms:
                        return offset
        except CorruptRecordError as error:
            raise self.corrupt(placed.position, batch.base_offset, str(error)) from error
        return None

    def _window(self, position: int, next_offset: int) -> memoryview:
        """Read from `position` on, at least the whole next batch."""
        rest_bytes = self.size_bytes - position
        window = self._read_at(position, min(rest_bytes, WINDOW_BYTES))
        wanted_bytes = first_batch_size_bytes(memoryview(window))
        reason = self._why_no_batch(window, wanted_bytes, rest_bytes)
        if wanted_bytes is not None and reason is None and wanted_bytes > len(window):
            window = self._read_at(position, wanted_bytes)
            if len(window) < wanted_bytes:
                reason = "the file became shorter while it was read"
        if reason is not None:
            if position == 0:
                reason += f"; this may be no segment, it begins with {window[:FIRST_BYTES_SHOWN]!r}"
            raise self.corrupt(position, next_offset, reason)
        return memoryview(window)

    def _why_no_batch(self, window: bytes, wanted_bytes: int | None, rest_bytes: int) -> str | None:
        if wanted_bytes is None:
            return f"{rest_bytes} bytes are left, too few for a batch"
        if wanted_bytes > rest_bytes:
            return f"the next batch has {wanted_bytes} bytes, and only {rest_bytes} are left"
        if wanted_bytes > self._batch_size_bytes_max:
            return (
                f"the next batch claims to have {wanted_bytes} bytes, more than the limit of "
                f"{self._batch_size_bytes_max}"
            )
        # One that is too short is for `iterate_batches` to refuse.
        return None

    def _zeros_at(self, rest: memoryview, position: int) -> str | None:
        """Return a complaint if zeros begin at `position`; `rest` are the bytes from there on."""
        if any(rest[:HEADER_SIZE_BYTES]):
            return None
        return (
            f"zeros begin here, and {self.size_bytes - position} bytes are left: the file was made "
            "larger in advance (log.preallocate), or its end was lost in a crash"
        )
