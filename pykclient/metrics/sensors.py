"""Recent: count, sum and maximum of what was measured lately.

Two windows of 30 seconds, as Java's metrics have by default: what is told covers the running one
and the one before it. It costs a comparison and three additions a measurement, and is meant for
requests and polls, never for records.

Owner: whoever measures; others may read, and see a measurement more or less.
Source: Java classes ``SampledStat``, ``Avg``, ``Max``, ``Rate``.
"""

from __future__ import annotations

from typing import Final

__all__ = ["WINDOW_MS", "Recent"]

WINDOW_MS: Final = 30_000
NEVER_STARTED_MS: Final = -(2**62)


class _Window:
    """What was measured from one moment on."""

    __slots__ = ("count", "maximum", "started_ms", "total")

    def __init__(self, started_ms: int) -> None:
        self.started_ms = started_ms
        self.count = 0
        self.total = 0.0
        self.maximum = 0.0


class Recent:
    """One thing that is measured again and again. Values are not negative."""

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._before = self._now = _Window(NEVER_STARTED_MS)

    def add(self, value: float, now_ms: int) -> None:
        """Take one measurement."""
        if now_ms - self._now.started_ms >= WINDOW_MS:
            self._before, self._now = self._now, _Window(now_ms)
        window = self._now
        window.count += 1
        window.total += value
        window.maximum = max(window.maximum, value)

    def average(self, now_ms: int) -> float | None:
        """Return the mean; None if nothing was measured."""
        windows = self._windows(now_ms)
        count = sum(window.count for window in windows)
        return sum(window.total for window in windows) / count if count else None

    def maximum(self, now_ms: int) -> float | None:
        """Return the largest value; None if nothing was measured."""
        return max((w.maximum for w in self._windows(now_ms) if w.count), default=None)

    def rate(self, now_ms: int) -> float:
        """Return the sum by second."""
        windows = self._windows(now_ms)
        total = sum(window.total for window in windows)
        # No shorter than a window: the first measurement alone would be a rate without measure.
        age_ms = max([WINDOW_MS, *(now_ms - window.started_ms for window in windows)])
        return total * 1_000 / age_ms

    def _windows(self, now_ms: int) -> list[_Window]:
        oldest_ms = now_ms - 2 * WINDOW_MS
        return [w for w in (self._before, self._now) if w.started_ms >= oldest_ms]
