"""The log of a partition: segments, leader epochs, producers, high watermark, compaction.

There is one log, the leader's; a replica is the offset up to which it has been copied. Consumers
can read from `log_start_offset` up to `high_watermark`, which all in-sync replicas have copied; the
log ends at `log_end_offset`. The log's store keeps the segments; all other state is rebuilt from
them on loading. If the broker was killed or its disk was full, the last segment may end with an
incomplete batch, which is cut off.

Owner: the partition.
Source: Java classes ``UnifiedLog``, ``LogLoader``, ``LogValidator``, ``LeaderEpochFileCache``,
``LogCleanerManager``; KIP-58 (minimum compaction lag), KIP-101, KIP-354 (maximum compaction lag).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from pykclient.accel import crc32c
from pykclient.accel.batch_layout import (
    ATTRIBUTE_LOG_APPEND_TIME,
    CRC_AT,
    CRC_START,
    MAGIC_AT,
)
from pykclient.errors.base import CorruptRecordError
from pykclient.errors.broker import (
    CorruptMessageError,
    InvalidRecordError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
)
from pykclient.records.batch import RecordBatch, first_batch_size_bytes
from pykclient.records.builder import RecordBatchBuilder
from pykclient.records.control import (
    END_MARKER,
    KEY,
    ControlType,
    control_type,
    coordinator_epoch,
)
from pykclient.testing.fake.cleaning import Cleaning, TransactionFilter, newest_offsets
from pykclient.testing.fake.producer_states import AbortedTransaction, ProducerStates
from pykclient.testing.fake.segment import FoundTimestamp, Segment
from pykclient.testing.fake.storage import LogStore
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.errors.base import BrokerError

LONG_MAX = 2**63 - 1
NO_TIME = -1
NO_EPOCH = -1
MAX_TIMESTAMP_AT = 35
ATTRIBUTES_AT = 21
CONTROL_BATCH_BYTES = 1024
NO_PARTITION = TopicPartition("", 0)

log = logging.getLogger("pykclient.testing")


class LogSettings(NamedTuple):
    """A topic's settings for its logs; sizes in bytes, times in ms, -1 for no limit."""

    segment_bytes: int = 1024 * 1024 * 1024
    max_message_bytes: int = 1_048_588
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    is_log_append_time: bool = False
    segment_ms: int = 7 * 24 * 3600 * 1000
    is_deleted: bool = True
    """True to delete old or excess segments."""
    is_compacted: bool = False
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    delete_retention_ms: int = 24 * 3600 * 1000


class Appended(NamedTuple):
    """The place of an appended batch; `log_append_time_ms` is -1 if the producer set the times."""

    base_offset: int
    log_append_time_ms: int
    is_duplicate: bool = False


class Refused(NamedTuple):
    """Reason why a batch was refused."""

    error: type[BrokerError]
    reason: str


class EpochStart(NamedTuple):
    """First offset of a leader epoch."""

    epoch: int
    start_offset: int


