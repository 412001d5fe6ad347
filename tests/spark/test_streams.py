"""``spark.readStream`` and ``writeStream`` on real Kafka: batches, triggers, restarts, progress."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from pyspark.errors import PySparkException, StreamingQueryException

from pykclient import Admin, Producer, TopicPartition
from spark_connector import LagListener, foreach_batch
from spark_connector.offsets import StreamOffset, known_ends_from_json
from spark_connector.versions import HAS_READ_LIMITS, offset_of_progress
from tests.spark.versions import PLANS_ONCE, needs_pyspark, run_in_limited_batches
from tests.testing.test_processes import await_true

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from pykclient.testing import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


class Stream:
    """A topic of two partitions, and the queries that read it into a list of batches of rows."""

    def __init__(self, spark: SparkSession, kafka: KafkaCluster, topic: str, path: Path) -> None:
        self.spark = spark
        self.servers = kafka.bootstrap_servers
        self.topic = topic
        self.batches: dict[int, list[tuple[int, int]]] = {}
        self._path = path

    def send(self, *counts: int) -> None:
        """Send this many records to each partition."""
        with Producer(bootstrap_servers=self.servers) as producer:
            for partition, count in enumerate(counts):
                for _ in range(count):
                    producer.send(self.topic, b"v", partition=partition)

    def frame(self, **options: object) -> DataFrame:
        reader = self.spark.readStream.format("pykafka").option("subscribe", self.topic)
        reader = reader.option("kafka.bootstrap.servers", self.servers)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def writer(self, **options: object) -> DataStreamWriter:
        """Return a writer of this stream, with its one checkpoint."""
        writer = self.frame(**options).writeStream
        return writer.option("checkpointLocation", str(self._path / "checkpoint"))

    def noting(self, **options: object) -> DataStreamWriter:
        """Return the writer of a query that notes its batches."""

        def note(frame: DataFrame, number: int) -> None:
            rows = frame.select("partition", "offset").collect()
            self.batches[number] = sorted((row["partition"], row["offset"]) for row in rows)

        return self.writer(**options).foreachBatch(note)

    def start(self, **options: object) -> StreamingQuery:
        """Start a query that notes its batches, and reads on until it is stopped."""
        return self.noting(**options).trigger(processingTime="0 seconds").start()

    def run(self, **options: object) -> dict[int, list[tuple[int, int]]]:
        """Return the batches of a query that reads what there is."""
        self.batches = {}
        run_in_limited_batches(self.noting(**options))
        return self.batches

    def logged(self, number: int) -> StreamOffset:
        """Return the offsets that Spark has logged for a batch."""
        lines = (self._path / "checkpoint" / "offsets" / str(number)).read_text().splitlines()
        return StreamOffset.from_json(json.loads(lines[2]))

    def at(self, *offsets: int) -> dict[TopicPartition, int]:
        """Return an offset for each partition."""
        return {TopicPartition(self.topic, number): at for number, at in enumerate(offsets)}


@pytest.fixture
def stream(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    new_topic: Callable[[int], str],
    tmp_path: Path,
) -> Stream:
    """Provide a stream with five and three records."""
    found = Stream(spark, kafka_cluster, new_topic(2), tmp_path)
    found.send(5, 3)
    return found


def pairs(*ranges: range) -> list[tuple[int, int]]:
    return [(partition, offset) for partition, own in enumerate(ranges) for offset in own]


@pytest.mark.promise("Spark reads a topic as a stream and continues from its checkpoint")
def test_a_stream_reads_in_limited_batches_and_goes_on_where_its_checkpoint_ended(
    stream: Stream,
) -> None:
    first = stream.run(startingOffsets="earliest", maxOffsetsPerTrigger=4)
    assert first == {
        0: pairs(range(2), range(1)),
        1: pairs(range(2, 4), range(1, 2)),
        2: pairs(range(4, 5), range(2, 3)),
    }
    assert stream.logged(0) == StreamOffset(stream.at(2, 1), stream.at(0, 0))
    assert stream.logged(2) == StreamOffset(stream.at(5, 3))
    stream.send(2, 0)
    # Where a query begins is found once in its life.
    assert stream.run(startingOffsets="latest") == {3: pairs(range(5, 7))}
    assert stream.run() == {}


@pytest.mark.soak
def test_a_stream_limits_a_batch_by_topic_and_by_bytes(stream: Stream) -> None:
    limits = {"maxOffsetsPerTrigger": f'{{"{stream.topic}":6}}', "maxBytesPerTrigger": "4b"}
    assert stream.run(startingOffsets="earliest", **limits) == {
        0: pairs(range(2), range(1)),
        1: pairs(range(2, 4), range(1, 2)),
        2: pairs(range(4, 5), range(2, 3)),
    }


def test_a_stream_that_begins_at_latest_logs_its_beginning_before_it_reads(stream: Stream) -> None:
    assert stream.run() == {0: []}
    assert stream.logged(0) == StreamOffset(stream.at(5, 3), stream.at(5, 3))
    stream.send(1, 1)
    assert stream.run() == {1: [(0, 5), (1, 3)]}


def test_a_first_batch_that_failed_is_repeated_from_where_the_query_began(stream: Stream) -> None:
    """Spark then requests the initial offset a second time, and the latest one is behind that."""

    def fail(frame: DataFrame, number: int) -> None:
        raise ValueError(f"batch {number} fails")

    writer = stream.writer().foreachBatch(fail).trigger(availableNow=True)
    with pytest.raises(StreamingQueryException, match="batch 0 fails"):
        writer.start().awaitTermination(120)
    stream.send(1, 1)
    assert stream.run() == {0: [], 1: [(0, 5), (1, 3)]}


def test_the_only_batch_of_a_query_is_committed_by_the_listener(stream: Stream) -> None:
    """Spark calls a source no more when such a batch has finished."""
    servers = {"kafka.bootstrap.servers": stream.servers}
    given = {"startingOffsets": "earliest", "commitGroup": "lag-at-end"}
    listener = LagListener({**servers, "subscribe": stream.topic, **given})
    stream.spark.streams.addListener(listener)
    try:
        query = stream.writer(**given).format("noop").trigger(once=True).start()
        assert query.awaitTermination(120)
        with Admin(bootstrap_servers=stream.servers) as admin:

            def is_committed() -> bool:
                found = admin.list_group_offsets("lag-at-end")
                return {one: each.offset for one, each in found.items()} == stream.at(5, 3)

            await_true(is_committed, "the end of the batch is committed")
    finally:
        stream.spark.streams.removeListener(listener)


@pytest.mark.promise("A stream's progress is committed to a group that lag tools see")
def test_a_query_that_is_idle_has_committed_all_that_it_has_read(stream: Stream) -> None:
    query = stream.start(startingOffsets="earliest", commitGroup="lag-tools")
    try:
        query.processAllAvailable()
        stream.send(2, 2)
        query.processAllAvailable()
        # What is sent while the query runs may come in more than one micro-batch.
        assert sum(len(rows) for rows in stream.batches.values()) == 12
        progress = query.lastProgress
        assert progress is not None
        latest = offset_of_progress(progress["sources"][0]["latestOffset"])
        assert known_ends_from_json(latest) == stream.at(7, 5)
        # As another client finds it.
        witness = AdminClient({"bootstrap.servers": stream.servers})
        wanted = ConsumerGroupTopicPartitions("lag-tools")
        found = witness.list_consumer_group_offsets([wanted])["lag-tools"].result(30)
        committed = [(one.topic, one.partition, one.offset) for one in found.topic_partitions]
        assert sorted(committed) == [(stream.topic, 0, 7), (stream.topic, 1, 5)]
    finally:
        query.stop()


@pytest.mark.soak
def test_partitions_and_topics_come_and_go_while_a_query_runs(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    passing = f"{stream.topic}-passing"
    options = {
        "kafka.bootstrap.servers": stream.servers,
        "subscribePattern": f"^{stream.topic}(-passing)?$",
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
        "kafka.metadata.max.age.ms": "100",
    }
    found: list[tuple[str, int, int]] = []

    def note(frame: DataFrame, _: int) -> None:
        rows = frame.select("topic", "partition", "offset").collect()
        found.extend((row["topic"], row["partition"], row["offset"]) for row in rows)

    writer = spark.readStream.format("pykafka").options(**options).load().writeStream
    writer = writer.option("checkpointLocation", str(tmp_path / "passing"))
    query = writer.foreachBatch(note).start()
    witness = AdminClient({"bootstrap.servers": stream.servers})
    try:
        query.processAllAvailable()
        witness.create_partitions([NewPartitions(stream.topic, 3)])[stream.topic].result(30)
        witness.create_topics([NewTopic(passing, 1, 1)])[passing].result(30)
        stream.send(0, 0, 2)
        with Producer(bootstrap_servers=stream.servers) as producer:
            producer.send(passing, b"v")
        await_true(lambda: len(found) == 11, "what is new is read", 60)
        witness.delete_topics([passing])[passing].result(30)
        stream.send(1, 1)
        await_true(lambda: len(found) == 13, "what stays is read on", 60)
        assert query.isActive
    finally:
        query.stop()
    stays = [(stream.topic, *place) for place in pairs(range(6), range(4), range(2))]
    assert sorted(found) == [*stays, (passing, 0, 0)]


def test_a_stream_is_written_to_another_topic(
    stream: Stream, read: DataFrameReader, new_topic: Callable[[int], str], tmp_path: Path
) -> None:
    target = new_topic(3)
    query = (
        stream.frame(startingOffsets="earliest")
        .selectExpr("concat(partition, '-', offset) AS value", f"'{target}' AS topic")
        .writeStream.format("pykafka")
        .option("kafka.bootstrap.servers", stream.servers)
        .option("checkpointLocation", str(tmp_path / "sink"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    rows = read.option("subscribe", target).load().selectExpr("CAST(value AS STRING)").collect()
    wanted = pairs(range(5), range(3))
    assert sorted(row["value"] for row in rows) == [f"{one}-{offset}" for one, offset in wanted]


@pytest.mark.usefixtures("official_connector")
@pytest.mark.parametrize("sink", ["pykafka", pytest.param("kafka", marks=pytest.mark.soak)])
def test_an_aggregation_is_written_as_a_whole_in_mode_complete(
    stream: Stream,
    read: DataFrameReader,
    new_topic: Callable[[int], str],
    tmp_path: Path,
    *,
    sink: str,
) -> None:
    """Each batch appends the whole result, as in Spark's own sink."""
    target = new_topic(1)
    counts = stream.frame(startingOffsets="earliest", maxOffsetsPerTrigger=6)
    counts = counts.groupBy("partition").count()
    run_in_limited_batches(
        counts.selectExpr("CAST(partition AS STRING) AS key", "CAST(count AS STRING) AS value")
        .writeStream.outputMode("complete")
        .format(sink)
        .option("kafka.bootstrap.servers", stream.servers)
        .option("topic", target)
        .option("checkpointLocation", str(tmp_path / "sink"))
    )
    rows = read.option("subscribe", target).load().orderBy("offset").collect()
    written = [(bytes(row["key"]), bytes(row["value"])) for row in rows]
    assert sorted(written[:2]) == [(b"0", b"3"), (b"1", b"2")]
    assert sorted(written[2:]) == [(b"0", b"5"), (b"1", b"3")]


