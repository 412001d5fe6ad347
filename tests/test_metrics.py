"""Averages, maxima and rates over recent windows."""

from __future__ import annotations

import pytest

from pykclient.metrics import WINDOWS, Recent, Together, Windows

START_MS = 1_000_000
WINDOW_MS = WINDOWS.window_ms


def test_without_values_there_is_no_average() -> None:
    recent = Recent()
    assert (recent.average(START_MS), recent.maximum(START_MS)) == (None, None)
    assert recent.rate(START_MS) == 0


def test_average_maximum_and_rate_are_those_of_what_was_measured() -> None:
    recent = Recent()
    for number, value in enumerate((2, 9, 4)):
        recent.add(value, START_MS + number)
    assert recent.average(START_MS + 3) == 5
    assert recent.maximum(START_MS + 3) == 9
    assert recent.rate(START_MS + 3) == 15 * 1_000 / WINDOW_MS


def test_the_window_before_counts_and_the_one_before_that_does_not() -> None:
    recent = Recent()
    recent.add(8, START_MS)
    recent.add(2, START_MS + WINDOW_MS)
    assert recent.average(START_MS + WINDOW_MS) == 5
    assert recent.rate(START_MS + 2 * WINDOW_MS) == pytest.approx(10 * 1_000 / (2 * WINDOW_MS))
    recent.add(4, START_MS + 2 * WINDOW_MS)
    assert recent.average(START_MS + 2 * WINDOW_MS) == 3
    assert recent.maximum(START_MS + 2 * WINDOW_MS) == 4


def test_what_was_measured_long_ago_is_forgotten_without_a_new_measurement() -> None:
    recent = Recent()
    recent.add(8, START_MS)
    assert recent.maximum(START_MS + 2 * WINDOW_MS) == 8
    assert recent.maximum(START_MS + 2 * WINDOW_MS + 1) is None


def test_a_steady_rate_is_reported_as_it_is() -> None:
    recent = Recent()
    for number in range(2_000):
        recent.add(5, START_MS + number * 100)
    assert recent.rate(START_MS + 200_000) == pytest.approx(50, rel=0.01)


def test_windows_are_as_many_and_as_long_as_set() -> None:
    recent = Recent(Windows(3, 100))
    for number, value in enumerate((9, 1, 2, 3)):
        recent.add(value, START_MS + number * 100)
    now_ms = START_MS + 300
    assert (recent.average(now_ms), recent.maximum(now_ms)) == (2, 3)
    assert recent.rate(now_ms) == 6 * 1_000 / 200
    assert recent.maximum(START_MS + 601) is None


def test_windows_without_length_have_this_moment() -> None:
    recent = Recent(Windows(1, 0))
    recent.add(4, START_MS)
    recent.add(5, START_MS)
    assert (recent.maximum(START_MS), recent.rate(START_MS)) == (5, 5_000)
    assert recent.maximum(START_MS + 1) is None


def test_what_is_counted_has_totals_of_all_time_and_rates_of_lately() -> None:
    counted = Recent()
    for _ in range(3):
        counted.add(50, START_MS)
    assert counted.frequency(START_MS) == 3 * 1_000 / WINDOW_MS
    later_ms = START_MS + 10 * WINDOW_MS
    counted.add(9, later_ms)
    assert (counted.count, counted.total) == (4, 159)
    assert counted.frequency(later_ms) == 1_000 / WINDOW_MS
    assert counted.rate(later_ms) == 9 * 1_000 / WINDOW_MS


def test_totals_outlive_the_windows_that_are_forgotten() -> None:
    recent = Recent(Windows(2, 100))
    for number in range(5):
        recent.add(number, START_MS + 100 * number)
    now_ms = START_MS + 1_000
    assert (recent.count, recent.total) == (5, 10)
    assert recent.lately(now_ms) == (0, 0)


def test_what_is_measured_by_parts_is_the_whole_together() -> None:
    parts = [Recent(), Recent(), Recent()]
    parts[0].add(2, START_MS)
    parts[0].add(4, START_MS)
    parts[1].add(9, START_MS + 10)
    whole = Together(parts)
    now_ms = START_MS + 20
    assert (whole.count, whole.total) == (3, 15)
    assert (whole.average(now_ms), whole.maximum(now_ms)) == (5, 9)
    assert whole.rate(now_ms) == 15 * 1_000 / WINDOW_MS
    assert whole.frequency(now_ms) == 3 * 1_000 / WINDOW_MS


def test_parts_whose_windows_begin_at_different_times_add_their_rates() -> None:
    """The age of the oldest window of all would make the others seem slower."""
    early, late = Recent(), Recent()
    for number in range(2_000):
        now_ms = START_MS + number * 100
        early.add(5, now_ms)
        if number >= 200:
            late.add(5, now_ms)
    assert Together([early, late]).rate(now_ms) == pytest.approx(100, rel=0.01)
    assert Together([early, late]).frequency(now_ms) == pytest.approx(20, rel=0.01)


def test_without_parts_nothing_is_known_of_the_whole() -> None:
    nothing = Together([])
    assert (nothing.count, nothing.total) == (0, 0)
    assert (nothing.average(START_MS), nothing.maximum(START_MS)) == (None, None)
    assert (nothing.rate(START_MS), nothing.frequency(START_MS)) == (0, 0)
