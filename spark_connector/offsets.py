"""Offsets: from the options' limits to the ranges that tasks read.

A limit says where reading starts or ends: one offset or time for every partition, or one for each.
The driver resolves limits against what the partitions hold, checks for data that is gone, and cuts
ranges. Spark plans a frame once and runs it often, so an edge that was given as earliest or latest
stays one: the task that reads it binds it (`OffsetRange`). Offsets and times are fixed by the plan.
Nothing here speaks to a broker: what the partitions hold is given.

Owner: none, all values are immutable.
Source: Spark's Structured Streaming + Kafka Integration Guide (options and JSON forms); classes
``KafkaOffsetReaderAdmin`` and ``KafkaOffsetRangeCalculator`` of its own source (rules).
"""

from __future__ import annotations

import json
import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from heapq import heapify, heapreplace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient import TopicPartition
from pykclient.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EARLIEST: Final = -2
LATEST: Final = -1

STARTS_KEY: Final = "starts at "
"""The beginning of the key under which an offset in Spark's log keeps `StreamOffset.starts`. No
topic has such a name, and the value is empty, so that Spark's own source passes it over."""

ENDS_KEY: Final = "ends at "
"""The beginning of the key under which an offset keeps the ends of topics (`with_known_ends`)."""

ID_LENGTH: Final = 16

IDS_KEY: Final = "topic ids "
"""The beginning of the key under which an offset keeps the ids of topics, as Kafka writes them."""

_LOG = logging.getLogger(__name__)


class DataLossError(KafkaError):
    """Records that were requested are gone, and `failOnDataLoss` is true."""


class LogBounds(NamedTuple):
    """The range of a partition: from `beginning` up to, not including, `end`.

    For a reader of committed records, an open transaction hides the records after `end`;
    `high_watermark` is then the end of the log itself, if it was looked up.
    """

    beginning: int
    end: int
    high_watermark: int | None = None


class TaskLimits(NamedTuple):
    """The limits for splitting ranges into tasks; None: the user has set no such limit."""

    records_max: int | None = None
    tasks_min: int | None = None
    tasks_max: int | None = None


