"""A clock that a test moves."""

from __future__ import annotations

import pytest

from pykclient.errors import UsageError
from pykclient.testing import ManualClock


@pytest.mark.promise("`ManualClock` is moved by tests alone")
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
