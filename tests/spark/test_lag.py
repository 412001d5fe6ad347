"""Lag of queries, from progress as Spark reports it, and from fake brokers."""

from __future__ import annotations

import io
import json
import logging
import time
from typing import TYPE_CHECKING

import pytest
from matplotlib import rcParams
from prometheus_client import CollectorRegistry
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)
from rich.console import Console

from pykclient import Admin, Producer, TopicPartition
from spark_connector import LagListener

if TYPE_CHECKING:
    from pathlib import Path

    from pykclient.testing import FakeKafka
    from spark_connector.lag import QueryLag

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
QUERY_ID = "6b1b1f0e-0c1f-4b1a-9d6e-6a1f5a3d0001"


def event(
    *sources: tuple[str, str], name: str | None = "orders", start: str | None = None
) -> QueryProgressEvent:
    """Return a report with the end and the latest offset of each source."""
    progress = {
        "id": QUERY_ID,
        "runId": QUERY_ID,
        "name": name,
        "timestamp": "2026-01-31T12:00:00.000Z",
        "batchId": 7,
        "batchDuration": 1,
        "durationMs": {},
        "eventTime": {},
        "stateOperators": [],
        "numInputRows": 1,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
        "sources": [
            {
                "description": "any",
                "startOffset": end if start is None else start,
                "endOffset": end,
                "latestOffset": latest,
                "numInputRows": 1,
                "inputRowsPerSecond": 1.0,
                "processedRowsPerSecond": 1.0,
                "metrics": {},
            }
            for end, latest in sources
        ],
        "sink": {"description": "any", "numOutputRows": 1, "metrics": {}},
        "observedMetrics": {},
    }
    return QueryProgressEvent.fromJson({"progress": progress})


def offsets(first: int, second: int) -> str:
    return json.dumps({"a": {"0": first, "1": second}})


