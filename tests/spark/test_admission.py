"""Limits on how much of the available data a micro-batch reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient import TopicPartition
from pykclient.errors import KafkaError
from spark_connector.admission import (
    SIZE_AGE_MS_MAX,
    UNKNOWN_BYTES_PER_OFFSET,
    Admission,
    limited,
    limited_by_bytes,
)
from spark_connector.first_records import FirstRecords
from spark_connector.options import StreamLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

A0, A1, A2 = (TopicPartition("a", number) for number in range(3))
B0 = TopicPartition("b", 0)


def admission(offsets_max: int | None = None, offsets_min: int | None = None) -> Admission:
    """Admit a batch at time 0, and hold the next one back for a second at most."""
    found = Admission(StreamLimits(offsets_max, offsets_min, 1_000, 3, 1_000, 50, ""))
    found.let_through(0)
    return found


@pytest.mark.parametrize(
    ("offsets_max", "sizes", "taken"),
    [
        (100, (300, 100), (75, 25)),
        (7, (10, 10), (3, 3)),
        # What would be less than one is one: a small partition is not starved.
        (10, (1_000_000, 1), (9, 1)),
        (1, (5, 5), (1, 1)),
        (100, (30, 20), (30, 20)),
        (10, (0, 20), (0, 10)),
        # 28.999999999999996, as the official source computes it.
        (100, (58, 142), (28, 71)),
    ],
)
def test_the_limit_is_divided_in_proportion_to_what_is_waiting(
    offsets_max: int, sizes: tuple[int, int], taken: tuple[int, int]
) -> None:
    starts = {A0: 5, A1: 1_000}
    ends = {A0: 5 + sizes[0], A1: 1_000 + sizes[1]}
    assert limited(offsets_max, starts, ends) == {A0: 5 + taken[0], A1: 1_000 + taken[1]}


@given(
    offsets_max=st.integers(1, 10**12),
    sizes=st.lists(st.integers(0, 10**15), min_size=1, max_size=3),
)
def test_a_limited_batch_goes_on_everywhere_and_nowhere_too_far(
    offsets_max: int, sizes: list[int]
) -> None:
    starts = dict.fromkeys((A0, A1, A2)[: len(sizes)], 7)
    ends = {partition: 7 + size for partition, size in zip(starts, sizes, strict=True)}
    found = limited(offsets_max, starts, ends)
    assert all(
        found[partition] == end if end == 7 else 7 < found[partition] <= end
        for partition, end in ends.items()
    )
    assert sum(found.values()) - 7 * len(found) <= offsets_max + len(sizes)


def test_an_end_that_went_back_is_not_changed() -> None:
    assert limited(5, {A0: 10, A1: 0}, {A0: 4, A1: 3}) == {A0: 4, A1: 3}


def test_a_batch_is_kept_back_until_enough_has_come_or_it_waited_long_enough() -> None:
    limits = admission(offsets_min=10)
    starts = {A0: 0, A1: 0}
    assert limits.admit(starts, {A0: 4, A1: 5}, 999, may_wait=True) is starts
    assert limits.admit(starts, {A0: 5, A1: 5}, 999, may_wait=True) == {A0: 5, A1: 5}
    # The time runs from the batch that was let through.
    starts = {A0: 5, A1: 5}
    assert limits.admit(starts, {A0: 6, A1: 5}, 1_998, may_wait=True) is starts
    assert limits.admit(starts, {A0: 6, A1: 5}, 1_999, may_wait=True) == {A0: 6, A1: 5}


def test_the_first_batch_of_a_query_is_not_kept_back() -> None:
    limits = Admission(StreamLimits(None, 10, 1_000, 3, 1_000, 50, ""))
    assert limits.admit({A0: 0}, {A0: 1}, 500, may_wait=True) == {A0: 1}
    assert limits.admit({A0: 1}, {A0: 2}, 600, may_wait=True) == {A0: 1}


def test_a_query_that_has_to_end_does_not_wait_for_more() -> None:
    limits = admission(offsets_min=10)
    assert limits.admit({A0: 0}, {A0: 1}, 0, may_wait=False) == {A0: 1}


def test_both_limits_hold_together() -> None:
    limits = admission(offsets_max=6, offsets_min=5)
    assert limits.admit({A0: 0}, {A0: 4}, 0, may_wait=True) == {A0: 0}
    assert limits.admit({A0: 0}, {A0: 40}, 0, may_wait=True) == {A0: 6}


def by_topic(starts: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> object:
    limits = StreamLimits(None, None, 1_000, 3, 1_000, 50, "", topic_offsets_max={"a": 10, "*": 3})
    return Admission(limits).admit(starts, ends, 0, may_wait=True)


def test_each_topic_has_its_own_limit_and_others_that_of_the_star() -> None:
    starts = {A0: 5, A1: 5, B0: 0}
    assert by_topic(starts, {A0: 35, A1: 15, B0: 100}) == {A0: 12, A1: 7, B0: 3}
    assert by_topic(starts, {A0: 6, A1: 5, B0: 2}) == {A0: 6, A1: 5, B0: 2}


def test_a_topic_that_is_not_limited_is_read_whole() -> None:
    limits = StreamLimits(None, None, 1_000, 3, 1_000, 50, "", topic_offsets_max={"a": 10})
    found = Admission(limits).admit({A0: 0, B0: 0}, {A0: 99, B0: 100}, 0, may_wait=True)
    assert found == {A0: 10, B0: 100}


class Sizes:
    """The known sizes of records, and the ranges that were measured."""

    def __init__(self, sizes: dict[TopicPartition, float]) -> None:
        self.sizes = sizes
        self.error: KafkaError | None = None
        self.measured: list[dict[TopicPartition, tuple[int, int]]] = []

    def __call__(
        self, parts: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, FirstRecords]:
        self.measured.append(dict(parts))
        if self.error is not None:
            raise self.error
        return {one: FirstRecords(0, self.sizes[one]) for one in parts if one in self.sizes}

    def admission(self, bytes_max: int, offsets_max: int | None = None) -> Admission:
        limits = StreamLimits(offsets_max, None, 1_000, 3, 1_000, 50, "", bytes_max=bytes_max)
        return Admission(limits, self)


def test_bytes_are_divided_in_proportion_to_what_is_waiting() -> None:
    sizes = Sizes({A0: 100.0, A1: 10.0})
    starts, ends = {A0: 5, A1: 0, B0: 7}, {A0: 105, A1: 1_000, B0: 7}
    # Of 20,000 bytes a quarter.
    found = sizes.admission(5_000).admit(starts, ends, 0, may_wait=True)
    assert found == {A0: 30, A1: 250, B0: 7}
    assert sizes.measured == [{A0: (5, 105), A1: (0, 1_000)}]
    assert sizes.admission(20_000).admit(starts, ends, 0, may_wait=True) == ends


def test_an_estimate_of_bytes_holds_for_some_seconds() -> None:
    sizes = Sizes({A0: 100.0})
    admission = sizes.admission(1_000)
    assert admission.admit({A0: 0}, {A0: 50}, 0, may_wait=True) == {A0: 10}
    sizes.sizes = {A0: 1.0}
    assert admission.admit({A0: 10}, {A0: 50}, SIZE_AGE_MS_MAX - 1, may_wait=True) == {A0: 20}
    assert admission.admit({A0: 20}, {A0: 50}, SIZE_AGE_MS_MAX, may_wait=True) == {A0: 50}
    assert len(sizes.measured) == 2
    # An idle query measures nothing.
    assert admission.admit({A0: 50}, {A0: 50}, 10 * SIZE_AGE_MS_MAX, may_wait=True) == {A0: 50}
    assert len(sizes.measured) == 2


def test_a_partition_of_unknown_size_is_like_the_others() -> None:
    sizes = Sizes({A0: 30.0, A1: 10.0})
    found = sizes.admission(1_000).admit(
        {A0: 0, A1: 0, A2: 0}, {A0: 50, A1: 50, A2: 50}, 0, may_wait=True
    )
    assert found == {A0: 16, A1: 16, A2: 16}


def test_a_failed_measure_stops_no_query(caplog: pytest.LogCaptureFixture) -> None:
    sizes = Sizes({})
    sizes.error = KafkaError("no broker")
    found = sizes.admission(int(UNKNOWN_BYTES_PER_OFFSET) * 7).admit(
        {A0: 0}, {A0: 50}, 0, may_wait=True
    )
    assert found == {A0: 7}
    assert (
        "How large records are is not known (option maxBytesPerTrigger): no broker" in caplog.text
    )


def test_limits_of_offsets_and_bytes_hold_together() -> None:
    sizes = Sizes({A0: 10.0})
    assert sizes.admission(1_000, 20).admit({A0: 0}, {A0: 500}, 0, may_wait=True) == {A0: 20}
    assert sizes.admission(100, 20).admit({A0: 0}, {A0: 500}, 0, may_wait=True) == {A0: 10}


@given(
    bytes_max=st.integers(1, 10**12),
    parts=st.lists(st.tuples(st.integers(0, 10**12), st.floats(0, 2**20)), min_size=1, max_size=3),
)
def test_a_batch_limited_by_bytes_goes_on_everywhere_and_nowhere_too_far(
    bytes_max: int, parts: list[tuple[int, float]]
) -> None:
    starts = dict.fromkeys((A0, A1, A2)[: len(parts)], 7)
    ends = {one: 7 + size for one, (size, _) in zip(starts, parts, strict=True)}
    sizes = {one: each for one, (size, each) in zip(starts, parts, strict=True) if size}
    found = limited_by_bytes(bytes_max, starts, ends, sizes)
    assert all(
        found[one] == end if end == 7 else 7 < found[one] <= end for one, end in ends.items()
    )
    taken = sum((found[one] - 7) * each for one, each in sizes.items())
    assert taken <= bytes_max * (1 + 1e-9) + sum(sizes.values())
