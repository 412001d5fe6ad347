"""ConsumerRecords: the result of one poll, as columns; iteration creates record objects.

It consists of spans: neighbouring records of one partition, in order. Spans are immutable. The
consumer tracks the progress of iterations (`Progress`); nothing refers to the consumer. With the
compiled core it keeps the responses that its records are in, or the decompressed batches; a record
object keeps only its own bytes.

Owner: the application; it may be passed to another thread.
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
    """A partition, its next offset, and the leader epoch of the record before that."""

__all__ = ["ConsumerRecord", "ConsumerRecords", "RecordSpan"]


class RecordSpan(NamedTuple):
    """Consecutive records of one partition, from one batch.

    `columns` holds the received data; `keys` and `values` are deserialized, None without a
    deserializer.
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
        """Return the records, and an object whose `operator.length_hint` is how many are left."""
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

    Each iteration creates new record objects. Records of one partition come in the order of their
    offsets, one partition after the other.

    A record counts as processed when the next one is taken. If the most recent iteration is left
    early, the next `poll` returns the record in hand and the rest again. If the iteration continues
    after that poll, they are not returned again, and not committed meanwhile. Records accessed by
    `[...]` or `by_partition`, without iteration, count as processed when the next poll begins.
    """

    __slots__ = ("_count", "_positions", "_progress", "_spans")

    def __init__(
        self,
        spans: Sequence[RecordSpan] = (),
        positions: Sequence[Position] | None = None,
    ) -> None:
        """Take spans and the positions after them; None if these are where the spans end."""
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
        """Return the records of a partition, in the order of their offsets; may be empty.

        A number or a slice selects from all records, in the order of iteration. A number costs as
        much as iterating up to it within its batch, a slice as much as iterating over everything.

        Raises:
            IndexError: the number is out of range.
            UsageError: the key has another type.
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
        """Support pickling: columns become lists, batch by batch."""
        spans = [span._replace(columns=_as_lists(span.columns)) for span in self._spans]
        return ConsumerRecords, (spans, self._positions)

    @property
    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Next offset of each partition after these records, for `Consumer.commit`.

        It may be beyond the last record's offset + 1: after a transaction marker, or after offsets
        that compaction has removed (KIP-1094).
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
        """Partitions that have records here."""
        return tuple(dict.fromkeys(span.partition for span in self._spans))

    def by_partition(self) -> dict[TopicPartition, list[ConsumerRecord[K_co, V_co]]]:
        """Return the records of each partition, in the order of their offsets."""
        result: dict[TopicPartition, list[ConsumerRecord[K_co, V_co]]] = {}
        for span in self._spans:
            result.setdefault(span.partition, []).extend(span.records()[0])
        return result

    def _each(self) -> Iterator[ConsumerRecord[K_co, V_co]]:
        """Iterate without tracking progress."""
        return chain.from_iterable(span.records()[0] for span in self._spans)


def follow(records: ConsumerRecords[Any, Any]) -> Progress:
    """Return an object that tracks iterations over `records` that begin from now on."""
    records._progress = progress = Progress()  # noqa: SLF001 - same module
    return progress


def _as_lists(columns: RecordColumns) -> ListColumns:
    """Return columns as lists: those of the compiled core are memory of this process."""
    return ListColumns(
        list(columns.offsets),
        list(columns.timestamps_ms),
        list(columns.keys),
        list(columns.values),
        list(columns.headers),
        size_bytes=columns.size_bytes,
    )
