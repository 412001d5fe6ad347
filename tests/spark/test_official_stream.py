"""The same streams through Spark's own Kafka source and this one.

Records and batches are equal, and a query may move between both on one checkpoint.
"""

from __future__ import annotations

from string import Template
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.listener import QueryProgressEvent

from pykclient import Producer
from pykclient.errors import ConfigError
from spark_connector import LagListener
from tests.spark.batch_cases import COMMITTED, NEVER, OR_LATEST, PLAIN, at, each
from tests.spark.both_streams import OfficialStream, StreamHere, logged_ends
from tests.spark.every_topic import TopicMaker
from tests.spark.versions import run_in_limited_batches
from tests.testing.test_processes import await_true

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pykclient.testing import KafkaCluster

pytestmark = [
    pytest.mark.soak,
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.usefixtures("official_connector"),
]

TIMEOUT_S: Final = 200
OFFICIAL: Final = "kafka"
OURS: Final = "pykafka"


class MovingQuery:
    """A query that keeps the offsets of all records of each partition in its state.

    `state` is what it has put out last, `row_counts` has the size of each batch.
    """

    def __init__(self, spark: SparkSession, kafka: KafkaCluster, topic: str, path: Path) -> None:
        self._spark = spark
        self._servers = kafka.bootstrap_servers
        self._topic = topic
        self.checkpoint = path
        self._sent = [0, 0, 0]
        self.state: dict[int, list[int]] = {}

    def send(self, *counts: int) -> None:
        """Send this many records to each partition."""
        with Producer(bootstrap_servers=self._servers) as producer:
            for partition, count in enumerate(counts):
                self._sent[partition] += count
                for _ in range(count):
                    producer.send(self._topic, b"v", partition=partition)

    @property
    def all_sent(self) -> dict[int, list[int]]:
        return {partition: [*range(count)] for partition, count in enumerate(self._sent) if count}

    def run(self, source: str, **options: object) -> list[int]:
        """Read all available records; return how many partitions each batch had records of."""
        sizes = []

        def keep(changed: DataFrame, _: int) -> None:
            rows = changed.collect()
            sizes.append(len(rows))
            self.state |= {row["partition"]: row["offsets"] for row in rows}

        reader = self._spark.readStream.format(source).option("subscribe", self._topic)
        reader = reader.option("kafka.bootstrap.servers", self._servers)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        offsets = reader.load().groupBy("partition").agg({"offset": "collect_list"})
        named = offsets.selectExpr("partition", "sort_array(`collect_list(offset)`) AS offsets")
        run_in_limited_batches(
            named.writeStream.outputMode("update")
            .foreachBatch(keep)
            .option("checkpointLocation", str(self.checkpoint))
        )
        return sizes


@pytest.mark.promise("A stream moves between Spark's own Kafka source and this one, and back")
@pytest.mark.soak
def test_a_query_moves_between_both_sources_and_reads_each_record_once(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    new_topic: Callable[[int], str],
    tmp_path: Path,
) -> None:
    query = MovingQuery(spark, kafka_cluster, new_topic(3), tmp_path)
    query.send(20, 5, 0)
    moves = [OFFICIAL, OURS, OFFICIAL, OURS]
    for source in moves:
        sizes = query.run(source, startingOffsets="earliest", maxOffsetsPerTrigger=12)
        assert query.state == query.all_sent
        # Both write the offsets in another order, which Spark takes for a batch.
        assert sizes.count(0) <= 1
        assert len(sizes) - sizes.count(0) >= 2
        query.send(11, 2, 5)


@pytest.mark.promise("A stream moves between Spark's own Kafka source and this one, and back")
def test_the_official_source_goes_on_behind_a_first_batch_that_has_its_start(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    new_topic: Callable[[int], str],
    tmp_path: Path,
) -> None:
    query = MovingQuery(spark, kafka_cluster, new_topic(3), tmp_path)
    query.send(20, 5, 0)
    query.run(OURS, startingOffsets="earliest")
    (logged,) = logged_ends(query.checkpoint)
    assert {} in logged.values()
    query.send(3, 2, 1)
    query.run(OFFICIAL, startingOffsets="earliest")
    assert query.state == query.all_sent


