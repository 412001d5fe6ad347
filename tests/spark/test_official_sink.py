"""The same frames written by Spark's own Kafka sink and by this one: equal records, or errors."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from pykclient.errors import KafkaError
from spark_connector.sink import Sink
from tests.testing.test_processes import await_true

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pykclient.testing import KafkaCluster

pytestmark = [
    pytest.mark.soak,
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.usefixtures("official_connector"),
]

OFFICIAL: Final = "kafka"
OURS: Final = "pykafka"
PARTITION_COUNT: Final = 5
TIMEOUT_S: Final = 60.0

HEADERS: Final = "array<struct<key:string,value:binary>>"
ROWS: Final = f"""
    SELECT
        CASE WHEN id % 7 = 0 THEN NULL WHEN id = 1 THEN '' ELSE concat('key ', id) END AS key,
        CASE WHEN id % 5 = 0 THEN NULL WHEN id = 2 THEN X'' ELSE encode(concat('v', id), 'UTF-8')
            END AS value,
        CAST(CASE id % 4
            WHEN 0 THEN NULL
            WHEN 1 THEN array()
            WHEN 2 THEN array(named_struct('key', 'a', 'value', X'FF00'),
                              named_struct('key', 'a', 'value', CAST(NULL AS BINARY)))
            ELSE array(named_struct('key', '', 'value', X''))
        END AS {HEADERS}) AS headers,
        CAST(CASE WHEN id % 3 = 0 THEN id % {PARTITION_COUNT} END AS INT) AS partition,
        id AS ignored,
        'ignored, too' AS timestamp_of_nothing
    FROM range(60)
