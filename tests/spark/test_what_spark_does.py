"""The behaviour of Spark with Python sources that ours relies on.

A small source shows each rule, so that a Spark that behaves differently fails here; "pykafka" is
tested beside it.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.datasource import InputPartition

from pykclient import Producer
from pykclient.testing.fake import faults
from spark_connector.versions import HAS_READ_LIMITS
from tests.spark.small_sources import (
    PARTITION_COUNT,
    ROW_COUNT,
    Call,
    Calls,
    FilteredSource,
    NotedSource,
)
from tests.spark.versions import PLANS_ONCE, needs_pyspark
from tests.testing.test_processes import await_true, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from pykclient.protocol.message import Request
    from pykclient.testing import FakeKafka, KafkaCluster

# Facts about Spark, which change with its releases and not with this code.
pytestmark = [pytest.mark.soak, pytest.mark.spark]

SPARK_S = 120
REAL_TIME_SINKS = "spark.sql.streaming.realTimeMode.allowlistCheck"
IDLE_CALLS = 20
POLLING_DELAY = "spark.sql.streaming.pollingDelay"
LONG_DELAY_MS = 300
REQUESTS = 20
FEWEST_S = 0.7
"""Least time of 20 requests at 20 a second, with room for a busy machine."""

PLAIN = {"processingTime": "0 seconds"}
REAL_TIME = {"realTime": "5 seconds"}


@pytest.fixture(scope="module")
def small(spark: SparkSession) -> SparkSession:
    """Provide a session that knows the small sources, with Spark's filter push-down on."""
    session = spark.newSession()
    session.dataSource.register(NotedSource)
    session.dataSource.register(FilteredSource)
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    return session


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    return Calls(tmp_path / "calls")


def batch_of(session: SparkSession, name: str, folder: Path) -> DataFrame:
    return session.read.format(name).option("calls", str(folder / "calls")).load()


# One frame, one plan.


def test_spark_plans_a_frame_once_for_all_its_actions(
    small: SparkSession, calls: Calls, tmp_path: Path
) -> None:
    frame = batch_of(small, "noted", tmp_path)
    frame.createOrReplaceTempView("planned_once")
    counts = [frame.count(), frame.count(), small.table("planned_once").count()]
    assert counts == [PARTITION_COUNT * ROW_COUNT] * 3
    assert len(calls.of("partitions")) == (1 if PLANS_ONCE else len(counts))
    batch_of(small, "noted", tmp_path).collect()
    assert len(calls.of("partitions")) == (2 if PLANS_ONCE else len(counts) + 1)


def test_spark_takes_no_preferred_locations_from_a_python_source() -> None:
    """A partition has a value, and nothing that would name a host."""
    assert vars(InputPartition("value")) == {"value": "value"}


