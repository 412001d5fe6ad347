"""The producer against a real broker, read back by librdkafka."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from pykclient import (
    Consumer,
    Producer,
    ProducerRecord,
    TopicPartition,
    errors,
)
from pykclient.errors import (
    BufferExhaustedError,
    ForkedClientError,
    UsageError,
)
from tests.integration.confluent_tools import confluent_consume, confluent_create_topic
from tests.integration.java_tools import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient import Delivery, RecordMetadata
    from pykclient.testing import KafkaCluster

pytestmark = pytest.mark.kafka

TIMEOUT_S = 30.0


@pytest.fixture
def topic(any_kafka_cluster: KafkaCluster) -> str:
    return confluent_create_topic(any_kafka_cluster, "producer")


@pytest.fixture
def producer(any_kafka_cluster: KafkaCluster) -> Iterator[Producer]:
    with Producer(bootstrap_servers=any_kafka_cluster.bootstrap_servers) as producer:
        yield producer


def values(cluster: KafkaCluster, topic: str, count: int) -> list[bytes | None]:
    return [record.value for record in confluent_consume(cluster, topic, count)]


@pytest.mark.promise("acks 0, 1 and all are supported")
@pytest.mark.promise("`send` returns a delivery that reports partition, offset and timestamp")
@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_every_kind_of_acknowledgement_is_waited_for(
    each_kafka_cluster: KafkaCluster, acks: object
) -> None:
    topic = confluent_create_topic(each_kafka_cluster, f"producer-acks-{acks}")
    _await_leader(each_kafka_cluster, topic)
    servers = each_kafka_cluster.bootstrap_servers
    with Producer({"acks": acks}, bootstrap_servers=servers) as producer:
        deliveries = [producer.send(topic, b"%d" % number) for number in range(3)]
        offsets = [delivery.result(TIMEOUT_S).offset for delivery in deliveries]
    assert offsets == ([None] * 3 if acks == 0 else [0, 1, 2])
    assert values(each_kafka_cluster, topic, 3) == [b"0", b"1", b"2"]


def _await_leader(cluster: KafkaCluster, topic: str) -> None:
    """Wait until the partition has a leader: with acks=0, earlier records are lost by design."""
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        assert consumer.end_offsets([partition]) == {partition: 0}


def test_a_record_object_is_sent_as_its_fields(
    any_kafka_cluster: KafkaCluster, producer: Producer, topic: str
) -> None:
    record = ProducerRecord(topic, b"v", b"k", timestamp_ms=5, headers=[("h", b"x")])
    metadata = producer.send(record).result(TIMEOUT_S)
    assert (metadata.topic, metadata.partition, metadata.timestamp_ms) == (topic, 0, 5)
    (read,) = confluent_consume(any_kafka_cluster, topic, 1)
    assert read == Record(b"v", b"k", (("h", b"x"),)).placed(0, 0, 5)
    with pytest.raises(UsageError, match="on_delivery"):
        producer.send(record, b"other")  # type: ignore[call-overload]


def test_a_callback_may_send_but_not_wait(
    any_kafka_cluster: KafkaCluster, producer: Producer, topic: str
) -> None:
    refusals: list[BaseException | None] = []
    chained: list[Delivery[RecordMetadata]] = []
    finished = threading.Event()

    def refusal(call: object) -> BaseException | None:
        assert callable(call)
        try:
            call()
        except errors.KafkaError as error:
            return error
        return None

    def on_delivery(metadata: RecordMetadata, error: Exception | None) -> None:
        chained.append(producer.send(topic, b"second"))
        refusals.append(refusal(chained[0].result))
        refusals.append(refusal(producer.flush))
        refusals.append(refusal(lambda: producer.send("a-topic-not-known", b"v")))
        finished.set()

    producer.send(topic, b"first", on_delivery=on_delivery)
    assert finished.wait(TIMEOUT_S)
    assert [type(error) for error in refusals] == [UsageError, UsageError, BufferExhaustedError]
    assert chained[0].result(TIMEOUT_S).offset == 1
    assert values(any_kafka_cluster, topic, 2) == [b"first", b"second"]


def test_a_topic_that_grows_is_used_as_it_is(
    any_kafka_cluster: KafkaCluster, producer: Producer, topic: str
) -> None:
    producer.send(topic, b"v", partition=0).result(TIMEOUT_S)
    admin = AdminClient({"bootstrap.servers": any_kafka_cluster.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
    metadata = producer.send(topic, b"v", partition=2).result(TIMEOUT_S)
    assert metadata[:2] == TopicPartition(topic, 2)


def test_a_child_process_is_refused_and_the_parent_goes_on(producer: Producer, topic: str) -> None:
    pending = producer.send(topic, b"before")
    child = os.fork()
    if child == 0:
        os._exit(_refusal_count(producer, topic, pending))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert pending.result(TIMEOUT_S).offset == 0
    assert producer.send(topic, b"after").result(TIMEOUT_S).offset == 1


def _refusal_count(producer: Producer, topic: str, pending: Delivery[RecordMetadata]) -> int:
    refusal_count = 0
    for call in (lambda: producer.send(topic, b"v"), lambda: pending.result(1), producer.flush):
        try:
            call()
        except ForkedClientError:
            refusal_count += 1
    producer.close()
    return refusal_count
