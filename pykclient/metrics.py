"""Metrics: recent measurements of clients, and the names of metrics; `docs/metrics.md` lists all.

A `Recent` has several time windows, two of 30 seconds by default: the current one and those before
it. A measurement costs two comparisons and two additions, once per request, batch or poll, never
per record. `Together` combines measurements of parts when they are read. Metrics have Java's names
where Java has them.

Owner: the thread that measures; others may read, and see one measurement more or less.
Source: Java classes ``SampledStat``, ``Avg``, ``Max``, ``Rate``, ``FetchMetricsRegistry``,
``KafkaConsumerMetrics``, ``ConsumerRebalanceMetricsManager``, ``SenderMetricsRegistry``,
``Selector.SelectorMetrics``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Windows(NamedTuple):
    """The number of recent windows, and their length in milliseconds."""

    window_count: int
    window_ms: int


WINDOWS: Final = Windows(2, 30_000)
"""Kafka's default."""


class _Window:
    """The measurements since one moment, and the totals before it."""

    __slots__ = ("before_count", "before_total", "count", "maximum", "started_ms", "total")

    def __init__(self, started_ms: int, before_count: int, before_total: float) -> None:
        self.started_ms = started_ms
        self.before_count = before_count
        self.before_total = before_total
        self.count = 0
        self.total = 0.0
        self.maximum = 0.0


_BEFORE_ALL: Final = _Window(0, 0, 0.0)
"""The window of every `Recent` before its first measurement. It is never changed."""


class Recent:
    """One measured quantity, with non-negative values."""

    __slots__ = ("_count_max", "_measured", "_running", "_until_ms", "_window_ms")

    def __init__(self, windows: Windows = WINDOWS) -> None:
        self._count_max, self._window_ms = windows
        self._running = _BEFORE_ALL
        self._until_ms = 0
        """End of the current window; the next one starts with the first measurement after it."""
        # A client has several of these per topic and broker: an empty tuple costs nothing.
        self._measured: tuple[_Window, ...] = ()
        """The windows, the current one last; empty before the first measurement."""

    def add(self, value: float, now_ms: int) -> None:
        if now_ms >= self._until_ms:
            self._begin_window(now_ms)
        window = self._running
        window.count += 1
        window.total += value
        if value > window.maximum:
            window.maximum = value

    @property
    def count(self) -> int:
        """Number of all measurements."""
        window = self._running
        return window.before_count + window.count

    @property
    def total(self) -> float:
        """Their sum."""
        window = self._running
        return window.before_total + window.total

    def lately(self, now_ms: int) -> tuple[int, float]:
        """Return the number of recent measurements and their sum."""
        windows = self._windows(now_ms)
        return sum(window.count for window in windows), sum(window.total for window in windows)

    def average(self, now_ms: int) -> float | None:
        count, total = self.lately(now_ms)
        return total / count if count else None

    def maximum(self, now_ms: int) -> float | None:
        return max((window.maximum for window in self._windows(now_ms)), default=None)

    def rate(self, now_ms: int) -> float:
        """Return the recent sum per second."""
        return self._by_second(now_ms, self.lately(now_ms)[1])

    def frequency(self, now_ms: int) -> float:
        """Return the recent number of measurements per second."""
        return self._by_second(now_ms, self.lately(now_ms)[0])

    def _begin_window(self, now_ms: int) -> None:
        window = _Window(now_ms, self.count, self.total)
        self._measured = (*self._measured, window)[-self._count_max :]
        self._running = window
        self._until_ms = now_ms + self._window_ms

    def _by_second(self, now_ms: int, total: float) -> float:
        windows = self._windows(now_ms)
        # At least one window long: a first measurement alone would give an arbitrary rate.
        age_ms = max([1, self._window_ms, *(now_ms - window.started_ms for window in windows)])
        return total * 1_000 / age_ms

    def _windows(self, now_ms: int) -> list[_Window]:
        oldest_ms = now_ms - self._count_max * self._window_ms
        return [window for window in self._measured if window.started_ms >= oldest_ms]


class Together:
    """Measurements of parts (brokers, topics), combined."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Recent]) -> None:
        self._parts = parts

    @property
    def count(self) -> int:
        return sum(part.count for part in self._parts)

    @property
    def total(self) -> float:
        return sum(part.total for part in self._parts)

    def average(self, now_ms: int) -> float | None:
        found = [part.lately(now_ms) for part in self._parts]
        count = sum(count for count, _ in found)
        return sum(total for _, total in found) / count if count else None

    def maximum(self, now_ms: int) -> float | None:
        found = [part.maximum(now_ms) for part in self._parts]
        return max((maximum for maximum in found if maximum is not None), default=None)

    def rate(self, now_ms: int) -> float:
        return sum(part.rate(now_ms) for part in self._parts)

    def frequency(self, now_ms: int) -> float:
        return sum(part.frequency(now_ms) for part in self._parts)


PRODUCER: Final = "producer-metrics"
PRODUCER_TOPIC: Final = "producer-topic-metrics"
CONSUMER: Final = "consumer-metrics"
FETCHING: Final = "consumer-fetch-manager-metrics"
COORDINATOR: Final = "consumer-coordinator-metrics"


def named(
    group: str, values: Mapping[str, float | None], tags: tuple[tuple[str, str], ...] = ()
) -> dict[MetricName, float]:
    """Return the known values of a group by metric name."""
    return {
        MetricName(name, group, tags): value for name, value in values.items() if value is not None
    }


class MetricName(NamedTuple):
    """One metric. `tags` are pairs such as ``("topic", "t")``; most have none."""

    name: str
    group: str
    tags: tuple[tuple[str, str], ...] = ()
