"""Our clients with brokers that are not Kafka: librdkafka's mock cluster.

Goal: we keep to the protocol, and not to what Kafka's brokers happen to do. The mock is stricter in
places (it has no version that it does not list) and looser in others: it refuses our ApiVersions
in bytes that no version of the protocol has, and ends Metadata a byte too late. Groups come with
the consumer's.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import confluent_kafka
import pytest

from pykclient import Admin, Consumer, Producer, TopicPartition

if TYPE_CHECKING:
    from pykclient import ConsumerRecord, RecordMetadata

COUNT = 500
PARTITION_COUNT = 4
"""Number of partitions of each topic that the mock creates by itself."""
TIMEOUT_S = 30.0
HEADERS = (("name", b"x"), ("none", None))


class MockCluster(NamedTuple):
    """Brokers of librdkafka's, behind real sockets, as long as their owner lives."""

    owner: confluent_kafka.Producer
    bootstrap_servers: str


class Placed(NamedTuple):
    """The partition and offset with which a record was acknowledged."""

    partition: int
    offset: int


@pytest.fixture(scope="module")
def mock_cluster() -> MockCluster:
    # The client that owns them also logs it, at level 5.
    owner = confluent_kafka.Producer({"test.mock.num.brokers": 3, "log_level": 3})
    known = owner.list_topics(timeout=TIMEOUT_S).brokers.values()
    return MockCluster(owner, ",".join(f"{broker.host}:{broker.port}" for broker in known))


def produce(cluster: MockCluster, topic: str, **settings: object) -> list[Placed]:
    """Write the numbered records to a topic, which is made thereby."""
    with Producer(settings, bootstrap_servers=cluster.bootstrap_servers) as producer:
        deliveries = [
            producer.send(topic, b"%d" % number, key=b"%d" % (number % 17), headers=HEADERS)
            for number in range(COUNT)
        ]
        producer.flush(timeout=TIMEOUT_S)
    return [placed(delivery.result()) for delivery in deliveries]


def placed(metadata: RecordMetadata) -> Placed:
    assert metadata.offset is not None
    return Placed(metadata.partition, metadata.offset)


def consume(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(records) < count and time.monotonic() < deadline_s:
        records.extend(consumer.poll(1.0))
    return records


def partitions_of(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(PARTITION_COUNT)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", 1])
def test_what_is_acknowledged_is_read_at_its_place_and_in_order(
    mock_cluster: MockCluster, codec: str, acks: str | int
) -> None:
    topic = f"mock-{codec}-{acks}"
    written = produce(
        mock_cluster, topic, compression_type=codec, acks=acks, enable_idempotence=acks == "all"
    )
    with Consumer(
        bootstrap_servers=mock_cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(partitions_of(topic))
        records = consume(consumer, COUNT)
    found = {(record.partition, record.offset): record for record in records}
    assert len(found) == len(records) == COUNT
    for number, place in enumerate(written):
        record = found[place]
        assert (record.key, record.value) == (b"%d" % (number % 17), b"%d" % number)
        assert tuple(record.headers) == HEADERS
    by_partition: dict[int, list[int]] = defaultdict(list)
    for record in records:
        by_partition[record.partition].append(record.offset)
    assert all(offsets == list(range(len(offsets))) for offsets in by_partition.values())


def test_offsets_and_seeks(mock_cluster: MockCluster) -> None:
    topic = f"mock-{uuid.uuid4().hex[:8]}"
    written = produce(mock_cluster, topic)
    partition = TopicPartition(topic, written[-1].partition)
    end = written[-1].offset + 1
    with Consumer(bootstrap_servers=mock_cluster.bootstrap_servers) as consumer:
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: end}
        consumer.assign([partition])
        consumer.seek(partition, end - 1)
        (last,) = consume(consumer, 1)
        assert (last.offset, last.value) == (end - 1, b"%d" % (COUNT - 1))


def test_its_brokers_and_topics_are_listed(mock_cluster: MockCluster) -> None:
    topic = f"mock-{uuid.uuid4().hex[:8]}"
    produce(mock_cluster, topic)
    with Admin(bootstrap_servers=mock_cluster.bootstrap_servers) as admin:
        assert topic in admin.list_topics()
