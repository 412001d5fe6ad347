"""Counts of partitions: records, keys, nulls, sizes and times, from Arrow batches.

Memory is bounded: only hashes of keys are kept, at most `KEY_COUNT_MAX` in all, beyond which
distinct keys are no longer counted.

Owner: the main thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow

KEY_COUNT_MAX: Final = 1_000_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
US_PER_MS: Final = 1_000

COLUMNS: Final = ("topic", "partition", "key", "value", "timestamp")
_SUMS: Final = [
    ("key_bytes", "count"),
    ("key_bytes", "sum"),
    ("value_bytes", "count"),
    ("value_bytes", "sum"),
    ("value_bytes", "max"),
    ("timestamp", "min"),
    ("timestamp", "max"),
    ("partition", "count"),
]
"""Aggregations of a batch; ``count`` excludes nulls."""


@dataclass(slots=True)
class Tally:
    """The counts of one partition, or of several together."""

    records: int = 0
    keyed: int = 0
    null_values: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    value_bytes_max: int = 0
    first_time_us: int | None = None
    last_time_us: int | None = None
    keys: set[int] | None = field(default_factory=set)
    """Hashes of the keys; None if there were too many."""

    def add(self, other: Tally) -> None:
        """Add the counts of another tally."""
        self.records += other.records
        self.keyed += other.keyed
        self.null_values += other.null_values
        self.key_bytes += other.key_bytes
        self.value_bytes += other.value_bytes
        self.value_bytes_max = max(self.value_bytes_max, other.value_bytes_max)
        firsts = self.first_time_us, other.first_time_us
        lasts = self.last_time_us, other.last_time_us
        self.first_time_us = min((us for us in firsts if us is not None), default=None)
        self.last_time_us = max((us for us in lasts if us is not None), default=None)
        if self.keys is None or other.keys is None:
            self.keys = None
        else:
            self.keys |= other.keys

    def row(self) -> dict[str, object]:
        """Return the counts as the columns of a table; times are ISO 8601, in UTC."""
        return {
            "records": self.records,
            "keyed": self.keyed,
            "distinct_keys": None if self.keys is None else len(self.keys),
            "null_values": self.null_values,
            "key_bytes": self.key_bytes,
            "value_bytes": self.value_bytes,
            "value_bytes_max": self.value_bytes_max,
            "first_time": _shown(self.first_time_us),
            "last_time": _shown(self.last_time_us),
        }


class Tallies:
    """The tallies of partitions, all empty at first."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.by_partition: Final = {partition: Tally() for partition in partitions}
        self.record_count = 0
        self._counts_keys = True

    def add(self, batch: pyarrow.RecordBatch) -> None:
        """Count the records of a batch, which has `COLUMNS`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = {name: batch.column(name) for name in COLUMNS}
        columns["timestamp"] = columns["timestamp"].cast(
            pa.int64()
        )  # a datetime ends with the year 9999
        columns["key_bytes"] = pc.binary_length(columns["key"])
        columns["value_bytes"] = pc.binary_length(columns["value"])
        sums = [*_SUMS, ("key", "distinct")] if self._counts_keys else _SUMS
        groups = pa.table(columns).group_by(["topic", "partition"]).aggregate(sums)
        for group in groups.to_pylist():
            partition = TopicPartition(group["topic"], group["partition"])
            self.by_partition[partition].add(_tally(group))
        self.record_count += batch.num_rows
        self._bound_keys()

    def total(self, topic: str) -> Tally:
        """Return the total of a topic's partitions."""
        total = Tally()
        for partition, tally in self.by_partition.items():
            if partition.topic == topic:
                total.add(tally)
        return total

    def _bound_keys(self) -> None:
        kept_count = sum(len(tally.keys or ()) for tally in self.by_partition.values())
        if kept_count > KEY_COUNT_MAX:
            self._counts_keys = False
            for tally in self.by_partition.values():
                tally.keys = None


def _tally(group: Mapping[str, Any]) -> Tally:
    """Convert Arrow's aggregation of one partition to a tally."""
    keys = group.get("key_distinct")
    return Tally(
        records=group["partition_count"],
        keyed=group["key_bytes_count"],
        null_values=group["partition_count"] - group["value_bytes_count"],
        key_bytes=group["key_bytes_sum"] or 0,
        value_bytes=group["value_bytes_sum"] or 0,
        value_bytes_max=group["value_bytes_max"] or 0,
        first_time_us=group["timestamp_min"],
        last_time_us=group["timestamp_max"],
        keys=None if keys is None else {hash(key) for key in keys if key is not None},
    )


def _shown(time_us: int | None) -> str | None:
    """Return a time as ISO 8601, or in milliseconds since 1970 if it is outside ISO's years."""
    if time_us is None:
        return None
    try:
        time = EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return str(time_us // US_PER_MS)
    return time.isoformat(timespec="milliseconds")
