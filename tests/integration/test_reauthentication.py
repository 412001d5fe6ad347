"""Clients that authenticate again every five seconds, under load: no record fails or moves."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pykclient.network.broker.connection import Connection
from tests.integration.conftest import REAUTH_MS
from tests.soak import OWN_BROKERS

if TYPE_CHECKING:
    from pykclient.testing import KafkaCluster

pytestmark = [pytest.mark.kafka, OWN_BROKERS]

IN_FLIGHT_MAX = 2_000
"""Deliveries that are not looked at yet; the connection has requests in flight all the time."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the connections opened and the reauthentications."""
    counts: Counter[str] = Counter()
    for name in ("open", "reauthenticate"):
        method = getattr(Connection, name)

        def counted(self: Connection, value: int, name: str = name, method: Any = method) -> None:
            counts[name] += 1
            method(self, value)

        monkeypatch.setattr(Connection, name, counted)
    return counts


@pytest.mark.promise(
    "when SASL sessions expire, clients reauthenticate on the open connection, and no record is "
    "lost, doubled or out of order (KIP-368)"
)
def test_authenticating_again_loses_and_reorders_nothing(
    secured_kafka_cluster: KafkaCluster, calls: Counter[str]
) -> None:
    produce_and_consume(secured_kafka_cluster, calls, seconds=12)


@pytest.mark.soak
@pytest.mark.timeout(180)
def test_a_minute_of_authenticating_again_loses_and_reorders_nothing(
    secured_kafka_cluster: KafkaCluster, calls: Counter[str]
) -> None:
    produce_and_consume(secured_kafka_cluster, calls, seconds=60)


def produce_and_consume(cluster: KafkaCluster, calls: Counter[str], seconds: int) -> None:
    """Send as fast as it goes, read beside it, and look at every offset."""
    settings = cluster.client_settings("REAUTH", mechanism="SCRAM-SHA-512")
    topic = f"reauth-{uuid.uuid4().hex}"
    with Admin(settings) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    sent_count, is_done, has_committed = 0, threading.Event(), threading.Event()
    read: list[int] = []

    def consume() -> None:
        with Consumer(settings, group_id=topic, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            while not is_done.is_set() or len(read) < sent_count:
                read.extend(record.offset for record in consumer.poll(timeout=1.0))
                consumer.commit()
                if read:
                    has_committed.set()

    thread = threading.Thread(target=consume)
    with Producer(settings, linger_ms=1) as producer:
        producer.partitions_for(topic)
        thread.start()
        until_s = time.monotonic() + seconds
        opened_before = None
        try:
            while time.monotonic() < until_s:
                deliveries = [producer.send(topic, b"lamp") for _ in range(IN_FLIGHT_MAX)]
                offsets = [delivery.result(timeout=30).offset for delivery in deliveries]
                assert offsets == [*range(sent_count, sent_count + IN_FLIGHT_MAX)]
                sent_count += IN_FLIGHT_MAX
                if has_committed.is_set() and opened_before is None:
                    opened_before = calls["open"]
        finally:
            is_done.set()
            thread.join(60)
    assert read == [*range(sent_count)]
    assert calls["open"] == opened_before, "a broker hung up"
    sessions = seconds * 1000 // REAUTH_MS
    # The producer, and the consumer with its coordinator, have a connection each at least.
    assert calls["reauthenticate"] >= 2 * sessions
