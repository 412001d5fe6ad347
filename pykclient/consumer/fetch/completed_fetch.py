"""CompletedFetch: what one fetch brought of one partition, checked and decoded piece by piece.

Headers are looked at when it is made; records are decoded when they are wanted, plain batches with
their checksums (`records/batch.py`), others checked by then. It returns no markers, no records
of aborted transactions (for read_committed) and nothing before the position requested. A batch that
is wrong is an error when it is reached, not before: what stands in front of it is good.

Owner: `FetchBuffer`.
Source: Java class ``CompletedFetch``; KIP-74 (a first batch comes whole), KIP-98 (transactions).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final

from pykclient.accel.batch_layout import ATTRIBUTE_CODEC, ATTRIBUTE_TRANSACTIONAL, MAGIC_AT
from pykclient.consumer.record import RecordSpan
from pykclient.errors import CorruptRecordError
from pykclient.records.batch import (
    BatchSpan,
    RecordBatch,
    first_batch_size_bytes,
    iterate_batches,
    iterate_spans,
)

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
    """One response of one broker. Any part of it keeps all of its bytes in memory.

    `owners` are the partitions that have a part which is not used up; `ready_count` is how many of
    those parts are ready to be taken.
    """

    __slots__ = ("node_id", "owners", "ready_count", "size_bytes")

    def __init__(self, node_id: int, size_bytes: int) -> None:
        self.node_id = node_id
        self.size_bytes = size_bytes
        self.owners: set[AssignedPartition] = set()
        self.ready_count = 0


class CompletedFetch:
    """A partition's batches in one response, from `fetch_offset` to `end_offset` (not included).

    `high_watermark` is that of the response, None when it had none that makes sense; `aborted` is
    None unless records of aborted transactions are to be left out.
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
        """Those not looked at yet."""
        self._batch: RecordBatch | BatchSpan | None = None
        """What is being read, which holds records for the application."""
        self._chunks: Iterator[RecordColumns] = iter(())
        self._columns: RecordColumns | None = None
        self._passed_offset = fetch_offset
        self.passed_leader_epoch: int | None = None
        """The leader epoch of the last batch that was passed; None if it has none."""
        self._error: CorruptRecordError | None = None
        self._records = memoryview(records)
        self._high_watermark = high_watermark
        try:
            self._take_batches(config.check_crcs)
        except CorruptRecordError as error:
            self._error = self._described(error, self.end_offset)

    @property
    def is_exhausted(self) -> bool:
        """Whether there is nothing left, not even an error."""
        return self._batch is None and not self._batches and self._error is None

    @property
    def is_damaged(self) -> bool:
        """Whether reading it ends with an error, as far as is known by now."""
        return self._error is not None

    def peek(
        self,
        position: int,
        count_max: int,
        limit: int | None = None,
        size_bytes_max: int | None = None,
    ) -> RecordSpan | None:
        """Return records from `position` on and before `limit`; None if none are left.

        They take `size_bytes_max` at most, but for a single record that is larger. A second call
        returns the same again. Positions must not go back from call to call.

        Raises:
            CorruptRecordError: what comes next is malformed. It is raised again each time.
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
        """Return where reading goes on after everything before `position` was taken.

        That is further on where the log has no record that is returned: at the end of a batch
        that compaction thinned, and after markers and aborted records; `passed_leader_epoch` is
        then that of the record before. An error met on the way is left to the next `peek`.
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
        """Forget what is decoded and decompressed, which the next `peek` does again.

        For what is parked: a small batch may decompress to a large one.
        """
        if self._batch is not None:
            self._batches.appendleft(self._batch)
            self._batch = self._columns = None
            self._chunks = iter(())

    def _columns_at(self, position: int) -> RecordColumns | None:
        """Return the decoded records that come next, decoding some if there are none.

        None stands for the end, and for an error that `_error` then has.
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
        """Move on to a batch with records for the application; return whether there is one."""
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
            return False  # those of transactions are kept out where it matters
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
        """End here: nothing behind an error is read."""
        # In a span it is one of several that is damaged, and no checksum vouches for its header.
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
            # Whether those of transactions are hidden depends on each one.
            special=0 if self._aborted is None else ATTRIBUTE_TRANSACTIONAL,
            readable_end=high_watermark,
        )
        for batch in batches:
            if isinstance(batch, BatchSpan):
                has_base_offset, last_offset = True, batch.head_last_offset
            else:
                # Of a compressed batch of the old formats only the last offset is known.
                has_base_offset = batch.magic >= MAGIC_WITH_BASE_OFFSET
                last_offset = batch.last_offset
            has_hole = has_base_offset and batch.base_offset > self.end_offset
            # No checksum covers the offset at which a batch claims to stand. Compaction leaves
            # holes, so a hole alone proves nothing; but none reaches beyond the high watermark,
            # where only records stand that were appended since the broker noted it.
            if has_hole and high_watermark is not None and last_offset >= high_watermark:
                raise batch.corrupt(
                    f"offset {self.end_offset} is due there, and the log is readable up to "
                    f"{high_watermark}"
                )
            self._batches.append(batch)
            self.end_offset = batch.last_offset + 1
        if not self._batches:
            raise self._incomplete(self._records)

    def _described(
        self, error: CorruptRecordError, due: int, batch: RecordBatch | None = None
    ) -> CorruptRecordError:
        """Return the error as the application gets it: with the bytes, and the way past them.

        `due` is the offset that comes next, `batch` the one that is damaged where its header was
        found good.
        """
        start, size_bytes, end = self._found_at(error.offset)
        if batch is not None:
            end = batch.last_offset + 1
        elif error.next_offset is not None:  # its checksum is right, and we cannot read it
            end = error.next_offset if self._is_readable(error.next_offset) else None
            size_bytes = first_batch_size_bytes(self._records[start:]) or size_bytes
        past = "seek() past it" if end is None else f"seek() to {end}, the offset after it"
        described = CorruptRecordError(
            f"{error}. Poll again to fetch it anew, or {past}",
            topic=error.topic,
            partition=error.partition,
            offset=due if self._has_hidden_start(start) else error.offset,
            next_offset=end,
            raw=bytes(self._records[start : start + size_bytes]),
        )
        described.__cause__ = error
        return described

    def _has_hidden_start(self, start: int) -> bool:
        """Return whether the batch there says its last offset alone, as old wrappers do."""
        head = self._records[start : start + LEGACY_ATTRIBUTES_AT + 1]
        is_whole = len(head) > LEGACY_ATTRIBUTES_AT
        return (
            is_whole
            and head[MAGIC_AT] < MAGIC_WITH_BASE_OFFSET
            and bool(head[LEGACY_ATTRIBUTES_AT] & ATTRIBUTE_CODEC)
        )

    def _is_readable(self, end: int) -> bool:
        """Return whether a batch may end there: no checksum covers the offset that it claims."""
        return self._high_watermark is None or end <= self._high_watermark

    def _found_at(self, offset: int | None) -> tuple[int, int, int | None]:
        """Return where the batch at an offset starts, how many bytes it has, and where it ends.

        Its checksum is wrong, so what it says of itself may be, too: an end that does not fit what
        follows it is None. Without any end one would have to seek through it record by record.
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
            # The error that is being described, or, behind that, a reason not to trust the end.
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
            f"{self.fetch_offset}, though a first batch must come whole (KIP-74); raise "
            f"max_partition_fetch_bytes for a broker that does not keep to that",
            topic=self.partition.topic,
            partition=self.partition.partition,
            offset=self.fetch_offset,
        )


def _within(columns: RecordColumns, size_bytes_max: int | None) -> RecordColumns:
    """As many of the first records as take at most so many bytes together, but one at least."""
    if size_bytes_max is None or columns.size_bytes <= size_bytes_max:
        return columns
    count = bisect_right(
        range(len(columns)), size_bytes_max, lo=1, key=lambda at: columns.rows(0, at + 1).size_bytes
    )
    return columns.rows(0, count)


def _leader_epoch(batch: RecordBatch | BatchSpan) -> int | None:
    epoch = batch.partition_leader_epoch
    return None if epoch == NO_LEADER_EPOCH else epoch
