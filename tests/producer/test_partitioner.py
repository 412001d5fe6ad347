"""Where records go: by key as Java does, without one partition after the other."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from pykclient.accel import partition_of_key
from pykclient.accel.key_rule import MURMUR2, is_hashed
from pykclient.config.partitioner_setting import PARTITIONERS
from pykclient.errors import ConfigError, UsageError
from pykclient.producer.partitioner import (
    KEY_RULES,
    LOAD_AGE_MS_MAX,
    PartitionLoad,
    StickyPartitioner,
    checked_partition,
    partition_function,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.network.cluster.cluster import PartitionInfo

VECTORS = Path(__file__).parents[1] / "golden" / "producer" / "partitions.tsv"
"""Written by Java's own classes: see PartitionVectors.java beside it."""

VECTORS_OF_LIBRDKAFKA = VECTORS.with_name("librdkafka_partitions.tsv")
"""Written by librdkafka 2.16: see librdkafka_partitions.py beside it."""

SWITCH_BYTES = 1_000


@pytest.mark.promise("a record with a key goes to the partition that Java chooses")
def test_keys_go_to_the_partitions_that_java_chooses() -> None:
    header, *rows = VECTORS.read_text().splitlines()
    partition_counts = [int(text) for text in header.split("\t")[2:]]
    assert len(rows) > 200
    for row in rows:
        key_hex, _, *partitions = row.split("\t")
        key = bytes.fromhex(key_hex)
        chosen = [partition_of_key(key, count) for count in partition_counts]
        assert chosen == [int(text) for text in partitions], key


def test_each_named_partitioner_has_its_rule() -> None:
    assert tuple(KEY_RULES) == PARTITIONERS


def test_keys_go_to_the_partitions_that_librdkafka_chooses() -> None:
    header, *rows = VECTORS_OF_LIBRDKAFKA.read_text().splitlines()
    columns = [column.split(" ") for column in header.split("\t")[1:]]
    spread = []
    for row in rows:
        key_hex, *partitions = row.split("\t")
        key = None if key_hex == "null" else bytes.fromhex(key_hex)
        for (name, count), partition in zip(columns, partitions, strict=True):
            rule = KEY_RULES[name]
            if is_hashed(rule, key):
                chosen = partition_of_key(key or b"", int(count), rule)
                assert chosen == int(partition), (name, count, key)
            elif count == "12":
                spread.append((name, key))
    assert spread == [
        ("consistent_random", None),
        ("murmur2_random", None),
        ("fnv1a_random", None),
        ("consistent_random", b""),
    ]


def sticky(loads: Sequence[PartitionLoad], *, is_adaptive: bool = True) -> StickyPartitioner:
    return StickyPartitioner(
        lambda: loads,
        switch_bytes=SWITCH_BYTES,
        is_adaptive=is_adaptive,
        key_rule=MURMUR2,
        random=Random(5),
    )


def drawn(partition: StickyPartitioner, *, times: int = 6_000) -> Counter[int]:
    return Counter(partition.switch(now_ms=0) for _ in range(times))


def test_a_partition_keeps_its_turn_until_it_has_taken_a_batch() -> None:
    partition = sticky([PartitionLoad(index, 0) for index in range(1_000)])
    partition.on_partitions(1_000, now_ms=0)
    for _ in range(2):
        partition.on_batch(400)
        assert not partition.end_turn(0, is_batch_full=False, has_leader=True)
    partition.on_batch(400)
    assert partition.end_turn(0, is_batch_full=False, has_leader=True)
    partition.on_batch(999)
    assert not partition.end_turn(0, is_batch_full=False, has_leader=True)


def test_a_turn_ends_with_a_full_batch_and_where_the_leader_is_lost() -> None:
    partition = sticky([PartitionLoad(index, 0) for index in range(1_000)])
    partition.on_partitions(1_000, now_ms=0)
    assert partition.end_turn(0, is_batch_full=True, has_leader=True)
    assert partition.end_turn(0, is_batch_full=False, has_leader=False)
    assert partition.take(10, 0, has_leader=False)
    assert not partition.take(SWITCH_BYTES - 1, 0, has_leader=True)
    assert partition.room_bytes == 1
    assert partition.take(1, 0, has_leader=True)


def test_partitions_with_equal_queues_are_drawn_equally_often() -> None:
    counts = drawn(sticky([PartitionLoad(index, 3) for index in range(6)]))
    assert set(counts) == set(range(6))
    assert max(counts.values()) < 1.2 * min(counts.values())


