"""``spark.read.format("pykafka")`` on real Kafka: what another client wrote is what Spark reads."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from spark_connector.schema import record_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from pykclient.testing import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

FIRST_MS = 1_700_000_000_123
RECORDS_PER_PARTITION = 30


class Written(NamedTuple):
    """One record as its producer knows it, in the order of Spark's columns."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: datetime
    timestampType: int
    headers: list[tuple[str, str | bytes | None]] | None


@pytest.fixture(scope="module")
def written(kafka_cluster: KafkaCluster, new_topic: Callable[[int], str]) -> list[Written]:
    """Two partitions of records with and without key, value and headers, a second apart."""
    from confluent_kafka import Producer

    topic = new_topic(2)
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    records = []
    for partition in range(2):
        for offset in range(RECORDS_PER_PARTITION):
            record = Written(
                key=None if offset % 3 == 0 else b"key %d" % offset,
                value=None if offset % 5 == 0 else b"" if offset % 7 == 0 else b"\xff%d" % offset,
                topic=topic,
                partition=partition,
                offset=offset,
                timestamp=datetime.fromtimestamp(0, UTC)
                + timedelta(milliseconds=FIRST_MS + 1_000 * offset),
                timestampType=0,
                headers=[("name", b"x"), ("name", None)] if offset % 2 else None,
            )
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=partition,
                timestamp=FIRST_MS + 1_000 * offset,
                headers=record.headers,
            )
            records.append(record)
    assert producer.flush(30) == 0
    return records


def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
    """All rows as plain values, ordered by partition and offset."""
    rows = frame.orderBy("partition", "offset").collect()
    return [
        tuple(
            bytes(value)
            if isinstance(value, bytearray)
            else [(name, None if text is None else bytes(text)) for name, text in value]
            if isinstance(value, list)
            else value.replace(tzinfo=UTC)
            if isinstance(value, datetime)
            else value
            for value in row
        )
        for row in rows
    ]


def offsets_of(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in frame.collect())


def pairs(*ranges: range) -> list[tuple[int, int]]:
    """Partition and offset for a range of offsets of each partition."""
    return [(partition, offset) for partition, own in enumerate(ranges) for offset in own]


def json_of(topic: str, *values: int) -> str:
    return json.dumps({topic: {str(partition): value for partition, value in enumerate(values)}})


def failure(frame: DataFrame) -> str:
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    return str(caught.value)


def test_a_topic_is_read_by_format_name_with_all_columns(
    read: DataFrameReader, written: list[Written]
) -> None:
    frame = read.option("subscribe", written[0].topic).option("includeHeaders", True).load()
    assert frame.schema == record_schema(include_headers=True)
    assert rows_of(frame) == [tuple(record) for record in written]


def test_headers_are_left_out_unless_requested(
    read: DataFrameReader, written: list[Written]
) -> None:
    frame = read.option("subscribe", written[0].topic).load()
    assert frame.schema == record_schema(include_headers=False)
    assert rows_of(frame) == [tuple(record)[:-1] for record in written]


def test_only_the_columns_of_a_users_schema_are_read(
    read: DataFrameReader, written: list[Written]
) -> None:
    frame = read.schema("offset BIGINT, value BINARY").option("subscribe", written[0].topic).load()
    assert frame.schema == StructType().add("offset", LongType()).add("value", BinaryType())
    values = sorted(
        (row.offset, row.value and bytes(row.value)) for row in frame.collect() if row.value
    )
    assert values == sorted((record.offset, record.value) for record in written if record.value)


def test_offsets_choose_what_is_read(read: DataFrameReader, written: list[Written]) -> None:
    topic = written[0].topic
    frame = (
        read.option("subscribe", topic)
        .option("startingOffsets", json_of(topic, 5, -2))
        .option("endingOffsets", json_of(topic, -1, 7))
        .load()
    )
    assert offsets_of(frame) == pairs(range(5, RECORDS_PER_PARTITION), range(7))


def test_times_choose_what_is_read(read: DataFrameReader, written: list[Written]) -> None:
    frame = (
        read.option("subscribe", written[0].topic)
        .option("startingTimestamp", FIRST_MS + 10_000)
        .option("endingTimestamp", FIRST_MS + 12_500)
        .load()
    )
    assert offsets_of(frame) == pairs(range(10, 13), range(10, 13))


def test_partitions_can_be_assigned(read: DataFrameReader, written: list[Written]) -> None:
    frame = read.option("assign", json.dumps({written[0].topic: [1]})).load()
    assert offsets_of(frame) == pairs(range(0), range(RECORDS_PER_PARTITION))


def test_topics_can_be_chosen_by_a_pattern(read: DataFrameReader, written: list[Written]) -> None:
    frame = read.option("subscribePattern", f"{written[0].topic[:-2]}..$").load()
    assert frame.count() == len(written)


def test_ranges_are_cut_into_more_tasks(read: DataFrameReader, written: list[Written]) -> None:
    frame = read.option("subscribe", written[0].topic)
    assert frame.load().rdd.getNumPartitions() == 2
    cut = frame.option("minPartitions", 6).load()
    assert cut.rdd.getNumPartitions() == 6
    assert offsets_of(cut) == pairs(range(RECORDS_PER_PARTITION), range(RECORDS_PER_PARTITION))


def test_ranges_share_a_task(read: DataFrameReader, written: list[Written]) -> None:
    frame = read.option("subscribe", written[0].topic).option("maxPartitions", 1).load()
    assert frame.rdd.getNumPartitions() == 1
    assert offsets_of(frame) == pairs(range(RECORDS_PER_PARTITION), range(RECORDS_PER_PARTITION))


