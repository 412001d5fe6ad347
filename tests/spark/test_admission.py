"""How much of what has come a micro-batch may read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient import TopicPartition
from spark_connector.admission import Admission, limited
from spark_connector.options import StreamLimits

A0, A1, A2 = (TopicPartition("a", number) for number in range(3))


def admission(offsets_max: int | None = None, offsets_min: int | None = None) -> Admission:
    """Limits of a stream that let a batch through at time 0, and keeps the next one back for a
    second at most."""
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
