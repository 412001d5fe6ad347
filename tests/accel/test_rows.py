"""RowBlock and RowRun: which partition rows go to, and how they get into batches."""

from __future__ import annotations

from array import array
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.accel import pure
from pykclient.accel.batch_layout import HEADER_SIZE_BYTES
from pykclient.accel.key_rule import CRC32, EMPTY_IS_SPREAD, IGNORE_KEYS, MURMUR2, NULL_IS_HASHED
from pykclient.records.builder import batch_size_upper_bound
from tests.accel.records import RULES, appended, new_appender, records_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import ModuleType

    from pykclient.accel.pure import RowBlock, RowGroup, RowRun

FIELD = st.none() | st.binary(max_size=70)


def block_of(
    core: ModuleType,
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Sequence[tuple[str, bytes | None]] | None] | None = None,
    timestamps_ms: int | Sequence[int] = 1000,
    first_row: int = 0,
) -> RowBlock:
    column = core.ByteColumn
    block: RowBlock = core.RowBlock(
        column.from_objects(values, "values"),
        keys=None if keys is None else column.from_objects(keys, "keys"),
        headers=None if headers is None else column.from_headers(headers, "headers"),
        timestamps_ms=timestamps_ms,
        first_row=first_row,
    )
    return block


class Turns:
    """Partitions that take their turns one after the other, for 20 bytes each."""

    def __init__(self, partition_count: int) -> None:
        self.calls: list[tuple[int, int]] = []
        self._produced: dict[int, int] = defaultdict(int)
        self._partition_count = partition_count

    def __call__(self, topic: int, size_bytes: int) -> tuple[int, int]:
        self.calls.append((topic, size_bytes))
        self._produced[topic] += size_bytes
        turn, taken_bytes = divmod(self._produced[topic], 20)
        return turn % self._partition_count, 20 - taken_bytes


def no_turn(topic: int, size_bytes: int) -> tuple[int, int]:
    raise AssertionError("no row has to be put in order with others")


def placed(
    core: ModuleType, groups: Iterable[RowGroup]
) -> dict[tuple[int, int | None], Sequence[bytes | None]]:
    """Return the values of each group, by topic and partition."""
    return {(group.topic, group.partition): appended(core, group.rows).values for group in groups}


def in_batches(core: ModuleType, run: RowRun, capacity_bytes: int) -> list[list[bytes | None]]:
    """Append all rows of a run, batch after batch."""
    batches = []
    while len(run):
        appender = new_appender(core, capacity_bytes)
        run.take(run.fill(appender))
        batches.append(list(records_of(appender).values))
    return batches