"""


class Record(NamedTuple):
    """A record as another client reads it. Where it has neither key nor partition, any will do."""

    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[object, ...], ...]


class Written:
    """The records that both sinks write of one frame, each to topics of its own."""

    def __init__(self, kafka: KafkaCluster, new_topic: Callable[[int], str]) -> None:
        self.servers = kafka.bootstrap_servers
        self.topics = {source: new_topic(PARTITION_COUNT) for source in (OFFICIAL, OURS)}
        self.others = {source: new_topic(PARTITION_COUNT) for source in (OFFICIAL, OURS)}

    def options(self, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers, **more}

    def both(self, topics: Mapping[str, str]) -> tuple[list[Record], list[Record]]:
        """Return the records of the official sink's topic, and of ours."""
        return self._records(topics[OFFICIAL]), self._records(topics[OURS])

    def _records(self, topic: str) -> list[Record]:
        """All records, in the order of their partitions and offsets."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": topic})
        try:
            parts = [TopicPartition(topic, number, 0) for number in range(PARTITION_COUNT)]
            ends = [consumer.get_watermark_offsets(one, TIMEOUT_S) for one in parts]
            consumer.assign(parts)
            read = [_next(consumer) for _ in range(sum(end for _, end in ends))]
        finally:
            consumer.close()
        read.sort(key=lambda record: (record.partition(), record.offset()))
        return [
            Record(
                record.partition(),
                record.key(),
                record.value(),
                tuple(map(tuple, record.headers() or ())),
            )
            for record in read
        ]


def _next(consumer: Consumer) -> Message:
    record = consumer.poll(TIMEOUT_S)
    assert record is not None
    assert record.error() is None
    return record


def by_partition(records: list[Record]) -> tuple[list[Record], list[Record]]:
    """Return the records with a key, in order, and those without, which may be anywhere."""
    keyed = [one for one in records if one.key is not None]
    free = [one._replace(partition=None) for one in records if one.key is None]
    return keyed, sorted(free, key=repr)


@pytest.fixture
def written(kafka_cluster: KafkaCluster, new_topic: Callable[[int], str]) -> Written:
    return Written(kafka_cluster, new_topic)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """Rows of every kind, in one task, so that they have an order."""
    return spark.sql(ROWS).coalesce(1)


@pytest.mark.promise("Spark writes the same records as with its own Kafka sink")
def test_a_frame_becomes_the_same_records(rows: DataFrame, written: Written) -> None:
    for source, topic in written.topics.items():
        writer = rows.write.format(source).mode("append")
        writer.options(**written.options(topic=topic)).save()
    official, ours = written.both(written.topics)
    assert len(ours) == 60
    assert by_partition(ours) == by_partition(official)


@pytest.mark.promise("Spark writes the same records as with its own Kafka sink")
def test_a_stream_becomes_the_same_records(
    spark: SparkSession, rows: DataFrame, written: Written, tmp_path: Path
) -> None:
    rows.write.parquet(str(tmp_path / "rows"))
    for source, topic in written.topics.items():
        stream = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))
        query = (
            stream.writeStream.format(source)
            .options(**written.options(topic=topic))
            .option("checkpointLocation", str(tmp_path / source))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(200)
    official, ours = written.both(written.topics)
    assert len(ours) == 60
    assert by_partition(ours) == by_partition(official)


@pytest.mark.promise("Spark writes the same records as with its own Kafka sink")
def test_settings_of_the_producer_spread_records_alike(rows: DataFrame, written: Written) -> None:
    """Rows that name no partition take their turns, so that partitions have equally many."""
    settings = {
        "kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner",
        "kafka.compression.type": "lz4",
        # Without effect on both, as there is no transaction.
        "kafka.transaction.timeout.ms": "30000",
    }
    for source, topic in written.topics.items():
        writer = rows.drop("partition").write.format(source).mode("append")
        writer.options(**written.options(topic=topic, **settings)).save()
    official, ours = written.both(written.topics)
    free = [one._replace(partition=None) for one in ours]
    assert sorted(free, key=repr) == sorted(
        (one._replace(partition=None) for one in official), key=repr
    )
    assert Counter(one.partition for one in ours) == dict.fromkeys(range(PARTITION_COUNT), 12)


@pytest.mark.promise("Spark writes the same records as with its own Kafka sink")
def test_rows_become_records_without_an_acknowledgement(rows: DataFrame, written: Written) -> None:
    for source, topic in written.topics.items():
        writer = rows.write.format(source).mode("append")
        writer.options(**written.options(topic=topic, **{"kafka.acks": "0"})).save()

    def is_equal() -> bool:
        official, ours = written.both(written.topics)
        return len(ours) == 60 and by_partition(ours) == by_partition(official)

    # The writes end before brokers have every row.
    await_true(is_equal, "brokers have what both sinks have written", TIMEOUT_S)


def test_the_column_names_topics_unless_the_option_does(
    spark: SparkSession, written: Written
) -> None:
    for source in (OFFICIAL, OURS):
        first, second = written.topics[source], written.others[source]
        frame = spark.sql(
            f"SELECT IF(id < 20, '{first}', '{second}') AS topic, concat('v', id) AS value, "
            "encode(concat('k', id % 9), 'UTF-8') AS key FROM range(30)"
        ).coalesce(1)
        frame.write.format(source).mode("append").options(**written.options()).save()
        elsewhere = frame.selectExpr("'no topic!' AS topic", "value", "key")
        writer = elsewhere.write.format(source).mode("append")
        writer.options(**written.options(topic=f" {second} ")).save()
    for topics, count in ((written.topics, 20), (written.others, 40)):
        official, ours = written.both(topics)
        assert len(ours) == count
        assert ours == official


REFUSED: Final[Mapping[str, tuple[str, Mapping[str, str], str]]] = {
    # The frame, options, and what this connector says.
    "no topic": ("SELECT 'v' AS value", {"topic": ""}, "Give the option 'topic'"),
    "a row without a topic": (
        "SELECT 'v' AS value, CAST(NULL AS STRING) AS topic",
        {},
        "Row 0 of this task has no topic",
    ),
    "no value": ("SELECT 'v' AS key", {"topic": "any"}, "no column 'value'"),
    "nothing as value": ("SELECT NULL AS value", {"topic": "any"}, "'value' has type void"),
    "a number as value": ("SELECT 1 AS value", {"topic": "any"}, "'value' has type int"),
    "a number as key": ("SELECT 1 AS key, 'v' AS value", {"topic": "any"}, "'key' has type int"),
    "a number as topic": ("SELECT 1 AS topic, 'v' AS value", {}, "'topic' has type int"),
    "a long as partition": (
        "SELECT 1L AS partition, 'v' AS value",
        {"topic": "any"},
        "'partition' has type bigint",
    ),
    "headers as a map": (
        "SELECT map('a', X'00') AS headers, 'v' AS value",
        {"topic": "any"},
        "'headers' has type map<string,binary>",
    ),
    "headers as text": (
        "SELECT array(named_struct('key', 'a', 'value', 'b')) AS headers, 'v' AS value",
        {"topic": "any"},
        "'headers' has type array<struct<key:string,value:string>>",
    ),
    "a header without a name": (
        "SELECT array(named_struct('key', CAST(NULL AS STRING), 'value', X'00')) AS headers, "
        "'v' AS value",
        {"topic": "$topic"},
        "header",
    ),
    "a partition that does not exist": (
        "SELECT 99 AS partition, 'v' AS value",
        {"topic": "$topic"},
        "99",
    ),
    "a negative partition": (
        "SELECT -1 AS partition, 'v' AS value",
        {"topic": "$topic"},
        "-1",
    ),
    "a name that no topic has": ("SELECT 'v' AS value", {"topic": "a b"}, "a b"),
    "a record that no broker takes": (
        "SELECT repeat('v', 2000000) AS value",
        {"topic": "$topic"},
        "Row 0 of this task",
    ),
    "key.serializer": (
        "SELECT 'v' AS value",
        {"topic": "any", "kafka.key.serializer": "x"},
        "cannot be used",
    ),
    "value.serializer": (
        "SELECT 'v' AS value",
        {"topic": "any", "kafka.value.serializer": "x"},
        "cannot be used",
    ),
    "acks": ("SELECT 'v' AS value", {"topic": "$topic", "kafka.acks": "some"}, "acks"),
    "transaction.timeout.ms": (
        "SELECT 'v' AS value",
        {"topic": "$topic", "kafka.transaction.timeout.ms": "soon"},
        "must be an integer, not 'soon'",
    ),
    "transactional.id": (
        "SELECT 'v' AS value",
        # The official sink fails when it sends, and ends after the time of a delivery.
        {
            "topic": "$topic",
            "kafka.transactional.id": "x",
            "kafka.delivery.timeout.ms": "1500",
            "kafka.request.timeout.ms": "1000",
        },
        "Option 'kafka.transactional.id' cannot be used",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_official_sink_refuses_is_refused(
    spark: SparkSession, written: Written, name: str
) -> None:
    query, given, complaint = REFUSED[name]
    frame = spark.sql(query)
    options = written.options(**{"kafka.max.block.ms": "1000"}, **given)
    if options.get("topic") == "$topic":
        options["topic"] = written.topics[OFFICIAL]
    with pytest.raises((Py4JJavaError, PySparkException)):
        frame.write.format(OFFICIAL).mode("append").options(**options).save()
    with pytest.raises(KafkaError) as caught:
        # As Spark's processes have it done.
        Sink.from_spark(options, frame.schema).write(frame.toArrow().to_batches())
    assert complaint in str(caught.value)


def test_columns_in_capitals_are_written_here_only(spark: SparkSession, written: Written) -> None:
    """Names of Spark's columns are not case-sensitive, but the official sink's are."""
    frame = spark.sql("SELECT 'v' AS Value")
    options = written.options(topic=written.topics[OURS])
    with pytest.raises(PySparkException, match="'value' not found"):
        frame.write.format(OFFICIAL).mode("append").options(**options).save()
    wrote = Sink.from_spark(options, frame.schema).write(frame.toArrow().to_batches())
    assert wrote.row_count == 1