@pytest.mark.soak
def test_what_changed_in_an_aggregation_is_written_in_mode_update(
    stream: Stream, read: DataFrameReader, new_topic: Callable[[int], str], tmp_path: Path
) -> None:
    target = new_topic(1)
    options = {"kafka.bootstrap.servers": stream.servers, "topic": target}

    def run() -> None:
        counts = stream.frame(startingOffsets="earliest").groupBy("partition").count()
        query = (
            counts.selectExpr("CAST(partition AS STRING) AS key", "CAST(count AS STRING) AS value")
            .writeStream.outputMode("update")
            .foreachBatch(foreach_batch(options))
            .option("checkpointLocation", str(tmp_path / "update"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    run()
    stream.send(0, 2)
    run()
    rows = read.option("subscribe", target).load().orderBy("offset").collect()
    written = [(bytes(row["key"]), bytes(row["value"])) for row in rows]
    assert sorted(written[:2]) == [(b"0", b"5"), (b"1", b"3")]
    assert written[2:] == [(b"1", b"5")]


def test_a_frame_is_written_and_read_back(
    spark: SparkSession, read: DataFrameReader, stream: Stream, new_topic: Callable[[int], str]
) -> None:
    topic = new_topic(2)
    frame = spark.range(1_000).selectExpr(
        "CAST(id AS STRING) AS key",
        "concat('value ', id) AS value",
        "timestamp_millis(1700000000123 + id) AS happened",
    )
    (
        frame.write.format("pykafka")
        .mode("append")
        .option("kafka.bootstrap.servers", stream.servers)
        .option("topic", topic)
        .option("timestampColumn", "happened")
        .save()
    )
    found = read.option("subscribe", topic).load()
    same = found.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "timestamp AS happened")
    assert same.exceptAll(frame).isEmpty()
    assert frame.exceptAll(same).isEmpty()


def test_a_topic_is_not_overwritten(spark: SparkSession, stream: Stream) -> None:
    writer = spark.sql("SELECT 'v' AS value").write.format("pykafka").mode("overwrite")
    writer = writer.option("kafka.bootstrap.servers", stream.servers).option("topic", "t")
    with pytest.raises(PySparkException, match="A topic cannot be overwritten"):
        writer.save()


def test_a_row_that_cannot_be_written_is_named_by_sparks_error(
    spark: SparkSession, stream: Stream
) -> None:
    frame = spark.sql("SELECT repeat('v', IF(id = 3, 2000000, 1)) AS value FROM range(0, 5, 1, 1)")
    writer = frame.write.format("pykafka").mode("append").option("topic", stream.topic)
    with pytest.raises(PySparkException) as caught:
        writer.option("kafka.bootstrap.servers", stream.servers).save()
    assert f"Row 3 of this task, for topic '{stream.topic}': " in str(caught.value)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startingOffset": "earliest"}, "Did you mean 'startingOffsets'"),
        ({"endingOffsets": "latest"}, "A streaming read has no end: leave out endingOffsets"),
    ],
)
def test_a_bad_option_of_a_stream_is_named_by_the_query(
    stream: Stream, options: dict[str, str], complaint: str
) -> None:
    with pytest.raises((PySparkException, StreamingQueryException)) as caught:
        stream.run(**options)
    assert complaint in str(caught.value)
    assert "UnboundLocalError" not in str(caught.value)


