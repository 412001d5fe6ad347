"""Iteration: one pass over the records of a batch, and its progress.

It is *under way* while the application holds its iterator; then it has *ended* or was *left*. It
costs nothing per record: a `chain` yields the records, and a generator gives it one iterator per
span. The iteration ends when the generator does, for whatever reason.

Owner: the thread that iterates. The consumer reads it between two records.
Source: ours; Java's consumer counts all that a poll returned as processed.
"""

from __future__ import annotations

from itertools import chain
from operator import length_hint
from threading import get_ident
from typing import TYPE_CHECKING
from weakref import ref

from pykclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from pykclient.accel import ConsumerRecord
    from pykclient.consumer.record import RecordSpan

    Records = Iterator[ConsumerRecord[Any, Any]]


class Progress:
    """Progress of the application in one batch: the most recent iteration, if there is one."""

    __slots__ = ("iteration",)

    def __init__(self) -> None:
        self.iteration: Iteration | None = None

    def begin(self, spans: Sequence[RecordSpan]) -> Records:
        """Begin an iteration over all records; it replaces the one before."""
        self.iteration = iteration = Iteration(spans)
        source = iteration.each_span()
        iteration.source = ref(source)
        return chain.from_iterable(source)


class Iteration:
    """One pass over spans. The consumer holds it, the application holds its iterator."""

    __slots__ = ("_at", "_spans", "_thread_id", "source")

    def __init__(self, spans: Sequence[RecordSpan]) -> None:
        self._thread_id = get_ident()
        self._spans = spans
        """Empty once ended, so that records are not kept in memory until the next poll."""
        self._at: tuple[int, Iterable[object]] | None = None
        """Index of the span under way, and an iterator whose length hint is the number of records
        left in it; None before the first span. One value, since another thread may read it."""
        self.source: ref[Iterator[Records]] | None = None
        """The generator behind the iterator, which holds it."""

    @property
    def is_ended(self) -> bool:
        """True if all records were taken, and one more was requested."""
        return not self._spans

    @property
    def is_alive(self) -> bool:
        """True if the application still holds the iterator, and may take more."""
        return self.source is not None and self.source() is not None

    @property
    def is_left(self) -> bool:
        """True if records are left that the application is not processing.

        Another thread that began this iteration and holds its iterator may still process them.
        """
        is_elsewhere = self.is_alive and self._thread_id != get_ident()
        return not self.is_ended and not is_elsewhere

    def left(
        self, *, counts_record_in_hand: bool
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the first unprocessed record of each partition, None for its very first.

        Partitions that are completely processed are left out. The record taken last is the record
        in hand. The leader epoch is that of the record before, None if it is unknown.
        """
        spans, at = self._spans, self._at
        index, row = 0, 0
        if at is not None:
            index = at[0]
            row = len(spans[index].columns) - length_hint(at[1])
        if row and not counts_record_in_hand:
            row -= 1
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        passed: dict[TopicPartition, RecordSpan] = {}
        for number, span in enumerate(spans):
            count = len(span.columns)
            first = count if number < index else row if number == index else 0
            if first < count and span.partition not in found:
                found[span.partition] = _place(span, first, passed.get(span.partition))
            elif first:
                passed[span.partition] = span
        return found

    def each_span(self) -> Iterator[Records]:
        """Yield the records of each span. Call it once."""
        for index, span in enumerate(self._spans):
            records, rest = span.records()
            self._at = (index, rest)
            yield records
        self._at = None
        self._spans = ()


def _place(span: RecordSpan, row: int, before: RecordSpan | None) -> OffsetAndMetadata | None:
    """Return the position of a row; `before` is the previous span of its partition, if any."""
    offset = span.columns.offsets[row]
    if row:
        return OffsetAndMetadata(offset, leader_epoch=span.leader_epoch)
    if before is None:
        return None
    is_next = before.columns.last_offset + 1 == offset
    return OffsetAndMetadata(offset, leader_epoch=before.leader_epoch if is_next else None)
