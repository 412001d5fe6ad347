"""`send_batch` and `send_arrow` against a real broker, read back by librdkafka."""

from __future__ import annotations

import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute
import pytest

from pykclient import (
    Admin,
    Consumer,
    NewTopic,
    Producer,
    RecordMetadataRange,
    TopicPartition,
)
from pykclient.errors import BatchDeliveryError, MessageTooLargeError
from tests.integration.confluent_tools import confluent_consume, confluent_create_topic
from tests.integration.java_tools import CODECS
from tests.integration.test_interoperability import SAMPLE_RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.testing import KafkaCluster
    from tests.integration.java_tools import Record

pytestmark = pytest.mark.kafka

TIMEOUT_S = 30.0
EPOCH_MS = 1_700_000_000_000


def unplaced(records: Iterable[Record]) -> list[str]:
    """Return records for comparison, without what the broker decides."""
    return sorted(
        repr((record.key, record.value, record.headers, record.timestamp_ms)) for record in records
    )


def as_table(records: Iterable[Record]) -> pa.Table:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.table(
        {
            "value": pa.array([record.value for record in records], pa.binary()),
            "key": pa.array([record.key for record in records], pa.binary()),
            "headers": pa.array([list(record.headers) for record in records], headers),
            "timestamp": pa.array(
                [record.timestamp_ms for record in records], pa.timestamp("ms", tz="UTC")
            ),
        }
    )


@pytest.mark.promise("`send_batch` and `send_arrow` deliver all kinds of records, in every codec")
@pytest.mark.parametrize("is_arrow", [False, True], ids=["batch", "arrow"])
@pytest.mark.parametrize("codec", CODECS)
def test_every_kind_of_record_arrives_with_every_codec(
    any_kafka_cluster: KafkaCluster, codec: str, is_arrow: bool
) -> None:
    topic = confluent_create_topic(any_kafka_cluster, f"bulk-{codec}", partition_count=3)
    records = [
        record._replace(timestamp_ms=record.timestamp_ms or EPOCH_MS) for record in SAMPLE_RECORDS
    ]
    with Producer(
        {"compression_type": codec}, bootstrap_servers=any_kafka_cluster.bootstrap_servers
    ) as producer:
        if is_arrow:
            delivery = producer.send_arrow(topic, as_table(records))
        else:
            delivery = producer.send_batch(
                topic,
                values=[record.value for record in records],
                keys=[record.key for record in records],
                headers=[record.headers for record in records],
                timestamps_ms=[record.timestamp_ms for record in records],
            )
        ranges = delivery.result(TIMEOUT_S)
    read = confluent_consume(any_kafka_cluster, topic, len(records))
    assert unplaced(read) == unplaced(records)
    assert placed(ranges) == Counter((record.partition, record.offset) for record in read)


def placed(ranges: Iterable[RecordMetadataRange]) -> Counter[tuple[int | None, int | None]]:
    return Counter(
        (found.partition, found.first_offset + index)
        for found in ranges
        for index in range(found.count)
        if found.first_offset is not None
    )


@pytest.mark.parametrize(
    "is_arrow",
    [pytest.param(False, marks=pytest.mark.soak), True],
    ids=["batch", "arrow"],
)
def test_a_million_records_arrive_once_each(kafka_cluster: KafkaCluster, is_arrow: bool) -> None:
    count = 1_000_000
    topic = confluent_create_topic(kafka_cluster, "bulk-million", partition_count=6)
    values = [b"%0100d" % number for number in range(count)]
    with Producer(
        bootstrap_servers=kafka_cluster.bootstrap_servers, batch_size=1_000_000
    ) as producer:
        if is_arrow:
            delivery = producer.send_arrow(topic, pa.table({"value": values}))
        else:
            delivery = producer.send_batch(topic, values)
        ranges = delivery.result(TIMEOUT_S)
    assert sum(found.count for found in ranges) == count
    partitions = [TopicPartition(topic, number) for number in range(6)]
    with Consumer(
        bootstrap_servers=kafka_cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        ends = consumer.end_offsets(partitions)
        assert sum(ends.values()) == count
        consumer.assign(partitions)
        logs: dict[TopicPartition, list[bytes | None]] = {each: [] for each in partitions}
        while any(consumer.position(each) < ends[each] for each in partitions):
            read = consumer.poll_arrow(TIMEOUT_S, max_records=100_000)
            for number in range(6):
                of_partition = read.filter(pa.compute.equal(read.column("partition"), number))
                logs[partitions[number]] += of_partition.column("value").to_pylist()
    # Without keys the ranges are in the order of the input.
    position = 0
    for _, partition, first, size in ranges:
        assert first is not None
        log = logs[TopicPartition(topic, partition)]
        assert log[first : first + size] == values[position : position + size]
        position += size


@pytest.mark.promise("a partial failure reports which rows were sent, which were not, and why")
def test_a_record_larger_than_the_topic_takes_fails_alone(kafka_cluster: KafkaCluster) -> None:
    topic = new_topic(kafka_cluster, "bulk-too-large", **{"max.message.bytes": "20000"})
    values = [b"%04d" % number for number in range(2_000)]
    values[1_234] = b"x" * 30_000
    with Producer(
        bootstrap_servers=kafka_cluster.bootstrap_servers, batch_size=100_000
    ) as producer:
        error = producer.send_batch(topic, values).exception(TIMEOUT_S)
    assert isinstance(error, BatchDeliveryError)
    assert error.failed == (range(1_234, 1_235),)
    assert error.sent == (range(1_234), range(1_235, 2_000))
    assert isinstance(error.errors[0], MessageTooLargeError)
    read = confluent_consume(kafka_cluster, topic, 1_999)
    assert [record.value for record in read] == values[:1_234] + values[1_235:]


def new_topic(cluster: KafkaCluster, name: str, **config: str) -> str:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        topic = f"{name}-{uuid.uuid4().hex[:8]}"
        admin.create_topics(
            [NewTopic(topic, num_partitions=1, replication_factor=1, config=config)]
        )
    return topic


def test_many_threads_send_in_bulk_and_one_by_one(kafka_cluster: KafkaCluster) -> None:
    topic = confluent_create_topic(kafka_cluster, "bulk-threads", partition_count=3)
    with (
        Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, linger_ms=20) as producer,
        ThreadPoolExecutor(4) as threads,
    ):

        def send_in_bulk(number: int) -> None:
            for turn in range(10):
                values = [b"bulk %d %d %d" % (number, turn, row) for row in range(1_000)]
                producer.send_batch(topic, values, values if number else None)

        def send_one_by_one(number: int) -> None:
            for turn in range(3_000):
                producer.send(topic, b"single %d %d" % (number, turn))

        done = [threads.submit(send_in_bulk, number) for number in range(2)]
        done += [threads.submit(send_one_by_one, number) for number in range(2)]
        for future in done:
            future.result(TIMEOUT_S)
        producer.flush(TIMEOUT_S)
    read = confluent_consume(kafka_cluster, topic, 26_000)
    expected = {b"single %d %d" % (number, turn) for number in range(2) for turn in range(3_000)}
    expected |= {
        b"bulk %d %d %d" % (number, turn, row)
        for number in range(2)
        for turn in range(10)
        for row in range(1_000)
    }
    assert Counter(record.value for record in read) == dict.fromkeys(expected, 1)
