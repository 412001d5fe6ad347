"""Recent: count, sum and maximum of what was measured lately.

Some windows of time, two of 30 seconds unless the user says otherwise, as in Java's metrics: what
is told covers the running one and those before it. It costs a comparison and three additions a
measurement, and is meant for requests and polls, never for records.

Owner: whoever measures; others may read, and see a measurement more or less.
Source: Java classes ``SampledStat``, ``Avg``, ``Max``, ``Rate``.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

__all__ = ["WINDOWS", "Recent", "Windows"]


class Windows(NamedTuple):
    """What counts as lately: so many windows of so many milliseconds."""

    window_count: int
    window_ms: int


WINDOWS: Final = Windows(2, 30_000)
"""Kafka's default."""


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

    __slots__ = ("_count_max", "_measured", "_window_ms")

    def __init__(self, windows: Windows = WINDOWS) -> None:
        self._count_max, self._window_ms = windows
        self._measured: deque[_Window] = deque()
        """The running window is the last one."""

    def add(self, value: float, now_ms: int) -> None:
        measured = self._measured
        if not measured or now_ms - measured[-1].started_ms >= self._window_ms:
            measured.append(_Window(now_ms))
            if len(measured) > self._count_max:
                measured.popleft()
        window = measured[-1]
        window.count += 1
        window.total += value
        window.maximum = max(window.maximum, value)

    def average(self, now_ms: int) -> float | None:
        windows = self._windows(now_ms)
        count = sum(window.count for window in windows)
        return sum(window.total for window in windows) / count if count else None

    def maximum(self, now_ms: int) -> float | None:
        return max((window.maximum for window in self._windows(now_ms)), default=None)

    def rate(self, now_ms: int) -> float:
        """Return the sum by second."""
        windows = self._windows(now_ms)
        total = sum(window.total for window in windows)
        # No shorter than a window: the first measurement alone would be a rate without measure.
        age_ms = max([1, self._window_ms, *(now_ms - window.started_ms for window in windows)])
        return total * 1_000 / age_ms

    def _windows(self, now_ms: int) -> list[_Window]:
        oldest_ms = now_ms - self._count_max * self._window_ms
        # A copy in one step, as another thread may measure meanwhile.
        return [window for window in tuple(self._measured) if window.started_ms >= oldest_ms]
