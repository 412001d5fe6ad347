"""StoredOffsets: the records that the application has stored, and the first gap between them.

With `enable_auto_offset_store` off, a record is processed when the application says so
(`Consumer.store_offset`), in any order. Commits go up to the first returned record that is not
stored. For each returned span this keeps the offsets and a byte per record, until all records up to
its end are stored.

Owner: the core lock, except `note` and `note_dropped`, which any thread may call.
Source: ``enable.auto.offset.store`` and ``rd_kafka_offsets_store`` of librdkafka, which commits the
highest stored offset, regardless of gaps.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from pykclient.types import OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pykclient.consumer.record import ConsumerRecords, RecordSpan
    from pykclient.consumer.subscription import AssignedPartition, SubscriptionState
    from pykclient.types import TopicPartition


class StoredOffsets:
    """See the module."""

    def __init__(self, subscription: SubscriptionState) -> None:
        self._subscription = subscription
        self._noted: deque[tuple[TopicPartition, int, int]] = deque()
        """Arguments of `note` that `update` has not processed."""
        self._returned: dict[AssignedPartition, _Returned] = {}

    def note(self, partition: TopicPartition, first_offset: int, end_offset: int) -> None:
        """Mark records as stored, from one offset to before another. Any thread."""
        self._noted.append((partition, first_offset, end_offset))

    def note_dropped(
        self, spans: Iterable[RecordSpan], kept: ConsumerRecords[object, object]
    ) -> None:
        """Mark records as stored that interceptors have removed from a result."""
        kept_places = {(record.topic_partition, record.offset) for record in kept}
        for span in spans:
            for offset in span.columns.offsets:
                if (span.partition, offset) not in kept_places:
                    self.note(span.partition, offset, offset + 1)

    def add(self, assigned: AssignedPartition, span: RecordSpan) -> None:
        """Add returned records, which follow those added before."""
        returned = self._returned.get(assigned)
        if returned is None:
            returned = self._returned[assigned] = _Returned(assigned.epoch)
        returned.epoch = assigned.epoch
        returned.add(span.columns.offsets, span.leader_epoch)

    def forget(self, assigned: AssignedPartition, *, from_offset: int = 0) -> None:
        """Remove returned records from an offset on, so that they need not be stored."""
        returned = self._returned.get(assigned)
        if returned is not None:
            returned.cut(from_offset)

    def update(self) -> None:
        """Process the marks, and drop partitions that are no longer assigned.

        A record of such a partition does not count: its next owner reads it again.
        """
        for gone in [each for each in self._returned if not each.is_assigned]:
            del self._returned[gone]
        while self._noted:
            partition, first_offset, end_offset = self._noted.popleft()
            assigned = self._subscription.find(partition)
            returned = None if assigned is None else self._returned.get(assigned)
            if returned is not None:
                returned.store(first_offset, end_offset)

    def processed(self, assigned: AssignedPartition) -> OffsetAndMetadata:
        """Return the offset up to which all records are stored. There must be a position."""
        returned = self._returned.get(assigned)
        if returned is not None:
            if returned.epoch != assigned.epoch:
                # Records from there on are returned again, or are no longer in the log.
                returned.epoch = assigned.epoch
                returned.cut(assigned.offset)
            first = returned.first_missing()
            if first is not None:
                return first
        return OffsetAndMetadata(assigned.offset, leader_epoch=assigned.leader_epoch)

    def first_missing(
        self, assigned: AssignedPartition, first: OffsetAndMetadata
    ) -> OffsetAndMetadata:
        """Return the first record from `first` on that is not stored; the position if all are."""
        returned = self._returned.get(assigned)
        if returned is None or returned.epoch != assigned.epoch:
            return first
        missing = returned.first_missing_from(first)
        return missing or OffsetAndMetadata(assigned.offset, leader_epoch=assigned.leader_epoch)


class _Span:
    """Returned records; `stored` has a 1 for each stored one."""

    __slots__ = ("leader_epoch", "offsets", "stored")

    def __init__(self, offsets: Sequence[int], leader_epoch: int | None) -> None:
        self.offsets = offsets
        self.stored = bytearray(len(offsets))
        self.leader_epoch = leader_epoch


def _first_offset(span: _Span) -> int:
    return span.offsets[0]


class _Returned:
    """Returned records of a partition up to its position, as long as it is assigned."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        """Epoch of the position when the spans were last cut to it."""
        self._spans: list[_Span] = []
        """Spans from the first one with a record that is not stored."""
        self._end_before = 0
        self._epoch_before: int | None = None
        """End of the span before them, and its leader epoch."""

    def add(self, offsets: Sequence[int], leader_epoch: int | None) -> None:
        # Records of an interrupted call, or of a loop that was left, are returned again.
        self.cut(offsets[0])
        self._spans.append(_Span(offsets, leader_epoch))

    def cut(self, offset: int) -> None:
        """Remove records from an offset on."""
        while self._spans and self._spans[-1].offsets[-1] >= offset:
            last = self._spans[-1]
            count = bisect_left(last.offsets, offset)
            if count:
                last.offsets, last.stored = last.offsets[:count], last.stored[:count]
                break
            self._spans.pop()

    def store(self, first_offset: int, end_offset: int) -> None:
        index = max(0, bisect_right(self._spans, first_offset, key=_first_offset) - 1)
        for span in islice(self._spans, index, None):
            if span.offsets[0] >= end_offset:
                break
            first = bisect_left(span.offsets, first_offset)
            end = bisect_left(span.offsets, end_offset)
            span.stored[first:end] = b"\1" * (end - first)

    def first_missing(self) -> OffsetAndMetadata | None:
        """Return the first record that is not stored, None if all are."""
        missing: OffsetAndMetadata | None = None
        finished_count = 0
        for span in self._spans:
            row = span.stored.find(0)
            if row >= 0:
                offset = span.offsets[row]
                epoch = span.leader_epoch
                if row == 0:
                    # If offsets lie between, their epoch is unknown.
                    epoch = self._epoch_before if offset == self._end_before else None
                missing = OffsetAndMetadata(offset, leader_epoch=epoch)
                break
            self._end_before, self._epoch_before = span.offsets[-1] + 1, span.leader_epoch
            finished_count += 1
        del self._spans[:finished_count]  # in one step: each removal moves all later spans
        return missing

    def first_missing_from(self, first: OffsetAndMetadata) -> OffsetAndMetadata | None:
        """Return the first record from `first` on that is not stored, None if all are."""
        for span in self._spans:
            start = bisect_left(span.offsets, first.offset)
            row = span.stored.find(0, start)
            if row >= 0 and span.offsets[row] <= first.offset:
                return first
            if row >= 0:
                epoch = span.leader_epoch if row else None
                return OffsetAndMetadata(span.offsets[row], leader_epoch=epoch)
        return None
