"""Brokers die and freeze under the producer: nothing is lost, doubled or reordered.

An independent client, librdkafka, reads the log back.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pykclient import Admin, NewTopic, Producer
from pykclient.errors import ClosedError, DeliveryTimeoutError
from tests.integration.confluent_tools import confluent_consume

if TYPE_CHECKING:
    from pykclient import Delivery, RecordMetadata
    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITION_COUNT = 3
TIMEOUT_S = 60.0
RECORDS_A_TICK = 10
TICK_S = 0.01
MARKER = b"marker"
WITHOUT_BRACKETS = str.maketrans("[", "-", "]")


@pytest.fixture(scope="module")
def kafka(kafka_cluster_factory: KafkaClusterFactory) -> KafkaCluster:
    """Three brokers; the controller soon gives up one that is silent."""
    return kafka_cluster_factory(
        brokers=3,
        config={"broker.session.timeout.ms": 3_000, "broker.heartbeat.interval.ms": 500},
    )


@pytest.fixture
def topic(kafka: KafkaCluster, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.translate(WITHOUT_BRACKETS)
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics(
            [
                NewTopic(
                    name,
                    num_partitions=PARTITION_COUNT,
                    replication_factor=3,
                    config={"min.insync.replicas": "2"},
                )
            ]
        )
    return name


class Sent(NamedTuple):
    """One record."""

    number: int
    partition: int
    delivery: Delivery[RecordMetadata]


class Load:
    """A thread that sends numbered records at a steady rate while a test breaks things."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.sent: list[Sent] = []
        self.marker_count = 0
        self._producer = producer
        self._topic = topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        self.await_progress()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(TIMEOUT_S)

    def await_progress(self) -> None:
        """Wait until every partition has acknowledged something that was sent from now on."""
        markers = [
            self._producer.send(self._topic, MARKER, partition=partition)
            for partition in range(PARTITION_COUNT)
        ]
        self.marker_count += len(markers)
        for marker in markers:
            marker.result(TIMEOUT_S)

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(TICK_S):
            for _ in range(RECORDS_A_TICK):
                partition = number % PARTITION_COUNT
                delivery = self._producer.send(self._topic, b"%d" % number, partition=partition)
                self.sent.append(Sent(number, partition, delivery))
                number += 1


def check_log(kafka: KafkaCluster, topic: str, load: Load) -> None:
    """Compare the log with what the producer told: every record is acknowledged and there once."""
    assert len(load.sent) > 300
    failures = [entry for entry in load.sent if entry.delivery.exception(TIMEOUT_S) is not None]
    assert failures == []
    numbers: dict[int, list[int]] = {partition: [] for partition in range(PARTITION_COUNT)}
    for record in confluent_consume(kafka, topic, len(load.sent) + load.marker_count):
        assert record.value is not None
        assert record.partition is not None
        if record.value != MARKER:
            numbers[record.partition].append(int(record.value))
    for partition, found in numbers.items():
        sent = [entry.number for entry in load.sent if entry.partition == partition]
        lost = sorted(set(sent) - set(found))
        doubled = [number for number, count in Counter(found).items() if count > 1]
        assert (lost, doubled) == ([], [])
        assert found == sent, "reordered"


@pytest.mark.parametrize("count", [1, pytest.param(PARTITION_COUNT, marks=pytest.mark.soak)])
def test_killed_leaders_cost_nothing(kafka: KafkaCluster, topic: str, count: int) -> None:
    with (
        Producer(bootstrap_servers=kafka.bootstrap_servers, compression_type="lz4") as producer,
        Load(producer, topic) as load,
    ):
        for partition in range(count):
            leader = kafka.leader(topic, partition)
            kafka.kill(leader)
            load.await_progress()
            kafka.start(leader)
            load.await_progress()
    check_log(kafka, topic, load)


def test_a_leader_that_freezes_and_comes_back_as_a_zombie_costs_nothing(
    kafka: KafkaCluster, topic: str
) -> None:
    with (
        Producer(
            bootstrap_servers=kafka.bootstrap_servers,
            request_timeout_ms=2_000,
            delivery_timeout_ms=60_000,
        ) as producer,
        Load(producer, topic) as load,
    ):
        for partition in range(2):
            leader = kafka.leader(topic, partition)
            kafka.pause(leader)
            load.await_progress()  # by now another broker leads, and the requests were given up
            kafka.resume(leader)
            load.await_progress()
    check_log(kafka, topic, load)


def test_with_all_brokers_frozen_deliveries_run_out_of_time_and_close_ends(
    kafka: KafkaCluster, topic: str
) -> None:
    with Producer(
        bootstrap_servers=kafka.bootstrap_servers,
        request_timeout_ms=1_000,
        delivery_timeout_ms=1_500,
        linger_ms=0,
    ) as producer:
        producer.send(topic, b"v", partition=0).result(TIMEOUT_S)
        for broker in (1, 2, 3):
            kafka.pause(broker)
        try:
            late = producer.send(topic, b"late", partition=0)
            assert isinstance(late.exception(TIMEOUT_S), DeliveryTimeoutError)
            left = producer.send(topic, b"left", partition=0)
            producer.close(timeout=0.2)
            assert isinstance(left.exception(0), ClosedError)
        finally:
            for broker in (1, 2, 3):
                kafka.resume(broker)