# Where a stream begins, and where its batches end.

RATE: Final = {"maxOffsetsPerTrigger": "4"}


EARLIEST: Final = {"startingOffsets": "earliest"}


class Beginning(NamedTuple):
    """Options, and how many records are read."""

    options: Mapping[str, str]
    record_count: int


BEGINNINGS: Final = {
    "earliest": Beginning(
        {
            "subscribe": "$uneven",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "100",
            "minPartitions": "5",
        },
        200,
    ),
    "latest": Beginning(PLAIN, 0),
    "offsets": Beginning({**PLAIN, **RATE, "startingOffsets": each("plain", 3, -2)}, 17),
    "offsets and latest": Beginning({**PLAIN, **RATE, "startingOffsets": each("plain", -1, 4)}, 6),
    "a time of a record": Beginning({**PLAIN, **RATE, "startingTimestamp": at(3)}, 14),
    "a time between two": Beginning({**PLAIN, **RATE, "startingTimestamp": at(3.5)}, 12),
    "a time beyond the end": Beginning({**PLAIN, **OR_LATEST, "startingTimestamp": NEVER}, 0),
    "a time on an empty partition": Beginning(
        {"subscribe": "$hollow", **RATE, **OR_LATEST, "startingTimestamp": at(3)},
        7,
    ),
    "a time for each partition": Beginning(
        {**PLAIN, **RATE, "startingOffsetsByTimestamp": each("plain", at(2), at(5))},
        13,
    ),
    "a time for each partition, one beyond the end": Beginning(
        {**PLAIN, **OR_LATEST, "startingOffsetsByTimestamp": each("plain", NEVER, at(5))},
        5,
    ),
    "one time, before a time for each, before offsets": Beginning(
        {
            **PLAIN,
            **RATE,
            "startingTimestamp": at(3),
            "startingOffsetsByTimestamp": each("plain", at(8), at(8)),
            "startingOffsets": "earliest",
        },
        14,
    ),
    "a time for each, before offsets": Beginning(
        {
            **PLAIN,
            "startingOffsetsByTimestamp": each("plain", at(2), at(5)),
            "startingOffsets": "earliest",
        },
        13,
    ),
    "all codecs, nulls and headers": Beginning(
        {
            "subscribe": "$codecs",
            **EARLIEST,
            "maxOffsetsPerTrigger": "23",
            "includeHeaders": "true",
        },
        60,
    ),
    "tasks of few records": Beginning({**PLAIN, **EARLIEST, "maxRecordsPerPartition": "3"}, 20),
    "committed records": Beginning(
        {"subscribe": "$transactions", **EARLIEST, "maxOffsetsPerTrigger": "9", **COMMITTED}, 16
    ),
    "aborted and open transactions": Beginning(
        {"subscribe": "$transactions", **EARLIEST, "maxOffsetsPerTrigger": "9"}, 36
    ),
    "an ending time, which has no effect": Beginning(
        {**PLAIN, **EARLIEST, **RATE, "endingTimestamp": at(3)}, 20
    ),
    "an assigned partition": Beginning({"assign": '{"$plain":[1]}', **EARLIEST, **RATE}, 10),
}