def test_lag_is_reported_by_partition_and_under_the_official_names(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reports: list[QueryLag] = []
    listener = LagListener(on_lag=reports.append)
    with caplog.at_level(logging.INFO, logger="spark_connector.lag"):
        listener.onQueryProgress(event((offsets(5, 3), offsets(9, 3))))
    (lag,) = reports
    assert (lag.query, lag.batch) == ("orders", 7)
    assert lag.partitions == {A0: (4, None, None), A1: (0, None, None)}
    assert lag.metrics() == {
        "minOffsetsBehindLatest": 0,
        "avgOffsetsBehindLatest": 2.0,
        "maxOffsetsBehindLatest": 4,
    }
    assert (
        "query orders, batch 7: minOffsetsBehindLatest 0, avgOffsetsBehindLatest 2" in caplog.text
    )
    assert listener.history == (lag,)


@pytest.mark.parametrize(
    "sources",
    [(), (("null", "null"),), (('{"rows": 5}', '{"rows": 6}'),), (("x", "y"),), (("5", "6"),)],
)
def test_sources_of_something_else_have_no_lag(sources: tuple[tuple[str, str], ...]) -> None:
    listener = LagListener()
    listener.onQueryProgress(event(*sources))
    assert listener.history == ()


def test_a_callback_that_fails_stops_no_report(caplog: pytest.LogCaptureFixture) -> None:
    def fail(lag: QueryLag) -> None:
        raise RuntimeError(f"no place for batch {lag.batch}")

    listener = LagListener(on_lag=fail)
    listener.onQueryProgress(event((offsets(5, 3), offsets(9, 3)), name=None))
    assert [lag.query for lag in listener.history] == [QUERY_ID]
    assert "no place for batch 7" in caplog.text


@pytest.mark.parametrize(
    "given", [{}, {"kafka.max_partition_fetch_bytes": "2097152"}], ids=["defaults", "own size"]
)
def test_the_age_of_the_first_unread_record_is_the_lag_in_seconds(
    fake_kafka: FakeKafka, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may take longer than a report of an application should wait.
    monkeypatch.setattr("spark_connector.lag.FIRST_UNREAD_S_MAX", 60.0)
    with fake_kafka.control() as cluster:
        cluster.create_topic("a", 2)
    sent_ms = int(time.time() * 1_000) - 60_000
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        for age in (0, 20_000, 40_000):
            producer.send("a", b"v" * 9, b"k", partition=0, timestamp_ms=sent_ms + age).result(10)
    options = {"kafka.bootstrap.servers": fake_kafka.bootstrap_servers, "subscribe": "a"}
    registry = CollectorRegistry()
    listener = LagListener({**options, **given}, registry=registry)
    listener.onQueryProgress(event((offsets(1, 0), offsets(3, 0))))
    (lag,) = listener.history
    seconds = lag.partitions[A0].seconds
    assert seconds is not None
    assert 40 <= seconds <= time.time() - sent_ms / 1_000 - 20
    assert lag.partitions[A0].bytes == 20
    assert lag.partitions[A1] == (0, 0, 0)
    assert lag.metrics()["maxSecondsBehindLatest"] == seconds
    assert lag.metrics()["estimatedTotalBytesBehindLatest"] == 20
    labels = {"query": "orders", "source": "0", "topic": "a", "partition": "0"}
    assert registry.get_sample_value("pykafka_lag_offsets", labels) == 2
    assert registry.get_sample_value("pykafka_lag_seconds", labels) == seconds
    assert registry.get_sample_value("pykafka_lag_bytes", labels) == 20
    listener.onQueryTerminated(ended())
    assert registry.get_sample_value("pykafka_lag_bytes", labels) is None


def ended(query_id: str = QUERY_ID) -> QueryTerminatedEvent:
    found = {"id": query_id, "runId": query_id, "exception": None, "errorClassOnException": None}
    return QueryTerminatedEvent.fromJson(found)


def shown(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """Return the metrics as Prometheus reads them."""
    return {
        (each.name, *(each.labels[key] for key in sorted(each.labels))): each.value
        for metric in registry.collect()
        for each in metric.samples
    }


@pytest.mark.parametrize("name", ["orders", None])
def test_gauges_end_with_the_query_and_say_that_it_is_down(name: str | None) -> None:
    registry = CollectorRegistry()
    listener = LagListener(registry=registry)
    query = name or QUERY_ID
    listener.onQueryProgress(event((offsets(5, 3), offsets(9, 3)), name=name))
    assert shown(registry) == {
        ("pykafka_lag_offsets", "0", query, "0", "a"): 4,
        ("pykafka_lag_offsets", "1", query, "0", "a"): 0,
        ("pykafka_query_running", query): 1,
    }
    listener.onQueryTerminated(ended())
    assert shown(registry) == {("pykafka_query_running", query): 0}
    assert len(listener.history) == 1


def test_a_query_that_fails_in_its_first_batch_is_down() -> None:
    registry = CollectorRegistry()
    listener = LagListener(registry=registry)
    begun = {"id": QUERY_ID, "runId": QUERY_ID, "name": "orders", "timestamp": "", "jobTags": []}
    listener.onQueryStarted(QueryStartedEvent.fromJson(begun))
    assert shown(registry) == {("pykafka_query_running", "orders"): 1}
    listener.onQueryTerminated(ended())
    assert shown(registry) == {("pykafka_query_running", "orders"): 0}


def test_a_partition_that_is_not_read_any_more_is_not_shown() -> None:
    registry = CollectorRegistry()
    listener = LagListener(registry=registry)
    listener.onQueryProgress(event((offsets(5, 3), offsets(9, 3))))
    listener.onQueryProgress(event(('{"b":{"0":1}}', '{"b":{"0":3}}')))
    assert shown(registry)["pykafka_lag_offsets", "0", "orders", "0", "b"] == 2
    assert not [labels for labels in shown(registry) if labels[-1] == "a"]


def test_two_clusters_with_a_topic_of_one_name_are_told_apart() -> None:
    registry = CollectorRegistry()
    listener = LagListener(registry=registry)
    other = ("null", "null")
    listener.onQueryProgress(
        event((offsets(5, 3), offsets(9, 3)), other, (offsets(80, 3), offsets(81, 3)))
    )
    (lag,) = listener.history
    assert {place: source[A0].offsets for place, source in lag.sources.items()} == {0: 4, 2: 1}
    assert lag.partitions[A0].offsets == 4
    assert lag.metrics()["avgOffsetsBehindLatest"] == (4 + 0 + 1 + 0) / 4
    assert shown(registry)["pykafka_lag_offsets", "0", "orders", "0", "a"] == 4
    assert shown(registry)["pykafka_lag_offsets", "0", "orders", "2", "a"] == 1


def test_the_age_of_a_partition_at_two_places_is_not_known(fake_kafka: FakeKafka) -> None:
    options = {"kafka.bootstrap.servers": fake_kafka.bootstrap_servers, "subscribe": "a"}
    listener = LagListener(options)
    listener.onQueryProgress(event((offsets(9, 3), offsets(9, 3)), (offsets(9, 4), offsets(9, 9))))
    (lag,) = listener.history
    assert [source[A0].seconds for source in lag.sources.values()] == [0, 0]
    assert [source[A1].seconds for source in lag.sources.values()] == [None, None]


def idle() -> QueryIdleEvent:
    found = {"id": QUERY_ID, "runId": QUERY_ID, "timestamp": "2026-01-31T12:00:10.000Z"}
    return QueryIdleEvent.fromJson(found)


@pytest.fixture
def listener(fake_kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch) -> LagListener:
    """Provide the listener of a query that waits for five offsets and has read one of topic a."""
    monkeypatch.setattr("spark_connector.lag.FIRST_UNREAD_S_MAX", 60.0)
    with fake_kafka.control() as cluster:
        cluster.create_topic("a", 2)
    send(fake_kafka, 1)
    options = {"kafka.bootstrap.servers": fake_kafka.bootstrap_servers, "subscribe": "a"}
    return LagListener(options | {"minOffsetsPerTrigger": "5"})


def send(kafka: FakeKafka, count: int) -> None:
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for _ in range(count):
            producer.send("a", b"v" * 10, partition=0).result(10)


def test_the_lag_of_a_query_that_waits_for_more_is_reported(
    fake_kafka: FakeKafka, listener: LagListener
) -> None:
    """Spark reports no progress of an idle query."""
    listener.onQueryIdle(idle())  # before its first batch
    listener.onQueryProgress(event((offsets(1, 0), offsets(1, 0))))
    send(fake_kafka, 3)
    for _ in range(2):
        listener.onQueryIdle(idle())
    before, lag = listener.history
    assert (before.partitions[A0].offsets, lag.partitions[A0].offsets) == (0, 3)
    assert (lag.query, lag.batch, lag.partitions[A0].bytes) == ("orders", 7, 30)
    assert lag.partitions[A1] == (0, 0, 0)
    send(fake_kafka, 1)
    listener.onQueryIdle(idle())
    assert listener.history[-1].partitions[A0].offsets == 4
    listener.onQueryTerminated(ended())
    listener.onQueryIdle(idle())
    assert len(listener.history) == 3


def test_a_topic_of_another_query_has_the_lag_of_its_last_report(
    fake_kafka: FakeKafka, listener: LagListener
) -> None:
    """The brokers of the options may not have it."""
    listener.onQueryProgress(event(('{"b":{"0":3}}', '{"b":{"0":3}}'), (offsets(1, 0),) * 2))
    send(fake_kafka, 2)
    listener.onQueryIdle(idle())
    assert listener.history[-1].partitions[TopicPartition("b", 0)].offsets == 0
    assert listener.history[-1].partitions[A0].offsets == 2


def test_the_lag_of_an_idle_query_that_brokers_do_not_tell_is_a_warning(
    fake_kafka: FakeKafka, listener: LagListener, caplog: pytest.LogCaptureFixture
) -> None:
    listener.onQueryProgress(event((offsets(1, 0), offsets(1, 0))))
    with fake_kafka.control() as cluster:
        cluster.delete_topic("a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_connector.lag.FIRST_UNREAD_S_MAX", 0.2)
        listener.onQueryIdle(idle())
    assert len(listener.history) == 1
    assert "The lag of the idle query orders is not known" in caplog.text


def test_brokers_that_are_away_leave_the_lag_in_offsets(
    unused_address: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_connector.lag.FIRST_UNREAD_S_MAX", 0.5)
    options = {"kafka.bootstrap.servers": unused_address, "subscribe": "a"}
    listener = LagListener(options | {"kafka.default.api.timeout.ms": "100"})
    listener.onQueryProgress(event((offsets(1, 0), offsets(3, 0))))
    assert listener.history[0].partitions == {A0: (2, None, None), A1: (0, 0, 0)}
    assert "estimatedTotalBytesBehindLatest" not in listener.history[0].metrics()
    assert "Age and size of unread records are not known" in caplog.text


def committed(kafka: FakeKafka) -> dict[TopicPartition, int]:
    """Return the offsets committed by the group of the tests below."""
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        found = admin.list_group_offsets("watch")
    return {partition: each.offset for partition, each in found.items()}


def test_the_last_batch_is_committed_when_the_query_ends(fake_kafka: FakeKafka) -> None:
    """A source does not learn that its last batch has finished."""
    with fake_kafka.control() as cluster:
        cluster.create_topic("a", 2)
    servers = {"kafka.bootstrap.servers": fake_kafka.bootstrap_servers}
    options = {**servers, "subscribe": "a", "commitGroup": "watch"}
    listener = LagListener(options)
    other = ("null", "null")
    listener.onQueryProgress(event(other, (offsets(5, 3), offsets(5, 3)), start="null"))
    assert committed(fake_kafka) == {}
    listener.onQueryTerminated(ended())
    assert committed(fake_kafka) == {A0: 5, A1: 3}
    # The next run, of which the source has committed all but the last batch.
    listener.onQueryProgress(event((offsets(7, 3), offsets(7, 3)), start=offsets(5, 3)))
    listener.onQueryTerminated(ended())
    assert committed(fake_kafka) == {A0: 7, A1: 3}
    # Nothing was reported since.
    listener.onQueryTerminated(ended())
    assert committed(fake_kafka) == {A0: 7, A1: 3}


def test_a_group_that_is_elsewhere_is_not_moved(fake_kafka: FakeKafka) -> None:
    """The query was started again, and has gone on; or another one commits to the group."""
    with fake_kafka.control() as cluster:
        cluster.create_topic("a", 2)
    with Admin(bootstrap_servers=fake_kafka.bootstrap_servers) as admin:
        admin.alter_group_offsets("watch", {A0: 9, A1: 2})
    servers = {"kafka.bootstrap.servers": fake_kafka.bootstrap_servers}
    listener = LagListener({**servers, "subscribe": "a", "commitGroup": "watch"})
    listener.onQueryProgress(event((offsets(7, 3), offsets(7, 3)), start=offsets(5, 2)))
    listener.onQueryTerminated(ended())
    assert committed(fake_kafka) == {A0: 9, A1: 3}
    # Other topics than those of the options are another query's.
    listener.onQueryProgress(event(('{"b":{"0":1}}', '{"b":{"0":1}}'), start="null"))
    listener.onQueryTerminated(ended())
    assert committed(fake_kafka) == {A0: 9, A1: 3}


def test_an_end_that_is_not_committed_is_logged(
    unused_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"kafka.bootstrap.servers": unused_address, "subscribe": "a", "commitGroup": "watch"}
    listener = LagListener(options | {"kafka.default.api.timeout.ms": "100"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_connector.lag.FIRST_UNREAD_S_MAX", 0.1)
        listener.onQueryProgress(event((offsets(7, 3), offsets(7, 3)), start=offsets(5, 2)))
        listener.onQueryTerminated(ended())
    assert "The end of the last batch was not committed to group 'watch'" in caplog.text


def test_lag_is_drawn_in_a_terminal_and_as_a_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = LagListener()
    listener.plot(tmp_path / "empty.png")
    for end in (5, 9):
        listener.onQueryProgress(event((offsets(end, 3), offsets(1_009, 3))))
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(listener.table())
    shown = console.export_text()
    assert "offsets behind" in shown
    assert "1,000" in shown
    assert "1,004" not in shown
    listener.plot(tmp_path / "lag.png")
    assert (tmp_path / "lag.png").read_bytes()[1:4] == b"PNG"
    # Letters of an SVG are text.
    monkeypatch.setitem(rcParams, "svg.fonttype", "none")
    listener.plot(tmp_path / "lag.svg")
    drawn = (tmp_path / "lag.svg").read_text()
    for title in ("time since the first report (seconds)", "records behind, in the partition"):
        assert title in drawn
