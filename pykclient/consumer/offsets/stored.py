"""StoredOffsets: which records the application has stored, and how far that goes without a gap.

With `enable_auto_offset_store` off a record is finished when the application says so
(`Consumer.store_offset`), in any order. Commits then go up to the first record that was returned
and is not stored. Of each span that was returned it keeps the offsets and a byte per record, until
all records up to its end are stored.

Owner: the core lock, but for `note`, which any thread may call.
Source: ``enable.auto.offset.store`` and ``rd_kafka_offsets_store`` of librdkafka, which commits the
highest offset that was stored, gaps or not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import TYPE_CHECKING

from pykclient.types import OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.consumer.record import RecordSpan
    from pykclient.consumer.subscription import AssignedPartition, SubscriptionState
    from pykclient.types import TopicPartition


class StoredOffsets:
    def __init__(self, subscription: SubscriptionState) -> None:
        self._subscription = subscription
        self._noted: deque[tuple[TopicPartition, int]] = deque()
        """What `note` was called with and `update` has not seen."""
        self._returned: dict[AssignedPartition, _Returned] = {}

    def note(self, partition: TopicPartition, offset: int) -> None:
        """Note that a record is stored. Any thread."""
        self._noted.append((partition, offset))

    def add(self, assigned: AssignedPartition, span: RecordSpan) -> None:
        """Note that records are returned, which follow those that were added before."""
        returned = self._returned.get(assigned)
        if returned is None or returned.epoch != assigned.epoch:
            returned = self._returned[assigned] = _Returned(assigned.epoch)
        returned.add(span.columns.offsets, span.leader_epoch)

    def forget(self, assigned: AssignedPartition) -> None:
        """Note that the user set a position: what was returned before does not matter."""
        self._returned.pop(assigned, None)

    def update(self) -> None:
        """Take account of what was noted, and forget partitions that were given up.

        A record of a partition that is not this consumer's any more does not count: its next owner
        reads it again.
        """
        for gone in [each for each in self._returned if not each.is_assigned]:
            del self._returned[gone]
        while self._noted:
            partition, offset = self._noted.popleft()
            assigned = self._subscription.find(partition)
            returned = None if assigned is None else self._returned.get(assigned)
            if returned is not None:
                returned.store(offset)

    def processed(self, assigned: AssignedPartition) -> OffsetAndMetadata:
        """Return up to where everything is stored. Requires that the partition has a position."""
        returned = self._returned.get(assigned)
        if returned is not None and returned.epoch == assigned.epoch:
            first = returned.first_missing()
            if first is not None:
                return first
        return OffsetAndMetadata(assigned.offset, leader_epoch=assigned.leader_epoch)


class _Span:
    """Records that were returned; `stored` has a 1 for each that is stored."""

    __slots__ = ("leader_epoch", "offsets", "stored")

    def __init__(self, offsets: Sequence[int], leader_epoch: int | None) -> None:
        self.offsets = offsets
        self.stored = bytearray(len(offsets))
        self.leader_epoch = leader_epoch


def _first_offset(span: _Span) -> int:
    return span.offsets[0]


class _Returned:
    """What was returned of a partition since the user set its position, up to its end."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._spans: list[_Span] = []
        """From the first one that has a record that is not stored."""
        self._epoch_before: int | None = None
        """The leader epoch of the record before them."""

    def add(self, offsets: Sequence[int], leader_epoch: int | None) -> None:
        # What a call that was interrupted had taken, or a loop that was left, is returned again.
        while self._spans and self._spans[-1].offsets[-1] >= offsets[0]:
            last = self._spans[-1]
            count = bisect_left(last.offsets, offsets[0])
            if count:
                last.offsets, last.stored = last.offsets[:count], last.stored[:count]
                break
            self._spans.pop()
        self._spans.append(_Span(offsets, leader_epoch))

    def store(self, offset: int) -> None:
        index = bisect_right(self._spans, offset, key=_first_offset) - 1
        if index < 0:
            return
        span = self._spans[index]
        row = bisect_left(span.offsets, offset)
        if row < len(span.offsets) and span.offsets[row] == offset:
            span.stored[row] = 1

    def first_missing(self) -> OffsetAndMetadata | None:
        """Return the first record that is not stored, None if all are."""
        while self._spans:
            span = self._spans[0]
            row = span.stored.find(0)
            if row >= 0:
                epoch = span.leader_epoch if row else self._epoch_before
                return OffsetAndMetadata(span.offsets[row], leader_epoch=epoch)
            self._epoch_before = span.leader_epoch
            del self._spans[0]
        return None