@pytest.mark.promise("`send_batch` and `send_arrow` deliver all kinds of records, in every codec")
@given(
    records=st.lists(
        st.tuples(
            FIELD,
            FIELD,
            st.lists(st.tuples(st.text(max_size=5), FIELD), max_size=3),
            st.integers(0, 2**50),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_rows_are_encoded_as_append_encodes_records(
    core: ModuleType,
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]],
) -> None:
    keys, values, headers, timestamps_ms = zip(*records, strict=True)
    one_by_one = new_appender(core)
    for key, value, header, timestamp_ms in records:
        one_by_one.append(timestamp_ms, key, value, header)
    block = block_of(
        core, values, keys=keys, headers=headers, timestamps_ms=array("q", timestamps_ms)
    )
    in_bulk = new_appender(core)
    run = block.all_rows()
    assert run.fill(in_bulk) == len(records)
    for appender in (one_by_one, in_bulk):
        appender.seal()
    assert bytes(in_bulk.view()) == bytes(one_by_one.view())
    assert in_bulk.base_timestamp_ms == one_by_one.base_timestamp_ms
    assert in_bulk.max_timestamp_ms == one_by_one.max_timestamp_ms


@pytest.mark.parametrize("capacity_bytes", [1, 40, 1000, 64_000])
def test_full_batches_follow_each_other_without_a_gap(
    core: ModuleType, capacity_bytes: int
) -> None:
    values = [b"%05d" % number for number in range(3000)]
    batches = in_batches(core, block_of(core, values).all_rows(), capacity_bytes)
    assert [value for batch in batches for value in batch] == values
    # Of each batch but the last, the next record would not have found room.
    one = new_appender(core)
    one.append(1000, None, values[0])
    assert all((len(batch) + 1) * (one.size_bytes + 1) > capacity_bytes for batch in batches[:-1])


def test_capacity_is_exact(core: ModuleType) -> None:
    values = [b"0123456789"] * 5
    appender = new_appender(core, 2 * 17)
    run = block_of(core, values).all_rows()
    assert run.fill(appender) == 2
    assert appender.size_bytes == 2 * 17


def test_rows_go_behind_the_records_that_are_there(core: ModuleType) -> None:
    appender = new_appender(core)
    appender.append(5, b"k", b"first")
    run = block_of(core, [b"a", b"b"], timestamps_ms=array("q", [4, 9])).all_rows()
    assert run.append_to(appender) == (1, 2)
    delivery = appender.append(9, None, b"last")
    assert delivery is not None
    assert delivery.index == 3
    columns = records_of(appender)
    assert list(columns.values) == [b"first", b"a", b"b", b"last"]
    assert list(columns.timestamps_ms) == [5, 4, 9, 9]
    assert (appender.base_timestamp_ms, appender.max_timestamp_ms) == (5, 9)


def test_only_the_first_timestamp_of_rows_is_kept_beside_them(core: ModuleType) -> None:
    appender = new_appender(core)
    run = block_of(core, [b""] * 100, timestamps_ms=array("q", range(100, 0, -1))).all_rows()
    run.fill(appender)
    appender.append(100, None, b"")
    appender.append(7, None, b"")
    assert list(appender.first_indexes) == [0, 101]
    assert list(appender.timestamps_ms) == [100, 7]


def test_a_sealed_appender_takes_no_row(core: ModuleType) -> None:
    appender = new_appender(core)
    appender.seal()
    run = block_of(core, [b"a"]).all_rows()
    assert run.append_to(appender) == (0, 0)
    assert run.fill(appender) == 0
    assert len(run) == 1


def test_a_row_that_does_not_fit_leaves_all_as_it_was(core: ModuleType) -> None:
    appender = new_appender(core, 20)
    assert appender.append(1000, None, b"0123456789")
    run = block_of(core, [b"0123456789"], timestamps_ms=2000).all_rows()
    assert run.append_to(appender) == (1, 0)
    assert (appender.count, appender.size_bytes) == (1, 17)
    assert (appender.base_timestamp_ms, appender.max_timestamp_ms) == (1000, 1000)
    assert list(appender.timestamps_ms) == [1000]


def test_what_was_not_taken_is_appended_again(core: ModuleType) -> None:
    run = block_of(core, [b"a", b"b"]).all_rows()
    assert run.fill(new_appender(core)) == 2
    assert appended(core, run).values == [b"a", b"b"]


def test_taken_rows_are_numbered_in_the_whole(core: ModuleType) -> None:
    block = block_of(core, [b""] * 4, keys=[b"a", b"b", b"a", b"a"], first_row=100)
    run = block.all_rows()
    assert [run.take(3), len(run), run.take(1), len(run)] == [
        range(100, 103),
        1,
        range(103, 104),
        0,
    ]
    groups = block.by_partition([1000], key_rule=MURMUR2, take_turn=no_turn)
    numbers = sorted(list(group.rows.take(len(group.rows))) for group in groups)
    assert numbers == [[100, 102, 103], [101]]


def test_scattered_rows_in_a_row_are_a_range(core: ModuleType) -> None:
    block = block_of(core, [b""] * 4, keys=[b"a", b"b", b"b", b"a"])
    groups = block.by_partition([1000], key_rule=MURMUR2, take_turn=no_turn)
    taken = [group.rows.take(2) for group in groups]
    assert [numbers for numbers in taken if isinstance(numbers, range)] == [range(1, 3)]


@given(keys=st.lists(FIELD, max_size=60), partition_count=st.integers(1, 40))
def test_keys_go_where_java_puts_them_and_keep_their_order(
    core: ModuleType, keys: list[bytes | None], partition_count: int
) -> None:
    values = [b"%d" % number for number in range(len(keys))]
    expected: dict[tuple[int, int | None], list[bytes]] = defaultdict(list)
    model = Turns(partition_count)
    is_mixed = len({key is None for key in keys}) == 2
    partition: int | None = None
    room_bytes = taken_bytes = 0
    if is_mixed:
        partition, room_bytes = model(0, 0)
    for key, value in zip(keys, values, strict=True):
        if key is not None:
            hashed = pure.partition_of_key(key, partition_count)
            expected[0, hashed].append(value)
            continue
        if is_mixed and taken_bytes >= room_bytes:
            partition, room_bytes = model(0, taken_bytes)
            taken_bytes = 0
        expected[0, partition].append(value)
        taken_bytes += 7 + len(value)
    if is_mixed:
        model(0, taken_bytes)
    turns = Turns(partition_count)
    groups = block_of(core, values, keys=keys).by_partition(
        [partition_count], key_rule=MURMUR2, take_turn=turns
    )
    assert placed(core, groups) == expected
    assert len(groups) == len(expected)
    assert turns.calls == model.calls


@pytest.mark.parametrize("keys", [None, [b"", None, b"k"]])
def test_rows_without_a_key_are_hashed_or_spread_as_the_rule_says(
    core: ModuleType, keys: list[bytes | None] | None
) -> None:
    values = [b"0", b"1", b"2"]
    block = block_of(core, values, keys=keys)
    groups = block.by_partition([7], key_rule=CRC32 | NULL_IS_HASHED, take_turn=no_turn)
    by_key = pure.partition_of_key(b"k", 7, CRC32)
    expected = {(0, 0): values} if keys is None else {(0, 0): [b"0", b"1"], (0, by_key): [b"2"]}
    assert by_key != 0
    assert placed(core, groups) == expected
    groups = block.by_partition([7], key_rule=CRC32 | EMPTY_IS_SPREAD, take_turn=Turns(7))
    if keys is None:
        assert placed(core, groups) == {(0, None): values}
    else:
        first, second = Turns(7)(0, 0)[0], by_key
        assert first != second
        assert placed(core, groups) == {(0, first): [b"0", b"1"], (0, second): [b"2"]}


def test_rows_that_may_go_anywhere_are_divided_where_others_may_not(core: ModuleType) -> None:
    """Goal: they stand in order with their partition's rows; alone they wait for their turn."""
    values = [b"%d" % number for number in range(7)]
    block = block_of(core, values)
    turns = Turns(2)
    groups = block.by_partition(
        [2, 2, 2],
        key_rule=MURMUR2,
        take_turn=turns,
        topics=array("i", [0, 0, 1, 2, 0, 2, 1]),
        partitions=array("i", [-1, 0, -1, 1, -1, -1, -1]),
    )
    assert placed(core, groups) == {
        (0, 0): [b"0", b"1", b"4"],
        (1, None): [b"2", b"6"],
        (2, 1): [b"3"],
        (2, 0): [b"5"],
    }
    assert turns.calls == [(0, 0), (2, 0), (0, 16), (2, 8)]


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 2), st.integers(-1, 2), FIELD, FIELD), min_size=1, max_size=60
    ),
    has_topics=st.booleans(),
    has_partitions=st.booleans(),
    key_rule=RULES,
)
def test_both_cores_divide_alike(
    rows: list[tuple[int, int, bytes | None, bytes | None]],
    *,
    has_topics: bool,
    has_partitions: bool,
    key_rule: int,
) -> None:
    compiled = pytest.importorskip("pykclient.accel.compiled", reason="not built")
    topics, partitions, keys, values = zip(*rows, strict=True)
    results = []
    for core in (pure, compiled):
        turns = Turns(3)
        groups = block_of(core, values, keys=keys).by_partition(
            [3, 3, 3] if has_topics else [3],
            key_rule=key_rule,
            take_turn=turns,
            topics=array("i", topics) if has_topics else None,
            partitions=array("i", partitions) if has_partitions else None,
        )
        found = {
            (group.topic, group.partition): list(group.rows.take(len(rows))) for group in groups
        }
        results.append((found, turns.calls))
    assert results[0] == results[1]
    for numbers in results[0][0].values():
        assert numbers == sorted(numbers)


