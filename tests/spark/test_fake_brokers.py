"""The connector reads without Spark, from fake brokers: topics, ranges, records that are gone."""

from __future__ import annotations

from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, LongType, StructType

from pykclient import Producer, TopicPartition
from spark_connector.batch_reader import KafkaBatchReader
from spark_connector.cluster import Cluster
from spark_connector.offsets import OffsetRange
from spark_connector.options import BATCH_SIZE_BYTES_MAX, KafkaOptions, Use

if TYPE_CHECKING:
    from pykclient.testing import FakeKafka

OFFSETS = StructType().add("offset", LongType())
TOPIC = "flights"
PARTITION = TopicPartition(TOPIC, 0)
RECORD_COUNT = 30
FIRST_LEFT = 10


@pytest.fixture
def fake(fake_kafka: FakeKafka) -> FakeKafka:
    """Brokers with a topic of one partition, whose first ten records are gone."""
    with fake_kafka.control() as cluster:
        cluster.create_topic(TOPIC, 1)
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        for _ in range(RECORD_COUNT):
            producer.send(TOPIC, b"v")
            producer.flush()
    with fake_kafka.control() as cluster:
        cluster.partition(PARTITION).log.delete_records(FIRST_LEFT)
    return fake_kafka


def offsets_of(fake: FakeKafka, start: int, end: int, **options: str) -> list[int]:
    """What a task reads of a range."""
    given = {"kafka.bootstrap.servers": fake.bootstrap_servers, "subscribe": TOPIC, **options}
    reader = KafkaBatchReader(KafkaOptions.from_spark(given, Use.BATCH), OFFSETS)
    batches = reader.read(InputPartition(OffsetRange(PARTITION, start, end)))
    return [*chain.from_iterable(batch.column("offset").to_pylist() for batch in batches)]


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [("light", [TOPIC]), ("^light", []), ("s$", [TOPIC]), (".*", [TOPIC])],
)
def test_a_pattern_is_found_anywhere_in_a_name_and_in_none_of_kafkas_own(
    fake: FakeKafka, pattern: str, topics: list[str]
) -> None:
    with fake.control() as cluster:
        cluster.create_topic("__consumer_offsets", 1)
    given = {"kafka.bootstrap.servers": fake.bootstrap_servers, "subscribePattern": pattern}
    with closing(Cluster(KafkaOptions.from_spark(given, Use.BATCH))) as cluster:
        found = cluster.topics().partitions
    assert found == tuple(TopicPartition(topic, 0) for topic in topics)


def test_a_range_is_read_up_to_its_end(fake: FakeKafka) -> None:
    assert offsets_of(fake, 12, 27) == list(range(12, 27))


def test_what_is_gone_since_the_plan_is_left_out_and_the_rest_is_read(fake: FakeKafka) -> None:
    assert offsets_of(fake, 5, 20, failOnDataLoss="false") == list(range(FIRST_LEFT, 20))


@pytest.mark.promise("Spark receives Arrow batches")
def test_large_records_come_in_batches_of_few_rows(fake_kafka: FakeKafka) -> None:
    value_bytes = BATCH_SIZE_BYTES_MAX * 2 // 5
    settings = {"compression_type": "lz4", "max_request_size": 2**27, "batch_size": 2**26}
    with fake_kafka.control() as cluster:
        cluster.create_topic(TOPIC, 1)
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers, **settings) as producer:
        for _ in range(5):
            producer.send(TOPIC, bytes(value_bytes))
    given = {"kafka.bootstrap.servers": fake_kafka.bootstrap_servers, "subscribe": TOPIC}
    values = StructType().add("value", BinaryType())
    reader = KafkaBatchReader(KafkaOptions.from_spark(given, Use.BATCH), values)
    batches = list(reader.read(InputPartition(OffsetRange(PARTITION, 0, 5))))
    assert [batch.num_rows for batch in batches] == [2, 2, 1]
