"""What the applications of a group have finished with, all together.

Owner: the simulation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.consumer.record import ConsumerRecord

__all__ = ["ProcessedRecords"]


class ProcessedRecords:
    """How often each record was processed, and how far there is none left out."""

    def __init__(self) -> None:
        self.count = 0
        self._counts: defaultdict[TopicPartition, Counter[int]] = defaultdict(Counter)
        self._ends: Counter[TopicPartition] = Counter()

    def add(self, records: Iterable[ConsumerRecord]) -> None:
        """Note that an application has finished with these."""
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            counts = self._counts[partition]
            counts[record.offset] += 1
            self.count += 1
            while counts[self._ends[partition]]:
                self._ends[partition] += 1

    def end(self, partition: TopicPartition) -> int:
        """Return the first offset that nobody has processed."""
        return self._ends[partition]

    @property
    def repeated_count(self) -> int:
        """How often a record was processed that had been before."""
        return self.count - sum(len(+counts) for counts in self._counts.values())
