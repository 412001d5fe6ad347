"""Metrics of a producer: `ProducerMetrics` of its batches and records, `CallMetrics` of its calls.

Nothing is measured per record: a batch knows its number of records, and a call is measured where it
waits.

Owner: the sender thread for `ProducerMetrics`, its own lock for `CallMetrics`. Any thread may take
a snapshot, which reads single numbers only.
Source: Java classes ``SenderMetricsRegistry``, ``Sender.SenderMetrics``, ``KafkaProducerMetrics``,
``BufferPool``.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.metrics import PRODUCER, PRODUCER_TOPIC, WINDOWS, Recent, Together, Windows, named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pykclient.metrics import MetricName
    from pykclient.producer.accumulator.batch import ProducerBatch
    from pykclient.producer.config import ProducerConfig

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000


class Memory(NamedTuple):
    """State of a producer's memory."""

    size_bytes: int
    free_bytes: int
    waiting_thread_count: int


class _Records:
    """Measurements of one topic's records."""

    __slots__ = ("bytes", "compression", "failed", "retried", "sent")

    def __init__(self, windows: Windows) -> None:
        self.sent = Recent(windows)
        self.bytes = Recent(windows)
        self.retried = Recent(windows)
        self.failed = Recent(windows)
        self.compression = Recent(windows)


class ProducerMetrics:
    """Metrics of batches and records."""

    def __init__(self, windows: Windows = WINDOWS) -> None:
        self._windows = windows
        self._by_topic: dict[str, _Records] = {}
        self._queue_ms = Recent(windows)
        self._records_per_request = Recent(windows)
        self._split = Recent(windows)
        self._throttle_ms = Recent(windows)

    @property
    def failed_record_count(self) -> int:
        """Number of records that were accepted and not delivered."""
        return int(sum(records.failed.total for records in tuple(self._by_topic.values())))

    # Measuring.

    def on_carried(self, batch: ProducerBatch, encoded_bytes: int, now_ms: int) -> None:
        """Count a batch that a request carries in `encoded_bytes`, retries included."""
        records = self._of(batch)
        records.sent.add(batch.record_count, now_ms)
        records.bytes.add(encoded_bytes, now_ms)
        records.compression.add(encoded_bytes / batch.size_bytes, now_ms)
        if not batch.attempt_count:
            self._queue_ms.add(now_ms - batch.created_ms, now_ms)

    def on_request(self, record_count: int, now_ms: int) -> None:
        self._records_per_request.add(record_count, now_ms)

    def on_retry(self, batch: ProducerBatch, now_ms: int) -> None:
        self._of(batch).retried.add(batch.record_count, now_ms)

    def on_failed(self, batch: ProducerBatch, now_ms: int) -> None:
        self._of(batch).failed.add(batch.record_count, now_ms)

    def on_split(self, now_ms: int) -> None:
        self._split.add(1, now_ms)

    def on_throttled(self, throttle_ms: int, now_ms: int) -> None:
        self._throttle_ms.add(throttle_ms, now_ms)

    def _of(self, batch: ProducerBatch) -> _Records:
        topic = batch.partition.topic
        found = self._by_topic.get(topic)
        if found is None:
            found = self._by_topic[topic] = _Records(self._windows)
        return found

    # Reporting.

    def snapshot(
        self, now_ms: int, memory: Memory, *, metadata_ms: int | None
    ) -> dict[MetricName, float]:
        """Return all metrics that have a value.

        `metadata_ms` is the time of the last metadata response, None if there was none.
        """
        by_topic = tuple(self._by_topic.items())
        batch_bytes = Together([records.bytes for _, records in by_topic])
        metrics = named(
            PRODUCER,
            {
                **_reported([records for _, records in by_topic], now_ms),
                "batch-size-avg": batch_bytes.average(now_ms),
                "batch-size-max": batch_bytes.maximum(now_ms),
                "batch-split-total": self._split.total,
                "batch-split-rate": self._split.rate(now_ms),
                "record-queue-time-avg": self._queue_ms.average(now_ms),
                "record-queue-time-max": self._queue_ms.maximum(now_ms),
                "records-per-request-avg": self._records_per_request.average(now_ms),
                "produce-throttle-time-avg": self._throttle_ms.average(now_ms),
                "produce-throttle-time-max": self._throttle_ms.maximum(now_ms),
                "buffer-total-bytes": memory.size_bytes,
                "buffer-available-bytes": memory.free_bytes,
                "waiting-threads": memory.waiting_thread_count,
                "metadata-age": None if metadata_ms is None else (now_ms - metadata_ms) / 1_000,
            },
        )
        for topic, records in by_topic:
            metrics.update(named(PRODUCER_TOPIC, _reported([records], now_ms), (("topic", topic),)))
        return metrics


