"""LagListener: how far streaming queries are behind their topics, from their progress.

Spark reports after each micro-batch where the query is (`endOffset`) and where its topics end
(`latestOffset`); it has no place for metrics of a Python source. The listener makes lag of both, in
offsets and, where it may read the next records, in seconds and bytes.

Spark also reports what a source never learns: that the last batch of a query has finished. So the
listener commits the end of that batch to `commitGroup`, when the query ends.

Owner: Spark calls a listener from one thread; the history may be read by others.
Source: Spark's ``StreamingQueryListener``; the metrics of its own Kafka source.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from pykclient import Admin, Consumer, TopicPartition
from pykclient.errors import ConfigError, KafkaError
from spark_connector.first_records import first_records
from spark_connector.offsets import known_ends_from_json, offsets_from_json
from spark_connector.options import KafkaOptions, Use
from spark_connector.versions import offset_of_progress

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
"""Maximum time that one report waits for the first unread records."""


class PartitionLag(NamedTuple):
    """The lag of a query in one partition.

    `seconds` is the age of the first unread record. `bytes` is an estimate of the size of unread
    records, without compression, from the first of them. Both are 0 if everything is read, None if
    unknown.
    """

    offsets: int
    seconds: float | None
    bytes: int | None = None


class QueryLag(NamedTuple):
    """Lag of a query after one micro-batch, or while it is idle after it.

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
        """Return the lag of all partitions under the names of Spark's own source.

        ``minOffsetsBehindLatest``, ``avgOffsetsBehindLatest`` and ``maxOffsetsBehindLatest`` count
        offsets. ``minSecondsBehindLatest`` and so on exist where seconds are known, and
        ``estimatedTotalBytesBehindLatest`` if the bytes of all partitions are.
        """
        sizes = [lag.bytes for lag in self._all() if lag.bytes is not None]
        is_known = bool(sizes) and len(sizes) == len(self._all())
        return {
            **_spread("OffsetsBehindLatest", [lag.offsets for lag in self._all()]),
            **_spread(
                "SecondsBehindLatest",
                [lag.seconds for lag in self._all() if lag.seconds is not None],
            ),
            **({"estimatedTotalBytesBehindLatest": sum(sizes)} if is_known else {}),
        }

    def __str__(self) -> str:
        figures = ", ".join(f"{name} {value:g}" for name, value in self.metrics().items())
        return f"query {self.query}, batch {self.batch}: {figures}"


class _Batch(NamedTuple):
    """Start and end of a finished batch, as far as all sources agree.

    It has the last lag reported after the batch, too.
    """

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    lag: QueryLag


