"""Brokers that are lost while a consumer reads: it says so in time, and goes on by itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer, Producer, TopicPartition
from pykclient.errors import KafkaStorageError, KafkaTimeoutError, OffsetOutOfRangeError
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake import faults

if TYPE_CHECKING:
    from collections.abc import Callable

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
    with pytest.raises(KafkaTimeoutError, match="t-0 could not be read for") as raised:
        poll_for(consumer, TIMEOUT_S)
    reasons = str(raised.value).split("; ")
    assert len(set(reasons)) == len(reasons), "each reason once"
    return time.monotonic() - started_s


@pytest.mark.promise(
    "brokers that are lost or never help are reported by `poll` in time, and read again when back"
)
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


@pytest.mark.promise(
    "brokers that are lost or never help are reported by `poll` in time, and read again when back"
)
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


BUSY, OTHER = TopicPartition("busy", 0), TopicPartition("busy", 1)
BUSY_COUNT = 200_000


@pytest.fixture
def busy_servers(fake_kafka: FakeKafka) -> str:
    """One partition that always has records at hand, and one without any."""
    with fake_kafka.control() as cluster:
        cluster.create_topic("busy", 2)
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        producer.send_batch("busy", [b"v"] * BUSY_COUNT, partition=0)
    return fake_kafka.bootstrap_servers


def poll_busy(consumer: Consumer) -> None:
    while consumer.position(BUSY) < BUSY_COUNT:
        assert len(consumer.poll(TIMEOUT_S, max_records=1)) == 1


def iterate_busy(consumer: Consumer) -> None:
    for record in consumer:
        if record.offset == BUSY_COUNT - 1:
            return


@pytest.mark.promise("an error does not wait behind a partition that always has records")
@pytest.mark.parametrize("read", [poll_busy, iterate_busy])
def test_an_error_does_not_wait_behind_a_partition_that_always_has_records(
    busy_servers: str, read: Callable[[Consumer], None]
) -> None:
    with Consumer(
        bootstrap_servers=busy_servers, auto_offset_reset="none", max_poll_records=10
    ) as consumer:
        consumer.assign([BUSY, OTHER])
        consumer.seek(BUSY, 0)
        consumer.seek(OTHER, 77)
        with pytest.raises(OffsetOutOfRangeError, match="busy-1"):
            read(consumer)
        offset = consumer.position(BUSY)
        assert offset < BUSY_COUNT
        assert next(iter(consumer)).offset == offset, "nothing was lost with the error"