@pytest.mark.soak
def test_a_frame_reads_anew_in_every_action(read: DataFrameReader, stream: Stream) -> None:
    frame = read.option("subscribe", stream.topic).load()
    assert frame.count() == 8
    stream.send(4, 1)
    assert frame.count() == 13
    fixed = read.option("endingOffsets", json.dumps({stream.topic: {"0": 9, "1": 4}})).load()
    assert fixed.count() == 13
    timed = read.option("subscribe", stream.topic).option("endingTimestamp", 2**62).load()
    assert timed.count() == 13
    stream.send(1, 1)
    # PySpark 4.0 plans a frame for each action, and looks times up again.
    assert (frame.count(), fixed.count(), timed.count()) == (15, 13, 13 if PLANS_ONCE else 15)


@needs_pyspark((4, 2), "Spark passes no trigger to a source")
@pytest.mark.promise("Spark reads a topic as a stream and continues from its checkpoint")
def test_the_trigger_of_one_batch_reads_all_in_it_whatever_the_limit(stream: Stream) -> None:
    rows: list[int] = []
    writer = stream.writer(startingOffsets="earliest", maxOffsetsPerTrigger=4)
    writer = writer.foreachBatch(lambda frame, _: rows.append(frame.count()))
    assert writer.trigger(once=True).start().awaitTermination(120)
    assert rows == [8]


