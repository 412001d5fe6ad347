"""Admission: how much of what has come a micro-batch of a stream may read.

`maxOffsetsPerTrigger` is divided among the partitions in proportion to what each has waiting, and
`minOffsetsPerTrigger` keeps a batch back until enough has come or `maxTriggerDelay` has passed,
both as Spark's own Kafka source does.

Owner: the planner of one stream.
Source: Spark's Structured Streaming + Kafka Integration Guide (the three options).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient import TopicPartition
    from spark_connector.options import StreamLimits


class Admission:
    """The limits of one stream, and when a batch was let through last (in milliseconds).

    The first batch of a query, also of one that goes on from a checkpoint, is not kept back.
    """

    def __init__(self, limits: StreamLimits) -> None:
        self._limits = limits
        self._last_ms = float("-inf")

    def admit(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        now_ms: float,
        *,
        may_wait: bool,
    ) -> Mapping[TopicPartition, int]:
        """Where the next batch ends: at `starts` when it is kept back, at `ends` at most.

        `starts` has the first offset of each partition of `ends`. A query that has to come to an
        end may not wait for more.
        """
        if may_wait and self._is_kept_back(starts, ends, now_ms):
            return starts
        self.let_through(now_ms)
        offsets_max = self._limits.offsets_max
        return ends if offsets_max is None else limited(offsets_max, starts, ends)

    def let_through(self, now_ms: float) -> None:
        """The time of `maxTriggerDelay` runs from here."""
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


def limited(
    offsets_max: int, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Ends that divide about `offsets_max` offsets among the partitions.

    Each part is in proportion to what the partition has, rounded down, but at least 1: partitions
    with little are not starved, and the sum may be larger than the limit by that.
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