class OffsetRange(NamedTuple):
    """A range of one partition that a task reads: from `start` up to, not including, `end`.

    With `from_earliest` the read began at the earliest offset, so what retention has removed since
    is no data loss. With `is_first` the range has that edge and begins where the partition does
    when it is read; with `to_latest` it ends where the partition does then.
    """

    partition: TopicPartition
    start: int
    end: int
    from_earliest: bool = False
    is_first: bool = False
    to_latest: bool = False

    @property
    def size(self) -> int:
        """Offsets in the range; records may be fewer (compaction, transactions)."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.partition} [{self.start}, {self.end})"


def batch_ranges(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, LogBounds],
    *,
    fail_on_data_loss: bool,
) -> list[OffsetRange]:
    """One range for each partition of a batch, between its limits and within what it holds.

    `starts` and `ends` are what the limits gave (`OffsetLimit.offsets`), edges among them.

    Raises: `ConfigError` when a start lies behind its end; `DataLossError` when part of a range
    is gone and `fail_on_data_loss` is true. When it is false the range shrinks, with a warning.
    """
    ranges = []
    for partition, held in bounds.items():
        edges = {EARLIEST: held.beginning, LATEST: held.end}
        start, end = starts[partition], ends[partition]
        wanted = OffsetRange(
            partition,
            edges.get(start, start),
            edges.get(end, end),
            from_earliest=start == EARLIEST,
            is_first=start == EARLIEST,
            to_latest=end == LATEST,
        )
        if wanted.size < 0:
            raise ConfigError(
                f"{partition}: the read would begin at offset {wanted.start}, behind its end "
                f"{wanted.end}. Either startingOffsets and endingOffsets (or their times) are "
                f"wrong, or the topic was deleted and made again."
            )
        ranges.append(_available(wanted, held, fail_on_data_loss=fail_on_data_loss))
    return ranges


def _available(wanted: OffsetRange, held: LogBounds, *, fail_on_data_loss: bool) -> OffsetRange:
    start = min(max(wanted.start, held.beginning), held.end)
    end = max(min(wanted.end, held.end), start)
    found = wanted._replace(start=start, end=end)
    if wanted.size and found != wanted:
        reason = "records are aged out, or the topic was made again"
        if wanted.start >= held.beginning and wanted.end <= (held.high_watermark or 0):
            reason = (
                f"an open transaction hides what lies behind, up to {held.high_watermark}, from "
                f"readers of committed records; wait for its end, or end the read before it"
            )
        report_data_loss(
            f"{wanted} was requested, but {wanted.partition} holds "
            f"[{held.beginning}, {held.end}): {reason}.",
            fail_on_data_loss=fail_on_data_loss,
        )
    return found


def report_data_loss(text: str, *, fail_on_data_loss: bool) -> None:
    """Raise `DataLossError`, or warn."""
    if fail_on_data_loss:
        raise DataLossError(f"{text} Set failOnDataLoss=false to read what is left.")
    _LOG.warning("%s Reading what is left, since failOnDataLoss is false.", text)


def task_ranges(ranges: Iterable[OffsetRange], limits: TaskLimits) -> list[tuple[OffsetRange, ...]]:
    """Divide the ranges among tasks, which read theirs one after the other.

    Each range has a task of its own. If that were more than `tasks_max` tasks, they share the
    ranges so that all have about as many offsets.
    """
    parts = split_ranges(
        ranges, records_per_partition_max=limits.records_max, partitions_min=limits.tasks_min
    )
    if limits.tasks_max is None or len(parts) <= limits.tasks_max:
        return [(part,) for part in parts]
    places = [(0, task) for task in range(limits.tasks_max)]
    heapify(places)
    tasks: dict[OffsetRange, int] = {}
    for part in sorted(parts, key=lambda one: one.size, reverse=True):
        size, task = places[0]
        tasks[part] = task
        heapreplace(places, (size + part.size, task))
    found: list[list[OffsetRange]] = [[] for _ in range(limits.tasks_max)]
    for part in parts:
        found[tasks[part]].append(part)
    return [tuple(one) for one in found]


def split_ranges(
    ranges: Iterable[OffsetRange],
    *,
    records_per_partition_max: int | None = None,
    partitions_min: int | None = None,
) -> list[OffsetRange]:
    """Ranges for tasks: large ones cut; empty ones dropped, unless they end at the latest offset.

    No range is longer than `records_per_partition_max`. When there are fewer than
    `partitions_min`, the larger ones are cut so that about as many come out.
    """
    whole = [one for one in ranges if one.size > 0 or one.to_latest]
    if records_per_partition_max is not None:
        limit = records_per_partition_max
        whole = [part for one in whole for part in _cut(one, max(-(-one.size // limit), 1))]
    if partitions_min is None or len(whole) >= partitions_min:
        return whole
    # Ranges that stay whole are left out of the sum, or the larger ones would get too few parts.
    total = sum(one.size for one in whole)
    if total == 0:
        return whole
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
    """Return the share of `parts` for `size` out of `total`, rounded half up."""
    return max((2 * size * parts + total) // (2 * total), 1)


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """`parts` ranges of about the same size; fewer when there are not enough offsets."""
    parts = min(parts, whole.size)
    if parts < 2:
        return [whole]
    edges = [whole.start + whole.size * part // parts for part in range(parts + 1)]
    found = [whole._replace(start=start, end=end) for start, end in pairwise(edges)]
    first, *inner, last = found
    return [
        first._replace(to_latest=False),
        *(part._replace(is_first=False, to_latest=False) for part in inner),
        last._replace(is_first=False),
    ]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The end of a micro-batch as Spark logs it, and the start of the next one.

    `starts` has the partitions that the batch does not read from where the batch before ended: all
    of a query's first batch, new ones, and those whose topic was recreated. A batch that is
    repeated then begins where it did, whatever has changed. The offset at which a query begins
    starts at itself. `topic_ids` has the ids of topics when the batch was planned, where brokers
    have ids and this source has planned it; two offsets are equal without them.
    """

    ends: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict, compare=False)

    @classmethod
    def initial(cls, offsets: Mapping[TopicPartition, int]) -> StreamOffset:
        """Return the offset at which a query begins."""
        return cls(offsets, offsets)

    @property
    def is_initial(self) -> bool:
        """Return whether the batch that begins here is a query's first one with rows."""
        return self.starts == self.ends

    def as_json(self) -> dict[str, dict[str, int]]:
        """Return the form that Spark logs."""
        found = offsets_as_json(self.ends)
        if self.starts:
            starts = json.dumps(offsets_as_json(self.starts), separators=(",", ":"))
            found[f"{STARTS_KEY}{starts}"] = {}
        if self.topic_ids:
            ids = {topic: id_as_text(one) for topic, one in sorted(self.topic_ids.items())}
            found[f"{IDS_KEY}{json.dumps(ids, separators=(',', ':'))}"] = {}
        return found

    @classmethod
    def from_json(cls, value: object) -> StreamOffset:
        """Return the offset that a checkpoint has, of this source or of Spark's own.

        Raises: `ConfigError` as `offsets_from_json` does.
        """
        ends, starts = offsets_from_json(value), dict[TopicPartition, int]()
        ids: dict[str, bytes] = {}
        assert isinstance(value, dict)
        try:
            for key in value:
                if key.startswith(STARTS_KEY):
                    starts |= offsets_from_json(json.loads(key.removeprefix(STARTS_KEY)))
                elif key.startswith(IDS_KEY):
                    found = json.loads(key.removeprefix(IDS_KEY))
                    ids |= {topic: _id_from_text(text) for topic, text in found.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise _not_ours(value) from error
        return cls(ends, starts, ids)


def id_as_text(topic_id: bytes) -> str:
    """Return a topic's id as Kafka writes it: in base64, for URLs, without padding."""
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def _id_from_text(text: str) -> bytes:
    found = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(found) != ID_LENGTH:
        raise ValueError(f"no id of a topic: {text[:30]!r}")
    return found


def offsets_as_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets as Spark keeps them: ``{"topic": {"0": 23}}``, topics and partitions in order."""
    found: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return found


def offsets_from_json(value: object) -> dict[TopicPartition, int]:
    """Parse the offsets of a checkpoint of this source or Spark's own.

    Raises: `ConfigError` if `value` is anything else, so that the checkpoint of another source is
    refused.
    """
    found: dict[TopicPartition, int] = {}
    if not isinstance(value, dict):
        raise _not_ours(value)
    try:
        for topic, numbers in value.items():
            found |= {TopicPartition(topic, int(one)): int(at) for one, at in numbers.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise _not_ours(value) from error
    return found


def with_known_ends(
    offset: dict[str, dict[str, int]], ends: dict[str, dict[str, int]]
) -> dict[str, dict[str, int]]:
    """Return the offset, with the ends of topics under a key of their own where they are others."""
    if offsets_from_json(offset) == offsets_from_json(ends):
        return offset
    return {**offset, f"{ENDS_KEY}{json.dumps(ends, separators=(',', ':'))}": {}}


def known_ends_from_json(value: object) -> dict[TopicPartition, int]:
    """Return the ends of topics that a latest offset in Spark's progress has.

    Raises: `ConfigError` as `offsets_from_json` does.
    """
    found = offsets_from_json(value)
    assert isinstance(value, dict)
    for key in value:
        if key.startswith(ENDS_KEY):
            found |= offsets_from_json(json.loads(key.removeprefix(ENDS_KEY)))
    return found


def _not_ours(value: object) -> ConfigError:
    return ConfigError(
        f"The checkpoint has offsets of another source: {str(value)[:100]!r} is not "
        f'{{"topic": {{"0": 23}}}}. Give this query a checkpointLocation of its own.'
    )
