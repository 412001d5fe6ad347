"""The consumer against real brokers: what others wrote is read, whole and in order."""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections import defaultdict
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from pykclient import Consumer, TopicPartition
from tests.integration.confluent_tools import confluent_create_topic, confluent_produce
from tests.integration.java_tools import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient import ConsumerRecord
    from pykclient.testing import KafkaCluster

pytestmark = pytest.mark.kafka

TIMEOUT_S = 30.0
PARTITION_COUNT = 3


def as_read(record: ConsumerRecord) -> Record:
    assert record.value is None or isinstance(record.value, bytes)
    assert record.key is None or isinstance(record.key, bytes)
    return Record(record.value, record.key, record.headers).placed(
        record.partition, record.offset, record.timestamp_ms
    )


def partitions_of(topic: str, count: int = PARTITION_COUNT) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def open_consumer(cluster: KafkaCluster, **settings: object) -> Consumer:
    return Consumer(
        {"auto_offset_reset": "earliest", **settings},
        bootstrap_servers=cluster.bootstrap_servers,
    )


def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """Poll until there were `count` records, or nothing came for too long."""
    records: list[ConsumerRecord] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(records) < count and time.monotonic() < deadline_s:
        records.extend(consumer.poll(1.0))
    return records


def by_place(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: (record.partition, record.offset))


def numbered(count: int, partition: int | None = None) -> list[Record]:
    return [Record(value=b"%d" % number, partition=partition) for number in range(count)]


@pytest.mark.promise("`poll` returns available records within its timeout")
def test_many_records_come_once_each_in_order(any_kafka_cluster: KafkaCluster) -> None:
    topic = confluent_create_topic(any_kafka_cluster, "many", partition_count=PARTITION_COUNT)
    written = confluent_produce(any_kafka_cluster, topic, numbered(30_000), "lz4")
    with open_consumer(any_kafka_cluster, max_partition_fetch_bytes=20_000) as consumer:
        consumer.assign(partitions_of(topic))
        records = read(consumer, len(written))
        offsets = defaultdict(list)
        for record in records:
            offsets[record.partition].append(record.offset)
        assert {number: len(found) for number, found in offsets.items()} == {
            number: consumer.position(TopicPartition(topic, number)) for number in offsets
        }
        assert all(found == list(range(len(found))) for found in offsets.values())
    assert sorted(r.value for r in records) == sorted(r.value for r in written)  # type: ignore[type-var]


@pytest.mark.promise("offsets by time, lag, and reset by duration work")
def test_offsets_are_found_by_place_and_by_time(each_kafka_cluster: KafkaCluster) -> None:
    topic = confluent_create_topic(each_kafka_cluster, "times", partition_count=2)
    confluent_produce(
        each_kafka_cluster,
        topic,
        [Record(value=b"v", partition=0, timestamp_ms=1_000 * number) for number in range(1, 11)],
    )
    full, empty = partitions_of(topic, 2)
    with open_consumer(each_kafka_cluster) as consumer:
        assert consumer.beginning_offsets([full, empty]) == {full: 0, empty: 0}
        assert consumer.end_offsets([full, empty]) == {full: 10, empty: 0}
        found = consumer.offsets_for_times({full: 4_500, empty: 0})
        assert found[empty] is None
        first = found[full]
        assert first is not None
        assert (first.offset, first.timestamp_ms) == (4, 5_000)
        assert consumer.offsets_for_times({full: 10_001}) == {full: None}
        assert [p.partition for p in consumer.partitions_for(topic)] == [0, 1]
        assert len(consumer.list_topics()[topic]) == 2


@pytest.mark.promise("`seek` moves the position and drops fetched records")
def test_seeks_and_pauses_hold_while_records_come(any_kafka_cluster: KafkaCluster) -> None:
    topic = confluent_create_topic(any_kafka_cluster, "seek", partition_count=2)
    confluent_produce(any_kafka_cluster, topic, [*numbered(3_000, 0), *numbered(3_000, 1)])
    one, two = partitions_of(topic, 2)
    dice = random.Random(7)
    with open_consumer(any_kafka_cluster) as consumer:
        consumer.assign([one, two])
        due = {0: 0, 1: 0}
        for _ in range(200):
            for record in consumer.poll(0.5, dice.randint(1, 200)):
                assert record.offset == due[record.partition]
                assert record.value == b"%d" % record.offset
                due[record.partition] += 1
            partition = dice.choice([one, two])
            offset = dice.randint(0, 2_900)
            consumer.seek(partition, offset)
            due[partition.partition] = offset
            consumer.resume([one, two])
            if dice.random() < 0.5:
                consumer.pause([dice.choice([one, two])])


def transactions(cluster: KafkaCluster, topic: str) -> confluent_kafka.Producer:
    """Write a committed, an aborted and another committed transaction, and leave one open."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": uuid.uuid4().hex,
            "linger.ms": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    for value, end in (
        (b"one", producer.commit_transaction),
        (b"aborted", producer.abort_transaction),
        (b"two", producer.commit_transaction),
        (b"open", producer.flush),
    ):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, value, partition=0)
        producer.flush(TIMEOUT_S)
        end(TIMEOUT_S)
    return producer


@pytest.mark.promise(
    "read_committed consumers see no other records; checksums are verified unless disabled"
)
def test_read_committed_returns_committed_records_only(each_kafka_cluster: KafkaCluster) -> None:
    topic = confluent_create_topic(each_kafka_cluster, "transactions")
    producer = transactions(each_kafka_cluster, topic)
    (partition,) = partitions_of(topic, 1)
    with open_consumer(each_kafka_cluster, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        # Nine records and three markers come before the transaction that is open.
        assert consumer.end_offsets([partition]) == {partition: 12}
        assert [r.value for r in read(consumer, 6)] == [b"one"] * 3 + [b"two"] * 3
        assert consumer.position(partition) == 12
        assert consumer.current_lag(partition) == 0
        assert len(consumer.poll(0.5)) == 0
        until = {partition: 12}
        consumer.seek(partition, 8)
        while consumer.position(partition) < 12:
            rows = consumer.poll_arrow(TIMEOUT_S, until=until)
            assert set(rows.column("value").to_pylist()) <= {b"two"}
        producer.commit_transaction(TIMEOUT_S)
        assert [r.value for r in read(consumer, 3)] == [b"open"] * 3
    with open_consumer(each_kafka_cluster) as consumer:
        consumer.assign([partition])
        assert len(read(consumer, 12)) == 12
        assert consumer.position(partition) == 16


def test_records_that_retention_took_are_skipped_with_a_warning(
    any_kafka_cluster: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = confluent_create_topic(any_kafka_cluster, "retention")
    confluent_produce(any_kafka_cluster, topic, numbered(10, 0))
    (partition,) = partitions_of(topic, 1)
    admin = AdminClient({"bootstrap.servers": any_kafka_cluster.bootstrap_servers})
    with open_consumer(any_kafka_cluster) as consumer:
        consumer.assign([partition])
        assert [record.offset for record in consumer.poll(TIMEOUT_S, 2)] == [0, 1]
        for done in admin.delete_records([confluent_kafka.TopicPartition(topic, 0, 6)]).values():
            done.result(TIMEOUT_S)
        consumer.seek(partition, 1)
        with caplog.at_level(logging.WARNING, "pykclient.consumer"):
            assert [record.offset for record in read(consumer, 4)] == [6, 7, 8, 9]
        assert f"{topic}-0: offset 1" in caplog.text
        assert "5 offsets were skipped" in caplog.text
        assert consumer.beginning_offsets([partition]) == {partition: 6}