def test_a_partition_with_a_longer_queue_is_drawn_less_often() -> None:
    # Weights by KIP-794: the longest queue 1, the others one more for each batch less: 1, 4, 5.
    counts = drawn(sticky([PartitionLoad(0, 4), PartitionLoad(1, 1), PartitionLoad(2, 0)]))
    assert counts[1] == pytest.approx(4 * counts[0], rel=0.2)
    assert counts[2] == pytest.approx(5 * counts[0], rel=0.2)


def test_queues_do_not_matter_when_that_is_switched_off() -> None:
    loads = [PartitionLoad(0, 50), PartitionLoad(1, 0)]
    counts = drawn(sticky(loads, is_adaptive=False))
    assert counts[0] == pytest.approx(counts[1], rel=0.1)


def test_partitions_without_a_leader_or_with_a_slow_one_are_drawn_if_there_are_no_others() -> None:
    leaderless = PartitionLoad(0, 0, has_leader=False)
    slow = PartitionLoad(1, 0, is_slow=True)
    good = PartitionLoad(2, 9)
    assert set(drawn(sticky([leaderless, slow, good]))) == {2}
    assert set(drawn(sticky([leaderless, slow]))) == {1}
    assert set(drawn(sticky([leaderless]))) == {0}


def test_partitions_with_their_leader_in_the_own_rack_are_drawn_while_one_takes_records() -> None:
    near = PartitionLoad(0, 9, is_near=True)
    slow = PartitionLoad(0, 0, is_near=True, is_slow=True)
    leaderless = PartitionLoad(0, 0, is_near=True, has_leader=False)
    far = PartitionLoad(1, 0)
    assert set(drawn(sticky([near, far]))) == {0}
    assert set(drawn(sticky([slow, far]))) == {1}
    assert set(drawn(sticky([leaderless, far]))) == {1}


def test_a_turn_goes_on_where_no_partition_has_a_leader() -> None:
    # Each choice would end as early as the one before: a topic of many partitions, for ever.
    partition = sticky([PartitionLoad(n, 0, has_leader=False) for n in range(100)])
    partition.on_partitions(100, 0)
    before = partition.partition
    assert not partition.end_turn(0, is_batch_full=False, has_leader=False)
    assert partition.partition == before
    turns = [partition.end_turn(0, is_batch_full=True, has_leader=False) for _ in range(10)]
    assert any(turns), "a full batch ends a turn all the same"


def test_a_topic_that_is_dropped_meanwhile_keeps_its_partition() -> None:
    loads = [PartitionLoad(index, 0) for index in range(3)]
    partition = sticky(loads)
    partition.on_partitions(3, now_ms=0)
    before = partition.partition
    loads.clear()
    assert not partition.end_turn(LOAD_AGE_MS_MAX, is_batch_full=True, has_leader=False)
    assert partition.take(SWITCH_BYTES, LOAD_AGE_MS_MAX, has_leader=True)
    assert (partition.partition, partition.room_bytes) == (before, SWITCH_BYTES)


def test_queues_are_looked_at_again_when_the_picture_is_old_or_dropped() -> None:
    loads = [PartitionLoad(0, 0)]
    partition = sticky(loads)
    partition.switch(now_ms=100)
    loads[0] = PartitionLoad(1, 0)
    assert partition.switch(now_ms=100 + LOAD_AGE_MS_MAX - 1) == 0
    assert partition.switch(now_ms=100 + LOAD_AGE_MS_MAX) == 1
    loads[0] = PartitionLoad(2, 0)
    partition.on_partitions(3, now_ms=100 + LOAD_AGE_MS_MAX)
    assert partition.switch(now_ms=100 + LOAD_AGE_MS_MAX) == 2


class FirstPartition:
    """A partitioner of an application's own."""

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partitions: tuple[PartitionInfo, ...],
    ) -> int:
        return partitions[0].partition


def test_a_partitioner_is_a_callable_or_has_a_method() -> None:
    assert partition_function(None) is None
    by_method = partition_function("tests.producer.test_partitioner:FirstPartition")
    assert by_method is not None
    assert by_method.__name__ == "partition"
    assert partition_function(max) is max
    with pytest.raises(ConfigError, match="partitioner"):
        partition_function(5)


@pytest.mark.parametrize("chosen", [-1, 3, None, True, "0", 1.0])
def test_a_choice_that_is_no_partition_is_refused_by_name(chosen: object) -> None:
    with pytest.raises(UsageError, match=r"'t'.*0 to 2"):
        checked_partition(chosen, "t", 3)