class LagListener(StreamingQueryListener):
    """Reports the lag of every query of a session that reads Kafka.

    Add it with ``spark.streams.addListener(LagListener(...))``, of Spark Connect too. After each
    micro-batch, and where the lag of a query changes that waits for ``minOffsetsPerTrigger``
    (looked up every ten seconds by `options`), it logs one line (INFO) and calls `on_lag`, on the
    listener's thread; what that raises is logged. With `options`, those of a read, the first
    records that were not read are fetched from the brokers, for `FIRST_UNREAD_S_MAX` seconds at
    most; without them, and where brokers do not respond, lag in seconds and bytes is None; so it is
    where two sources read a partition of one name at two places, since the options are of one
    cluster. With `registry` lag is in the gauges ``pykafka_lag_offsets``, ``pykafka_lag_seconds``
    and ``pykafka_lag_bytes``, labelled by query, source, topic and partition (``pip install
    prometheus-client``); they end with the query. The gauge ``pykafka_query_running`` is 1 while a
    query runs, and 0 when it has ended. A query that reads something else has no lag.

    Where `options` have a ``commitGroup``, the listener commits the end of a query's last batch to
    it when the query has ended, for partitions whose committed offset is where that batch began.
    Without it that batch is committed when the query starts again. A commit that fails is logged.

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
        self._options = checked
        self._settings = None if checked is None else checked.consumer_settings()
        self._on_lag = on_lag
        self._gauges = None if registry is None else _Gauges(registry)
        self._history: deque[QueryLag] = deque(maxlen=HISTORY_MAX)
        self._names: dict[str, str] = {}
        """The names of queries that run, by id."""
        self._last_batches: dict[str, _Batch] = {}
        """The last batch of each query that runs, by its id."""

    @property
    def history(self) -> tuple[QueryLag, ...]:
        """The last reports, oldest first; `HISTORY_MAX` at most. Any thread may read it."""
        return tuple(self._history)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Record that the query runs. It has a lag after its first read."""
        self._note_running(str(event.id), event.name)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Report what an idle query waits for: ``minOffsetsPerTrigger`` offsets.

        Spark reports no offsets of it, so the ends come from the brokers that `options` name. Other
        idle queries have read all that there is, as their last report says.
        """
        last = self._last_batches.get(str(event.id))
        if last is None or self._options is None or self._options.stream.offsets_min is None:
            return
        may_have = self._options.choice.may_have
        ends = {one: end for one, end in last.ends.items() if may_have(one.topic)}
        try:
            with Consumer(self._options.consumer_settings()) as consumer:
                known = consumer.end_offsets(ends, FIRST_UNREAD_S_MAX)
        except KafkaError as error:
            _LOG.warning("The lag of the idle query %s is not known: %s", last.lag.query, error)
            return
        read = {one: (end, max(known[one], end)) for one, end in ends.items()}
        before = last.lag.partitions
        if all(before[one].offsets == latest - end for one, (end, latest) in read.items()):
            return
        lags = self._lags(read)
        sources = {
            place: {one: lags.get(one, lag) for one, lag in source.items()}
            for place, source in last.lag.sources.items()
        }
        lag = last.lag._replace(time_s=time.time(), sources=sources)
        self._last_batches[str(event.id)] = last._replace(lag=lag)
        self._report(lag)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """End the gauges of the query, which is down, and commit what it has finished.

        The history keeps what there was.
        """
        query = self._names.pop(str(event.id), str(event.id))
        if self._gauges is not None:
            self._gauges.end(query)
        last = self._last_batches.pop(str(event.id), None)
        if last is not None and self._options is not None and self._options.stream.commit_group:
            _commit_end(self._options, last)

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
        read = _at_one_place(sources.values())
        lags = self._lags(read)
        by_source = {
            place: {
                one: lags.get(one) or PartitionLag(max(latest - end, 0), None)
                for one, (end, latest) in offsets.items()
            }
            for place, offsets in sources.items()
        }
        lag = QueryLag(query, progress.batchId, time.time(), by_source)
        starts = [_parsed(progress.sources[place].startOffset) for place in sources]
        self._last_batches[str(progress.id)] = _Batch(
            {partition: start for each in starts for partition, start in each.items()},
            {partition: end for partition, (end, _) in read.items()},
            lag,
        )
        self._report(lag)

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

    def _lags(
        self, offsets: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, PartitionLag]:
        """Return the lag of partitions that are read up to one offset and end at another."""
        unread = self._unread(offsets)
        return {
            partition: PartitionLag(max(latest - end, 0), *unread.get(partition, (None, None)))
            for partition, (end, latest) in offsets.items()
        }

    def _unread(
        self, offsets: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, tuple[float, int]]:
        """Return seconds and bytes of what is not read, as far as they are known."""
        if self._settings is None:
            return {}
        behind = {one: part for one, part in offsets.items() if part[0] < part[1]}
        found = {partition: (0.0, 0) for partition in offsets if partition not in behind}
        try:
            firsts = first_records(self._settings, behind, FIRST_UNREAD_S_MAX) if behind else {}
        except KafkaError as error:
            _LOG.warning("Age and size of unread records are not known: %s", error)
            return found
        now = time.time()
        for partition, first in firsts.items():
            end, latest = behind[partition]
            found[partition] = (
                max(now - first.timestamp_ms / 1_000, 0.0),
                round((latest - end) * first.bytes_per_offset),
            )
        return found

    def table(self) -> Table:
        """Show the last report of each query as a table for a terminal.

        Raises: ImportError if rich is missing.
        """
        from rich.table import Table

        shown = Table("query", "batch", "topic", "partition", "offsets behind")
        for column in ("seconds behind", "bytes behind"):
            shown.add_column(column)
        for lag in {lag.query: lag for lag in self.history}.values():
            for partition, (offsets, seconds, size) in sorted(lag.partitions.items()):
                shown.add_row(
                    lag.query,
                    str(lag.batch),
                    partition.topic,
                    str(partition.partition),
                    f"{offsets:,}",
                    "" if seconds is None else f"{seconds:.1f}",
                    "" if size is None else f"{size:,}",
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
        self._bytes = Gauge(
            "pykafka_lag_bytes",
            "Estimated size of what the query has not read.",
            labels,
            registry=registry,
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
            for partition, own in partitions.items():
                labels = (lag.query, str(source), partition.topic, str(partition.partition))
                found.add(labels)
                self._set(self._offsets, labels, own.offsets)
                self._set(self._seconds, labels, own.seconds)
                self._set(self._bytes, labels, own.bytes)
        for gone in self._shown.get(lag.query, set()) - found:
            self._remove(gone)
        self._shown[lag.query] = found

    def end(self, query: str) -> None:
        """Show that a query has ended, which has no lag."""
        self._running.labels(query).set(0)
        for labels in self._shown.pop(query, set()):
            self._remove(labels)

    def _remove(self, labels: tuple[str, ...]) -> None:
        for gauge in (self._offsets, self._seconds, self._bytes):
            self._set(gauge, labels, None)

    @staticmethod
    def _set(gauge: Gauge, labels: tuple[str, ...], value: float | None) -> None:
        """Show a value; None shows none."""
        if value is not None:
            gauge.labels(*labels).set(value)
            return
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
    """Return the position of a Kafka source and the ends of its topics; else nothing."""
    ends, latests = _parsed(end), _parsed(latest, known_ends_from_json)
    return {
        partition: (offset, latests[partition])
        for partition, offset in ends.items()
        if partition in latests
    }


def _parsed(
    text: str | None, read: Callable[[object], dict[TopicPartition, int]] = offsets_from_json
) -> dict[TopicPartition, int]:
    """Return the offsets of a report; none for a source of something else."""
    try:
        return read(offset_of_progress(text))
    except (ValueError, ConfigError):
        return {}


def _commit_end(options: KafkaOptions, last: _Batch) -> None:
    """Commit the end of a query's last batch, where the group stands at its beginning.

    So a group that another query commits to, or the same one that was started again, stays as it
    is.
    """
    group = options.stream.commit_group
    ends = {one: end for one, end in last.ends.items() if options.choice.may_have(one.topic)}
    try:
        with Admin(options.admin_settings()) as admin:
            found = admin.list_group_offsets(group, ends, FIRST_UNREAD_S_MAX)
            moved = {
                partition: end
                for partition, end in ends.items()
                if partition not in found or found[partition].offset == last.starts.get(partition)
            }
            if moved:
                admin.alter_group_offsets(group, moved, FIRST_UNREAD_S_MAX)
    except KafkaError as error:
        _LOG.warning(
            "The end of the last batch was not committed to group %r (option commitGroup): %s",
            group,
            error,
        )


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    return {
        f"min{name}": min(values),
        f"avg{name}": sum(values) / len(values),
        f"max{name}": max(values),
    }
