"""Heartbeats are noted when they come, and what counts between them is the longest time."""

from __future__ import annotations

import time
from itertools import count as numbers

import pytest

from measuring.pulse import gaps_s, listening


def test_each_heartbeat_is_noted_once_with_its_time() -> None:
    counts = numbers(7)
    from_s = time.monotonic()
    with listening(lambda: next(counts)) as beats_s:
        while len(beats_s) < 3:
            time.sleep(0.001)  # gives the listener the interpreter
    assert next(counts) == 7 + 1 + len(beats_s)
    times_s = [from_s, *beats_s, time.monotonic()]
    assert times_s == sorted(times_s)


def test_the_time_before_the_first_and_after_the_last_heartbeat_counts() -> None:
    assert gaps_s([11.0, 12.5], 10.0, 16.0) == [1.0, 1.5, 3.5]


def test_a_gap_that_had_begun_before_counts_whole() -> None:
    assert gaps_s([8.0, 9.5, 11.0, 17.0], 10.0, 12.0) == [1.5, 1.0]


@pytest.mark.parametrize("beats_s", [[], [13.0]])
def test_without_a_heartbeat_the_whole_time_is_one_gap(beats_s: list[float]) -> None:
    assert gaps_s(beats_s, 10.0, 12.0) == [2.0]
