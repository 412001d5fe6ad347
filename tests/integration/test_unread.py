"""Brokers that are lost while a consumer reads: it says so in time, and goes on by itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer, Producer, TopicPartition
from pykclient.errors import KafkaStorageError, KafkaTimeoutError
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake import faults

if TYPE_CHECKING:
    from pykclient.testing import FakeKafka

PARTITION = TopicPartition("t", 0)
TIMEOUT_S = 20.0
PATIENCE_MS = 1_500


@pytest.fixture
def servers(fake_kafka: FakeKafka) -> str:
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        producer.send("t", b"v", partition=0).result(TIMEOUT_S)
    return fake_kafka.bootstrap_servers


def reader(servers: str) -> Consumer:
    consumer = Consumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        default_api_timeout_ms=PATIENCE_MS,
        reconnect_backoff_max_ms=100,
    )
    consumer.assign([PARTITION])
    return consumer


def poll_for(consumer: Consumer, seconds: float) -> None:
    """Poll, and find nothing."""
    started_s = time.monotonic()
    while time.monotonic() - started_s < seconds:
        assert not consumer.poll(0.2)


def poll_until_it_raises(consumer: Consumer) -> float:
    """Return after how many seconds polls, empty before, raise that the partition is not read."""
    started_s = time.monotonic()
    with pytest.raises(KafkaTimeoutError, match="t-0 could not be read for"):
        poll_for(consumer, TIMEOUT_S)
    return time.monotonic() - started_s


def test_a_cluster_that_is_gone_is_told_and_read_again_when_it_is_back(
    servers: str, fake_kafka: FakeKafka
) -> None:
    with reader(servers) as consumer:
        assert len(consumer.poll(TIMEOUT_S)) == 1
        with fake_kafka.control() as cluster:
            for broker_id in cluster.brokers:
                cluster.stop_broker(broker_id)
        took_s = poll_until_it_raises(consumer)
        assert took_s >= PATIENCE_MS / 1000
        assert len(consumer.poll(0.2)) == 0, "it is not told in each poll"
        with fake_kafka.control() as cluster:
            for broker_id in cluster.brokers:
                cluster.start_broker(broker_id)
        with Producer(bootstrap_servers=servers) as producer:
            producer.send("t", b"w", partition=0).result(TIMEOUT_S)
        assert [record.value for record in consumer.poll(TIMEOUT_S)] == [b"w"]


@pytest.mark.parametrize("api_key", [ApiKey.LIST_OFFSETS, ApiKey.FETCH])
@pytest.mark.parametrize("fault", [faults.fail_with(KafkaStorageError), faults.drop()])
def test_a_broker_that_never_helps_is_told(
    servers: str, fake_kafka: FakeKafka, api_key: ApiKey, fault: faults.Fault
) -> None:
    """It refuses for reasons that should pass, or never answers, though it is there."""
    with fake_kafka.control() as cluster:
        cluster.faults.add(fault, api_key, times=None)
    with reader(servers) as consumer:
        poll_until_it_raises(consumer)
        with fake_kafka.control() as cluster:
            cluster.faults.clear()
        if fault.error is not None:
            assert len(consumer.poll(TIMEOUT_S)) == 1
