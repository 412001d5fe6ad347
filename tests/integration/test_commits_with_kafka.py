"""Offsets in real brokers: what Java sees of ours and we of its, and what only Kafka does."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from pykclient import OffsetAndMetadata, TopicPartition
from pykclient.errors import KafkaTimeoutError
from tests.integration.assigned_reader import (
    COUNT,
    FETCH_WAIT_MS,
    TIMEOUT_S,
    read,
    reader,
    write,
)
from tests.integration.confluent_tools import confluent_create_topic
from tests.integration.java_tools import java_consume, java_group_rows

if TYPE_CHECKING:
    from pykclient.testing import KafkaCluster

pytestmark = pytest.mark.kafka


@pytest.fixture
def topic(kafka_cluster: KafkaCluster) -> str:
    """A topic of two partitions with records."""
    name = confluent_create_topic(kafka_cluster, "commits", partition_count=2)
    write(kafka_cluster.bootstrap_servers, name, 2)
    return name


@pytest.mark.promise("Java and we see each other's commits")
def test_javas_tool_sees_what_is_committed_here(kafka_cluster: KafkaCluster, topic: str) -> None:
    group = uuid.uuid4().hex
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with reader(
        kafka_cluster.bootstrap_servers, first, second, group_id=group, enable_auto_commit=False
    ) as consumer:
        read(consumer, COUNT)
        consumer.commit()
        consumer.commit({second: OffsetAndMetadata(7, "a note", 0)})
        told = consumer.committed([first, second])
    assert told == {
        first: OffsetAndMetadata(COUNT // 2, leader_epoch=0),
        second: OffsetAndMetadata(7, "a note", 0),
    }
    rows = java_group_rows(kafka_cluster, "--describe", "--group", group)
    seen = {(row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in rows}
    assert seen == {("0", str(COUNT // 2), "0"), ("1", "7", str(COUNT // 2 - 7))}


@pytest.mark.promise("Java and we see each other's commits")
def test_it_goes_on_where_javas_consumer_has_committed(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    group = uuid.uuid4().hex
    settings = {"group.id": group, "enable.auto.commit": "true"}
    records = java_consume(kafka_cluster, topic, 30, settings=settings)
    ends = dict.fromkeys(range(2), 0)
    for record in records:
        assert record.partition is not None
        assert record.offset is not None
        ends[record.partition] = record.offset + 1
    partitions = [TopicPartition(topic, number) for number in ends]
    with reader(kafka_cluster.bootstrap_servers, *partitions, group_id=group) as consumer:
        assert [consumer.position(each) for each in partitions] == list(ends.values())


@pytest.mark.promise(
    "offsets are committed with metadata and leader epochs, and read back, in every version"
)
def test_offsets_are_kept_by_old_brokers_too(old_kafka_cluster: KafkaCluster) -> None:
    servers, group = old_kafka_cluster.bootstrap_servers, uuid.uuid4().hex
    name = confluent_create_topic(old_kafka_cluster, "commits")
    partition = TopicPartition(name, 0)
    write(servers, name, 1)
    with reader(servers, partition, group_id=group) as consumer:
        read(consumer, 10)
    with reader(servers, partition, group_id=group) as consumer:
        assert consumer.position(partition) == 10


@pytest.mark.promise("a commit does not wait behind a fetch")
def test_a_commit_does_not_wait_behind_a_fetch_of_a_real_broker(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    with reader(
        kafka_cluster.bootstrap_servers,
        TopicPartition(topic, 0),
        group_id=uuid.uuid4().hex,
        enable_auto_commit=False,
        fetch_max_wait_ms=FETCH_WAIT_MS,
    ) as consumer:
        read(consumer, COUNT // 2)
        started_s = time.monotonic()
        consumer.commit()
        assert time.monotonic() - started_s < FETCH_WAIT_MS / 1_000 / 2


@pytest.mark.promise("offsets of an open transaction are waited for")
def test_offsets_of_an_open_transaction_are_waited_for(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    group, partition = uuid.uuid4().hex, TopicPartition(topic, 0)
    servers = kafka_cluster.bootstrap_servers
    reading = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
    writing = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": group})
    writing.init_transactions(TIMEOUT_S)
    writing.begin_transaction()
    offsets = [confluent_kafka.TopicPartition(topic, 0, 5)]
    writing.send_offsets_to_transaction(offsets, reading.consumer_group_metadata(), TIMEOUT_S)
    with reader(servers, group_id=group, enable_auto_commit=False) as consumer:
        with pytest.raises(KafkaTimeoutError, match="UNSTABLE_OFFSET_COMMIT"):
            consumer.committed([partition], timeout=1.0)
        writing.commit_transaction(TIMEOUT_S)
        assert consumer.committed([partition])[partition] == OffsetAndMetadata(5)
    reading.close()
