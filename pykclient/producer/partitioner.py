"""Which partition a record goes to: by its key, or one after the other.

Keyed records go where Java's producer puts them: murmur2 of the key, without its sign, modulo the
number of partitions. Records without a key stick to one partition until it has taken a batch's
worth of bytes, then to another one. The next one is drawn at random; where some partitions have
longer queues than others, they are drawn less often, so that a slow broker gets less.

Owner: `StickyPartition` belongs to the accumulator: its choice changes under the lock of the
partition chosen so far.
Source: Java class ``BuiltInPartitioner``; KIP-480, KIP-794.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, cast

from pykclient.accel import murmur2
from pykclient.config.setting import resolve_class_setting
from pykclient.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from pykclient.network.cluster.cluster import PartitionInfo

__all__ = [
    "PartitionLoad",
    "Partitioner",
    "StickyPartition",
    "checked_partition",
    "partition_for_key",
    "partition_function",
]

Partitioner = Callable[[str, bytes | None, bytes | None, "tuple[PartitionInfo, ...]"], int]
"""A partitioner of the application's own: called with the topic, the key and the value as bytes
or None, and the topic's partitions in order; returns the number of one of them."""

LOAD_AGE_MS_MAX = 10
"""How old the picture of the queues may be by which the next partition is drawn. Looking at all of
a topic's queues at each switch would make a record dearer the more partitions there are."""


def partition_function(configured: object) -> Partitioner | None:
    """Return the function of a configured partitioner; None when the producer's own is to be used.

    Raises:
        ConfigError: it cannot be imported, or is neither a callable nor has a method `partition`.
    """
    found = resolve_class_setting("partitioner.class", configured)
    if found is None:
        return None
    method = getattr(found, "partition", found)
    if not callable(method):
        raise ConfigError(
            f"partitioner is {found!r:.100}: it must be a callable of topic, key, value and "
            f"partitions, or have a method partition of these"
        )
    return cast("Partitioner", method)


def checked_partition(chosen: object, topic: str, partition_count: int) -> int:
    """Return what a partitioner of the application's own chose.

    Raises:
        UsageError: it is no partition of the topic.
    """
    if isinstance(chosen, int) and not isinstance(chosen, bool) and 0 <= chosen < partition_count:
        return chosen
    raise UsageError(
        f"the partitioner chose {chosen!r:.100} for a record of topic {topic!r}, which has the "
        f"partitions 0 to {partition_count - 1}"
    )


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key, as Java's producer chooses it."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class PartitionLoad(NamedTuple):
    """A partition that may be chosen, and how many batches wait in its queue."""

    partition: int
    waiting_count: int


class StickyPartition:
    """The partition that a topic's records without a key go to at present.

    `switch_bytes` is how many bytes it takes before another one is drawn. `loads` returns the
    partitions that may be drawn now; at least one.
    """

    __slots__ = (
        "_is_adaptive",
        "_loads",
        "_produced_bytes",
        "_random",
        "_switch_bytes",
        "_table",
        "_table_ms",
        "partition",
    )

    def __init__(
        self,
        loads: Callable[[], Sequence[PartitionLoad]],
        *,
        switch_bytes: int,
        is_adaptive: bool,
        random: Random,
    ) -> None:
        self.partition = -1
        self._loads = loads
        self._switch_bytes = switch_bytes
        self._is_adaptive = is_adaptive
        self._random = random
        self._produced_bytes = 0
        self._table: _Table | None = None
        self._table_ms = 0

    def on_produced(self, size_bytes: int) -> bool:
        """Count a batch that the partition took; return whether it has had its share.

        Batches that their age closed, not their size, do not end a turn by themselves; partitions
        are switched between batches only, which keeps them full. So a turn is one to two times
        `switch_bytes` long.
        """
        self._produced_bytes += size_bytes
        return self._produced_bytes >= self._switch_bytes

    @property
    def room_bytes(self) -> int:
        """How many bytes are missing of the partition's share."""
        return self._switch_bytes - self._produced_bytes

    def switch(self, now_ms: int) -> int:
        """Draw the next partition, which may be the same one, and return it."""
        table = self._table
        if table is None or now_ms >= self._table_ms + LOAD_AGE_MS_MAX:
            table = self._table = _table_of(self._loads(), is_adaptive=self._is_adaptive)
            self._table_ms = now_ms
        drawn = self._random.randrange(table.weight_sums[-1])
        self.partition = table.partitions[bisect_right(table.weight_sums, drawn)]
        self._produced_bytes = 0
        return self.partition

    def forget_loads(self) -> None:
        """Look anew at the next switch: partitions have come, gone or moved."""
        self._table = None


class _Table(NamedTuple):
    """What to draw from: the sums of the partitions' weights, to be searched."""

    partitions: list[int]
    weight_sums: list[int]


def _table_of(loads: Sequence[PartitionLoad], *, is_adaptive: bool) -> _Table:
    counts = [load.waiting_count if is_adaptive else 0 for load in loads]
    longest = max(counts)
    # A partition weighs one, and one more for each batch that the longest queue has more than it.
    weights = [longest + 1 - count for count in counts]
    return _Table([load.partition for load in loads], list(accumulate(weights)))
