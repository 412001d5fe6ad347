"""Admission: limits how much of the available data a micro-batch of a stream reads.

`maxOffsetsPerTrigger` is divided among the partitions in proportion to their waiting offsets.
`minOffsetsPerTrigger` holds a batch back until enough offsets have arrived or `maxTriggerDelay` has
passed. Both work as in Spark's own Kafka source. As JSON `maxOffsetsPerTrigger` is divided within
each topic. `maxBytesPerTrigger` is divided in the same way, by bytes that are estimated from the
first records of each partition, since brokers do not report the size of offsets. An estimate is not
reproducible from the log, so it may only set the end of a batch, which Spark logs before it reads
the batch.

Owner: the planner of one stream. Source: Spark's Structured Streaming + Kafka Integration Guide
(the three options of offsets).
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pykclient import TopicPartition
    from spark_connector.first_records import FirstRecords
    from spark_connector.options import StreamLimits

    Measure = Callable[
        [Mapping[TopicPartition, tuple[int, int]]], Mapping[TopicPartition, FirstRecords]
    ]

_LOG = logging.getLogger(__name__)

EVERY_OTHER_TOPIC: Final = "*"
"""The name of topics that `maxOffsetsPerTrigger` as JSON does not name."""

SIZE_AGE_MS_MAX: Final = 10_000
"""The time for which an estimate of bytes is used."""

UNKNOWN_BYTES_PER_OFFSET: Final = 1_024.0
"""The estimate where no records of any partition could be read."""


class _Size(NamedTuple):
    bytes_per_offset: float
    since_ms: float


class Admission:
    """The limits of one stream, and the time of the last admitted batch (in milliseconds).

    The first batch of a query is not held back, even if the query continues from a checkpoint.
    `measure` reads the first records of parts; only a limit of bytes uses it.
    """

    def __init__(self, limits: StreamLimits, measure: Measure | None = None) -> None:
        self._limits = limits
        self._measure = measure
        self._sizes: dict[TopicPartition, _Size] = {}
        self._last_ms = float("-inf")

    def admit(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        now_ms: float,
        *,
        may_wait: bool,
    ) -> Mapping[TopicPartition, int]:
        """Return the ends of the next batch: `starts` if it is held back, at most `ends`.

        `starts` has the first offset of each partition of `ends`. With `may_wait` false nothing is
        held back, since the query has to come to an end.
        """
        if may_wait and self._is_kept_back(starts, ends, now_ms):
            return starts
        self.let_through(now_ms)
        limits = self._limits
        if limits.offsets_max is not None:
            ends = limited(limits.offsets_max, starts, ends)
        if limits.topic_offsets_max is not None:
            ends = limited_by_topic(limits.topic_offsets_max, starts, ends)
        if limits.bytes_max is not None:
            sizes = self._bytes_per_offset(starts, ends, now_ms)
            ends = limited_by_bytes(limits.bytes_max, starts, ends, sizes)
        return ends

    def let_through(self, now_ms: float) -> None:
        """Start the time of `maxTriggerDelay` again."""
        self._last_ms = now_ms

    def _is_kept_back(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        now_ms: float,
    ) -> bool:
        offsets_min, waited_ms = self._limits.offsets_min, now_ms - self._last_ms
        if offsets_min is None or waited_ms >= self._limits.trigger_delay_ms_max:
            return False
        return sum(end - starts[partition] for partition, end in ends.items()) < offsets_min

    def _bytes_per_offset(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        now_ms: float,
    ) -> dict[TopicPartition, float]:
        """Estimate the bytes for each offset of partitions that have records waiting."""
        assert self._measure is not None
        waiting = {
            partition: (starts[partition], end)
            for partition, end in ends.items()
            if end > starts[partition]
        }
        old = {
            partition: part
            for partition, part in waiting.items()
            if partition not in self._sizes
            or now_ms - self._sizes[partition].since_ms >= SIZE_AGE_MS_MAX
        }
        try:
            found = self._measure(old) if old else {}
        except KafkaError as error:
            # A task that reads the same records says so, or goes on.
            _LOG.warning(
                "How large records are is not known (option maxBytesPerTrigger): %s", error
            )
            found = {}
        for partition, first in found.items():
            self._sizes[partition] = _Size(first.bytes_per_offset, now_ms)
        known = [self._sizes[one].bytes_per_offset for one in waiting if one in self._sizes]
        other = sum(known) / len(known) if known else UNKNOWN_BYTES_PER_OFFSET
        return {
            one: self._sizes[one].bytes_per_offset if one in self._sizes else other
            for one in waiting
        }


def limited(
    offsets_max: int, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return ends that divide about `offsets_max` offsets among the partitions.

    Each partition gets a share in proportion to what it has, rounded down, but at least 1.
    Partitions with few records are therefore not starved, and the sum may exceed the limit a
    little.
    """
    total = sum(max(end - starts[partition], 0) for partition, end in ends.items())
    return {
        partition: min(end, starts[partition] + _part(offsets_max, end - starts[partition], total))
        for partition, end in ends.items()
    }


def _part(offsets_max: int, size: int, total: int) -> int:
    if size <= 0:
        return size
    # In the order in which the official source multiplies, since the last bit may make a record.
    return max(math.floor(offsets_max * (size / total)), 1)


def limited_by_topic(
    topic_offsets_max: Mapping[str, int],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return ends that keep each topic to its own limit, or else to `EVERY_OTHER_TOPIC`'s.

    A topic without a limit is not cut.
    """
    by_topic: dict[str, dict[TopicPartition, int]] = {}
    for partition, end in ends.items():
        by_topic.setdefault(partition.topic, {})[partition] = end
    found = {}
    for topic, own in by_topic.items():
        offsets_max = topic_offsets_max.get(topic, topic_offsets_max.get(EVERY_OTHER_TOPIC))
        found.update(own if offsets_max is None else limited(offsets_max, starts, own))
    return {partition: found[partition] for partition in ends}


def limited_by_bytes(
    bytes_max: int,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    bytes_per_offset: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """Return ends that divide about `bytes_max` bytes, with at least one offset per partition."""
    total_bytes = sum(
        (ends[partition] - starts[partition]) * each for partition, each in bytes_per_offset.items()
    )
    if total_bytes <= bytes_max:
        return dict(ends)
    return {
        partition: starts[partition]
        + max(math.floor((end - starts[partition]) * (bytes_max / total_bytes)), 1)
        if end > starts[partition]
        else end
        for partition, end in ends.items()
    }
