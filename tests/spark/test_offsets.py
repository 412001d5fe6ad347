"""Limits become ranges: resolved against what partitions hold, checked for losses, cut up."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient import TopicPartition
from pykclient.errors import ConfigError
from spark_connector.limits import OffsetLimit
from spark_connector.offsets import (
    EARLIEST,
    LATEST,
    DataLossError,
    LogBounds,
    OffsetRange,
    StreamOffset,
    TaskLimits,
    batch_ranges,
    offsets_as_json,
    offsets_from_json,
    split_ranges,
    task_ranges,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
FROM_EARLIEST = OffsetLimit("startingOffsets", everywhere=EARLIEST)
TO_LATEST = OffsetLimit("endingOffsets", everywhere=LATEST)


HELD = {A0: LogBounds(10, 20), A1: LogBounds(0, 5)}


def offsets_at(timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
    """Look offsets up by time: a record's time in ms is its offset times ten."""
    found = {}
    for partition, timestamp_ms in timestamps_ms.items():
        offset = max(-(-timestamp_ms // 10), HELD[partition].beginning)
        found[partition] = offset if offset < HELD[partition].end else None
    return found


def committed(group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Group "g" has committed for the first partition alone."""
    assert group == "g"
    assert A0 in partitions
    return {A0: 12}


def resolve(
    starting: OffsetLimit = FROM_EARLIEST,
    ending: OffsetLimit = TO_LATEST,
    *,
    fail_on_data_loss: bool = True,
) -> list[tuple[int, int]]:
    partitions = list(HELD)
    starts = starting.offsets(partitions, offsets_at, committed)
    ends = ending.offsets(partitions, offsets_at, committed)
    ranges = batch_ranges(
        starting.clamped(starts, HELD),
        ending.clamped(ends, HELD),
        HELD,
        fail_on_data_loss=fail_on_data_loss,
    )
    assert [one.partition for one in ranges] == [A0, A1]
    return [(one.start, one.end) for one in ranges]


def starting_at(first: int, second: int) -> OffsetLimit:
    return OffsetLimit("startingOffsets", by_partition={A0: first, A1: second})


def ending_at(first: int, second: int) -> OffsetLimit:
    return OffsetLimit("endingOffsets", by_partition={A0: first, A1: second})


def test_earliest_to_latest_is_all_that_partitions_hold() -> None:
    assert resolve() == [(10, 20), (0, 5)]


def test_offsets_and_edges_may_be_mixed_by_partition() -> None:
    assert resolve(starting_at(15, EARLIEST), ending_at(LATEST, 3)) == [(15, 20), (0, 3)]


def test_a_start_at_its_end_is_an_empty_range() -> None:
    assert resolve(starting_at(20, 5)) == [(20, 20), (5, 5)]


@pytest.mark.parametrize(
    ("starting", "ending"),
    [(starting_at(18, 0), ending_at(12, 5)), (starting_at(21, 0), TO_LATEST)],
)
def test_a_start_behind_its_end_is_refused(starting: OffsetLimit, ending: OffsetLimit) -> None:
    for fail_on_data_loss in (True, False):
        with pytest.raises(ConfigError, match=r"a-0: the read would begin at offset \d+, behind"):
            resolve(starting, ending, fail_on_data_loss=fail_on_data_loss)


@pytest.mark.parametrize(
    ("starting", "ending", "left"),
    [
        (starting_at(3, 0), TO_LATEST, (10, 20)),
        (starting_at(3, 0), ending_at(15, 5), (10, 15)),
        (starting_at(3, 0), ending_at(7, 5), (10, 10)),
        (starting_at(12, 0), ending_at(50, 5), (12, 20)),
        (starting_at(30, 0), ending_at(50, 5), (20, 20)),
    ],
)
def test_records_that_are_gone_fail_the_read_or_are_left_out_with_a_warning(
    starting: OffsetLimit,
    ending: OffsetLimit,
    left: tuple[int, int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(DataLossError, match=r"a-0 holds \[10, 20\).*Set failOnDataLoss=false"):
        resolve(starting, ending)
    with caplog.at_level(logging.WARNING, logger="spark_connector.offsets"):
        assert resolve(starting, ending, fail_on_data_loss=False) == [left, (0, 5)]
    assert "a-0 holds [10, 20)" in caplog.text


def test_an_empty_range_outside_what_is_held_loses_nothing() -> None:
    assert resolve(starting_at(3, 0), ending_at(3, 5)) == [(10, 10), (0, 5)]


@pytest.mark.parametrize(
    ("offsets", "complaint"),
    [
        ({A0: 12}, r"Missing: a-1\. Not read: none\."),
        ({A0: 12, A1: 0, TopicPartition("b", 7): 0}, r"Missing: none\. Not read: b-7\."),
    ],
)
def test_offsets_must_name_exactly_the_partitions_that_are_read(
    offsets: dict[TopicPartition, int], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        resolve(OffsetLimit("startingOffsets", by_partition=offsets))


def test_a_message_about_many_partitions_names_the_first() -> None:
    offsets = {TopicPartition("b", number): 0 for number in range(1_000)}
    with pytest.raises(ConfigError, match=r"Not read: b-0, b-1, .*, b-9, 990 more\."):
        resolve(OffsetLimit("startingOffsets", by_partition=offsets))


def test_times_are_the_first_offset_at_or_after_them() -> None:
    start = OffsetLimit("startingTimestamp", everywhere=25, is_timestamp=True, fallback=None)
    end = OffsetLimit("endingTimestamp", everywhere=135, is_timestamp=True)
    assert resolve(start, end) == [(10, 14), (3, 5)]


def test_a_starting_time_without_a_record_after_it_is_refused_or_is_the_end() -> None:
    def start(fallback: int | None) -> OffsetLimit:
        times = {A0: 0, A1: 500}
        return OffsetLimit(
            "startingOffsetsByTimestamp", by_partition=times, is_timestamp=True, fallback=fallback
        )

    with pytest.raises(ConfigError, match=r"a-1 has no record at or after 500 ms"):
        resolve(start(None))
    assert resolve(start(LATEST)) == [(10, 20), (5, 5)]


def test_a_group_gives_what_it_committed_and_the_earliest_offset_elsewhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert resolve(OffsetLimit("startingOffsets", group="g")) == [(12, 20), (0, 5)]
    assert "Group 'g' has committed nothing for a-1" in caplog.text


def test_a_time_that_was_found_is_kept_within_what_is_held_by_now() -> None:
    start = OffsetLimit("startingTimestamp", everywhere=25, is_timestamp=True)
    later = {A0: LogBounds(15, 20), A1: LogBounds(0, 5)}
    assert start.clamped({A0: 10, A1: LATEST}, later) == {A0: 15, A1: later[A1].end}
    assert FROM_EARLIEST.clamped({A0: 3, A1: 0}, later) == {A0: 3, A1: 0}


def test_edges_are_kept_for_the_tasks_that_bind_them() -> None:
    starts, ends = {A0: EARLIEST, A1: 1}, {A0: LATEST, A1: 4}
    edge, fixed = batch_ranges(starts, ends, HELD, fail_on_data_loss=True)
    assert edge == OffsetRange(A0, 10, 20, from_earliest=True, is_first=True, to_latest=True)
    assert fixed == OffsetRange(A1, 1, 4)
    first, inner, last = split_ranges([edge], records_per_partition_max=4)
    assert first == OffsetRange(A0, 10, 13, from_earliest=True, is_first=True)
    assert inner == OffsetRange(A0, 13, 16, from_earliest=True)
    assert last == OffsetRange(A0, 16, 20, from_earliest=True, to_latest=True)


def test_an_empty_range_that_may_grow_keeps_its_task() -> None:
    grows = OffsetRange(A0, 5, 5, to_latest=True)
    assert split_ranges([grows, OffsetRange(A1, 3, 3)]) == [grows]
    assert split_ranges([grows], partitions_min=4, records_per_partition_max=1) == [grows]


def test_no_more_tasks_are_planned_than_there_are_offsets() -> None:
    parts = split_ranges([OffsetRange(A0, 5, 8)], partitions_min=2**31 - 1)
    assert parts == [OffsetRange(A0, 5, 6), OffsetRange(A0, 6, 7), OffsetRange(A0, 7, 8)]


def test_offsets_have_the_form_of_sparks_own_checkpoints() -> None:
    offsets = {TopicPartition("a", 10): 1, TopicPartition("a", 9): 2, TopicPartition("A", 0): 3}
    written = json.dumps(offsets_as_json(offsets))
    assert written == '{"A": {"0": 3}, "a": {"9": 2, "10": 1}}'
    assert offsets_from_json(json.loads(written)) == offsets


def test_the_end_of_a_batch_keeps_starts_that_sparks_own_source_passes_over() -> None:
    end = StreamOffset({A0: 9, A1: 4}, {A0: 3})
    written = json.dumps(end.as_json())
    assert StreamOffset.from_json(json.loads(written)) == end
    # Its reader takes each topic's partitions, and this one has none.
    assert offsets_from_json(json.loads(written)) == end.ends
    assert [offsets for offsets in end.as_json().values() if not offsets] == [{}]
    assert StreamOffset(end.ends).as_json() == offsets_as_json(end.ends)


def test_the_end_of_a_batch_keeps_ids_as_kafka_writes_them() -> None:
    topic_id = bytes.fromhex("fb5f2d0a4b1c4f0e9a6d1c2b3a495867")
    end = StreamOffset({A0: 9}, {A0: 3}, {"a": topic_id})
    written = json.dumps(end.as_json())
    assert '"topic ids {\\"a\\":\\"-18tCkscTw6abRwrOklYZw\\"}": {}' in written
    read = StreamOffset.from_json(json.loads(written))
    assert (read, read.topic_ids) == (end, {"a": topic_id})
    assert offsets_from_json(json.loads(written)) == end.ends
    # Where a batch ends does not depend on who knows the ids.
    assert StreamOffset({A0: 9}, {A0: 3}) == end


@pytest.mark.parametrize(
    "text",
    [
        '{"starts at ": {}}',
        '{"starts at [1]": {}}',
        '{"topic ids ": {}}',
        '{"topic ids [1]": {}}',
        '{"topic ids {\\"a\\":1}": {}}',
        '{"topic ids {\\"a\\":\\"AAAA\\"}": {}}',
        '{"topic ids {\\"a\\":\\"\u00e4\\"}": {}}',
    ],
)
def test_starts_and_ids_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="The checkpoint has offsets of another source"):
        StreamOffset.from_json(json.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        '{"offset": 5}',
        "[1]",
        '"x"',
        "7",
        "null",
        '{"a": {"b": 1}}',
        '{"a": {"0": null}}',
        '{"a": {"0": "x"}}',
    ],
)
def test_the_checkpoint_of_another_source_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="The checkpoint has offsets of another source"):
        offsets_from_json(json.loads(text))


def test_ranges_without_records_get_no_task() -> None:
    ranges = [OffsetRange(A0, 5, 5), OffsetRange(A1, 0, 1)]
    assert split_ranges(ranges) == [OffsetRange(A1, 0, 1)]
    assert split_ranges(ranges[:1], partitions_min=4, records_per_partition_max=1) == []


def test_ranges_longer_than_the_maximum_are_cut_evenly() -> None:
    parts = split_ranges([OffsetRange(A0, 100, 110)], records_per_partition_max=4)
    assert [(part.start, part.end) for part in parts] == [(100, 103), (103, 106), (106, 110)]


def test_enough_ranges_are_not_cut_for_the_minimum() -> None:
    ranges = [OffsetRange(A0, 0, 100), OffsetRange(A1, 0, 1)]
    assert split_ranges(ranges, partitions_min=2) == ranges


def test_large_ranges_are_cut_in_proportion_until_there_are_about_enough() -> None:
    ranges = [OffsetRange(A0, 0, 900), OffsetRange(A1, 0, 100)]
    parts = split_ranges(ranges, partitions_min=10)
    assert [part.size for part in parts] == [100] * 10
    # A range too small to be cut takes one part; the large one gets the other three.
    parts = split_ranges([OffsetRange(A0, 0, 900), OffsetRange(A1, 0, 10)], partitions_min=4)
    assert [part.size for part in parts] == [300, 300, 300, 10]


def offsets_of(one: OffsetRange) -> list[tuple[TopicPartition, int]]:
    return [(one.partition, offset) for offset in range(one.start, one.end)]


@given(
    sizes=st.lists(st.integers(0, 50), max_size=5),
    records_max=st.none() | st.integers(1, 20),
    partitions_min=st.none() | st.integers(1, 30),
)
def test_cutting_keeps_every_offset_once_and_in_order(
    sizes: list[int], records_max: int | None, partitions_min: int | None
) -> None:
    ranges = [
        OffsetRange(TopicPartition("a", number), 7, 7 + size) for number, size in enumerate(sizes)
    ]
    parts = split_ranges(
        ranges, records_per_partition_max=records_max, partitions_min=partitions_min
    )
    assert [
        (part.partition, offset) for part in parts for offset in range(part.start, part.end)
    ] == [(whole.partition, offset) for whole in ranges for offset in range(whole.start, whole.end)]
    assert all(part.size > 0 for part in parts)
    if records_max is not None:
        assert all(part.size <= records_max for part in parts)


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=12),
    tasks_min=st.none() | st.integers(1, 5),
    tasks_max=st.integers(5, 8),
)
def test_tasks_share_small_ranges_evenly_and_in_order(
    sizes: list[int], tasks_min: int | None, tasks_max: int
) -> None:
    ranges = [
        OffsetRange(TopicPartition("a", number), 0, size) for number, size in enumerate(sizes)
    ]
    parts = split_ranges(ranges, partitions_min=tasks_min)
    tasks = task_ranges(ranges, TaskLimits(tasks_min=tasks_min, tasks_max=tasks_max))
    assert len(tasks) == min(len(parts), tasks_max)
    assert sorted(part for task in tasks for part in task) == parts
    assert all(list(task) == sorted(task) for task in tasks)
    totals = [sum(part.size for part in task) for task in tasks]
    # What makes a task larger than another is its last range.
    assert max(totals) - min(totals) <= max(part.size for part in parts)


def test_without_a_maximum_each_range_has_a_task() -> None:
    ranges = [OffsetRange(A0, 0, 1), OffsetRange(A1, 0, 1)]
    assert task_ranges(ranges, TaskLimits()) == [(ranges[0],), (ranges[1],)]


def test_numbers_of_parts_are_rounded_half_up() -> None:
    ranges = [OffsetRange(TopicPartition("t", 0), 0, 5), OffsetRange(TopicPartition("t", 1), 0, 3)]
    assert [part.size for part in split_ranges(ranges, partitions_min=4)] == [1, 2, 2, 1, 2]
