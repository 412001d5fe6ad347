"""Partitions that a topic gets while clients run: written by the producer, read by the group."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, NewPartitions, NewTopic, Producer, TopicPartition
from pykclient.errors import InvalidPartitionsError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from pykclient.testing import FakeKafka, KafkaCluster

TIMEOUT_S = 30.0
METADATA_AGE_MS = 200
FULL = 3


def read(consumer: Consumer, value: bytes) -> None:
    """Poll until this value comes."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while value not in [record.value for record in consumer.poll(1.0)]:
        assert time.monotonic() < deadline_s


def grow_under_clients(servers: str) -> None:
    topic = f"growing-{uuid.uuid4().hex[:8]}"
    common = {"bootstrap_servers": servers, "metadata_max_age_ms": METADATA_AGE_MS}
    with (
        Admin(bootstrap_servers=servers) as admin,
        Producer(common, linger_ms=0) as producer,
        Consumer(common, group_id=topic, auto_offset_reset="earliest") as consumer,
    ):
        admin.create_topics([NewTopic(topic, 1, 1)])
        producer.send(topic, b"before", partition=0).result(TIMEOUT_S)
        consumer.subscribe([topic])
        read(consumer, b"before")
        admin.create_partitions({topic: NewPartitions(FULL)}, validate_only=True)
        assert len(admin.describe_topics([topic])[topic].partitions) == 1
        admin.create_partitions({topic: NewPartitions(FULL)})
        places = admin.describe_topics([topic])[topic].partitions
        assert [each.leader_id is not None for each in places] == [True] * FULL
        producer.send(topic, b"after", partition=FULL - 1).result(TIMEOUT_S)
        read(consumer, b"after")
        assert consumer.assignment() == {TopicPartition(topic, n) for n in range(FULL)}
        with pytest.raises(InvalidPartitionsError, match=f"{topic}.*{FULL}"):
            admin.create_partitions({topic: NewPartitions(1)})
        with pytest.raises(UnknownTopicOrPartitionError, match="absent"):
            admin.create_partitions({"absent": NewPartitions(2)})


@pytest.mark.kafka
def test_running_clients_use_new_partitions(each_kafka_cluster: KafkaCluster) -> None:
    grow_under_clients(each_kafka_cluster.bootstrap_servers)


def test_running_clients_use_new_partitions_of_fake_brokers(fake_kafka: FakeKafka) -> None:
    grow_under_clients(fake_kafka.bootstrap_servers)
