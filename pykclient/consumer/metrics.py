"""ConsumerMetrics: measurements of fetches, records and polls.

Nothing is measured per record. Values that follow from positions, such as lag, are computed for
each snapshot.

Owner: the core lock, for measuring. Any thread may take a snapshot, which reads single numbers and
an assignment that is replaced whole.
Source: Java classes ``FetchMetricsManager``, ``KafkaConsumerMetrics``; KIP-223 (lead).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.metrics import CONSUMER, COORDINATOR, FETCHING, WINDOWS, MetricName, Recent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pykclient.consumer.record import RecordSpan
    from pykclient.consumer.subscription import AssignedPartition, SubscriptionState
    from pykclient.metrics import Windows
    from pykclient.types import IsolationLevel


class ConsumerMetrics:
    """See the module."""

    def __init__(
        self,
        subscription: SubscriptionState,
        isolation_level: IsolationLevel,
        windows: Windows = WINDOWS,
    ) -> None:
        self._subscription = subscription
        self._isolation_level = isolation_level
        self._skipped_count = 0
        self._latency_ms = Recent(windows)
        self._fetched_bytes = Recent(windows)
        self._records = Recent(windows)
        self._bytes = Recent(windows)
        self._between_polls_ms = Recent(windows)
        self._polled_ms: int | None = None

    # Measuring.

    def on_fetched(self, size_bytes: int, latency_ms: int, now_ms: int) -> None:
        """Count a Fetch response of `size_bytes`."""
        self._latency_ms.add(latency_ms, now_ms)
        self._fetched_bytes.add(size_bytes, now_ms)

    def on_poll(self, now_ms: int) -> None:
        """Count a call of `poll`, or a step of an iteration."""
        if self._polled_ms is not None:
            self._between_polls_ms.add(now_ms - self._polled_ms, now_ms)
        self._polled_ms = now_ms

    def on_consumed(self, spans: Sequence[RecordSpan], now_ms: int) -> None:
        record_count = sum([len(span.columns) for span in spans])
        byte_count = sum([span.columns.size_bytes for span in spans])
        self._records.add(record_count, now_ms)
        self._bytes.add(byte_count, now_ms)

    def on_skipped(self) -> None:
        """Count a record or a batch that was skipped."""
        self._skipped_count += 1

    # Reporting.

    def snapshot(self, now_ms: int) -> dict[MetricName, float]:
        """Return all metrics that have a value."""
        assigned = tuple(self._subscription)
        measured: dict[tuple[str, str], float | None] = {
            (FETCHING, "fetch-total"): self._latency_ms.count,
            (FETCHING, "fetch-rate"): self._latency_ms.frequency(now_ms),
            (FETCHING, "fetch-latency-avg"): self._latency_ms.average(now_ms),
            (FETCHING, "fetch-latency-max"): self._latency_ms.maximum(now_ms),
            (FETCHING, "fetch-size-avg"): self._fetched_bytes.average(now_ms),
            (FETCHING, "fetch-size-max"): self._fetched_bytes.maximum(now_ms),
            (FETCHING, "records-consumed-total"): self._records.total,
            (FETCHING, "records-consumed-rate"): self._records.rate(now_ms),
            (FETCHING, "bytes-consumed-total"): self._bytes.total,
            (FETCHING, "bytes-consumed-rate"): self._bytes.rate(now_ms),
            (FETCHING, "records-per-poll-avg"): self._records.average(now_ms),
            (FETCHING, "records-skipped-total"): self._skipped_count,
            (CONSUMER, "time-between-poll-avg"): self._between_polls_ms.average(now_ms),
            (CONSUMER, "time-between-poll-max"): self._between_polls_ms.maximum(now_ms),
            (COORDINATOR, "assigned-partitions"): len(assigned),
        }
        if self._polled_ms is not None:
            measured[CONSUMER, "last-poll-seconds-ago"] = (now_ms - self._polled_ms) / 1_000
        metrics = {
            MetricName(name, group): value
            for (group, name), value in measured.items()
            if value is not None
        }
        lags = [(each, each.lag(self._isolation_level)) for each in assigned]
        metrics.update(_by_partition("records-lag", "records-lag-max", max, lags))
        leads = [(each, each.lead) for each in assigned]
        metrics.update(_by_partition("records-lead", "records-lead-min", min, leads))
        return metrics


def _by_partition(
    name: str,
    extreme_name: str,
    extreme: Callable[[Iterable[float]], float],
    values: Iterable[tuple[AssignedPartition, int | None]],
) -> dict[MetricName, float]:
    """Return the known values by partition, and the extreme of them."""
    known: dict[MetricName, float] = {
        MetricName(name, FETCHING, _tags(assigned)): value
        for assigned, value in values
        if value is not None
    }
    if known:
        known[MetricName(extreme_name, FETCHING)] = extreme(known.values())
    return known


def _tags(assigned: AssignedPartition) -> tuple[tuple[str, str], ...]:
    topic, partition = assigned.partition
    return (("topic", topic), ("partition", str(partition)))
