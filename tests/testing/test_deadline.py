"""A deadline counts down to zero and stays there."""

from __future__ import annotations

from pykclient.testing.clock import Deadline


def test_time_is_left_until_it_has_passed() -> None:
    deadline = Deadline(600.0)
    assert 0.0 < deadline.remaining_s() <= 600.0
    assert not deadline.has_passed()
    assert deadline.timeout_ms == 600_000


def test_no_time_is_left_after_it_has_passed_and_never_less() -> None:
    deadline = Deadline(-1.0)
    assert deadline.remaining_s() == 0.0
    assert deadline.has_passed()
