"""The moment by which a call must have ended, set once and passed on to what it calls.

Owner: whoever made it; it never changes.
"""

from __future__ import annotations

import time

__all__ = ["Deadline"]


class Deadline:
    """`timeout` seconds from now, by the monotonic clock."""

    def __init__(self, timeout: float) -> None:
        self._at_s = time.monotonic() + timeout
        self.timeout_ms = round(timeout * 1000)

    def remaining_s(self) -> float:
        """Seconds that are left; zero, never less, once it has passed."""
        return max(0.0, self._at_s - time.monotonic())

    def has_passed(self) -> bool:
        """Whether no time is left."""
        return self.remaining_s() == 0.0
