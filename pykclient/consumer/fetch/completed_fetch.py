"""CompletedFetch: data of one partition in one response, checked and decoded step by step.

Batch headers are read at creation. Records are decoded when they are needed: plain batches together
with their checksums (`records/batch.py`), other batches after their checksums. It returns no
markers, no records of aborted transactions (for read_committed) and no records before the requested
position. A malformed batch is an error when it is reached, not before: records before it are good.

Owner: `FetchBuffer`.
Source: Java class ``CompletedFetch``; KIP-74 (whole first batch), KIP-98 (transactions).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final

from pykclient.accel.batch_layout import ATTRIBUTE_CODEC, ATTRIBUTE_TRANSACTIONAL, MAGIC_AT
from pykclient.consumer.record import RecordSpan
from pykclient.errors import CorruptRecordError
from pykclient.errors.tracebacks import without_frames
from pykclient.records.batch import (
    BatchSpan,
    RecordBatch,
    first_batch_size_bytes,
    iterate_batches,
    iterate_spans,
)
from pykclient.records.compression import DecompressedSizeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.accel.abc import RecordColumns
    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.records.control import AbortedTransactions
    from pykclient.types import TopicPartition

NO_LEADER_EPOCH: Final = -1
MAGIC_WITH_BASE_OFFSET: Final = 2
LEGACY_ATTRIBUTES_AT: Final = 17


class FetchedResponse:
    """One response of one broker. Any part in use keeps the whole response in memory.

    `owners` are the partitions with a part in use; `ready_count` is how many of these parts may be
    taken.
    """

    __slots__ = ("node_id", "owners", "ready_count", "size_bytes")

    def __init__(self, node_id: int, size_bytes: int) -> None:
        self.node_id = node_id
        self.size_bytes = size_bytes
        self.owners: set[AssignedPartition] = set()
        self.ready_count = 0


class CompletedFetch:
    """A partition's batches in one response, from `fetch_offset` to `end_offset`, exclusive.

    `high_watermark` is that of the response, None if it is invalid. `aborted` is None unless
    records of aborted transactions are to be filtered.
    """

    __slots__ = (
        "_aborted",
        "_batch",
        "_batches",
        "_chunks",
        "_columns",
        "_decompressed_max_bytes",
        "_error",
        "_high_watermark",
        "_passed_offset",
        "_records",
        "end_offset",
        "fetch_offset",
        "partition",
        "passed_leader_epoch",
        "response",
    )

    def __init__(
        self,
        partition: TopicPartition,
        fetch_offset: int,
        records: bytes | bytearray | memoryview,
        config: ConsumerConfig,
        *,
        response: FetchedResponse,
        high_watermark: int | None = None,
        aborted: AbortedTransactions | None = None,
    ) -> None:
        self.partition = partition
        self.response = response
        self.fetch_offset = fetch_offset
        self.end_offset = fetch_offset
        self._aborted = aborted
        self._decompressed_max_bytes = config.decompressed_max_bytes
        self._batches: deque[RecordBatch | BatchSpan] = deque()
        """Batches not read yet."""
        self._batch: RecordBatch | BatchSpan | None = None
        """The batch being read, which has records for the application."""
        self._chunks: Iterator[RecordColumns] = iter(())
        self._columns: RecordColumns | None = None
        self._passed_offset = fetch_offset
        self.passed_leader_epoch: int | None = None
        """Leader epoch of the last batch that was passed; None if it has none."""
        self._error: CorruptRecordError | None = None
        self._records = memoryview(records)
        self._high_watermark = high_watermark
        try:
            self._take_batches(config.check_crcs)
        except CorruptRecordError as error:
            self._error = self._described(error, self.end_offset)

    @property
    def is_exhausted(self) -> bool:
        """True if there is nothing left, not even an error."""
        return self._batch is None and not self._batches and self._error is None

    @property
    def is_damaged(self) -> bool:
        """True if it is already known that reading it ends with an error."""
        return self._error is not None

    def peek(
        self,
        position: int,
        count_max: int,
        limit: int | None = None,
        size_bytes_max: int | None = None,
    ) -> RecordSpan | None:
        """Return records from `position` on and before `limit`; None if none are left.

        Except for a single record they take at most `size_bytes_max`. A second call returns the
        same. Positions must not decrease from call to call.

        Raises:
            CorruptRecordError: the next data is malformed. It is raised again each time.
        """
        while (columns := self._columns_at(position)) is not None:
            start = columns.find(position)
            if start == len(columns):
                self._columns = None
                continue
            stop = min(start + count_max, len(columns))
            if limit is not None:
                stop = min(stop, columns.find(limit))
            if start >= stop:
                return None
            assert self._batch is not None
            return RecordSpan(
                self.partition,
                _within(columns.rows(start, stop), size_bytes_max),
                self._batch.timestamp_type,
                _leader_epoch(self._batch),
            )
        if self._error is not None:
            raise self._error
        return None

    def settle(self, position: int) -> int:
        """Return the next position after everything before `position` was taken.

        It is further on if there are no records to return: at the end of a compacted batch, and
        after markers and aborted records. `passed_leader_epoch` is then that of the record before.
        The next `peek` raises an error that this meets.
        """
        columns, batch = self._columns, self._batch
        if columns is not None and columns.last_offset < position:
            self._columns = None
            if batch is not None and batch.last_offset < position:
                self._finish(batch)
        if self._batch is None:
            try:
                self._next_batch(position)
            except CorruptRecordError as error:
                self._fail(error, position)
        return max(position, self._passed_offset)

    def fold(self) -> None:
        """Drop decoded and decompressed data, which the next `peek` produces again.

        Used for parked data: a small batch may decompress to a large one.
        """
        if self._batch is not None:
            self._batches.appendleft(self._batch)
            self._batch = self._columns = None
            self._chunks = iter(())

    def _columns_at(self, position: int) -> RecordColumns | None:
        """Return the next decoded records; decode some if there are none.

        None at the end, and after an error, which is then in `_error`.
        """
        try:
            while self._columns is None:
                if self._batch is None and not self._next_batch(position):
                    return None
                self._columns = next(self._chunks, None)
                if self._columns is None:
                    assert self._batch is not None
                    self._finish(self._batch)
        except CorruptRecordError as error:
            self._fail(error, position)
        return self._columns

    def _next_batch(self, position: int) -> bool:
        """Move to the next batch with records for the application; return whether there is one."""
        while self._batches:
            batch = self._batches.popleft()
            if self._is_hidden(batch) or batch.last_offset < position:
                self._pass(batch)
                continue
            self._batch = batch
            if isinstance(batch, BatchSpan):
                self._chunks = batch.chunks(position)
            else:
                self._chunks = batch.chunks(
                    position, decompressed_size_bytes_max=self._decompressed_max_bytes
                )
            return True
        return False

    def _is_hidden(self, batch: RecordBatch | BatchSpan) -> bool:
        if isinstance(batch, BatchSpan):
            return False  # transactional batches are never in a span if it matters
        if batch.is_control:
            if self._aborted is not None:
                self._aborted.on_control(batch)
            return True
        return self._aborted is not None and self._aborted.hides(batch)

    def _pass(self, batch: RecordBatch | BatchSpan) -> None:
        if batch.last_offset >= self._passed_offset:
            self._passed_offset = batch.last_offset + 1
            self.passed_leader_epoch = _leader_epoch(batch)

    def _finish(self, batch: RecordBatch | BatchSpan) -> None:
        self._pass(batch)
        self._batch = None

    def _fail(self, error: CorruptRecordError, position: int) -> None:
        """End here: nothing after an error is read."""
        # In a span one of several batches is damaged, and no checksum has confirmed its header.
        batch = self._batch
        known = batch if isinstance(batch, RecordBatch) else None
        self._error = self._described(error, max(position, self._passed_offset), known)
        self._batch = None
        self._batches.clear()

    def _take_batches(self, check_crcs: bool) -> None:
        topic, partition = self.partition
        high_watermark = self._high_watermark
        batches = iterate_spans(
            self._records,
            topic=topic,
            partition=partition,
            start_offset=self.fetch_offset,
            check_crcs=check_crcs,
            # Whether a transactional batch is hidden depends on each one.
            special=0 if self._aborted is None else ATTRIBUTE_TRANSACTIONAL,
            readable_end=high_watermark,
        )
        for batch in batches:
            if isinstance(batch, BatchSpan):
                has_base_offset, last_offset = True, batch.head_last_offset
            else:
                # For a compressed batch of the old formats only the last offset is known.
                has_base_offset = batch.magic >= MAGIC_WITH_BASE_OFFSET
                last_offset = batch.last_offset
            has_hole = has_base_offset and batch.base_offset > self.end_offset
            # No checksum covers the base offset of a batch. Compaction leaves holes, so a hole
            # alone proves nothing. But there is none beyond the high watermark, where all records
            # were appended after the broker noted it.
            if has_hole and high_watermark is not None and last_offset >= high_watermark:
                raise batch.corrupt(
                    f"offset {self.end_offset} is expected there, and the log is readable up to "
                    f"{high_watermark}"
                )
            self._batches.append(batch)
            self.end_offset = batch.last_offset + 1
        if not self._batches:
            raise self._incomplete(self._records)

    def _described(
        self, error: CorruptRecordError, due: int, batch: RecordBatch | None = None
    ) -> CorruptRecordError:
        """Return the error for the application, with the bytes and how to get past them.

        `due` is the next offset; `batch` is the damaged batch, if its header is known to be good.
        """
        start, size_bytes, end = self._found_at(error.offset)
        if batch is not None:
            end = batch.last_offset + 1
        elif error.next_offset is not None:  # its checksum is right, but it cannot be decoded
            end = error.next_offset if self._is_readable(error.next_offset) else None
            size_bytes = first_batch_size_bytes(self._records[start:]) or size_bytes
        past = "seek() past it" if end is None else f"seek() to {end}, the offset after it"
        if isinstance(error.__cause__, DecompressedSizeError):
            cure = (
                f"To read it raise decompressed_max_bytes, which is "
                f"{self._decompressed_max_bytes}; to go on without it set on_record_error to "
                f"skip, or {past}"
            )
        else:
            cure = f"Poll again to fetch it again, or {past}"
        described = CorruptRecordError(
            f"{error}. {cure}",
            topic=error.topic,
            partition=error.partition,
            offset=due if self._has_hidden_start(start) else error.offset,
            next_offset=end,
            raw=bytes(self._records[start : start + size_bytes]),
        )
        described.__cause__ = without_frames(error)  # frames have what was decompressed so far
        return described

    def _has_hidden_start(self, start: int) -> bool:
        """Return True if the batch there has only its last offset, as old wrappers do."""
        head = self._records[start : start + LEGACY_ATTRIBUTES_AT + 1]
        is_whole = len(head) > LEGACY_ATTRIBUTES_AT
        return (
            is_whole
            and head[MAGIC_AT] < MAGIC_WITH_BASE_OFFSET
            and bool(head[LEGACY_ATTRIBUTES_AT] & ATTRIBUTE_CODEC)
        )

    def _is_readable(self, end: int) -> bool:
        """Return True if a batch may end there: no checksum covers the offset that it claims."""
        return self._high_watermark is None or end <= self._high_watermark

    def _found_at(self, offset: int | None) -> tuple[int, int, int | None]:
        """Return where the batch at an offset starts, its size, and the offset where it ends.

        Its checksum is wrong, so its header may be, too. The end is None if the following data does
        not confirm it. Without an end one would have to seek record by record.
        """
        topic, partition = self.partition
        batches = iterate_batches(self._records, topic=topic, partition=partition, check_crcs=False)
        start = 0
        found: RecordBatch | None = None
        try:
            for batch in batches:
                if found is not None:
                    return start, found.size_bytes, found.last_offset + 1
                if batch.base_offset == offset:
                    found = batch
                else:
                    start += batch.size_bytes
        except CorruptRecordError:
            # The error being described, or one behind it, which is a reason not to trust the end.
            if found is not None:
                return start, found.size_bytes, None
        if found is None:
            return start, len(self._records) - start, None
        end = found.last_offset + 1
        return start, found.size_bytes, end if self._is_readable(end) else None

    def _incomplete(self, records: memoryview) -> CorruptRecordError:
        size_bytes = first_batch_size_bytes(records)
        claimed = "" if size_bytes is None else f" of a batch of {size_bytes}"
        return CorruptRecordError(
            f"{self.partition}: the broker sent {len(records)} bytes{claimed} at offset "
            f"{self.fetch_offset}, though a first batch must be sent whole (KIP-74); raise "
            f"max_partition_fetch_bytes for a broker that does not do so",
            topic=self.partition.topic,
            partition=self.partition.partition,
            offset=self.fetch_offset,
        )


def _within(columns: RecordColumns, size_bytes_max: int | None) -> RecordColumns:
    """Return the first records that fit into `size_bytes_max`, at least one."""
    if size_bytes_max is None or columns.size_bytes <= size_bytes_max:
        return columns
    count = bisect_right(
        range(len(columns)), size_bytes_max, lo=1, key=lambda at: columns.rows(0, at + 1).size_bytes
    )
    return columns.rows(0, count)


def _leader_epoch(batch: RecordBatch | BatchSpan) -> int | None:
    epoch = batch.partition_leader_epoch
    return None if epoch == NO_LEADER_EPOCH else epoch
