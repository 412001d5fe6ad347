"""Three real brokers die, freeze and come back: producers, consumers and admins go on.

What a producer sent, an independent client, librdkafka, reads back: nothing is lost, doubled or
reordered.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pykclient import Admin, NewTopic, Producer
from pykclient.errors import ClosedError, DeliveryTimeoutError
from tests.integration.confluent_tools import (
    confluent_consume,
    confluent_create_topic,
    confluent_produce,
)
from tests.integration.test_consumer import (
    as_read,
    by_place,
    numbered,
    open_consumer,
    partitions_of,
    read,
)

if TYPE_CHECKING:
    from pykclient import Delivery, RecordMetadata
    from pykclient.testing import KafkaCluster

PARTITION_COUNT = 3
TIMEOUT_S = 60.0
RECORDS_A_TICK = 10
TICK_S = 0.01
MARKER = b"marker"
WITHOUT_BRACKETS = str.maketrans("[", "-", "]")


@pytest.fixture
def topic(three_brokers: KafkaCluster, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.translate(WITHOUT_BRACKETS)
    with Admin(bootstrap_servers=three_brokers.bootstrap_servers) as admin:
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


def check_log(three_brokers: KafkaCluster, topic: str, load: Load) -> None:
    """Compare the log with the reports: every record is acknowledged, and there once."""
    assert len(load.sent) > 300
    failures = [entry for entry in load.sent if entry.delivery.exception(TIMEOUT_S) is not None]
    assert failures == []
    numbers: dict[int, list[int]] = {partition: [] for partition in range(PARTITION_COUNT)}
    for record in confluent_consume(three_brokers, topic, len(load.sent) + load.marker_count):
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


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, pytest.param(PARTITION_COUNT, marks=pytest.mark.soak)])
def test_killed_leaders_cost_nothing(three_brokers: KafkaCluster, topic: str, count: int) -> None:
    with (
        Producer(
            bootstrap_servers=three_brokers.bootstrap_servers, compression_type="lz4"
        ) as producer,
        Load(producer, topic) as load,
    ):
        for partition in range(count):
            leader = three_brokers.leader(topic, partition)
            three_brokers.kill(leader)
            load.await_progress()
            three_brokers.start(leader)
            load.await_progress()
    check_log(three_brokers, topic, load)


@pytest.mark.soak
@pytest.mark.slow
def test_a_leader_that_freezes_and_comes_back_as_a_zombie_costs_nothing(
    three_brokers: KafkaCluster, topic: str
) -> None:
    with (
        Producer(
            bootstrap_servers=three_brokers.bootstrap_servers,
            request_timeout_ms=2_000,
            delivery_timeout_ms=60_000,
        ) as producer,
        Load(producer, topic) as load,
    ):
        for partition in range(2):
            leader = three_brokers.leader(topic, partition)
            three_brokers.pause(leader)
            load.await_progress()  # by now another broker leads, and the requests were given up
            three_brokers.resume(leader)
            load.await_progress()
    check_log(three_brokers, topic, load)


@pytest.mark.slow
def test_with_all_brokers_frozen_deliveries_run_out_of_time_and_close_ends(
    three_brokers: KafkaCluster, topic: str
) -> None:
    with Producer(
        bootstrap_servers=three_brokers.bootstrap_servers,
        request_timeout_ms=2_500,
        delivery_timeout_ms=3_000,
        linger_ms=0,
    ) as producer:
        producer.send(topic, b"v", partition=0).result(TIMEOUT_S)
        for broker in (1, 2, 3):
            three_brokers.pause(broker)
        try:
            late = producer.send(topic, b"late", partition=0)
            assert isinstance(late.exception(TIMEOUT_S), DeliveryTimeoutError)
            left = producer.send(topic, b"left", partition=0)
            producer.close(timeout=0.2)
            assert isinstance(left.exception(0), ClosedError)
        finally:
            for broker in (1, 2, 3):
                three_brokers.resume(broker)


@pytest.mark.soak
def test_reading_goes_on_when_leaders_die_and_come_back(three_brokers: KafkaCluster) -> None:
    topic = confluent_create_topic(
        three_brokers, "failover", partition_count=PARTITION_COUNT, replication_factor=3
    )
    written = confluent_produce(three_brokers, topic, numbered(3_000))
    with open_consumer(three_brokers) as consumer:
        partitions = partitions_of(topic)
        consumer.assign(partitions)
        records = read(consumer, len(written))
        for number in range(2):
            victim = three_brokers.leader(topic, number)
            three_brokers.kill(victim)
            try:
                written += confluent_produce(three_brokers, topic, numbered(300))
                records += read(consumer, len(written) - len(records))
            finally:
                three_brokers.start(victim)
        assert by_place(map(as_read, records)) == by_place(written)


@pytest.mark.slow
def test_reading_goes_on_soon_when_a_leader_hangs(three_brokers: KafkaCluster) -> None:
    topic = confluent_create_topic(three_brokers, "hang", replication_factor=3)
    confluent_produce(three_brokers, topic, numbered(10, 0))
    with open_consumer(three_brokers) as consumer:
        consumer.assign(partitions_of(topic, 1))
        assert len(read(consumer, 10)) == 10
        leader = three_brokers.leader(topic, 0)
        three_brokers.pause(leader)
        try:
            confluent_produce(three_brokers, topic, numbered(5, 0))
            started_s = time.monotonic()
            assert len(read(consumer, 5)) == 5
            # Far less than request_timeout_ms, after which the hanging leader would be given up.
            assert time.monotonic() - started_s < 15
        finally:
            three_brokers.resume(leader)


@pytest.mark.promise("`Admin` creates, deletes, lists and describes topics")
def test_all_brokers_know_a_topic_when_its_creation_returns(three_brokers: KafkaCluster) -> None:
    servers = three_brokers.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("spread", num_partitions=6, replication_factor=3)])
    for address in servers.split(","):
        with Admin(bootstrap_servers=address) as admin:
            partitions = admin.describe_topics(["spread"])["spread"].partitions
        assert all(p.leader_id is not None and len(p.replica_ids) == 3 for p in partitions)
    three_brokers.kill(2)
    try:
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic("one-down", num_partitions=2, replication_factor=2)])
            assert "one-down" in admin.list_topics()
    finally:
        three_brokers.start(2)