class Wait(Enum):
    """Causes of waits in application calls; the value is the metric's name."""

    __hash__ = object.__hash__  # faster than Enum's

    FLUSH = "flush-time-ns-total"
    INIT = "txn-init-time-ns-total"
    BEGIN = "txn-begin-time-ns-total"
    SEND_OFFSETS = "txn-send-offsets-time-ns-total"
    PREPARE = "txn-prepare-time-ns-total"
    COMMIT = "txn-commit-time-ns-total"
    ABORT = "txn-abort-time-ns-total"
    METADATA = "metadata-wait-time-ns-total"
    MEMORY = "bufferpool-wait-time-ns-total"


class CallMetrics:
    """Metrics of how long calls waited, and of records not sent for lack of memory.

    A wait that ends in an error or an interrupt counts too. The cost is two reads of the clock and
    the lock, which the sender thread never takes. `clock_ns` is the monotonic clock in nanoseconds.
    """

    def __init__(self, config: ProducerConfig, clock_ns: Callable[[], int]) -> None:
        windows = Windows(config.metrics_num_samples, config.metrics_sample_window_ms)
        self._clock_ns = clock_ns
        self._waited_ns = {wait: Recent(windows) for wait in Wait}
        self._exhausted = Recent(windows)
        self._lock = threading.RLock()  # an interrupting handler may measure as well

    @contextmanager
    def waiting(self, wait: Wait) -> Iterator[None]:
        """Measure the time spent in the context. Any thread."""
        started_ns = self._clock_ns()
        try:
            yield
        finally:
            ended_ns = self._clock_ns()
            with self._lock:
                self._waited_ns[wait].add(ended_ns - started_ns, ended_ns // NS_PER_MS)

    def on_exhausted(self, record_count: int) -> None:
        """Count records that were not sent for lack of memory. Any thread."""
        now_ms = self._clock_ns() // NS_PER_MS
        with self._lock:
            self._exhausted.add(record_count, now_ms)

    def snapshot(self, now_ms: int) -> dict[MetricName, float]:
        return named(
            PRODUCER,
            {wait.value: waited_ns.total for wait, waited_ns in self._waited_ns.items()}
            | {
                "bufferpool-wait-ratio": self._waited_ns[Wait.MEMORY].rate(now_ms) / NS_PER_S,
                "buffer-exhausted-total": self._exhausted.total,
                "buffer-exhausted-rate": self._exhausted.rate(now_ms),
            },
        )


def _reported(records: Sequence[_Records], now_ms: int) -> dict[str, float | None]:
    """Return the metrics of one topic's records, or of several topics together."""
    sent = Together([one.sent for one in records])
    size_bytes = Together([one.bytes for one in records])
    retried = Together([one.retried for one in records])
    failed = Together([one.failed for one in records])
    return {
        "record-send-total": sent.total,
        "record-send-rate": sent.rate(now_ms),
        "byte-total": size_bytes.total,
        "byte-rate": size_bytes.rate(now_ms),
        "record-retry-total": retried.total,
        "record-retry-rate": retried.rate(now_ms),
        "record-error-total": failed.total,
        "record-error-rate": failed.rate(now_ms),
        "compression-rate-avg": Together([one.compression for one in records]).average(now_ms),
    }
