"""LagListener: how far streaming queries are behind their topics, from their progress.

Spark reports after each micro-batch where the query is (`endOffset`) and where its topics end
(`latestOffset`); it has no place for metrics of a Python source. The listener makes lag of both, in
offsets and, where it may request the next record's time, in seconds.

Owner: Spark calls a listener from one thread; the history may be read by others.
Source: Spark's ``StreamingQueryListener``; the metrics of its own Kafka source.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from pykclient import Consumer, TopicPartition
from pykclient.consumer.config import ConsumerConfig
from pykclient.errors import ConfigError, KafkaError
from spark_connector.offsets import offsets_from_json
from spark_connector.options import KafkaOptions, Use

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from prometheus_client import CollectorRegistry, Gauge
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from rich.table import Table

_LOG = logging.getLogger(__name__)

HISTORY_MAX: Final = 10_000
"""Reports that are kept for drawing: some three hours of a report a second."""

FIRST_UNREAD_S_MAX: Final = 5.0
"""How long one report waits for the first records that were not read."""


class PartitionLag(NamedTuple):
    """How far a query is behind in one partition.

    `seconds` is the age of the first record that it has not read; 0 when it has read all, None when
    that is not known.
    """

    offsets: int
    seconds: float | None


class QueryLag(NamedTuple):
    """How far a query was behind after one micro-batch.

    `query` is its name, or its id; `batch` the number of the micro-batch; `time_s` the time of the
    report in seconds since 1970. `sources` has the lag of each source of the query that reads
    Kafka, by its place in the plan: two sources may read topics of one name, of two clusters.
    """

    query: str
    batch: int
    time_s: float
    sources: Mapping[int, Mapping[TopicPartition, PartitionLag]]

    @property
    def partitions(self) -> dict[TopicPartition, PartitionLag]:
        """The lag of each partition; of several sources the one that is furthest behind."""
        found: dict[TopicPartition, PartitionLag] = {}
        for source in self.sources.values():
            for partition, lag in source.items():
                found[partition] = max(
                    found.get(partition, lag), lag, key=lambda each: each.offsets
                )
        return found

    def _all(self) -> list[PartitionLag]:
        return [lag for source in self.sources.values() for lag in source.values()]

    def metrics(self) -> dict[str, float]:
        """The lag of all partitions under the names of Spark's own source, and in seconds.

        ``minOffsetsBehindLatest``, ``avgOffsetsBehindLatest`` and ``maxOffsetsBehindLatest`` count
        offsets; ``minSecondsBehindLatest`` and so on are there where seconds are known.
        """
        return {
            **_spread("OffsetsBehindLatest", [lag.offsets for lag in self._all()]),
            **_spread(
                "SecondsBehindLatest",
                [lag.seconds for lag in self._all() if lag.seconds is not None],
            ),
        }

    def __str__(self) -> str:
        figures = ", ".join(f"{name} {value:g}" for name, value in self.metrics().items())
        return f"query {self.query}, batch {self.batch}: {figures}"


class LagListener(StreamingQueryListener):
    """Reports the lag of every query of a session that reads Kafka.

    Add it with ``spark.streams.addListener(LagListener(...))``, of Spark Connect too. After each
    micro-batch it logs one line (INFO) and calls `on_lag`, on the listener's thread; what that
    raises is logged. With `options`, those of a read, the time of the first record that was not
    read is fetched from the brokers, for `FIRST_UNREAD_S_MAX` seconds at most; without them, and
    where brokers do not respond, lag in seconds is None; so it is where two sources read a
    partition of one name at two places, since the options are of one cluster. With `registry` lag
    is in the gauges ``pykafka_lag_offsets`` and ``pykafka_lag_seconds``, labelled by query, source,
    topic and partition (``pip install prometheus-client``); they end with the query. The gauge
    ``pykafka_query_running`` is 1 while a query runs, and 0 when it has ended. A query that reads
    something else has no lag.

    Raises: `ConfigError` for a bad option, and ImportError where prometheus_client is missing.
    """

    def __init__(
        self,
        options: Mapping[str, str] | None = None,
        *,
        on_lag: Callable[[QueryLag], object] | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        checked = None if options is None else KafkaOptions.from_spark(options, Use.STREAM)
        self._settings = None if checked is None else checked.consumer_settings()
        self._on_lag = on_lag
        self._gauges = None if registry is None else _Gauges(registry)
        self._history: deque[QueryLag] = deque(maxlen=HISTORY_MAX)
        self._names: dict[str, str] = {}
        """The names of queries that run, by id."""

    @property
    def history(self) -> tuple[QueryLag, ...]:
        """The last reports, oldest first; `HISTORY_MAX` at most. Any thread may read it."""
        return tuple(self._history)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Note that the query runs. It has a lag once it has read."""
        self._note_running(str(event.id), event.name)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: an idle query has the lag of its last report, which is none."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """End the gauges of the query, which is down. The history keeps what there was."""
        query = self._names.pop(str(event.id), str(event.id))
        if self._gauges is not None:
            self._gauges.end(query)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report the lag after one micro-batch."""
        progress = event.progress
        query = self._note_running(str(progress.id), progress.name)
        sources = {
            place: found
            for place, source in enumerate(progress.sources)
            if (found := _offsets(source.endOffset, source.latestOffset))
        }
        if not sources:
            return
        seconds = self._seconds(_at_one_place(sources.values()))
        lags = {
            place: {
                partition: PartitionLag(max(latest - end, 0), seconds.get(partition))
                for partition, (end, latest) in offsets.items()
            }
            for place, offsets in sources.items()
        }
        self._report(QueryLag(query, progress.batchId, time.time(), lags))

    def _note_running(self, query_id: str, name: str | None) -> str:
        """Return what the query is called."""
        query = self._names[query_id] = name or query_id
        if self._gauges is not None:
            self._gauges.begin(query)
        return query

    def _report(self, lag: QueryLag) -> None:
        _LOG.info("%s", lag)
        self._history.append(lag)
        if self._gauges is not None:
            self._gauges.set(lag)
        if self._on_lag is not None:
            try:
                self._on_lag(lag)
            except Exception:  # noqa: BLE001 - the application's function
                _LOG.exception("on_lag failed for %s", lag)

    def _seconds(
        self, offsets: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, float]:
        """How old the first unread records are, as far as that is known."""
        if self._settings is None:
            return {}
        behind = {partition: end for partition, (end, latest) in offsets.items() if end < latest}
        found = {partition: 0.0 for partition in offsets if partition not in behind}
        try:
            times_ms = _first_times(self._settings, behind) if behind else {}
        except KafkaError as error:
            _LOG.warning("The age of unread records is not known: %s", error)
            return found
        now = time.time()
        for partition, time_ms in times_ms.items():
            found[partition] = max(now - time_ms / 1_000, 0.0)
        return found

    def table(self) -> Table:
        """The last report of each query as a table for a terminal.

        Raises: ImportError where rich is missing.
        """
        from rich.table import Table

        shown = Table("query", "batch", "topic", "partition", "offsets behind", "seconds behind")
        for lag in {lag.query: lag for lag in self.history}.values():
            for partition, (offsets, seconds) in sorted(lag.partitions.items()):
                shown.add_row(
                    lag.query,
                    str(lag.batch),
                    partition.topic,
                    str(partition.partition),
                    f"{offsets:,}",
                    "" if seconds is None else f"{seconds:.1f}",
                )
        return shown

    def plot(self, path: str | Path) -> None:
        """Draw the largest lag of each query over time into an image file, such as ``lag.png``.

        Raises: ImportError where matplotlib is missing, and OSError.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 4.5), layout="constrained")
        axes = figure.add_subplot()
        history = self.history
        for query in dict.fromkeys(lag.query for lag in history):
            own = [lag for lag in history if lag.query == query]
            axes.step(
                [lag.time_s - history[0].time_s for lag in own],
                [max(one.offsets for one in lag.partitions.values()) for lag in own],
                where="post",
                label=query,
            )
        axes.set_title("Lag of streaming queries")
        axes.set_xlabel("time since the first report (seconds)")
        axes.set_ylabel("records behind, in the partition that is furthest behind")
        if history:
            axes.legend(title="query")
        figure.savefig(path)


class _Gauges:
    """The lag of each partition for Prometheus, and whether a query runs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        from prometheus_client import Gauge

        labels = ("query", "source", "topic", "partition")
        self._offsets = Gauge(
            "pykafka_lag_offsets", "Records that the query has not read.", labels, registry=registry
        )
        self._seconds = Gauge(
            "pykafka_lag_seconds", "Age of the first unread record.", labels, registry=registry
        )
        self._running = Gauge(
            "pykafka_query_running",
            "1 while the query runs, 0 when it has ended.",
            ("query",),
            registry=registry,
        )
        self._shown: dict[str, set[tuple[str, ...]]] = {}
        """The labels of the gauges of each query that runs."""

    def begin(self, query: str) -> None:
        """Show that a query runs."""
        self._running.labels(query).set(1)

    def set(self, lag: QueryLag) -> None:
        """Show a lag. What a query reads no longer is not shown any more."""
        found: set[tuple[str, ...]] = set()
        for source, partitions in lag.sources.items():
            for partition, (offsets, seconds) in partitions.items():
                labels = (lag.query, str(source), partition.topic, str(partition.partition))
                found.add(labels)
                self._offsets.labels(*labels).set(offsets)
                if seconds is not None:
                    self._seconds.labels(*labels).set(seconds)
                else:
                    self._remove(self._seconds, labels)
        for gone in self._shown.get(lag.query, set()) - found:
            self._remove(self._offsets, gone)
            self._remove(self._seconds, gone)
        self._shown[lag.query] = found

    def end(self, query: str) -> None:
        """Show that a query has ended, which has no lag."""
        self._running.labels(query).set(0)
        for labels in self._shown.pop(query, set()):
            self._remove(self._offsets, labels)
            self._remove(self._seconds, labels)

    @staticmethod
    def _remove(gauge: Gauge, labels: tuple[str, ...]) -> None:
        with suppress(KeyError):  # there was none
            gauge.remove(*labels)


