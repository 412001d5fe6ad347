"""Time in tests: a clock that only the test advances, and the deadline of a call.

Owner: the test, for its clock; deadlines are immutable.
"""

from __future__ import annotations

import time

from pykclient.errors.base import UsageError


class ManualClock:
    """A clock in milliseconds that changes only by `advance` and `move_to`."""

    __slots__ = ("_now_ms",)

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    @property
    def now_ms(self) -> int:
        """Current time in ms."""
        return self._now_ms

    def advance(self, duration_ms: int) -> int:
        """Advance by `duration_ms` and return the new time. Raises `UsageError` if negative."""
        return self.move_to(self._now_ms + duration_ms)

    def move_to(self, now_ms: int) -> int:
        """Move to `now_ms` and return it. Raises `UsageError` if that is in the past."""
        if now_ms < self._now_ms:
            raise UsageError(f"a clock cannot go back from {self._now_ms} ms to {now_ms} ms")
        self._now_ms = now_ms
        return now_ms


class Deadline:
    """A time `timeout` seconds from now, by the monotonic clock."""

    def __init__(self, timeout: float) -> None:
        self._at_s = time.monotonic() + timeout
        self.timeout_ms = round(timeout * 1000)

    def remaining_s(self) -> float:
        """Return the seconds left; zero once it has passed."""
        return max(0.0, self._at_s - time.monotonic())

    def has_passed(self) -> bool:
        """Return whether no time is left."""
        return self.remaining_s() == 0.0
