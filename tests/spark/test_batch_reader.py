"""One task's reading, without Spark: what happens when the log is not as the driver planned it."""

from __future__ import annotations

import logging
import pickle
import time
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StringType, StructType

from pykclient import Consumer, Producer, TopicPartition
from pykclient.errors import ConfigError, KafkaTimeoutError
from spark_connector.batch_reader import KafkaBatchReader
from spark_connector.offsets import DataLossError, OffsetRange
from spark_connector.options import KafkaOptions, Use

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing import FakeKafka, KafkaCluster

OFFSETS = StructType().add("offset", LongType())
RECORD_COUNT = 25_000
FIRST_LEFT = 24_000


def make_reader(bootstrap_servers: str = "h1:9092", **options: object) -> KafkaBatchReader:
    given = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": "any"}
    for name, value in options.items():
        given[name.replace("_", ".")] = str(value)
    return KafkaBatchReader(KafkaOptions.from_spark(given, Use.BATCH), OFFSETS)


def offsets_of(reader: KafkaBatchReader, wanted: OffsetRange) -> list[list[int]]:
    """Return the offsets of each batch."""
    batches = reader.read(InputPartition([wanted]))
    return [batch.column("offset").to_pylist() for batch in batches]


@pytest.fixture(scope="module")
def aged_partition(kafka_cluster: KafkaCluster, new_topic: Callable[[int], str]) -> TopicPartition:
    """Provide a partition whose first records were deleted."""
    from confluent_kafka import Producer
    from confluent_kafka import TopicPartition as WitnessPartition
    from confluent_kafka.admin import AdminClient

    topic = new_topic(1)
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    for _ in range(RECORD_COUNT):
        producer.produce(topic, b"value")
    assert producer.flush(30) == 0
    admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    for deletion in admin.delete_records([WitnessPartition(topic, 0, FIRST_LEFT)]).values():
        deletion.result(30)
    return TopicPartition(topic, 0)


def test_a_reader_survives_pickling() -> None:
    reader = pickle.loads(pickle.dumps(make_reader(includeHeaders="true")))
    assert list(reader.read(InputPartition(None))) == []


def test_a_task_without_a_range_reads_nothing() -> None:
    assert list(make_reader().read(InputPartition(None))) == []
    # As PySpark 4.0 calls it.
    assert list(make_reader().read(None)) == []


def test_a_schema_with_a_wrong_column_makes_no_reader() -> None:
    given = {"kafka.bootstrap.servers": "h1:9092", "subscribe": "any"}
    options = KafkaOptions.from_spark(given, Use.BATCH)
    with pytest.raises(ConfigError, match="'value' of a Kafka record has type binary"):
        KafkaBatchReader(options, StructType().add("value", StringType()))


@pytest.mark.kafka
def test_a_range_is_read_in_batches_up_to_its_end(
    kafka_cluster: KafkaCluster, aged_partition: TopicPartition
) -> None:
    wanted = OffsetRange(aged_partition, FIRST_LEFT + 100, RECORD_COUNT - 100)
    reader = make_reader(kafka_cluster.bootstrap_servers, kafka_max_poll_records=500)
    batches = offsets_of(reader, wanted)
    assert max(map(len, batches)) <= 10_000
    assert [*chain(*batches)] == list(range(wanted.start, wanted.end))


def test_only_the_columns_of_the_schema_are_decoded(
    fake_kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: set[tuple[str, ...]] = set()
    poll_arrow = Consumer.poll_arrow

    def noted(consumer: Consumer, *arguments: Any, **named: Any) -> Any:
        decoded.add(tuple(named["columns"]))
        return poll_arrow(consumer, *arguments, **named)

    monkeypatch.setattr(Consumer, "poll_arrow", noted)
    with fake_kafka.control() as cluster:
        cluster.create_topic("any", 1)
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        producer.send("any", b"v")
    reader = make_reader(fake_kafka.bootstrap_servers)
    assert offsets_of(reader, OffsetRange(TopicPartition("any", 0), 0, 1)) == [[0]]
    assert decoded == {("offset",)}


@pytest.mark.kafka
def test_records_gone_since_the_plan_fail_the_task(
    kafka_cluster: KafkaCluster, aged_partition: TopicPartition
) -> None:
    reader = make_reader(kafka_cluster.bootstrap_servers)
    with pytest.raises(DataLossError, match=r"was read up to offset 0, then .* held only \[24000,"):
        offsets_of(reader, OffsetRange(aged_partition, 0, RECORD_COUNT))


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("start", "end", "first_read"),
    [
        (0, RECORD_COUNT, FIRST_LEFT),
        (0, FIRST_LEFT, FIRST_LEFT),
        (RECORD_COUNT + 5, RECORD_COUNT + 9, RECORD_COUNT + 9),
    ],
)
def test_records_gone_since_the_plan_are_left_out_if_that_is_allowed(
    kafka_cluster: KafkaCluster,
    aged_partition: TopicPartition,
    caplog: pytest.LogCaptureFixture,
    *,
    start: int,
    end: int,
    first_read: int,
) -> None:
    reader = make_reader(kafka_cluster.bootstrap_servers, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, logger="spark_connector"):
        batches = offsets_of(reader, OffsetRange(aged_partition, start, end))
    assert [*chain(*batches)] == list(range(first_read, end))
    assert f"was read up to offset {start}, then {aged_partition} held only" in caplog.text


@pytest.mark.kafka
def test_a_range_beyond_the_log_ends_when_nothing_came_in_time(
    kafka_cluster: KafkaCluster, aged_partition: TopicPartition
) -> None:
    reader = make_reader(kafka_cluster.bootstrap_servers, kafkaConsumer_pollTimeoutMs=700)
    batches = reader.read(InputPartition([OffsetRange(aged_partition, RECORD_COUNT - 1, 2**40)]))
    assert next(batches).num_rows == 1
    started = time.monotonic()
    with pytest.raises(KafkaTimeoutError, match=r"no record came from offset 25000 on within 700"):
        next(batches)
    assert 0.7 <= time.monotonic() - started < 10
