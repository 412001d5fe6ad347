"""ConsumerRecords: what one poll returned, as columns; record objects are made while iterated.

It consists of spans, each neighbouring records of one partition in order. They are never changed.
The consumer follows how far the batch is iterated (`Progress`); nothing refers to the consumer.
With the compiled core it keeps the responses that its records came in, or what batches decompressed
to; a record made from it keeps only its own bytes.

Owner: the application; it may go to another thread.
Source: Java class ``ConsumerRecords``.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Generic, NamedTuple, overload

from pykclient.accel import ConsumerRecord, iterate_records
from pykclient.accel.pure.decoder import ListColumns
from pykclient.consumer.iteration import Progress
from pykclient.errors import UsageError
from pykclient.type_parameters import K_co, V_co
from pykclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from pykclient.accel.abc import RecordColumns
    from pykclient.types import TimestampType

    Position = tuple[TopicPartition, int, int | None]
    """Where a partition goes on: the next offset, and the leader epoch of the record before it."""

__all__ = ["ConsumerRecord", "ConsumerRecords", "RecordSpan"]


class RecordSpan(NamedTuple):
    """Consecutive records of one partition, from one batch.

    `columns` are as they came; `keys` and `values` are what deserializers made of them, None where
    there is no deserializer.
    """

    partition: TopicPartition
    columns: RecordColumns
    timestamp_type: TimestampType
    leader_epoch: int | None
    keys: Sequence[object] | None = None
    values: Sequence[object] | None = None

    @property
    def record_count(self) -> int:
        return len(self.columns)

    def records(self) -> tuple[Iterator[ConsumerRecord[Any, Any]], Iterable[object]]:
        """Return the records, and what knows how many are left, by `operator.length_hint`."""
        return iterate_records(
            self.columns,
            topic=self.partition.topic,
            partition=self.partition.partition,
            timestamp_type=self.timestamp_type,
            leader_epoch=self.leader_epoch,
            keys=self.keys,
            values=self.values,
        )


class ConsumerRecords(Generic[K_co, V_co]):
    """The records of one poll; may be empty.

    Iterating makes the record objects, anew each time. Records of one partition come in order of
    their offsets; partitions follow one another.

    A record counts as processed when the next one is taken. If the iteration that began last is
    left early, the next `poll` returns the record in hand and the rest again. If it goes on after
    that poll, they are not returned again, and not committed meanwhile. Records that are not
    iterated, but had by `[...]` or `by_partition`, count as processed when the next poll begins.
    """

    __slots__ = ("_count", "_positions", "_progress", "_spans")

    def __init__(
        self,
        spans: Sequence[RecordSpan] = (),
        positions: Sequence[Position] | None = None,
    ) -> None:
        """Take spans and the positions behind them; None if they are where the spans end."""
        self._spans = tuple(spans)
        self._positions = positions
        self._count = sum([len(span.columns) for span in spans])
        self._progress: Progress | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ConsumerRecord[K_co, V_co]]:
        return self._each() if self._progress is None else self._progress.begin(self._spans)

    def __contains__(self, record: object) -> bool:
        return any(record == each for each in self._each())

    def __repr__(self) -> str:
        partitions = ", ".join(str(partition) for partition in self.partitions)
        return f"<ConsumerRecords: {self._count} of {partitions or 'no partition'}>"

    @overload
    def __getitem__(self, key: int, /) -> ConsumerRecord[K_co, V_co]: ...
    @overload
    def __getitem__(self, key: TopicPartition | slice, /) -> list[ConsumerRecord[K_co, V_co]]: ...
    def __getitem__(
        self, key: TopicPartition | int | slice, /
    ) -> list[ConsumerRecord[K_co, V_co]] | ConsumerRecord[K_co, V_co]:
        """Return the records of a partition, in order of their offsets; none is no error.

        A number or a slice chooses among all records, in the order in which they are iterated. A
        number costs as much as iterating to it within its batch, a slice as iterating over all.

        Raises:
            IndexError: there are not as many records.
            UsageError: it is none of these.
        """
        if isinstance(key, TopicPartition):
            spans = (span.records()[0] for span in self._spans if span.partition == key)
            return list(chain.from_iterable(spans))
        if isinstance(key, slice):
            return list(self._each())[key]
        if not isinstance(key, int):
            raise UsageError(
                f"ConsumerRecords[...] takes a TopicPartition, a number or a slice, not "
                f"{type(key).__name__}"
            )
        row = key if key >= 0 else self._count + key
        if 0 <= row < self._count:
            for span in self._spans:
                if row < span.record_count:
                    return next(islice(span.records()[0], row, None))
                row -= span.record_count
        raise IndexError(f"record {key} of {self._count}")

    def __reduce__(self) -> tuple[object, ...]:
        """Say how it is made anew elsewhere: from the fields of its records, batch by batch."""
        spans = [span._replace(columns=_as_lists(span.columns)) for span in self._spans]
        return ConsumerRecords, (spans, self._positions)

    @property
    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where each partition goes on behind these records, as `Consumer.commit` takes it.

        That may be beyond the last record's offset + 1: behind the marker of a transaction, or
        behind offsets that compaction left empty (KIP-1094).
        """
        if self._positions is not None:
            partitions = frozenset(self.partitions)
            return {
                partition: OffsetAndMetadata(offset, leader_epoch=leader_epoch)
                for partition, offset, leader_epoch in self._positions
                if partition in partitions
            }
        return {
            span.partition: OffsetAndMetadata(
                span.columns.last_offset + 1, leader_epoch=span.leader_epoch
            )
            for span in self._spans
        }

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that have records here."""
        return tuple(dict.fromkeys(span.partition for span in self._spans))

    def by_partition(self) -> dict[TopicPartition, list[ConsumerRecord[K_co, V_co]]]:
        """Return the records of each partition, in order of their offsets."""
        result: dict[TopicPartition, list[ConsumerRecord[K_co, V_co]]] = {}
        for span in self._spans:
            result.setdefault(span.partition, []).extend(span.records()[0])
        return result

    def _each(self) -> Iterator[ConsumerRecord[K_co, V_co]]:
        """Iterate without saying how far."""
        return chain.from_iterable(span.records()[0] for span in self._spans)


def follow(records: ConsumerRecords[Any, Any]) -> Progress:
    """Return what says how far iterations over records that begin from now on have come."""
    records._progress = progress = Progress()  # noqa: SLF001 - of the same file
    return progress


def _as_lists(columns: RecordColumns) -> ListColumns:
    """Return columns that can be pickled: those of the compiled core are memory of this process."""
    return ListColumns(
        list(columns.offsets),
        list(columns.timestamps_ms),
        list(columns.keys),
        list(columns.values),
        list(columns.headers),
        size_bytes=columns.size_bytes,
    )
