"""A clock that only the test advances, and a deadline that counts down to zero."""

from __future__ import annotations

import pytest

from pykclient.errors import UsageError
from pykclient.testing import ManualClock
from pykclient.testing.clock import Deadline


def test_it_stands_still_until_it_is_moved_and_never_goes_back() -> None:
    clock = ManualClock(5)
    assert clock.now_ms == clock.now_ms == 5
    assert clock.advance(10) == clock.now_ms == 15
    assert clock.move_to(15) == 15
    with pytest.raises(UsageError):
        clock.move_to(14)
    with pytest.raises(UsageError):
        clock.advance(-1)
    assert clock.now_ms == 15


def test_time_is_left_until_it_has_passed() -> None:
    deadline = Deadline(600.0)
    assert 0.0 < deadline.remaining_s() <= 600.0
    assert not deadline.has_passed()
    assert deadline.timeout_ms == 600_000


def test_no_time_is_left_after_it_has_passed_and_never_less() -> None:
    deadline = Deadline(-1.0)
    assert deadline.remaining_s() == 0.0
    assert deadline.has_passed()