@pytest.mark.soak
def test_the_progress_of_a_batch_that_was_cut_has_the_ends_of_topics(stream: Stream) -> None:
    query = stream.start(startingOffsets="earliest", maxOffsetsPerTrigger=4)
    try:
        query.processAllAvailable()
        first, *_ = query.recentProgress
    finally:
        query.stop()
    (source,) = first["sources"]
    assert StreamOffset.from_json(offset_of_progress(source["endOffset"])).ends == stream.at(2, 1)
    assert known_ends_from_json(offset_of_progress(source["latestOffset"])) == stream.at(5, 3)


@pytest.mark.skipif(HAS_READ_LIMITS, reason="PySpark runs availableNow in limited batches")
def test_an_older_pyspark_runs_the_trigger_of_what_is_available_as_one_batch(
    stream: Stream,
) -> None:
    """It is cut where there is a limit, and the next run reads on."""
    batches = []
    for number in range(3):
        writer = stream.noting(startingOffsets="earliest", maxOffsetsPerTrigger=4)
        assert writer.trigger(availableNow=True).start().awaitTermination(120)
        batches.append(stream.batches[number])
    assert batches == [
        pairs(range(2), range(1)),
        pairs(range(2, 4), range(1, 2)),
        pairs(range(4, 5), range(2, 3)),
    ]


