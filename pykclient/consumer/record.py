"""ConsumerRecords: what one poll returned, as columns; record objects are made while iterated.

It consists of runs, each a stretch of records of one partition in order. It is never changed. With
the compiled core it keeps the answers that its records came in, or what their batches unfolded to;
a record made from it keeps only its own bytes.

Owner: the application; it may go to another thread.
Source: Java class ``ConsumerRecords``.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from pykclient.accel import ConsumerRecord, iterate_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pykclient.accel.abc import RecordColumns
    from pykclient.types import TimestampType, TopicPartition

__all__ = ["ConsumerRecord", "ConsumerRecords", "RecordRun"]


class RecordRun(NamedTuple):
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
        """How many records it has."""
        return len(self.columns)

    def records(self) -> Iterator[ConsumerRecord]:
        """Make the records, one at a time."""
        return iterate_records(
            self.columns,
            topic=self.partition.topic,
            partition=self.partition.partition,
            timestamp_type=self.timestamp_type,
            leader_epoch=self.leader_epoch,
            keys=self.keys,
            values=self.values,
        )


class ConsumerRecords:
    """The records of one poll; may be empty.

    Iterating makes the record objects, anew each time. Records of one partition come in order of
    their offsets; partitions follow one another.
    """

    __slots__ = ("_count", "_runs")

    def __init__(self, runs: Sequence[RecordRun] = ()) -> None:
        self._runs = tuple(runs)
        self._count = sum(run.record_count for run in self._runs)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return chain.from_iterable(run.records() for run in self._runs)

    def __repr__(self) -> str:
        partitions = ", ".join(str(partition) for partition in self.partitions)
        return f"<ConsumerRecords: {self._count} of {partitions or 'no partition'}>"

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that have records here."""
        return tuple(dict.fromkeys(run.partition for run in self._runs))

    def by_partition(self) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the records of each partition, in order of their offsets."""
        result: dict[TopicPartition, list[ConsumerRecord]] = {}
        for run in self._runs:
            result.setdefault(run.partition, []).extend(run.records())
        return result