def test_a_turn_ends_with_the_row_that_takes_its_last_byte(core: ModuleType) -> None:
    rooms = iter([(2, 16), (0, 9), (0, 0), (1, 100)])
    calls = []

    def take_turn(topic: int, size_bytes: int) -> tuple[int, int]:
        calls.append((topic, size_bytes))
        return next(rooms, (0, 1))

    values = [b"%d" % number for number in range(9)]
    keys = [b"key", *[None] * 8]
    groups = block_of(core, values, keys=keys).by_partition(
        [3], key_rule=MURMUR2, take_turn=take_turn
    )
    by_key = pure.partition_of_key(b"key", 3)
    expected = {2: [b"1", b"2"], 0: [b"3", b"4", b"5"], 1: [b"6", b"7", b"8"]}
    expected[by_key].insert(0, b"0")
    assert placed(core, groups) == {(0, number): values for number, values in expected.items()}
    assert calls == [(0, 0), (0, 16), (0, 16), (0, 8), (0, 24)]


def test_a_partition_that_came_since_has_its_turn_the_next_time(core: ModuleType) -> None:
    block = block_of(core, [b"0", b"1"], keys=[b"k", None])
    groups = block.by_partition([2], key_rule=MURMUR2, take_turn=lambda topic, size: (5, 100))
    assert b"1" in placed(core, groups)[0, 1]


