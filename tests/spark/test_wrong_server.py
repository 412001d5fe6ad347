"""Time for which Spark waits for brokers that do not respond: ten seconds, later a minute.

The brokers are real. While they are paused they accept connections and do not respond. An error
names the time, so the time that Spark itself takes makes no difference.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Final

import pytest
from pyspark.errors import PySparkException

from pykclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.soak import OWN_BROKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

pytestmark = [
    pytest.mark.soak,
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    OWN_BROKERS,
]

IN_TEN_SECONDS: Final = re.compile(r"(?:within|waited) (?:10000|9000|1000) ms")
"""The time of an error. A task's is what the driver, or its first second, has left of the ten."""
OUTAGE_S: Final = 25
TIMEOUT_S: Final = 240


@pytest.fixture(scope="module")
def other(kafka_cluster_factory: KafkaClusterFactory) -> Iterator[KafkaCluster]:
    """Start a broker that a test may pause."""
    with kafka_cluster_factory() as cluster:
        yield cluster


class Query:
    """A query that copies a topic of the shared broker to one of the other broker."""

    def __init__(self, spark: SparkSession, servers: str, source: str, folder: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._source = source
        self._folder = folder

    def send(self, *numbers: int) -> None:
        with Producer(bootstrap_servers=self._servers) as producer:
            for number in numbers:
                producer.send(self._source, b"%d" % number)

    def start(self, sink: dict[str, str]) -> StreamingQuery:
        reader = self._spark.readStream.format("pykafka").option("subscribe", self._source)
        reader = reader.option("kafka.bootstrap.servers", self._servers)
        rows = reader.option("startingOffsets", "earliest").load().select("value")
        writer = rows.writeStream.format("pykafka").options(**sink)
        writer = writer.option("checkpointLocation", str(self._folder))
        return writer.trigger(availableNow=True).start()


def values(servers: str, topic: str) -> list[int]:
    with Consumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        found: list[int] = []
        while consumer.position(partition) < end:
            found += [int(record.value or b"") for record in consumer.poll(1)]
    return found


def cause_of(error: PySparkException) -> str:
    """Return the beginning of an error: Spark puts one line before that of a task."""
    return "\n".join(str(error).strip().splitlines()[:2])


def test_brokers_that_do_not_respond_fail_reads_and_a_batch_write_in_ten_seconds(
    spark: SparkSession, other: KafkaCluster, tmp_path: Path
) -> None:
    options = {"kafka.bootstrap.servers": other.bootstrap_servers}
    rows = spark.range(2).selectExpr("CAST(id AS STRING) AS value")
    stream = spark.readStream.format("pykafka").options(subscribe="orders", **options).load()
    noop = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path))

    def read() -> None:
        spark.read.format("pykafka").options(subscribe="orders", **options).load().collect()

    def write() -> None:
        rows.write.format("pykafka").mode("append").options(topic="totals", **options).save()

    def query() -> None:
        noop.start().awaitTermination(TIMEOUT_S)

    other.pause(1)
    try:
        for call in (read, query, write):
            with pytest.raises(PySparkException) as caught:
                call()
            assert IN_TEN_SECONDS.search(cause_of(caught.value)), call
            assert other.bootstrap_servers in cause_of(caught.value), call
    finally:
        other.resume(1)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_sink_waits_ten_seconds_in_the_first_batch_and_through_an_outage_later(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    other: KafkaCluster,
    new_topic: Callable[[int], str],
    tmp_path: Path,
    delivery: str,
) -> None:
    made = Query(spark, kafka_cluster.bootstrap_servers, new_topic(1), tmp_path / "checkpoint")
    topic = f"copies-{uuid.uuid4()}"
    with Admin(bootstrap_servers=other.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 1)])
    sink = {
        "kafka.bootstrap.servers": other.bootstrap_servers,
        "topic": topic,
        "delivery": delivery,
    }
    made.send(1, 2)
    other.pause(1)
    try:
        with pytest.raises(PySparkException) as caught:
            made.start(sink).awaitTermination(TIMEOUT_S)
    finally:
        other.resume(1)
    cause = cause_of(caught.value)
    assert IN_TEN_SECONDS.search(cause)
    assert other.bootstrap_servers in cause
    # The failed batch is repeated.
    assert made.start(sink).awaitTermination(TIMEOUT_S)
    assert values(other.bootstrap_servers, topic) == [1, 2]
    # An outage of more than ten seconds is no wrong address.
    made.send(3, 4)
    other.pause(1)
    try:
        later = made.start(sink)
        assert not later.awaitTermination(OUTAGE_S)
    finally:
        other.resume(1)
    assert later.awaitTermination(TIMEOUT_S)
    assert values(other.bootstrap_servers, topic) == [1, 2, 3, 4]
