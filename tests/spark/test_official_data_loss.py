"""Records that are gone when a stream goes on: through Spark's own Kafka source and this one.

A stream makes five checks, which `failOnDataLoss` turns into errors or warnings:

1. a partition is gone (`LOSSES`: "a topic was deleted");
2. an end went back, which Spark's own source finds where a topic was made again and has less
   (`test_a_topic_that_was_made_again_is_read_from_its_beginning_here_only`);
3. a new partition has lost its head (`LOSSES`: "a partition was added and has lost its head");
4. a task finds that records of its range are gone (`LOSSES`: "the heads of partitions were
   deleted"; `test_fake_brokers.py` has damaged batches);
5. the id of a topic changed, which only this source notices
   (`test_a_topic_that_was_made_again_is_read_from_its_beginning_here_only`).

The first three are the driver's for each batch, the fourth is the task's, the fifth the driver's
when it refreshes topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from confluent_kafka import TopicPartition as WitnessPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from pyspark.errors import StreamingQueryException

from pykclient import Producer
from pykclient.testing.clock import Deadline
from spark_connector.offsets import DataLossError
from spark_connector.schema import record_schema
from spark_connector.stream_reader import KafkaStreamReader
from tests.spark.both_streams import OfficialStream, StreamHere

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pykclient.testing import KafkaCluster

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.usefixtures("official_connector"),
]

TIMEOUT_S: Final = 30.0


class Topics:
    """Two topics of two partitions with ten records each, and what becomes of them."""

    def __init__(self, kafka: KafkaCluster, new_topic: Callable[[int], str]) -> None:
        self.servers = kafka.bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": self.servers})
        self.names = sorted((new_topic(2), new_topic(2)))
        for topic in self.names:
            self.send(topic, 10, 10)

    def send(self, topic: str, *counts: int) -> None:
        with Producer(bootstrap_servers=self.servers) as producer:
            for partition, count in enumerate(counts):
                for _ in range(count):
                    producer.send(topic, b"v", partition=partition)

    def delete_heads(self, topic: str, *offsets: int) -> None:
        """Delete the records before these offsets of its partitions."""
        before = [WitnessPartition(topic, number, at) for number, at in enumerate(offsets)]
        for deletion in self._admin.delete_records(before).values():
            deletion.result(TIMEOUT_S)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(TIMEOUT_S)
        deadline = Deadline(TIMEOUT_S)
        while topic in self._admin.list_topics(timeout=TIMEOUT_S).topics:
            assert not deadline.has_passed()

    def make_again(self, topic: str) -> None:
        self.delete(topic)
        self._admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(TIMEOUT_S)

    def add_partition(self, topic: str) -> None:
        self._admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)


class Loss(NamedTuple):
    """A change of the topics, our report of it, and the offsets that are still read.

    `left` has those of each partition of the first topic, and those of the second.
    """

    happen: Callable[[Topics, str, str], None]
    complaint: str
    left: tuple[list[range], list[range]]


def heads_deleted(topics: Topics, first: str, second: str) -> None:
    topics.send(first, 10, 10)
    topics.delete_heads(first, 15, 20)


def topic_deleted(topics: Topics, first: str, second: str) -> None:
    topics.delete(second)
    topics.send(first, 2)


def partition_added(topics: Topics, first: str, second: str) -> None:
    topics.add_partition(first)
    topics.send(first, 0, 0, 5)
    topics.delete_heads(first, 0, 0, 2)


LOSSES: Final = {
    "the heads of partitions were deleted": Loss(
        heads_deleted, r"held only \[", ([range(15, 20)], [])
    ),
    "a topic was deleted": Loss(topic_deleted, "gone, with what was not", ([range(10, 12)], [])),
    "a partition was added and has lost its head": Loss(
        partition_added, "is new and begins at offset 2", ([range(0), range(0), range(2, 5)], [])
    ),
}
IN_EVERY_RUN = "the heads of partitions were deleted"


@pytest.mark.promise("A stream that has lost records fails or continues as Spark's own source does")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == IN_EVERY_RUN else pytest.mark.soak) for name in LOSSES],
)
def test_a_stream_that_has_lost_records_does_what_the_official_one_does(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    new_topic: Callable[[int], str],
    tmp_path: Path,
    *,
    name: str,
) -> None:
    loss = LOSSES[name]
    topics = Topics(kafka_cluster, new_topic)
    first, second = topics.names
    options = {
        "kafka.bootstrap.servers": topics.servers,
        "subscribePattern": f"^({first}|{second})$",
        "startingOffsets": "earliest",
        "fetchOffset.retryIntervalMs": "1",
    }
    official, here = OfficialStream(spark, tmp_path / "official"), StreamHere()
    assert here.run(options) == official.run(options)
    loss.happen(topics, first, second)
    with pytest.raises(StreamingQueryException):
        official.copied(tmp_path / "copy").run(options)
    with pytest.raises(DataLossError, match=loss.complaint):
        StreamHere(here.end).run(options)
    options["failOnDataLoss"] = "false"
    left, there = here.run(options), official.run(options)
    assert (left.records, left.task_counts) == (there.records, there.task_counts)
    # The position of a topic that is not listed is kept here only.
    for end, end_there in zip(left.ends, there.ends, strict=True):
        assert {topic: end[topic] for topic in end_there} == end_there
    assert left.places == [
        (topic, partition, offset)
        for topic, found in zip(topics.names, loss.left, strict=True)
        for partition, offsets in enumerate(found)
        for offset in offsets
    ]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("sent", "left_there"),
    [((15, 15), (range(10, 15), range(10, 15))), ((4, 12), (range(0), range(10, 12)))],
    ids=["more", "less"],
)
def test_a_topic_that_was_made_again_is_read_from_its_beginning_here_only(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    new_topic: Callable[[int], str],
    tmp_path: Path,
    *,
    sent: tuple[int, int],
    left_there: tuple[range, range],
) -> None:
    """Its id has changed: a running query has requested it, and the checkpoint has it."""
    topics = Topics(kafka_cluster, new_topic)
    topic = topics.names[0]
    options = {
        "kafka.bootstrap.servers": topics.servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "kafka.metadata.max.age.ms": "1",
    }
    official, here = OfficialStream(spark, tmp_path / "official"), StreamHere()
    assert here.run(options) == official.run(options)
    running = KafkaStreamReader(options, record_schema(include_headers=False))
    try:
        limit = running.getDefaultReadLimit()
        end = running.latestOffset(running.initialOffset(), limit)
        topics.make_again(topic)
        topics.send(topic, *sent)
        with pytest.raises(DataLossError, match="was deleted and recreated"):
            running.latestOffset(end, limit)
    finally:
        running.stop()
    with pytest.raises(DataLossError, match="was deleted and recreated"):
        here.run(options)
    options["failOnDataLoss"] = "false"
    for stream, left in ((official, left_there), (here, [range(count) for count in sent])):
        assert stream.run(options).places == [
            (topic, part, at) for part, offsets in enumerate(left) for at in offsets
        ]