def test_a_topic_without_records_is_an_empty_frame(
    read: DataFrameReader, new_topic: Callable[[int], str]
) -> None:
    frame = read.option("subscribe", new_topic(1)).load()
    assert frame.schema == record_schema(include_headers=False)
    assert frame.collect() == []


def test_aborted_records_are_read_unless_only_committed_ones_are_requested(
    read: DataFrameReader, kafka_cluster: KafkaCluster, new_topic: Callable[[int], str]
) -> None:
    from confluent_kafka import Producer

    topic = new_topic(1)
    producer = Producer(
        {"bootstrap.servers": kafka_cluster.bootstrap_servers, "transactional.id": topic}
    )
    producer.init_transactions(30)
    for is_committed in (True, False, True, False):
        producer.begin_transaction()
        for _ in range(10):
            producer.produce(topic, b"kept" if is_committed else b"dropped")
        assert producer.flush(30) == 0
        producer.commit_transaction(30) if is_committed else producer.abort_transaction(30)
    everything = read.option("subscribe", topic)
    assert everything.load().count() == 40
    committed = everything.option("kafka.isolation.level", "read_committed").load()
    assert [bytes(row.value) for row in committed.collect()] == [b"kept"] * 20


def test_records_that_were_deleted_fail_the_read_or_are_left_out(
    read: DataFrameReader, kafka_cluster: KafkaCluster, new_topic: Callable[[int], str]
) -> None:
    from confluent_kafka import Producer, TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = new_topic(1)
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    for number in range(10):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(30) == 0
    admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    for deletion in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        deletion.result(30)

    from_zero = read.option("subscribe", topic).option("startingOffsets", json_of(topic, 0))
    text = failure(from_zero.load())
    assert f"{topic}-0 [0, 10) was requested, but {topic}-0 holds [4, 10)" in text
    assert "Set failOnDataLoss=false to read what is left" in text
    assert offsets_of(from_zero.option("failOnDataLoss", "false").load()) == pairs(range(4, 10))


def test_a_topic_that_does_not_exist_is_named(read: DataFrameReader) -> None:
    text = failure(read.option("subscribe", "no-such-topic").load())
    assert "no-such-topic" in text


def test_a_partition_that_does_not_exist_is_named(
    read: DataFrameReader, written: list[Written]
) -> None:
    text = failure(read.option("assign", json.dumps({written[0].topic: [0, 7]})).load())
    assert f"{written[0].topic}-7" in text


def test_brokers_that_cannot_be_reached_are_named_within_the_deadline(
    spark: SparkSession, unused_address: str
) -> None:
    frame = (
        spark.read.format("pykafka")
        .option("kafka.bootstrap.servers", unused_address)
        .option("kafka.default.api.timeout.ms", 2_000)
        .option("subscribe", "any")
        .load()
    )
    started = time.monotonic()
    assert unused_address in failure(frame)
    assert time.monotonic() - started < 30


def test_a_bad_option_is_refused_at_load(read: DataFrameReader) -> None:
    with pytest.raises(PySparkException, match="Did you mean 'startingOffsets'"):
        read.option("subscribe", "any").option("startingOffset", "earliest").load()


def test_an_option_that_only_a_stream_can_have_is_refused_by_the_first_action(
    read: DataFrameReader,
) -> None:
    frame = read.option("subscribe", "any").option("startingOffsets", "latest").load()
    assert "of a batch read cannot be latest" in failure(frame)


@pytest.mark.parametrize(
    ("setting", "value", "complaint"),
    [
        ("fetch.min.byte", "1", "Did you mean 'fetch.min.bytes'?"),
        ("ssl.engine.factory.class", "my.Factory", "unsupported part of TLS or SASL"),
        ("fetch.max.bytes", "many", "it must be an integer"),
    ],
)
def test_a_bad_setting_of_the_consumer_is_refused(
    read: DataFrameReader, setting: str, value: str, complaint: str
) -> None:
    frame = read.option("subscribe", "any").option(f"kafka.{setting}", value).load()
    assert complaint in failure(frame)


def test_a_column_that_records_do_not_have_is_refused(
    read: DataFrameReader, written: list[Written]
) -> None:
    schema = StructType().add("value", StringType())
    frame = read.schema(schema).option("subscribe", written[0].topic).load()
    assert "'value' of a Kafka record has type binary, not string" in failure(frame)


def test_the_first_line_of_an_error_is_its_cause(
    spark: SparkSession, kafka_cluster: KafkaCluster, new_topic: Callable[[int], str]
) -> None:
    topic = new_topic(1)
    given = {"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, "topic": topic}
    with pytest.raises(PySparkException) as of_plan:
        spark.read.format("pykafka").options(**given, subscribes=topic).load()
    assert "ConfigError: Format 'pykafka' has no option 'subscribes'" in first_line(of_plan.value)
    rows = spark.range(1).selectExpr("repeat('v', 2000000) AS value")
    with pytest.raises(PySparkException) as of_task:
        rows.write.format("pykafka").mode("append").options(**given).save()
    heading, cause, *_ = str(of_task.value).strip().splitlines()
    assert heading.startswith("An exception was thrown from the Python worker")
    assert cause.startswith(
        f"pykclient.errors.base.KafkaError: Row 0 of this task, for topic '{topic}'"
    )


def first_line(error: PySparkException) -> str:
    return str(error).partition("\n")[0]