class PartitionLog:
    """The records of a partition, loaded from its store; a store of None keeps them in memory.

    `partition` names the log in log messages.
    """

    def __init__(
        self,
        settings: LogSettings | None = None,
        store: LogStore | None = None,
        partition: TopicPartition = NO_PARTITION,
    ) -> None:
        self.settings = settings or LogSettings()
        self.producers = ProducerStates()
        self._store = LogStore() if store is None else store
        self._epochs = [EpochStart(0, 0)]
        self._segments = [self._segment(first) for first in self._store.base_offsets() or (0,)]
        self._load(partition)
        self.log_start_offset = max(self._store.log_start_offset, self._segments[0].base_offset)
        if self.log_end_offset < self.log_start_offset:
            self._reset_to_start(partition)
        self.high_watermark = self.log_end_offset
        self._first_dirty_offset = self.log_start_offset
        """Start of the range that was never compacted."""

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record."""
        return self._segments[-1].next_offset

    @property
    def last_stable_offset(self) -> int:
        """End of the range that a read_committed consumer may read."""
        unstable_from = self.producers.first_unstable_offset(self.high_watermark)
        if unstable_from is None:
            return self.high_watermark
        return min(unstable_from, self.high_watermark)

    @property
    def size_bytes(self) -> int:
        """Size of all batches in bytes."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segment_count(self) -> int:
        """Number of segments; the last one is active."""
        return len(self._segments)

    @property
    def last_epoch(self) -> int:
        """Latest known leader epoch."""
        return self._epochs[-1].epoch if self._epochs else 0

    def _segment(self, base_offset: int) -> Segment:
        return Segment(base_offset, self._store.segment(base_offset))

    def _load(self, partition: TopicPartition) -> None:
        """Load the segments up to the first damage; everything after it is unreliable."""
        kept, self._segments = self._segments, []
        for number, segment in enumerate(kept):
            if self._segments and segment.base_offset < self.log_end_offset:
                # Compaction was killed after it wrote a segment and before it removed this one.
                self._store.remove(segment.base_offset)
                continue
            self._segments.append(segment)
            try:
                for batch in segment.load(partition):
                    if self._epochs[-1].epoch < batch.partition_leader_epoch:
                        start = EpochStart(batch.partition_leader_epoch, batch.base_offset)
                        self._epochs.append(start)
                    self._note_producer(batch, NO_TIME)
            except CorruptRecordError as error:
                log.warning("%s was cut off at its damaged end: %s", partition, error)
                for lost in kept[number + 1 :]:
                    log.warning("%s: segment %d after it is removed", partition, lost.base_offset)
                    self._store.remove(lost.base_offset)
                return

    def _reset_to_start(self, partition: TopicPartition) -> None:
        """Replace the log by an empty one at its start, when all segments end before the start.

        Otherwise new records would get offsets before the start, which no consumer can read.
        """
        log.warning(
            "%s ends at %d, before its start at %d: its segments are removed",
            partition,
            self.log_end_offset,
            self.log_start_offset,
        )
        self._rebuild(self.log_start_offset, [])
        self.producers = ProducerStates()

    # Writing.

    def append(
        self, records: bytes, *, leader_epoch: int, now_ms: int, begins_at_zero: bool = False
    ) -> Appended | Refused:
        """Append a producer's batch, recognise it as a duplicate, or refuse it.

        `now_ms` is the broker's wall clock. With `begins_at_zero`, the first batch of an unknown
        producer must have sequence 0.
        """
        checked = self._checked(records)
        if isinstance(checked, Refused):
            return checked
        if checked.producer_id >= 0:
            duplicate = self.producers.duplicate(checked)
            if duplicate is not None:
                return Appended(
                    duplicate.base_offset, duplicate.log_append_time_ms, is_duplicate=True
                )
            error = self.producers.refusal(checked, begins_at_zero=begins_at_zero)
            if error is not None:
                return Refused(error, f"its sequence is {checked.base_sequence}")
        return self._write(records, leader_epoch, now_ms)

    def append_unnumbered(self, records: bytes, *, leader_epoch: int, now_ms: int) -> Appended:
        """Append a coordinator's batch, which has no sequence and must be valid."""
        return self._write(records, leader_epoch, now_ms)

    def append_marker(
        self, producer_id: int, producer_epoch: int, *, is_commit: bool, leader_epoch: int,
        now_ms: int, coordinator_epoch: int = 0,
    ) -> Appended | Refused:  # fmt: skip
        """End a producer's transaction with a control batch (KIP-98), or refuse to."""
        error = self.producers.marker_refusal(producer_id, producer_epoch, coordinator_epoch)
        if error is not None:
            return Refused(error, f"its epochs are {producer_epoch} and {coordinator_epoch}")
        builder: RecordBatchBuilder[None] = RecordBatchBuilder(batch_size_bytes=CONTROL_BATCH_BYTES)
        kind = ControlType.COMMIT if is_commit else ControlType.ABORT
        builder.try_append(now_ms, KEY.pack(0, kind), END_MARKER.pack(0, coordinator_epoch))
        data = builder.close(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=True,
            is_control=True,
        )
        return self._write(bytes(data), leader_epoch, now_ms)

    def _checked(self, records: bytes) -> RecordBatch | Refused:
        data = memoryview(records)
        size_bytes = first_batch_size_bytes(data)
        if size_bytes is not None and len(data) > MAGIC_AT and data[MAGIC_AT] < 2:
            return Refused(InvalidRecordError, "its format is older than version 2")
        if size_bytes is not None and 0 < size_bytes < len(data):
            return Refused(InvalidRecordError, "a request must have one batch for each partition")
        try:
            batch = RecordBatch(data, topic="", partition=0)
            columns = batch.records()
        except CorruptRecordError as error:
            return Refused(CorruptMessageError, str(error))
        if len(records) > self.settings.max_message_bytes:
            return Refused(MessageTooLargeError, f"the batch has {len(records)} bytes")
        if batch.is_control or batch.record_count != batch.last_offset_delta + 1:
            return Refused(InvalidRecordError, "it is a control batch, or lacks records")
        expected = range(batch.base_offset, batch.base_offset + batch.record_count)
        if not batch.record_count or list(columns.offsets) != list(expected):
            return Refused(InvalidRecordError, "the offsets of its records are not in a row")
        if self.settings.is_compacted and None in columns.keys:
            return Refused(InvalidRecordError, "a record has no key, and the topic is compacted")
        return batch

    def _write(self, records: bytes, leader_epoch: int, now_ms: int) -> Appended:
        """Append the batch with its offsets, which the checksum does not cover, and its time."""
        data = bytearray(records)
        base_offset = self.log_end_offset
        data[:8] = base_offset.to_bytes(8, "big")
        data[12:16] = leader_epoch.to_bytes(4, "big")
        log_append_time_ms = NO_TIME
        if self.settings.is_log_append_time:
            log_append_time_ms = now_ms
            _stamp(data, now_ms)
        written = bytes(data)
        batch = RecordBatch(memoryview(written), topic="", partition=0, check_crcs=False)
        if not self._epochs or self._epochs[-1].epoch < leader_epoch:
            self.begin_epoch(leader_epoch)
        segment = self._segments[-1]
        if segment.size_bytes and self._is_full(segment, batch):
            segment = self._segment(base_offset)
            self._segments.append(segment)
        segment.append(batch, written)
        self._note_producer(batch, log_append_time_ms)
        return Appended(base_offset, log_append_time_ms)

    def _is_full(self, segment: Segment, batch: RecordBatch) -> bool:
        """Return whether the batch exceeds the segment's size or time limit."""
        settings = self.settings
        if segment.size_bytes + batch.size_bytes > settings.segment_bytes:
            return True
        longest_ms = settings.segment_ms
        if settings.is_compacted:
            longest_ms = min(longest_ms, settings.max_compaction_lag_ms)
        first_ms = segment.first_timestamp_ms
        return first_ms >= 0 and batch.max_timestamp_ms - first_ms > longest_ms

    def _note_producer(self, batch: RecordBatch, log_append_time_ms: int) -> None:
        if batch.producer_id < 0:
            return
        is_commit, epoch = False, NO_EPOCH
        if batch.is_control:
            is_commit = control_type(batch) is ControlType.COMMIT
            epoch = _coordinator_epoch(batch)
        self.producers.update(
            batch,
            log_append_time_ms=log_append_time_ms,
            is_commit=is_commit,
            coordinator_epoch=epoch,
        )

    # Reading.

    def read(
        self, offset: int, *, end_offset: int, max_bytes: int, whole_first: bool
    ) -> bytes | type[BrokerError]:
        """Return batches of one segment from the one with `offset` up to `end_offset`."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            return OffsetOutOfRangeError
        for segment in self._segments[self._segment_number(offset) :]:
            if segment.next_offset > offset:
                return segment.read(offset, end_offset, max_bytes, whole_first=whole_first)
        return b""

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that a reader of these offsets must skip."""
        return self.producers.aborted_between(start_offset, end_offset)

    def batches(self, offset: int = 0) -> Iterator[RecordBatch]:
        """Yield all batches from the one with `offset`, or from the log's start."""
        offset = max(offset, self.log_start_offset)
        for segment in self._segments[self._segment_number(offset) :]:
            for batch, _ in segment.batches(offset):
                yield batch

    def find_timestamp(self, timestamp_ms: int, end_offset: int) -> FoundTimestamp | None:
        """Return the first record at or after the timestamp, and before `end_offset`."""
        for segment in self._segments:
            found = segment.find_timestamp(timestamp_ms, self.log_start_offset)
            if found is not None:
                return found if found.offset < end_offset else None
        return None

    def find_max_timestamp(self, end_offset: int) -> FoundTimestamp | None:
        """Return the first record with the largest timestamp (KIP-734), before `end_offset`."""
        largest_ms = max(segment.max_timestamp_ms for segment in self._segments)
        return None if largest_ms < 0 else self.find_timestamp(largest_ms, end_offset)

    def _segment_number(self, offset: int) -> int:
        low, high = 0, len(self._segments) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._segments[middle].base_offset <= offset:
                low = middle
            else:
                high = middle - 1
        return low

    # Leader epochs.

    def begin_epoch(self, leader_epoch: int) -> None:
        """Begin a new leader's epoch; forget epochs in which nothing was written.

        Followers learn epochs from batches, so the new leader never knew of empty ones.
        """
        end_offset = self.log_end_offset
        self._epochs = [each for each in self._epochs if each.start_offset < end_offset]
        self._epochs.append(EpochStart(leader_epoch, end_offset))

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch that is at most `epoch`, and its end offset.

        For an epoch before all known ones, the end is the start of the first known one. For an
        epoch after all known ones, the result is -1 and -1.
        """
        if not self._epochs or epoch > self._epochs[-1].epoch:
            return -1, -1
        if epoch == self._epochs[-1].epoch:
            return epoch, self.log_end_offset
        started = [each for each in self._epochs if each.epoch <= epoch]
        following = self._epochs[len(started)]
        return (started[-1].epoch if started else epoch), following.start_offset

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch that wrote, or will write, this offset; -1 if unknown."""
        return max((e.epoch for e in self._epochs if e.start_offset <= offset), default=-1)

    # Removing records.

    def truncate(self, end_offset: int) -> None:
        """Remove everything from `end_offset` on, and rebuild the producer states."""
        if end_offset >= self.log_end_offset:
            return
        kept = [(b, data) for b, data in self._stored() if b.last_offset < end_offset]
        start = self._segments[0].base_offset
        self._epochs = [each for each in self._epochs if each.start_offset < end_offset]
        self.producers = ProducerStates()
        for batch, _ in kept:
            self._note_producer(batch, NO_TIME)
        self._rebuild(min(start, end_offset), kept)
        self._first_dirty_offset = min(self._first_dirty_offset, end_offset)
        self.high_watermark = min(self.high_watermark, self.log_end_offset)

    def clean(self, kept_of: Callable[[RecordBatch, bytes], bytes | None]) -> None:
        """Rewrite the log: `kept_of` returns the remains of a batch, None to remove it.

        A batch keeps its last offset; the last batch of the log stays as it is. An epoch with no
        batches left is forgotten, except the leader's own, as on a newly built replica.
        """
        *older, last = self._stored()
        kept = []
        for batch, data in older:
            left = kept_of(batch, data)
            if left is not None:
                kept.append((RecordBatch(memoryview(left), topic="", partition=0), left))
        kept.append(last)
        epochs = {batch.partition_leader_epoch for batch, _ in kept} | {self._epochs[-1].epoch}
        self._epochs = [each for each in self._epochs if each.epoch in epochs]
        self._rebuild(self._segments[0].base_offset, kept)

    def compact(self, now_ms: int) -> bool:
        """Compact the dirty range if it is due, and return whether it was.

        `now_ms` is the wall clock. The active segment is not compacted, nor is anything after the
        last stable offset.
        """
        settings = self.settings
        start = max(self._first_dirty_offset, self.log_start_offset)
        end = self._cleanable_end(start, now_ms)
        dirty = [s for s in self._segments[self._segment_number(start) : -1] if s.base_offset < end]
        if not (settings.is_compacted and self._is_dirty(dirty, start, now_ms)):
            return False
        cleaning, transactions = self._cleaning(dirty, start, end, now_ms)
        older = [segment for segment in self._segments if segment.base_offset < end]
        later = self._segments[len(older) :]
        cleaned = [
            self._cleaned(group, cleaning) for group in _grouped(older, settings.segment_bytes)
        ]
        self._segments = [*cleaned, *later]
        self.producers.aborted = [
            each
            for each in self.producers.aborted
            if each.last_offset >= end or each in transactions.needed
        ]
        self._first_dirty_offset = end
        return True

    def _cleanable_end(self, start: int, now_ms: int) -> int:
        """Return the end of the range that may be cleaned, which is a segment's start."""
        settings, active = self.settings, self._segments[-1]
        end = min(self.last_stable_offset, active.base_offset)
        if settings.min_compaction_lag_ms > 0:
            youngest_ms = now_ms - settings.min_compaction_lag_ms
            for segment in self._segments[self._segment_number(start) : -1]:
                if segment.max_timestamp_ms > youngest_ms:
                    end = min(end, segment.base_offset)
        return max(start, self._segments[self._segment_number(end)].base_offset)

    def _is_dirty(self, dirty: list[Segment], start: int, now_ms: int) -> bool:
        """Return whether enough data is dirty, or some of it is too old to wait."""
        settings = self.settings
        dirty_bytes = sum(segment.size_bytes for segment in dirty)
        if not dirty_bytes:
            return False
        first_times_ms = [s.first_timestamp_ms for s in dirty if s.first_timestamp_ms > 0]
        oldest_ms = min(first_times_ms, default=LONG_MAX)
        if oldest_ms < now_ms - settings.max_compaction_lag_ms:
            return True
        clean_bytes = sum(s.size_bytes for s in self._segments if s.base_offset < start)
        return dirty_bytes / (dirty_bytes + clean_bytes) > settings.min_cleanable_dirty_ratio

    def _cleaning(
        self, dirty: list[Segment], start: int, end: int, now_ms: int
    ) -> tuple[Cleaning, TransactionFilter]:
        batches = (batch for segment in dirty for batch, _ in segment.batches())
        newest = newest_offsets(batches, self.aborted_between(start, end), start)
        first = self._segments[0].base_offset
        transactions = TransactionFilter(self.aborted_between(first, end))
        cleaning = Cleaning(
            newest,
            transactions,
            self.producers.last_records(),
            end_offset=end,
            now_ms=now_ms,
            delete_retention_ms=self.settings.delete_retention_ms,
        )
        return cleaning, transactions

    def _cleaned(self, group: list[Segment], cleaning: Cleaning) -> Segment:
        """Replace these segments by one with their remains, and return it."""
        base_offset = group[0].base_offset
        replacement = self._store.replacement(base_offset)
        cleaned = Segment(base_offset, replacement)
        for segment in group:
            for batch, data in segment.batches():
                left = cleaning.kept(batch, data)
                if left is not None:
                    cleaned.append(RecordBatch(memoryview(left), topic="", partition=0), left)
        self._store.replace([segment.base_offset for segment in group], replacement)
        return cleaned

    def damage(self, offset: int, at: int = -1) -> None:
        """Flip a bit in byte `at` of the batch with `offset`; its checksum stays."""
        self._segments[self._segment_number(offset)].damage(offset, at)

    def _stored(self) -> list[tuple[RecordBatch, bytes]]:
        return [each for segment in self._segments for each in segment.batches()]

    def _rebuild(self, start: int, batches: list[tuple[RecordBatch, bytes]]) -> None:
        for segment in self._segments:
            self._store.remove(segment.base_offset)
        self._segments = [self._segment(start)]
        for batch, data in batches:
            segment = self._segments[-1]
            if segment.size_bytes and segment.size_bytes + len(data) > self.settings.segment_bytes:
                segment = self._segment(batch.base_offset)
                self._segments.append(segment)
            segment.append(batch, data)

    def delete_records(self, before_offset: int) -> None:
        """Move the log's start to `before_offset` (KIP-107) and remove whole segments before it."""
        self.log_start_offset = max(self.log_start_offset, before_offset)
        gone = [each for each in self._epochs if each.start_offset <= self.log_start_offset]
        if gone:
            first = EpochStart(gone[-1].epoch, self.log_start_offset)
            self._epochs = [first, *self._epochs[len(gone) :]]
        self._store.on_log_start(self.log_start_offset)
        while len(self._segments) > 1 and self._segments[0].next_offset <= self.log_start_offset:
            self._store.remove(self._segments.pop(0).base_offset)

    def retain(self, now_ms: int) -> None:
        """Delete the oldest segments beyond the retention limits, up to the high watermark."""
        settings = self.settings
        while settings.is_deleted and len(self._segments) > 1:
            oldest = self._segments[0]
            is_old = 0 <= settings.retention_ms < now_ms - oldest.max_timestamp_ms
            spare_bytes = self.size_bytes - oldest.size_bytes
            is_much = 0 <= settings.retention_bytes <= spare_bytes
            if not (is_old or is_much) or oldest.next_offset > self.high_watermark:
                return
            self.delete_records(oldest.next_offset)


def _grouped(segments: list[Segment], size_bytes_max: int) -> list[list[Segment]]:
    """Group neighbouring segments that fit into one."""
    groups: list[list[Segment]] = []
    size_bytes = 0
    for segment in segments:
        if not groups or size_bytes + segment.size_bytes > size_bytes_max:
            groups.append([])
            size_bytes = 0
        groups[-1].append(segment)
        size_bytes += segment.size_bytes
    return groups


def _coordinator_epoch(batch: RecordBatch) -> int:
    """Return the coordinator epoch of a marker; -1 if compaction has emptied the batch."""
    return coordinator_epoch(batch, batch.records().values[0]) if batch.record_count else NO_EPOCH


def _stamp(data: bytearray, now_ms: int) -> None:
    """Set the broker's time on all records of a batch."""
    data[ATTRIBUTES_AT + 1] |= ATTRIBUTE_LOG_APPEND_TIME
    data[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = now_ms.to_bytes(8, "big")
    with memoryview(data) as view, view[CRC_START:] as covered:
        crc = crc32c(covered)
    data[CRC_AT:CRC_START] = crc.to_bytes(CRC_START - CRC_AT, "big")
