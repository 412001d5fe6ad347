"""Which partition a record goes to: the one it names, by its key, or by turns.

Records with a key go where Java's producer puts them: murmur2 of the key, without its sign, modulo
the number of partitions. Those without a key, and all where keys are ignored, go to one partition
until it has taken a batch's worth of bytes, then to another one, drawn at random. Where some
partitions have longer queues than others, they are drawn less often, so that a slow broker gets
less. With ``partitioner.rack.aware`` only those are drawn whose leader is in the client's rack, as
long as there are any. `StickyPartitioner` decides this, for records and for rows; which brokers are
slow the sender notes (`Sender`), and a partitioner of the application's is called before any of it.
The per-record core does the same with the open batches that it finds (`SendCore.send`), and divides
rows where some may go anywhere and others not (`RowBlock.by_partition`): those take the turns one
after the other, too.

Owner: a `StickyPartitioner` is its topic's; it changes under the lock of the partition chosen so
far, or in the sender thread when the topic's partitions change.
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
"""A partitioner of the application's own: called with the topic, the key and the value as bytes
or None, and the topic's partitions in order; returns the number of one of them."""

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
"""What each partitioner that has a name does with keys."""

LOAD_AGE_MS_MAX = 10
"""How old the picture of the queues may be by which the next partition is drawn. Looking at all of
a topic's queues at each switch would make a record dearer the more partitions there are."""


def key_rule_of(config: ProducerConfig) -> int:
    """Return what a topic's partitioner does with keys."""
    if config.partitioner_ignore_keys:
        return IGNORE_KEYS
    name = config.partitioner
    return KEY_RULES.get(name, MURMUR2) if isinstance(name, str) else MURMUR2


def chooses_each_record(config: ProducerConfig) -> bool:
    """Whether a named partitioner chooses for each record by itself (round_robin, random)."""
    return bool(key_rule_of(config) & EACH_RECORD)


def partition_function(configured: object) -> Partitioner | None:
    """Return the function of a configured partitioner, None for those that have a name."""
    if isinstance(configured, str) and configured in KEY_RULES:
        return None
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
    if isinstance(chosen, int) and not isinstance(chosen, bool) and 0 <= chosen < partition_count:
        return chosen
    raise UsageError(
        f"the partitioner chose {chosen!r:.100} for a record of topic {topic!r}, which has the "
        f"partitions 0 to {partition_count - 1}"
    )


class PartitionLoad(NamedTuple):
    """How many batches wait for a partition, and what speaks against it.

    A slow leader has taken nothing for ``partitioner.availability.timeout.ms``. One that is near is
    in the client's rack, where the partitioner looks at racks.
    """

    partition: int
    waiting_count: int
    has_leader: bool = True
    is_slow: bool = False
    is_near: bool = False


class StickyPartitioner:
    """Chooses the partition of a topic's records: without a key, one turn after the other.

    A turn ends when the partition has a full batch, when it has taken `switch_bytes` in smaller
    ones, or when it has lost its leader; and between two batches only, which keeps them full. So it
    is one to two times `switch_bytes` long. `loads` returns the topic's partitions; at least one.
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
        """The present choice; -1 before `on_partitions` was called."""
        self.partition_count = 0
        """How many partitions the topic has. There may be more queues, of partitions gone since."""
        self.key_rule = key_rule
        self._loads = loads
        self._switch_bytes = switch_bytes
        self._is_adaptive = is_adaptive
        self._random = random
        self._taken_bytes = 0
        """What the partition has taken in this turn, in batches that are closed."""
        self._table: _Table | None = None
        self._table_ms = 0

    @property
    def room_bytes(self) -> int:
        return self._switch_bytes - self._taken_bytes

    def choose(self, item: SerializedRecord | Rows) -> tuple[int, bool]:
        """Return a partition, which there may not be if it is named, and whether it is only the
        present turn's."""
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
        # Without a lock: a thread that switches at the same time draws one that exists as well.
        if not 0 <= self.partition < partition_count:
            self.switch(now_ms)

    def on_batch(self, size_bytes: int) -> None:
        """Count a batch with records of this turn, which takes no more."""
        self._taken_bytes += size_bytes

    def end_turn(self, now_ms: int, *, is_batch_full: bool, has_leader: bool) -> bool:
        """Switch if the turn is over, as looked at between two batches; return whether the
        partition is another one now.

        A turn without a leader ends early only for a partition with one: where none has any, every
        other choice would end as early, and a record would be appended after as many choices as
        the topic has partitions.
        """
        before = self.partition
        is_over = is_batch_full or self.room_bytes <= 0
        if is_over or not has_leader:
            self.switch(now_ms)
            if not is_over and (self._table is None or not self._table.is_led):
                self.partition = before
        return self.partition != before

    def take(self, size_bytes: int, now_ms: int, *, has_leader: bool) -> bool:
        """Count rows that are divided before they are in batches; return whether a turn began."""
        self._taken_bytes += size_bytes
        if self.room_bytes > 0 and has_leader:
            return False
        self.switch(now_ms)
        return True

    def switch(self, now_ms: int) -> int:
        """Begin the next turn; return its partition, which may be the same one."""
        table = self._table
        if table is None or now_ms >= self._table_ms + LOAD_AGE_MS_MAX:
            loads = self._loads()
            if not loads:  # the metadata has dropped the topic since the caller found it
                self._taken_bytes = 0
                return self.partition
            table = self._table = _table_of(loads, is_adaptive=self._is_adaptive)
            self._table_ms = now_ms
        drawn = self._random.randrange(table.weight_sums[-1])
        self.partition = table.partitions[bisect_right(table.weight_sums, drawn)]
        self._taken_bytes = 0
        return self.partition


class _Table(NamedTuple):
    """What to draw from: the sums of the partitions' weights, to be searched."""

    partitions: list[int]
    weight_sums: list[int]
    is_led: bool
    """Whether they have leaders; without, all partitions are here."""


def _table_of(loads: Sequence[PartitionLoad], *, is_adaptive: bool) -> _Table:
    led = [load for load in loads if load.has_leader]
    usable = [load for load in led if not load.is_slow] or led or loads
    usable = [load for load in usable if load.is_near] or usable
    counts = [load.waiting_count if is_adaptive else 0 for load in usable]
    longest = max(counts)
    # A partition weighs one, and one more for each batch that the longest queue has more than it.
    weights = [longest + 1 - count for count in counts]
    return _Table([load.partition for load in usable], list(accumulate(weights)), bool(led))
