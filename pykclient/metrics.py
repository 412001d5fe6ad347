"""What clients measure of themselves, and how its metrics are named; `docs/metrics.md` has all.

A `Recent` has some windows of time, two of 30 seconds unless the user says otherwise: the running
one and those before it. A measurement costs a comparison and three additions, for a request or a
poll, never for a record. Names of metrics are Java's where Java has them.

Owner: the thread that measures; others may read, and see a measurement more or less.
Source: Java classes ``SampledStat``, ``Avg``, ``Max``, ``Rate``, ``FetchMetricsRegistry``,
``KafkaConsumerMetrics``, ``ConsumerRebalanceMetricsManager``, ``SenderMetricsRegistry``,
``Selector.SelectorMetrics``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


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
        if value > window.maximum:
            window.maximum = value

    def average(self, now_ms: int) -> float | None:
        windows = self._windows(now_ms)
        count = sum(window.count for window in windows)
        return sum(window.total for window in windows) / count if count else None

    def maximum(self, now_ms: int) -> float | None:
        return max((window.maximum for window in self._windows(now_ms)), default=None)

    def rate(self, now_ms: int) -> float:
        """Return the sum by second."""
        return self._by_second(now_ms, sum(window.total for window in self._windows(now_ms)))

    def frequency(self, now_ms: int) -> float:
        """Return how many measurements there were by second."""
        return self._by_second(now_ms, sum(window.count for window in self._windows(now_ms)))

    def _by_second(self, now_ms: int, total: float) -> float:
        windows = self._windows(now_ms)
        # No shorter than a window: the first measurement alone would be a rate without measure.
        age_ms = max([1, self._window_ms, *(now_ms - window.started_ms for window in windows)])
        return total * 1_000 / age_ms

    def _windows(self, now_ms: int) -> list[_Window]:
        oldest_ms = now_ms - self._count_max * self._window_ms
        # A copy in one step, as another thread may measure meanwhile.
        return [window for window in tuple(self._measured) if window.started_ms >= oldest_ms]


class Counted(Recent):
    """What is measured again and again, and how often and how much of it there was in all."""

    __slots__ = ("count", "total")

    def __init__(self, windows: Windows = WINDOWS) -> None:
        super().__init__(windows)
        self.count = 0
        self.total = 0.0

    def add(self, value: float, now_ms: int) -> None:
        self.count += 1
        self.total += value
        super().add(value, now_ms)


PRODUCER: Final = "producer-metrics"
PRODUCER_TOPIC: Final = "producer-topic-metrics"
CONSUMER: Final = "consumer-metrics"
FETCHING: Final = "consumer-fetch-manager-metrics"
COORDINATOR: Final = "consumer-coordinator-metrics"


def named(
    group: str, values: Mapping[str, float | None], tags: tuple[tuple[str, str], ...] = ()
) -> dict[MetricName, float]:
    """Return the values of a group that are known, by the metrics' names."""
    return {
        MetricName(name, group, tags): value for name, value in values.items() if value is not None
    }


class MetricName(NamedTuple):
    """One metric. `tags` are pairs such as ``("topic", "t")``; most have none."""

    name: str
    group: str
    tags: tuple[tuple[str, str], ...] = ()