@pytest.mark.skipif(HAS_READ_LIMITS, reason="PySpark needs no wrapper for this source")
def test_sparks_wrapper_for_what_is_available_is_refused_and_skips_nothing(
    spark: SparkSession, stream: Stream
) -> None:
    stream.run(startingOffsets="earliest")
    stream.send(1, 1)
    setting = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
    spark.conf.set(setting, "true")
    try:
        writer = stream.noting(startingOffsets="latest").trigger(availableNow=True)
        with pytest.raises(StreamingQueryException, match="set it to false"):
            writer.start().awaitTermination(120)
    finally:
        spark.conf.unset(setting)
    assert stream.run(startingOffsets="latest") == {1: [(0, 5), (1, 3)]}


def test_a_frame_goes_on_where_retention_has_moved_its_earliest_offset(
    read: DataFrameReader, stream: Stream
) -> None:
    from confluent_kafka import TopicPartition as WitnessPartition
    from confluent_kafka.admin import AdminClient

    frame = read.option("subscribe", stream.topic).option("minPartitions", 6).load()
    assert frame.count() == 8
    witness = AdminClient({"bootstrap.servers": stream.servers})
    for deletion in witness.delete_records([WitnessPartition(stream.topic, 0, 4)]).values():
        deletion.result(30)
    assert frame.count() == 4


# Starts of a query, and starts again.


def fail(frame: DataFrame, number: int) -> None:
    raise ValueError(f"batch {number} fails")


@pytest.mark.promise("A stream restarts from its checkpoint once the problem is fixed")
def test_a_misspelt_topic_leaves_a_checkpoint_that_can_be_used_again(stream: Stream) -> None:
    options = {"startingOffsets": "earliest", "fetchOffset.retryIntervalMs": 1}
    assert stream.run(**options) == {0: pairs(range(5), range(3))}
    stream.send(1, 1)
    topic, stream.topic = stream.topic, f"{stream.topic}-misspelt"
    with pytest.raises(StreamingQueryException, match="the name is wrong"):
        stream.run(**options)
    stream.topic = topic
    assert stream.run(**options) == {1: [(0, 5), (1, 3)]}


@pytest.mark.promise("A stream restarts from its checkpoint once the problem is fixed")
def test_a_first_batch_that_failed_begins_where_it_began(stream: Stream) -> None:
    """Though its start has moved since: a duration, with a partition that is new."""
    writer = stream.writer(startingTimestamp="-PT1H").foreachBatch(fail).trigger(availableNow=True)
    with pytest.raises(StreamingQueryException, match="batch 0 fails"):
        writer.start().awaitTermination(120)
    witness = AdminClient({"bootstrap.servers": stream.servers})
    witness.create_partitions([NewPartitions(stream.topic, 3)])[stream.topic].result(30)
    stream.send(1, 0, 2)
    found = stream.run(startingTimestamp="-PT0.001S", startingOffsetsByTimestampStrategy="latest")
    assert found == {0: pairs(range(5), range(3)), 1: [(0, 5), (2, 0), (2, 1)]}


@pytest.mark.soak
def test_both_scans_of_a_stream_read_a_topic_that_was_recreated(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    found: list[tuple[int, int]] = []

    def note(frame: DataFrame, _: int) -> None:
        rows = frame.select("partition", "offset").collect()
        found.extend((row["partition"], row["offset"]) for row in rows)

    frame = stream.frame(
        startingOffsets="earliest",
        failOnDataLoss="false",
        **{"kafka.metadata.max.age.ms": 100, "fetchOffset.retryIntervalMs": 100},
    )
    writer = frame.union(frame).writeStream.foreachBatch(note)
    query = writer.option("checkpointLocation", str(tmp_path / "union")).start()
    witness = AdminClient({"bootstrap.servers": stream.servers})
    try:
        query.processAllAvailable()
        assert sorted(found) == sorted(2 * pairs(range(5), range(3)))
        found.clear()
        witness.delete_topics([stream.topic])[stream.topic].result(30)
        await_true(lambda: stream.topic not in witness.list_topics(timeout=30).topics, "it is gone")
        witness.create_topics([NewTopic(stream.topic, 2, 1)])[stream.topic].result(30)
        stream.send(2, 1)
        await_true(lambda: len(found) >= 6, "what is new is read", 60)
        query.processAllAvailable()
        assert sorted(found) == sorted(2 * pairs(range(2), range(1)))
    finally:
        query.stop()
