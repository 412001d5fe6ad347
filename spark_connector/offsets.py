"""Offsets: from the options' limits to the ranges that tasks read.

A limit says where reading starts or ends: one offset or time for every partition, or one for each.
On the driver limits are resolved once against what the partitions hold, checked for data that is
gone, and cut into ranges of plain numbers; tasks never look up offsets. Nothing here speaks to a
broker: what the partitions hold is given.

Owner: none, all values are immutable.
Source: Spark's Structured Streaming + Kafka Integration Guide (options and JSON forms); classes
``KafkaOffsetReaderAdmin`` and ``KafkaOffsetRangeCalculator`` of its own source (rules).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pykclient import TopicPartition

    OffsetsAt = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int | None]]

__all__ = [
    "EARLIEST",
    "LATEST",
    "DataLossError",
    "LogBounds",
    "OffsetLimit",
    "OffsetRange",
    "resolve_ranges",
    "split_ranges",
]

EARLIEST: Final = -2
LATEST: Final = -1
NAMED_MAX: Final = 10

_LOG = logging.getLogger(__name__)


class DataLossError(KafkaError):
    """Records that were requested are gone, and `failOnDataLoss` is true."""


class LogBounds(NamedTuple):
    """What a partition holds: from `beginning` up to, not including, `end`."""

    beginning: int
    end: int


class OffsetRange(NamedTuple):
    """What one task reads: offsets from `start` up to, not including, `end`."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """Offsets in the range; records may be fewer (compaction, transactions)."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.partition} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class OffsetLimit:
    """One end of the read, as an option gave it.

    `everywhere` holds for all partitions, or `by_partition` for each. Values are offsets (or
    `EARLIEST`, `LATEST`), or with `is_timestamp` milliseconds since 1970. `fallback` replaces a
    time after which a partition has no record; None makes that an error.
    """

    option: str
    everywhere: int | None = None
    by_partition: Mapping[TopicPartition, int] | None = None
    is_timestamp: bool = False
    fallback: int | None = LATEST

    def values(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The limit of each partition. Raises: `ConfigError` unless exactly these are named."""
        if self.by_partition is None:
            assert self.everywhere is not None
            return dict.fromkeys(partitions, self.everywhere)
        missing = sorted(set(partitions) - set(self.by_partition))
        surplus = sorted(set(self.by_partition) - set(partitions))
        if missing or surplus:
            raise ConfigError(
                f"{self.option} must name every partition that is read, and no other "
                f"(-1 is latest, -2 earliest). Missing: {_named(missing)}. "
                f"Not read: {_named(surplus)}."
            )
        return {partition: self.by_partition[partition] for partition in partitions}


def resolve_ranges(
    starting: OffsetLimit,
    ending: OffsetLimit,
    bounds: Mapping[TopicPartition, LogBounds],
    offsets_at: OffsetsAt,
    *,
    fail_on_data_loss: bool,
) -> list[OffsetRange]:
    """One range for each partition, between the limits and within what the partition holds.

    `bounds` has the partitions; `offsets_at` gives each its first offset at or after a time, None
    where there is none.

    Raises: `ConfigError` when a limit does not fit the partitions, when a start lies behind its
    end, or when no record is as young as a starting time; `DataLossError` when part of a range
    is gone and `fail_on_data_loss` is true. When it is false the range shrinks, with a warning.
    """
    starts = _resolved(starting, bounds, offsets_at)
    ends = _resolved(ending, bounds, offsets_at)
    ranges = []
    for partition, held in bounds.items():
        wanted = OffsetRange(partition, starts[partition], ends[partition])
        if wanted.size < 0:
            raise ConfigError(
                f"{partition}: {starting.option} begins at offset {wanted.start}, behind the end "
                f"{wanted.end} of {ending.option}. Either the offsets are wrong, or the topic was "
                f"deleted and made again."
            )
        ranges.append(_available(wanted, held, fail_on_data_loss=fail_on_data_loss))
    return ranges


def _resolved(
    limit: OffsetLimit, bounds: Mapping[TopicPartition, LogBounds], offsets_at: OffsetsAt
) -> dict[TopicPartition, int]:
    values = limit.values(list(bounds))
    if limit.is_timestamp:
        found = offsets_at(values)
        values = {
            partition: _offset_or_fallback(limit, partition, timestamp_ms, found.get(partition))
            for partition, timestamp_ms in values.items()
        }
    edges = {
        partition: {EARLIEST: held.beginning, LATEST: held.end}
        for partition, held in bounds.items()
    }
    return {partition: edges[partition].get(value, value) for partition, value in values.items()}


def _offset_or_fallback(
    limit: OffsetLimit, partition: TopicPartition, timestamp_ms: int, offset: int | None
) -> int:
    if offset is not None:
        return offset
    if limit.fallback is None:
        raise ConfigError(
            f"{limit.option}: {partition} has no record at or after {timestamp_ms} ms. Give an "
            f"earlier time, or startingOffsetsByTimestampStrategy=latest."
        )
    return limit.fallback


def _available(wanted: OffsetRange, held: LogBounds, *, fail_on_data_loss: bool) -> OffsetRange:
    start = min(max(wanted.start, held.beginning), held.end)
    end = max(min(wanted.end, held.end), start)
    found = OffsetRange(wanted.partition, start, end)
    if wanted.size and found != wanted:
        report_data_loss(
            f"{wanted} was asked for, but {wanted.partition} holds "
            f"[{held.beginning}, {held.end}): records are aged out, or the topic was made again.",
            fail_on_data_loss=fail_on_data_loss,
        )
    return found


def report_data_loss(text: str, *, fail_on_data_loss: bool) -> None:
    """Raise `DataLossError`, or warn."""
    if fail_on_data_loss:
        raise DataLossError(f"{text} Set failOnDataLoss=false to read what is left.")
    _LOG.warning("%s Reading what is left, since failOnDataLoss is false.", text)


def split_ranges(
    ranges: Iterable[OffsetRange],
    *,
    records_per_partition_max: int | None = None,
    partitions_min: int | None = None,
) -> list[OffsetRange]:
    """Ranges for tasks: empty ones dropped, large ones cut.

    No range is longer than `records_per_partition_max`. When there are fewer than
    `partitions_min`, the larger ones are cut so that about as many come out.
    """
    whole = [one for one in ranges if one.size > 0]
    if records_per_partition_max is not None:
        limit = records_per_partition_max
        whole = [part for one in whole for part in _cut(one, -(-one.size // limit))]
    if partitions_min is None or len(whole) >= partitions_min:
        return whole
    # Ranges that stay whole are left out of the sum, or the larger ones would get too few parts.
    total = sum(one.size for one in whole)
    small = {one for one in whole if _part_count(one.size, total, partitions_min) == 1}
    large_total = total - sum(one.size for one in small)
    large_parts = max(partitions_min - len(small), 1)
    return [
        part
        for one in whole
        for part in _cut(
            one, 1 if one in small else _part_count(one.size, large_total, large_parts)
        )
    ]


def _part_count(size: int, total: int, parts: int) -> int:
    """How many of `parts` fall to `size` out of `total`, rounded half up."""
    return max((2 * size * parts + total) // (2 * total), 1)


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """`parts` ranges of about the same size; fewer when there are not enough offsets."""
    edges = [whole.start + whole.size * part // parts for part in range(parts + 1)]
    return [
        OffsetRange(whole.partition, start, end) for start, end in pairwise(edges) if end > start
    ]


def _named(partitions: Sequence[TopicPartition]) -> str:
    names = [str(partition) for partition in partitions[:NAMED_MAX]]
    more = len(partitions) - NAMED_MAX
    return ", ".join([*names, f"{more} more"] if more > 0 else names) or "none"