def _at_one_place(
    sources: Iterable[Mapping[TopicPartition, tuple[int, int]]],
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the offsets of partitions that all sources read at the same place.

    Others may be of two clusters, and options name one.
    """
    found: dict[TopicPartition, set[tuple[int, int]]] = {}
    for offsets in sources:
        for partition, place in offsets.items():
            found.setdefault(partition, set()).add(place)
    return {partition: places.pop() for partition, places in found.items() if len(places) == 1}


def _offsets(end: str | None, latest: str | None) -> dict[TopicPartition, tuple[int, int]]:
    """Where a source is and where its topics end; nothing for a source of something else."""
    try:
        ends, latests = (offsets_from_json(json.loads(text or "null")) for text in (end, latest))
    except (ValueError, ConfigError):
        return {}
    return {
        partition: (offset, latests[partition])
        for partition, offset in ends.items()
        if partition in latests
    }


def _first_times(
    settings: Mapping[str, object], starts: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The times of the first records at or behind some offsets, as far as they come in time."""
    found: dict[TopicPartition, int] = {}
    # A broker sends a whole batch even where it is larger than this.
    size = ConsumerConfig.setting_of("max.partition.fetch.bytes")
    narrow = {
        key: value for key, value in settings.items() if ConsumerConfig.setting_of(key) is not size
    }
    narrow["max.partition.fetch.bytes"] = 1
    with Consumer(narrow) as consumer:
        consumer.assign(starts)
        for partition, offset in starts.items():
            consumer.seek(partition, offset)
        deadline = time.monotonic() + FIRST_UNREAD_S_MAX
        while len(found) < len(starts) and (left := deadline - time.monotonic()) > 0:
            for record in consumer.poll(left, max_records=1):
                partition = TopicPartition(record.topic, record.partition)
                found[partition] = record.timestamp_ms
                consumer.pause([partition])
    return found


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    return {
        f"min{name}": min(values),
        f"avg{name}": sum(values) / len(values),
        f"max{name}": max(values),
    }