REFUSED_BEGINNINGS: Final[Mapping[str, tuple[Mapping[str, str], str]]] = {
    "a time beyond the end": (
        {"startingTimestamp": NEVER, "startingOffsetsByTimestampStrategy": "error"},
        "no record at or after",
    ),
    "a time of a partition beyond the end": (
        {"startingOffsetsByTimestamp": each("plain", NEVER, at(5))},
        "no record at or after",
    ),
    "a partition without a time": (
        {"startingOffsetsByTimestamp": each("plain", at(5))},
        "Missing: .*-1",
    ),
    "an end": ({"endingOffsets": "latest"}, "has no end"),
    "an ending time of each": ({"endingOffsetsByTimestamp": each("plain", at(5), at(5))}, "no end"),
    "a partition without a start": ({"startingOffsets": each("plain", 1)}, "Missing: .*-1"),
    "a start that is no JSON": ({"startingOffsets": '{"$plain":{"0":1,'}, "must be JSON"),
    "a most as a word": ({"maxOffsetsPerTrigger": "many"}, "at least 1"),
    "a least as a word": ({"minOffsetsPerTrigger": "few"}, "at least 1"),
    "a least that is larger than the most": (
        {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "3"},
        "is larger than",
    ),
    "a delay as a word": (
        {"maxTriggerDelay": "long", "minOffsetsPerTrigger": "3"},
        "must be a time",
    ),
    "no retries": ({"fetchOffset.numRetries": "0"}, "at least 1"),
    "a pause as a word": ({"fetchOffset.retryIntervalMs": "long"}, "at least 0"),
    "failOnDataLoss": ({"failOnDataLoss": "yes"}, "must be true or false"),
    "auto.offset.reset": ({"kafka.auto.offset.reset": "x"}, "cannot be used"),
}


class Topics:
    """Topics with records of every kind, a second apart and in transactions.

    They come with the options of streams that read them. `open_producers` hold a transaction open.
    """

    def __init__(self, kafka: KafkaCluster) -> None:
        maker = TopicMaker(kafka)
        self._servers = kafka.bootstrap_servers
        self._names = {
            "plain": maker.filled("plain", 10, 10),
            "hollow": maker.filled("hollow", 10, 0),
            "uneven": maker.filled("uneven", 58, 142),
            "codecs": maker.codecs(),
            "transactions": maker.transactions(),
        }
        self.open_producers = maker.open_producers

    def options(self, given: Mapping[str, str]) -> dict[str, str]:
        named = {name: Template(text).substitute(self._names) for name, text in given.items()}
        # What makes the official one wait before it refuses.
        retries = {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "1"}
        return {"kafka.bootstrap.servers": self._servers, **retries, **named}


IN_EVERY_RUN: Final = (
    *("earliest", "offsets", "a time of a record"),
    *("committed records", "aborted and open transactions"),
)
"""The beginnings of `make test`; the others take a minute more."""


@pytest.fixture(scope="module")
def topics(kafka_cluster: KafkaCluster) -> Iterator[Topics]:
    made = Topics(kafka_cluster)
    yield made
    made.open_producers.clear()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in IN_EVERY_RUN else pytest.mark.soak)
        for name in BEGINNINGS
    ],
)
def test_a_new_query_has_the_batches_of_the_official_source(
    spark: SparkSession, topics: Topics, tmp_path: Path, name: str
) -> None:
    wanted = BEGINNINGS[name]
    options = topics.options(wanted.options)
    here = StreamHere().run(options)
    official = OfficialStream(spark, tmp_path / "checkpoint").run(options)
    assert here.records == official.records
    assert here.ends == official.ends
    assert here.task_counts == official.task_counts
    assert len(here.records) == wanted.record_count
    assert len(official.ends) > 1 or "maxOffsetsPerTrigger" not in options


@pytest.mark.parametrize("name", REFUSED_BEGINNINGS)
def test_a_new_query_is_refused_where_the_official_source_refuses_it(
    spark: SparkSession, topics: Topics, tmp_path: Path, name: str
) -> None:
    given, complaint = REFUSED_BEGINNINGS[name]
    options = topics.options({**PLAIN, **given})
    # What its options alone show it refuses before the query runs.
    with pytest.raises((StreamingQueryException, PySparkException, Py4JJavaError)):
        OfficialStream(spark, tmp_path / "checkpoint").run(options)
    with pytest.raises(ConfigError, match=complaint):
        StreamHere().run(options)


