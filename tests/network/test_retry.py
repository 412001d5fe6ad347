"""Back-off grows, is spread, and never exceeds its maximum."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.network.retry import Backoff


class Extreme(Random):
    """Always at one end of the range it is asked for."""

    def __init__(self, *, is_high: bool) -> None:
        super().__init__(0)
        self._is_high = is_high

    def uniform(self, a: float, b: float) -> float:
        return b if self._is_high else a


@pytest.mark.promise("reconnects back off, exponentially and with jitter")
def test_delays_double_up_to_the_maximum() -> None:
    backoff = Backoff(50, 1_000, jitter=0)
    delays_ms = [backoff.delay_ms(attempt) for attempt in range(7)]
    assert delays_ms == [50, 100, 200, 400, 800, 1_000, 1_000]


@pytest.mark.promise("reconnects back off, exponentially and with jitter")
def test_jitter_spreads_by_a_fifth_to_either_side() -> None:
    low = Backoff(100, 10_000, random=Extreme(is_high=False))
    high = Backoff(100, 10_000, random=Extreme(is_high=True))
    assert [low.delay_ms(attempt) for attempt in range(3)] == [80, 160, 320]
    assert [high.delay_ms(attempt) for attempt in range(3)] == [120, 240, 480]


def test_the_maximum_holds_with_jitter() -> None:
    assert Backoff(100, 1_000, random=Extreme(is_high=True)).delay_ms(60) == 1_000


def test_a_maximum_below_the_initial_delay_is_the_delay() -> None:
    assert Backoff(1_000, 100, jitter=0).delay_ms(0) == 100


@given(
    initial_ms=st.integers(0, 2**40),
    max_ms=st.integers(0, 2**40),
    attempt=st.integers(0, 10**9),
    seed=st.integers(),
)
def test_a_delay_is_never_negative_nor_above_the_maximum(
    initial_ms: int, max_ms: int, attempt: int, seed: int
) -> None:
    assert 0 <= Backoff(initial_ms, max_ms, random=Random(seed)).delay_ms(attempt) <= max_ms


def test_the_same_seed_gives_the_same_delays() -> None:
    delays_ms = [
        [backoff.delay_ms(attempt) for attempt in range(20)]
        for backoff in (Backoff(100, 10**6, random=Random(7)) for _ in range(2))
    ]
    assert delays_ms[0] == delays_ms[1]
