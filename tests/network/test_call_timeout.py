"""Timeouts from seconds to milliseconds, including both ends of the range."""

from __future__ import annotations

import pytest

from pykclient.arguments import FOREVER_MS, timeout_ms
from pykclient.errors import UsageError
from pykclient.network.manager import NEVER_MS

DEFAULT_MS = 60_000


@pytest.mark.parametrize(
    ("timeout", "expected_ms"),
    [(None, DEFAULT_MS), (0, 0), (0.0015, 2), (1, 1_000), (2.5, 2_500), (1e300, FOREVER_MS)],
)
def test_seconds_become_milliseconds(timeout: float | None, expected_ms: int) -> None:
    assert timeout_ms(timeout, DEFAULT_MS) == expected_ms


def test_an_endless_timeout_can_be_added_to_a_clock() -> None:
    assert timeout_ms(float("inf"), DEFAULT_MS) + 10**15 < NEVER_MS


@pytest.mark.parametrize("timeout", [-1, -1e-9, float("-inf"), float("nan")])
def test_what_is_no_time_is_refused(timeout: float) -> None:
    with pytest.raises(UsageError, match="seconds, from 0"):
        timeout_ms(timeout, DEFAULT_MS)
