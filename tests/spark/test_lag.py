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
from pyspark.sql.streaming.listener import QueryProgressEvent
from rich.console import Console

from pykclient import Producer, TopicPartition
from spark_connector import LagListener

if TYPE_CHECKING:
    from pathlib import Path

    from pykclient.testing import FakeKafka
    from spark_connector.lag import QueryLag

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
QUERY_ID = "6b1b1f0e-0c1f-4b1a-9d6e-6a1f5a3d0001"


def event(*sources: tuple[str, str], name: str | None = "orders") -> QueryProgressEvent:
    """A report with the end and the latest offset of each source."""
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
                "startOffset": end,
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
    assert lag.partitions == {A0: (4, None), A1: (0, None)}
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
            producer.send("a", b"v", partition=0, timestamp_ms=sent_ms + age).result(10)
    options = {"kafka.bootstrap.servers": fake_kafka.bootstrap_servers, "subscribe": "a"}
    registry = CollectorRegistry()
    listener = LagListener({**options, **given}, registry=registry)
    listener.onQueryProgress(event((offsets(1, 0), offsets(3, 0))))
    (lag,) = listener.history
    seconds = lag.partitions[A0].seconds
    assert seconds is not None
    assert 40 <= seconds <= time.time() - sent_ms / 1_000 - 20
    assert lag.partitions[A1] == (0, 0)
    assert lag.metrics()["maxSecondsBehindLatest"] == seconds
    labels = {"query": "orders", "topic": "a", "partition": "0"}
    assert registry.get_sample_value("pykafka_lag_offsets", labels) == 2
    assert registry.get_sample_value("pykafka_lag_seconds", labels) == seconds


def test_brokers_that_are_away_leave_the_lag_in_offsets(
    unused_address: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_connector.lag.FIRST_UNREAD_S_MAX", 0.5)
    options = {"kafka.bootstrap.servers": unused_address, "subscribe": "a"}
    listener = LagListener(options | {"kafka.default.api.timeout.ms": "100"})
    listener.onQueryProgress(event((offsets(1, 0), offsets(3, 0))))
    assert listener.history[0].partitions == {A0: (2, None), A1: (0, 0)}
    assert "The age of unread records is not known" in caplog.text


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