@pytest.mark.kafka
@pytest.mark.usefixtures("official_connector")
def test_a_partition_that_is_added_is_seen_by_a_new_load(
    spark: SparkSession, kafka_cluster: KafkaCluster, new_topic: Callable[[int], str]
) -> None:
    """Spark's own source sees it with the next action, which plans and looks times up again."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewPartitions

    servers, topic = kafka_cluster.bootstrap_servers, new_topic(1)

    def load(source: str, **options: int) -> DataFrame:
        reader = spark.read.format(source).option("kafka.bootstrap.servers", servers)
        return reader.option("subscribe", topic).options(**options).load()

    frames = [
        load(source, **options)
        for source in ("pykafka", "kafka")
        for options in ({}, {"endingTimestamp": 2**62})
    ]
    assert [frame.count() for frame in frames] == [0, 0, 0, 0]
    witness = AdminClient({"bootstrap.servers": servers})
    witness.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    with Producer(bootstrap_servers=servers) as producer:
        for partition in range(2):
            producer.send(topic, b"v", partition=partition)
    assert [frame.count() for frame in frames] == ([1, 0, 2, 2] if PLANS_ONCE else [2, 2, 2, 2])
    assert load("pykafka").count() == 2


def test_spark_collects_all_garbage_after_each_use_of_a_process(
    small: SparkSession, calls: Calls, tmp_path: Path
) -> None:
    """Why what a process has loaded is kept from its collector (`SentToTasks`)."""
    assert batch_of(small, "noted", tmp_path).count() == PARTITION_COUNT * ROW_COUNT
    reads = calls.of("read")
    assert [call.argument for call in reads] == ["1"] * PARTITION_COUNT
    await_true(lambda: len(calls.of("collected")) == len(reads), "Spark collects", SPARK_S)


@needs_pyspark((4, 1), "no filters are pushed down")
def test_spark_gives_the_rows_of_one_pushed_filter_to_every_query_of_a_frame(
    small: SparkSession, tmp_path: Path
) -> None:
    """Why our reader takes no filters off Spark."""
    frame = batch_of(small, "filtered", tmp_path)
    both = frame.where("p = 0").union(frame.where("p = 1")).collect()
    assert sorted(row["p"] for row in both) == [1] * 2 * ROW_COUNT


def test_filters_on_one_frame_give_their_own_rows_with_push_down_on(
    small: SparkSession, fake_kafka: FakeKafka
) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic("a", 2)
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        for number in range(6):
            producer.send("a", b"v", partition=number % 2)
    reader = small.read.format("pykafka").option("subscribe", "a")
    frame = reader.option("kafka.bootstrap.servers", fake_kafka.bootstrap_servers).load()
    both = frame.where("partition = 0").union(frame.where("partition = 1"))
    found = sorted((row["partition"], row["offset"]) for row in both.collect())
    assert found == [(partition, offset) for partition in range(2) for offset in range(3)]
    assert frame.count() == 6


# What a stream is called with.


class Lives(NamedTuple):
    """A query whose first batch failed, and the same query started again, until it was idle."""

    first: list[Call]
    second: list[Call]
    metrics: object
    checkpoint: Path


@pytest.fixture(scope="module")
def lives(small: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lives:
    """Run a stream that begins at 100 and, when it is planned again, at 150."""
    folder, checkpoint = tmp_path_factory.mktemp("lives"), tmp_path_factory.mktemp("checkpoint")
    first, fails, noted = folder / "first", folder / "fails", Calls(folder / "calls")
    reader = small.readStream.format("noted").option("calls", str(folder / "calls"))
    reader = reader.option("first", str(first)).option("fails", str(fails)).option("end", "103")
    writer = reader.load().writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(checkpoint))
    first.write_text("100")
    fails.touch()
    with pytest.raises(StreamingQueryException, match="this task fails"):
        writer.start().awaitTermination(SPARK_S)
    before = noted.read()
    first.write_text("150")
    fails.unlink()

    def idle_calls() -> list[Call]:
        return [call for call in noted.of("latestOffset") if call.argument == 103]

    query = writer.start()
    await_true(lambda: len(idle_calls()) >= IDLE_CALLS, "the query is idle", SPARK_S)
    progress = query.lastProgress
    query.stop()
    assert progress is not None
    process = idle_calls()[-1].process
    await_true(lambda: not is_alive(process), "Spark has ended the source's process", SPARK_S)
    metrics = progress["sources"][0]["metrics"]
    return Lives(before, noted.read()[len(before) :], metrics, checkpoint)


def arguments(calls: list[Call], name: str) -> list[object]:
    return [call.argument for call in calls if call.name == name]


@needs_pyspark((4, 2), "no start and limit are passed")
def test_spark_requests_the_initial_offset_twice_and_again_if_the_first_batch_failed(
    lives: Lives,
) -> None:
    assert arguments(lives.first, "initialOffset") == [100, 100]
    assert arguments(lives.first, "partitions") == [[100, 101]]
    assert arguments(lives.second, "initialOffset") == [150]
    # The batch is repeated from the new beginning to the end that was planned before.
    assert arguments(lives.second, "partitions") == [[150, 101], [101, 102], [102, 103]]


@pytest.mark.skipif(HAS_READ_LIMITS, reason="PySpark passes start and limit")
def test_an_older_spark_shows_the_last_end_of_its_log_before_it_requests_one(lives: Lives) -> None:
    """Why a source knows where a batch begins (`SelfLimitedReader`)."""
    wanted = ["latestOffset", "initialOffset", "partitions"]

    def called(calls: list[Call]) -> list[tuple[str, object]]:
        return [(call.name, call.argument) for call in calls if call.name in wanted]

    assert called(lives.first) == [
        ("latestOffset", 100),
        ("initialOffset", 100),
        ("partitions", [100, 101]),
    ]
    # The batch is repeated from the new beginning to the end that was planned before.
    assert called(lives.second)[:7] == [
        ("partitions", [101, 101]),
        ("initialOffset", 150),
        ("partitions", [150, 101]),
        ("latestOffset", 101),
        ("partitions", [101, 102]),
        ("latestOffset", 102),
        ("partitions", [102, 103]),
    ]


def test_spark_commits_a_batch_with_the_next_one_and_not_at_the_end(lives: Lives) -> None:
    named = [(call.name, call.argument) for call in lives.second]
    assert arguments(lives.second, "commit") == [101, 102]
    assert named.index(("latestOffset", 102)) < named.index(("commit", 102))
    assert named.index(("commit", 102)) < named.index(("partitions", [102, 103]))
    # Nor is anything left to `stop`: it comes, if at all, from a worker that sees its end before it
    # is killed.
    assert "stop" not in [name for name, _ in named][:-1]


def test_spark_shows_a_python_source_nothing_of_the_checkpoint(lives: Lives) -> None:
    """Neither its process nor its tasks have options, environment or arguments that tell.

    The source itself therefore keeps where a query began.
    """
    calls = [*lives.first, *lives.second]
    # A task has the query's id, so its properties are among what is noted.
    assert {call.name for call in calls if "streaming.queryId" in str(call.argument)} == {"read"}
    assert "streamReader" in {call.name for call in calls}
    place = str(lives.checkpoint)
    # Only the names: the rest may hold secrets.
    assert [call.name for call in calls if place in str(call.argument)] == []


def idle_gaps_s(calls: list[Call], at: int) -> list[float]:
    """Return the times between the requests of a query that finds nothing new after `at`."""
    names = [call.name for call in calls]
    begun = max(position for position, name in enumerate(names) if name == "partitions")
    idle = [call for call in calls[begun:] if call.name.endswith("atestOffset")]
    named = [call.name for call in idle]
    if HAS_READ_LIMITS:
        assert named[1::2] == ["reportLatestOffset"] * len(named[1::2])
        idle, named = idle[::2], named[::2]
    assert named == ["latestOffset"] * len(named)
    assert {call.argument for call in idle} == {at}
    return [after.time_s - before.time_s for before, after in pairwise(idle)]


def test_spark_requests_both_latest_offsets_after_each_polling_delay(
    small: SparkSession, lives: Lives, calls: Calls, tmp_path: Path
) -> None:
    """A hundred times a second, which is more often than brokers should get requests."""
    assert small.conf.get(POLLING_DELAY) == "10ms"
    often = idle_gaps_s(lives.second, 103)
    assert len(often) >= IDLE_CALLS - 1
    (tmp_path / "first").write_text("100")
    given = {"calls": "calls", "first": "first", "fails": "fails"}
    options = {name: str(tmp_path / file) for name, file in given.items()}
    reader = small.readStream.format("noted").options(**options, end="101")
    writer = reader.load().writeStream.format("noop")
    small.conf.set(POLLING_DELAY, f"{LONG_DELAY_MS}ms")
    try:
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    finally:
        small.conf.unset(POLLING_DELAY)
    try:
        await_true(lambda: arguments(calls.read(), "latestOffset").count(101) >= 4, "it is idle")
    finally:
        query.stop()
    seldom = idle_gaps_s(calls.read(), 101)
    assert min(often) >= 0.01
    assert min(often) < LONG_DELAY_MS / 1_000 <= min(seldom)


def test_spark_takes_no_metrics_from_a_python_source(lives: Lives) -> None:
    """Why there is a `LagListener`."""
    assert lives.metrics == {}


def test_spark_requests_the_schema_of_batches_and_streams_alike(
    small: SparkSession, calls: Calls, tmp_path: Path
) -> None:
    for reader in (small.read, small.readStream):
        reader.format("noted").option("calls", str(tmp_path / "calls")).option("end", "1").load()
    batch, stream = arguments(calls.read(), "schema")
    assert batch == stream == {"end": "1"}


def test_spark_hides_what_stream_reader_raises_behind_an_error_of_its_own(
    small: SparkSession, tmp_path: Path
) -> None:
    reader = small.readStream.format("noted").option("calls", str(tmp_path / "calls"))
    writer = reader.option("raises", "true").load().writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(SPARK_S)
    said = str(caught.value)
    assert 0 < said.find("the source gives") < said.find("UnboundLocalError")


def test_an_idle_stream_sends_a_broker_at_most_20_requests_a_second(
    small: SparkSession, fake_kafka: FakeKafka, tmp_path: Path
) -> None:
    arrivals: list[tuple[float, str]] = []

    def note(request: Request) -> bool:
        arrivals.append((time.monotonic(), type(request).__name__))
        return False

    with fake_kafka.control() as cluster:
        cluster.create_topic("a", 1)
    reader = small.readStream.format("pykafka").option("subscribe", "a")
    reader = reader.option("kafka.bootstrap.servers", fake_kafka.bootstrap_servers)
    writer = reader.load().writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        # Its first batch is behind it, so that nothing but its ends is requested.
        query.processAllAvailable()
        with fake_kafka.control() as cluster:
            cluster.faults.add(faults.delay_response(0), times=None, when=note)
        await_true(lambda: len(arrivals) >= REQUESTS, "the stream has sent requests", SPARK_S)
    finally:
        query.stop()
    assert arrivals[REQUESTS - 1][0] - arrivals[0][0] > FEWEST_S, arrivals


# What Spark refuses.


@pytest.fixture
def writer(small: SparkSession, fake_kafka: FakeKafka, tmp_path: Path) -> DataStreamWriter:
    """Provide a writer that copies one topic to another."""
    with fake_kafka.control() as cluster:
        cluster.create_topic("a", 1)
    servers = {"kafka.bootstrap.servers": fake_kafka.bootstrap_servers}
    stream = small.readStream.format("pykafka").option("subscribe", "a").options(**servers).load()
    writer = stream.writeStream.format("pykafka").option("topic", "b").options(**servers)
    return writer.option("checkpointLocation", str(tmp_path / "checkpoint"))


@pytest.mark.parametrize(
    ("trigger", "options", "mode", "complaint"),
    [
        ({"continuous": "1 second"}, {}, "append", "does not support continuous processing"),
        pytest.param(
            REAL_TIME,
            {},
            "update",
            r"STREAMING_REAL_TIME_MODE\.OPERATOR_OR_SINK_NOT_IN_ALLOWLIST.*PythonTable",
            marks=needs_pyspark((4, 2), "there is no real-time trigger"),
        ),
        (PLAIN, {"asyncProgressTrackingEnabled": "true"}, "append", "async progress tracking"),
        (PLAIN, {}, "update", "does not support Update mode"),
    ],
)
def test_spark_refuses_what_it_has_for_no_python_sink(
    writer: DataStreamWriter,
    trigger: dict[str, str],
    options: dict[str, str],
    mode: str,
    complaint: str,
) -> None:
    query = writer.options(**options).outputMode(mode).trigger(**trigger)
    with pytest.raises((PySparkException, StreamingQueryException), match=complaint):
        query.start().awaitTermination(SPARK_S)


@needs_pyspark((4, 2), "there is no real-time trigger")
def test_spark_takes_no_python_source_in_real_time(
    small: SparkSession, fake_kafka: FakeKafka, tmp_path: Path
) -> None:
    """Even where the session takes any sink."""
    with fake_kafka.control() as cluster:
        cluster.create_topic("a", 1)
    reader = small.readStream.format("pykafka").option("subscribe", "a")
    reader = reader.option("kafka.bootstrap.servers", fake_kafka.bootstrap_servers)
    writer = reader.load().writeStream.format("console").outputMode("update")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    small.conf.set(REAL_TIME_SINKS, "false")
    try:
        with pytest.raises(StreamingQueryException, match=r"MODE\.INPUT_STREAM_NOT_SUPPORTED"):
            query.trigger(**REAL_TIME).start().awaitTermination(SPARK_S)
    finally:
        small.conf.unset(REAL_TIME_SINKS)


@pytest.mark.parametrize("mode", [None, "errorifexists", "ignore"])
def test_spark_refuses_other_save_modes_than_append(small: SparkSession, mode: str | None) -> None:
    writer = small.sql("SELECT 'v' AS value").write.format("pykafka").option("topic", "b")
    with pytest.raises(PySparkException, match='use either the "Append" or "Overwrite" mode'):
        (writer if mode is None else writer.mode(mode)).save()


def test_tables_lose_their_options_and_temporary_views_keep_them(
    small: SparkSession, fake_kafka: FakeKafka
) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic("a", 1)
    servers = fake_kafka.bootstrap_servers
    options = f"USING pykafka OPTIONS ('kafka.bootstrap.servers' '{servers}', 'subscribe' 'a')"
    with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
        small.sql(f"CREATE TABLE lost {options}")
    small.sql(f"CREATE TABLE lost (value BINARY) {options}")
    try:
        with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
            small.table("lost").collect()
        with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
            small.sql("INSERT INTO lost VALUES (CAST('v' AS BINARY))")
    finally:
        small.sql("DROP TABLE lost")
    small.sql(f"CREATE TEMPORARY VIEW kept {options}")
    assert small.table("kept").count() == 0