def test_a_turn_that_fails_divides_nothing(core: ModuleType) -> None:
    def take_turn(topic: int, size_bytes: int) -> tuple[int, int]:
        raise OSError("no turn")

    block = block_of(core, [b"0", b"1"], keys=[b"k", None])
    with pytest.raises(OSError, match="no turn"):
        block.by_partition([2], key_rule=MURMUR2, take_turn=take_turn)


def test_keys_do_not_matter_where_they_are_not_hashed(core: ModuleType) -> None:
    block = block_of(core, [b"1", b"2"], keys=[b"a", b"b"])
    (group,) = block.by_partition([7], key_rule=IGNORE_KEYS, take_turn=no_turn)
    assert (group.topic, group.partition, len(group.rows)) == (0, None, 2)


def test_a_row_may_name_its_partition_and_its_topic(core: ModuleType) -> None:
    block = block_of(core, [b"0", b"1", b"2", b"3", b"4"], keys=[None, None, b"k", None, b"k"])
    groups = block.by_partition(
        [3, 5],
        key_rule=MURMUR2,
        take_turn=lambda topic, size_bytes: (3, 10),
        topics=array("i", [0, 1, 1, 0, 1]),
        partitions=array("i", [2, -1, 4, 2, -1]),
    )
    by_key = pure.partition_of_key(b"k", 5)
    assert by_key not in (3, 4)
    assert placed(core, groups) == {
        (0, 2): [b"0", b"3"],
        (1, 3): [b"1"],
        (1, 4): [b"2"],
        (1, by_key): [b"4"],
    }


@given(keys=st.lists(FIELD, min_size=1, max_size=9), value=FIELD)
def test_sizes_are_never_less_than_what_is_encoded(
    core: ModuleType, keys: list[bytes | None], value: bytes | None
) -> None:
    headers = [[("name", b"value")] if key else None for key in keys]
    block = block_of(core, [value] * len(keys), keys=keys, headers=headers, first_row=7)
    bounds = [
        batch_size_upper_bound(key, value, header) - HEADER_SIZE_BYTES
        for key, header in zip(keys, headers, strict=True)
    ]
    row, size_bytes = block.largest()
    longest = max(range(len(keys)), key=lambda index: (len(keys[index] or b""), -index))
    assert row == 7 + longest
    assert max(bounds) - 20 <= size_bytes <= max(bounds)
    run = block.all_rows()
    appender = new_appender(core)
    assert run.size_bytes_estimate >= run.next_size_bytes_max
    run.fill(appender)
    assert run.size_bytes_estimate >= appender.size_bytes
    run.take(len(keys))
    assert (run.size_bytes_estimate, run.next_size_bytes_max) == (0, 0)


def test_the_largest_partition_of_each_topic_is_returned(core: ModuleType) -> None:
    partitions = array("i", [3, -1, 9, 0])
    assert core.largest_partitions(partitions, None, 1) == [9]
    assert core.largest_partitions(partitions, array("i", [0, 1, 0, 2]), 4) == [9, -1, 0, -1]


def test_many_rows_are_appended_in_spans_until_all_are_in(core: ModuleType) -> None:
    values = [b"%d" % number for number in range(2000)]
    run = block_of(core, values).all_rows()
    appender = new_appender(core)
    places = []
    while len(run):
        first_index, count = run.append_to(appender)
        places.append((first_index, run.take(count)))
    assert all(numbers[0] == first_index for first_index, numbers in places)
    assert list(records_of(appender).values) == values
