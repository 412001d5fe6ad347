"""Streams and batches that are written exactly once, through Spark, on a real broker.

A batch that Spark repeats is one that its commit log does not have: a driver that died before
it was written leaves that, and so does who deletes its last file.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from pykclient import Admin, Consumer, Producer, TopicPartition
from spark_connector import foreach_batch
from spark_connector.exactly_once.cluster import SinkCluster
from tests.spark.versions import run_in_limited_batches

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from pykclient.testing import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PARTITION_COUNT = 2
LIMIT = 6


class Copy:
    """A query that copies a topic of numbers to another, in batches of six."""

    def __init__(
        self, spark: SparkSession, servers: str, source: str, target: str, path: Path
    ) -> None:
        self.spark = spark
        self.servers = servers
        self.target = target
        self._source = source
        self._checkpoint = path / "checkpoint"
        self._sent_count = 0

    def send(self, count: int) -> None:
        """Send the next numbers, in turn to each partition."""
        with Producer(bootstrap_servers=self.servers) as producer:
            for number in range(self._sent_count, self._sent_count + count):
                partition = number % PARTITION_COUNT
                producer.send(self._source, b"%d" % number, partition=partition)
        self._sent_count += count

    def options(self, **more: str) -> dict[str, str]:
        """Return the options of a sink that writes exactly once."""
        return {
            "kafka.bootstrap.servers": self.servers,
            "topic": self.target,
            "delivery": "exactly_once",
            **more,
        }

    def writer(self) -> DataStreamWriter:
        reader = self.spark.readStream.format("pykafka").option("subscribe", self._source)
        reader = reader.option("kafka.bootstrap.servers", self.servers)
        reader = reader.option("startingOffsets", "earliest")
        frame = reader.option("maxOffsetsPerTrigger", str(LIMIT)).load()
        writer = frame.select("value", "partition").writeStream
        return writer.option("checkpointLocation", str(self._checkpoint))

    def run(self, writer: DataStreamWriter) -> int:
        """Run it over all that there is; how many batches it had in its life."""
        run_in_limited_batches(writer)
        return len(list((self._checkpoint / "commits").glob("[0-9]*")))

    def forget_last_batch(self) -> None:
        """Remove the last commit so that Spark repeats the batch, as after a crash."""
        numbers = [int(file.name) for file in (self._checkpoint / "commits").glob("[0-9]*")]
        for name in (f"{max(numbers)}", f".{max(numbers)}.crc"):
            (self._checkpoint / "commits" / name).unlink()

    def values(self) -> list[list[int]]:
        """Read the committed values of each partition."""
        partitions = [TopicPartition(self.target, number) for number in range(PARTITION_COUNT)]
        found: list[list[int]] = [[] for _ in partitions]
        with Consumer(
            bootstrap_servers=self.servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            while any(consumer.position(each) < ends[each] for each in partitions):
                for record in consumer.poll(1):
                    found[record.partition].append(int(record.value or b""))
        return found

    def wanted(self) -> list[list[int]]:
        """Each number once, in order."""
        return [
            list(range(first, self._sent_count, PARTITION_COUNT))
            for first in range(PARTITION_COUNT)
        ]

    def open_ids(self) -> list[str]:
        """List the ids with open transactions in the target; other tests may leave theirs."""
        with Admin(bootstrap_servers=self.servers) as admin:
            found = admin.describe_transactions(admin.list_transactions(states=["Ongoing"]))
        return sorted(
            name
            for name, each in found.items()
            if any(partition.topic == self.target for partition in each.partitions)
        )


@pytest.fixture
def copy(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    new_topic: Callable[[int], str],
    tmp_path: Path,
) -> Copy:
    source, target = (new_topic(PARTITION_COUNT) for _ in range(2))
    made = Copy(spark, kafka_cluster.bootstrap_servers, source, target, tmp_path)
    made.send(20)
    return made


@pytest.mark.promise("Spark writes each row once, with delivery=exactly_once")
@pytest.mark.parametrize("atomic", ["task", pytest.param("batch", marks=pytest.mark.soak)])
def test_a_stream_is_written_exactly_once_also_where_a_batch_is_repeated(
    copy: Copy, atomic: str
) -> None:
    writer = copy.writer().format("pykafka").options(**copy.options(atomic=atomic))
    assert copy.run(writer) == 4
    assert copy.values() == copy.wanted()
    copy.forget_last_batch()
    copy.send(7)
    assert copy.run(writer) == 6
    assert copy.values() == copy.wanted()
    assert copy.open_ids() == []


@pytest.mark.promise("Spark writes each row once, with delivery=exactly_once")
def test_foreach_batch_writes_exactly_once_also_where_a_batch_is_repeated(copy: Copy) -> None:
    sink = foreach_batch(copy.options(sinkId=copy.target))
    assert copy.run(copy.writer().foreachBatch(sink)) == 4
    assert copy.values() == copy.wanted()
    copy.forget_last_batch()
    copy.send(1)
    assert copy.run(copy.writer().foreachBatch(sink)) == 5
    assert copy.values() == copy.wanted()
    assert copy.open_ids() == []


def test_a_batch_without_a_number_is_refused_in_foreach_batch(copy: Copy) -> None:
    def write(frame: DataFrame, _: int) -> None:
        options = copy.options(sinkId=copy.target)
        frame.write.format("pykafka").mode("append").options(**options).save()

    query = copy.writer().foreachBatch(write).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="This write is in foreachBatch, and has no"):
        query.awaitTermination(240)
    assert copy.values() == [[], []]


def test_a_batch_write_with_a_number_is_done_once(copy: Copy) -> None:
    frame = copy.spark.range(10, numPartitions=3).selectExpr("CAST(id AS STRING) AS value")

    def write(**options: str) -> None:
        given = copy.options(sinkId=copy.target, **options)
        frame.write.format("pykafka").mode("append").options(**given).save()

    for number, seen in (("20261101", 1), ("20261101", 1), ("20261102", 2)):
        write(batchId=number)
        assert sorted(chain(*copy.values())) == sorted([*range(10)] * seen), number
    with pytest.raises(PySparkException, match="batch 20261101 is old"):
        write(batchId="20261101")
    write(batchId="20261101", onOldBatch="skip")
    write()
    assert sum(map(len, copy.values())) == 30
    assert copy.open_ids() == []


def test_writes_of_one_application_share_the_turn_of_each_sink(copy: Copy) -> None:
    frame = copy.spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    sinks = [f"{copy.target}-{number}" for number in range(5)]
    for sink_id in [*sinks, *sinks]:
        options = copy.options(sinkId=sink_id)
        frame.write.format("pykafka").mode("append").options(**options).save()
    clients = {"bootstrap.servers": copy.servers}
    turns, applications = set(), set()
    for sink_id in sinks:
        with SinkCluster.of_record(sink_id, clients, clients) as cluster:
            record = cluster.record()
        assert record is not None
        turns.add(record.turn)
        applications.add(record.application)
    assert turns == {1}
    assert len(applications) == 1
    assert applications != {""}


def test_what_a_sink_cannot_do_is_said_before_rows_are_written(copy: Copy) -> None:
    frame = copy.spark.range(10).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(PySparkException, match="needs a name for the sink"):
        frame.write.format("pykafka").mode("append").options(**copy.options()).save()
    numbered = copy.writer().format("pykafka").options(**copy.options(batchId="1"))
    query = numbered.trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="Spark numbers the batches of a stream"):
        query.awaitTermination(240)


@pytest.mark.soak
def test_another_checkpoint_with_the_same_sink_is_refused(copy: Copy, tmp_path: Path) -> None:
    options = copy.options(sinkId=copy.target)
    copy.run(copy.writer().format("pykafka").options(**options))
    other = copy.writer().format("pykafka").options(**options)
    other = other.option("checkpointLocation", str(tmp_path / "other"))
    query = other.trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="Give each checkpoint, and each series"):
        query.awaitTermination(240)
    assert copy.values() == copy.wanted()
