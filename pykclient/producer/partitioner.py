"""StickyPartitioner: chooses a record's partition: the one it names, by key, or sticky.

Records with a key go where Java's producer puts them: murmur2 of the key, without its sign, modulo
the number of partitions. Records without a key, and all records if keys are ignored, go to one
partition until it has taken the bytes of a batch, then to another one, drawn at random. Partitions
with longer queues are drawn less often, so that a slow broker gets less. With
``partitioner.rack.aware`` only partitions whose leader is in the client's rack are drawn, if there
are any. `StickyPartitioner` decides this for records and for rows. The sender notes which brokers
are slow (`Sender`). A custom partitioner is called before any of this. The per-record core does the
same for open batches (`SendCore.send`), and divides rows of which only some have a fixed partition
(`RowBlock.by_partition`), also one sticky partition after the other.

Owner: each topic has a `StickyPartitioner`; it changes under the lock of its current partition, or
in the sender thread when the topic's partitions change.
Source: Java class ``BuiltInPartitioner``; KIP-480, KIP-794, KIP-1123.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from pykclient.accel import partition_of_key
from pykclient.accel.key_rule import (
    CRC32,
    EACH_RECORD,
    EMPTY_IS_SPREAD,
    FNV1A,
    IGNORE_KEYS,
    MURMUR2,
    NULL_IS_HASHED,
    RANDOM,
    ROUND_ROBIN,
    is_hashed,
)
from pykclient.config.setting import resolve_class_setting
from pykclient.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from pykclient.network.cluster.cluster import PartitionInfo
    from pykclient.producer.config import ProducerConfig
    from pykclient.producer.record import Rows, SerializedRecord

Partitioner = Callable[[str, bytes | None, bytes | None, "tuple[PartitionInfo, ...]"], int]
"""A custom partitioner: called with the topic, key and value as bytes or None, and the topic's
partitions in order; returns the number of one of them."""

KEY_RULES: Final = {
    "murmur2_random": MURMUR2,
    "murmur2": MURMUR2 | NULL_IS_HASHED,
    "consistent_random": CRC32 | EMPTY_IS_SPREAD,
    "consistent": CRC32 | NULL_IS_HASHED,
    "fnv1a_random": FNV1A,
    "fnv1a": FNV1A | NULL_IS_HASHED,
    "random": RANDOM,
    "round_robin": ROUND_ROBIN,
}
"""Treatment of keys by each named partitioner."""

LOAD_AGE_MS_MAX = 10
"""Maximum age of the queue lengths by which a partition is drawn. Reading all queues of a topic at
each switch would make the cost of a record grow with the number of partitions."""


def key_rule_of(config: ProducerConfig) -> int:
    """Return how the partitioner treats keys."""
    if config.partitioner_ignore_keys:
        return IGNORE_KEYS
    name = config.partitioner
    return KEY_RULES.get(name, MURMUR2) if isinstance(name, str) else MURMUR2


def chooses_each_record(config: ProducerConfig) -> bool:
    """Return True if a named partitioner chooses for each record (round_robin, random)."""
    return bool(key_rule_of(config) & EACH_RECORD)


def partition_function(configured: object) -> Partitioner | None:
    """Return the function of a custom partitioner, None for a named one."""
    if isinstance(configured, str) and configured in KEY_RULES:
        return None
    found = resolve_class_setting("partitioner.class", configured)
    if found is None:
        return None
    method = getattr(found, "partition", found)
    if not callable(method):
        raise ConfigError(
            f"partitioner is {found!r:.100}: it must be a callable of topic, key, value and "
            f"partitions, or have such a method named partition"
        )
    return cast("Partitioner", method)


def checked_partition(chosen: object, topic: str, partition_count: int) -> int:
    if isinstance(chosen, int) and not isinstance(chosen, bool) and 0 <= chosen < partition_count:
        return chosen
    raise UsageError(
        f"the partitioner chose {chosen!r:.100} for a record of topic {topic!r}, which has the "
        f"partitions 0 to {partition_count - 1}"
    )


class PartitionLoad(NamedTuple):
    """Number of batches that wait for a partition, and reasons against it.

    `is_slow`: the leader accepted nothing for ``partitioner.availability.timeout.ms``. `is_near`:
    the leader is in the client's rack, and ``partitioner.rack.aware`` is set.
    """

    partition: int
    waiting_count: int
    has_leader: bool = True
    is_slow: bool = False
    is_near: bool = False


class StickyPartitioner:
    """Chooses the partition of a topic's records; without a key, one sticky partition at a time.

    The sticky partition changes when it has a full batch, when it has taken `switch_bytes` in
    smaller batches, or when it has lost its leader. It changes only between two batches, which
    keeps them full, so it takes one to two times `switch_bytes`. `loads` returns the topic's
    partitions, at least one.
    """

    __slots__ = (
        "_is_adaptive",
        "_loads",
        "_random",
        "_switch_bytes",
        "_table",
        "_table_ms",
        "_taken_bytes",
        "key_rule",
        "partition",
        "partition_count",
    )

    def __init__(
        self,
        loads: Callable[[], Sequence[PartitionLoad]],
        *,
        switch_bytes: int,
        is_adaptive: bool,
        key_rule: int,
        random: Random,
    ) -> None:
        self.partition = -1
        """The current sticky partition; -1 before `on_partitions` was called."""
        self.partition_count = 0
        """Number of partitions of the topic. Deleted partitions may have left further queues."""
        self.key_rule = key_rule
        self._loads = loads
        self._switch_bytes = switch_bytes
        self._is_adaptive = is_adaptive
        self._random = random
        self._taken_bytes = 0
        """Bytes that the sticky partition has taken since the last switch, in closed batches."""
        self._table: _Table | None = None
        self._table_ms = 0

    @property
    def room_bytes(self) -> int:
        return self._switch_bytes - self._taken_bytes

    def choose(self, item: SerializedRecord | Rows) -> tuple[int, bool]:
        """Return the partition, and whether it is the sticky one.

        A partition that the record names may not exist.
        """
        if item.partition is not None:
            return item.partition, False
        if item.key is None and not self.key_rule & NULL_IS_HASHED:  # most, without a call
            return self.partition, True
        if is_hashed(self.key_rule, item.key):
            return partition_of_key(item.key or b"", self.partition_count, self.key_rule), False
        return self.partition, True

    def on_partitions(self, partition_count: int, now_ms: int) -> None:
        self.partition_count = partition_count
        self._table = None
        # Without a lock: a thread that switches at the same time also draws an existing partition.
        if not 0 <= self.partition < partition_count:
            self.switch(now_ms)

    def on_batch(self, size_bytes: int) -> None:
        """Count a closed batch with records of the sticky partition."""
        self._taken_bytes += size_bytes

    def end_turn(self, now_ms: int, *, is_batch_full: bool, has_leader: bool) -> bool:
        """Switch between two batches if it is time; return whether the partition has changed.

        If the partition has lost its leader, switch early only to a partition that has one. If none
        has, each further choice would end as early, and appending a record would take as many
        choices as the topic has partitions.
        """
        before = self.partition
        is_over = is_batch_full or self.room_bytes <= 0
        if is_over or not has_leader:
            self.switch(now_ms)
            if not is_over and (self._table is None or not self._table.is_led):
                self.partition = before
        return self.partition != before

    def take(self, size_bytes: int, now_ms: int, *, has_leader: bool) -> bool:
        """Count rows that are divided before they are appended; return whether it switched."""
        self._taken_bytes += size_bytes
        if self.room_bytes > 0 and has_leader:
            return False
        self.switch(now_ms)
        return True

    def switch(self, now_ms: int) -> int:
        """Draw the next sticky partition, which may be the same one; return it."""
        table = self._table
        if table is None or now_ms >= self._table_ms + LOAD_AGE_MS_MAX:
            loads = self._loads()
            if not loads:  # the topic has left the metadata since the caller found it
                self._taken_bytes = 0
                return self.partition
            table = self._table = _table_of(loads, is_adaptive=self._is_adaptive)
            self._table_ms = now_ms
        drawn = self._random.randrange(table.weight_sums[-1])
        self.partition = table.partitions[bisect_right(table.weight_sums, drawn)]
        self._taken_bytes = 0
        return self.partition


class _Table(NamedTuple):
    """Partitions to draw from, with cumulative weights."""

    partitions: list[int]
    weight_sums: list[int]
    is_led: bool
    """True if they have leaders; otherwise all partitions are listed."""


def _table_of(loads: Sequence[PartitionLoad], *, is_adaptive: bool) -> _Table:
    led = [load for load in loads if load.has_leader]
    usable = [load for load in led if not load.is_slow] or led or loads
    usable = [load for load in usable if load.is_near] or usable
    counts = [load.waiting_count if is_adaptive else 0 for load in usable]
    longest = max(counts)
    # A weight is 1 plus the number of batches that the longest queue has more than the partition.
    weights = [longest + 1 - count for count in counts]
    return _Table([load.partition for load in usable], list(accumulate(weights)), bool(led))