def test_lag_has_the_figures_of_the_official_sources_metrics(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Which Spark takes from its own source alone."""
    options = topics.options({"subscribe": "$uneven", **EARLIEST, "maxOffsetsPerTrigger": "60"})
    frame = spark.readStream.format(OFFICIAL).options(**options).load()
    writer = frame.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert query.awaitTermination(TIMEOUT_S)
    listener = LagListener()
    for progress in query.recentProgress:
        listener.onQueryProgress(QueryProgressEvent(progress))
    official = [progress.sources[0].metrics for progress in query.recentProgress]
    assert [float(metrics["maxOffsetsBehindLatest"]) for metrics in official[:1]] == [100.0]
    assert [lag.metrics() for lag in listener.history] == [
        {name: float(value) for name, value in metrics.items()} for metrics in official
    ]


class RunningQueries:
    """Both sources on one topic of two partitions, as queries that go on."""

    def __init__(self, spark: SparkSession, kafka: KafkaCluster, topic: str, path: Path) -> None:
        self._spark = spark
        self._servers = kafka.bootstrap_servers
        self._topic = topic
        self._checkpoints = {source: path / source for source in (OFFICIAL, OURS)}
        self._queries: list[StreamingQuery] = []

    def start(self, **options: str) -> None:
        for source, checkpoint in self._checkpoints.items():
            reader = self._spark.readStream.format(source).options(**options)
            reader = reader.option("kafka.bootstrap.servers", self._servers)
            frame = reader.option("subscribe", self._topic).load()
            writer = frame.writeStream.format("noop")
            self._queries.append(writer.option("checkpointLocation", str(checkpoint)).start())

    def stop(self) -> None:
        while self._queries:
            self._queries.pop().stop()

    def send(self, *counts: int) -> None:
        """Send this many records to each partition, and wait until both queries are idle."""
        with Producer(bootstrap_servers=self._servers) as producer:
            for partition, count in enumerate(counts):
                for _ in range(count):
                    producer.send(self._topic, b"v", partition=partition)
        for query in self._queries:
            query.processAllAvailable()

    def ends(self) -> list[list[tuple[int, ...]]]:
        """Return the ends of each query's batches in both partitions."""
        return [
            [tuple(end[self._topic].values()) for end in logged_ends(checkpoint)]
            for checkpoint in self._checkpoints.values()
        ]


@pytest.mark.soak
def test_a_batch_waits_for_enough_records_as_in_the_official_source(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    new_topic: Callable[[int], str],
    tmp_path: Path,
) -> None:
    queries = RunningQueries(spark, kafka_cluster, new_topic(2), tmp_path)
    limits = {"minOffsetsPerTrigger": "4", "maxOffsetsPerTrigger": "6"}
    try:
        queries.send(2, 1)
        queries.start(startingOffsets="earliest", **limits)
        queries.send()
        # The first batch of a query does not wait; three records do, and the fourth ends that.
        ends = [(2, 1)]
        assert queries.ends() == [ends, ends]
        queries.send(1, 2)
        assert queries.ends() == [ends, ends]
        queries.send(1)
        ends.append((4, 3))
        assert queries.ends() == [ends, ends]
        queries.stop()
        # Enough for two batches, and a rest: the first batch of a new run does not wait either. It
        # is there before they begin, for a query that runs may find it in other pieces.
        queries.send(10, 4)
        queries.start(**limits)
        queries.send()
        ends += [(8, 4), (12, 6)]
        assert queries.ends() == [ends, ends]
        queries.stop()
        # After the first batch of a run, the next one waits for the delay alone.
        queries.start(**limits, maxTriggerDelay="300ms")
        queries.send()
        ends.append((14, 7))
        assert queries.ends() == [ends, ends]
        queries.send(1)
        ends.append((15, 7))
        await_true(lambda: queries.ends() == [ends, ends], "the delay has passed")
    finally:
        queries.stop()


def test_a_query_of_what_is_available_reads_the_rest_here_only(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """The official source leaves less than minOffsetsPerTrigger to the next run."""
    limits = {"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "6"}
    options = topics.options({**PLAIN, "startingOffsets": "earliest", **limits})
    official = OfficialStream(spark, tmp_path / "checkpoint").run(options)
    here = StreamHere().run(options)
    assert (len(official.records), len(here.records)) == (18, 20)
    assert here.ends[:-1] == official.ends
