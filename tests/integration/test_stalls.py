"""Polls that find nothing raise the cause, once that has lasted, and reading goes on by itself.

Brokers are lost, or never help; or a group gets nowhere though its brokers are there.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer, Producer, TopicPartition
from pykclient.errors import (
    BrokerError,
    CoordinatorLoadInProgressError,
    KafkaStorageError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnstableOffsetCommitError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake import faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing import FakeKafka

PARTITION = TopicPartition("t", 0)
TIMEOUT_S = 20.0
PATIENCE_MS = 1_500
SESSION_MIN_MS = 6_000
"""Minimum session timeout that brokers allow."""


@pytest.fixture
def servers(fake_kafka: FakeKafka) -> str:
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        producer.send("t", b"v", partition=0).result(TIMEOUT_S)
    return fake_kafka.bootstrap_servers


def reader(servers: str, *, subscribes: bool = False, **settings: object) -> Consumer:
    consumer = Consumer(
        settings,
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        default_api_timeout_ms=PATIENCE_MS,
        reconnect_backoff_max_ms=100,
    )
    if subscribes:
        consumer.subscribe(["t"])
    else:
        consumer.assign([PARTITION])
    return consumer


def poll_until_it_raises(
    consumer: Consumer, match: str = "t-0 could not be read for", least_ms: int = PATIENCE_MS
) -> None:
    """Poll without a result until a poll raises the cause, not before `least_ms`."""
    started_s = time.monotonic()

    def poll_on() -> None:
        while time.monotonic() - started_s < TIMEOUT_S:
            assert not consumer.poll(0.1)

    with pytest.raises(KafkaTimeoutError, match=match) as raised:
        poll_on()
    assert time.monotonic() - started_s >= least_ms / 1_000
    reasons = str(raised.value).split("; ")
    assert len(set(reasons)) == len(reasons), "each reason once"


def poll_until_it_reads(consumer: Consumer) -> None:
    """Poll without a result until a poll has the record and the stall is over."""
    started_s = time.monotonic()
    while not consumer.poll(0.5):
        assert time.monotonic() - started_s < TIMEOUT_S


@pytest.mark.promise(
    "`poll` reports lost or unresponsive brokers in time, and reads from them once they are back"
)
def test_a_cluster_that_is_gone_is_reported_and_read_again_when_it_is_back(
    servers: str, fake_kafka: FakeKafka
) -> None:
    with reader(servers) as consumer:
        assert len(consumer.poll(TIMEOUT_S)) == 1
        with fake_kafka.control() as cluster:
            for broker_id in cluster.brokers:
                cluster.stop_broker(broker_id)
        poll_until_it_raises(consumer)
        assert len(consumer.poll(0.2)) == 0, "it is not reported in each poll"
        with fake_kafka.control() as cluster:
            for broker_id in cluster.brokers:
                cluster.start_broker(broker_id)
        with Producer(bootstrap_servers=servers) as producer:
            producer.send("t", b"w", partition=0).result(TIMEOUT_S)
        assert [record.value for record in consumer.poll(TIMEOUT_S)] == [b"w"]


def poll_until_it_logs(consumer: Consumer, caplog: pytest.LogCaptureFixture, match: str) -> None:
    """Poll without a result or an error until a poll logs why."""
    started_s = time.monotonic()
    while not any(
        match in text and "the consumer keeps trying" in text
        for text in map(logging.LogRecord.getMessage, caplog.records)
    ):
        assert not consumer.poll(0.1)
        assert time.monotonic() - started_s < TIMEOUT_S


@pytest.mark.parametrize("subscribes", [False, True])
def test_a_service_starts_before_its_brokers_and_lives_through_their_outage(
    servers: str, fake_kafka: FakeKafka, caplog: pytest.LogCaptureFixture, *, subscribes: bool
) -> None:
    with fake_kafka.control() as cluster:
        for broker_id in cluster.brokers:
            cluster.stop_broker(broker_id)
    settings = {"group_id": "service", "session_timeout_ms": SESSION_MIN_MS} if subscribes else {}
    with reader(servers, subscribes=subscribes, on_stall="log", **settings) as consumer:
        poll_until_it_logs(consumer, caplog, "no broker could be reached")
        with fake_kafka.control() as cluster:
            for broker_id in cluster.brokers:
                cluster.start_broker(broker_id)
        poll_until_it_reads(consumer)
        with fake_kafka.control() as cluster:
            for broker_id in cluster.brokers:
                cluster.stop_broker(broker_id)
        why = "the coordinator of group" if subscribes else "t-0 could not be read for"
        poll_until_it_logs(consumer, caplog, why)
        with fake_kafka.control() as cluster:
            for broker_id in cluster.brokers:
                cluster.start_broker(broker_id)
        with Producer(bootstrap_servers=servers) as producer:
            producer.send("t", b"w", partition=0).result(TIMEOUT_S)
        poll_until_it_reads(consumer)


def test_a_service_waits_for_its_topic(
    fake_kafka: FakeKafka, caplog: pytest.LogCaptureFixture
) -> None:
    servers = fake_kafka.bootstrap_servers
    with reader(servers, on_stall="log", allow_auto_create_topics=False) as consumer:
        poll_until_it_logs(consumer, caplog, "topic 't' does not exist")
        with Producer(bootstrap_servers=servers) as producer:
            producer.send("t", b"v", partition=0).result(TIMEOUT_S)
        poll_until_it_reads(consumer)


def test_a_service_gets_the_error_that_no_waiting_cures(
    servers: str, fake_kafka: FakeKafka
) -> None:
    with fake_kafka.control() as cluster:
        refused = faults.fail_with(TopicAuthorizationFailedError)
        cluster.faults.add(refused, ApiKey.LIST_OFFSETS, times=None)
    with (
        reader(servers, on_stall="log") as consumer,
        pytest.raises(TopicAuthorizationFailedError),
    ):
        poll_until_it_reads(consumer)


@pytest.mark.promise(
    "`poll` reports lost or unresponsive brokers in time, and reads from them once they are back"
)
@pytest.mark.parametrize("api_key", [ApiKey.LIST_OFFSETS, ApiKey.FETCH])
@pytest.mark.parametrize("fault", [faults.fail_with(KafkaStorageError), faults.drop()])
def test_a_broker_that_only_refuses_or_never_responds_is_reported(
    servers: str, fake_kafka: FakeKafka, api_key: ApiKey, fault: faults.Fault
) -> None:
    """It refuses for reasons that should pass, or never responds, though it is there."""
    with fake_kafka.control() as cluster:
        cluster.faults.add(fault, api_key, times=None)
    with reader(servers) as consumer:
        poll_until_it_raises(consumer, least_ms=0)
        with fake_kafka.control() as cluster:
            cluster.faults.clear()
        if fault.error is not None:
            assert len(consumer.poll(TIMEOUT_S)) == 1


@pytest.mark.parametrize("is_member", [True, False])
def test_offsets_of_a_transaction_that_does_not_end_are_reported(
    servers: str, fake_kafka: FakeKafka, is_member: bool
) -> None:
    with fake_kafka.control() as cluster:
        fault = faults.fail_with(UnstableOffsetCommitError)
        cluster.faults.add(fault, ApiKey.OFFSET_FETCH, times=None)
    with reader(servers, subscribes=is_member, group_id="g") as consumer:
        poll_until_it_raises(consumer, "UNSTABLE_OFFSET_COMMIT", PATIENCE_MS)
        with fake_kafka.control() as cluster:
            cluster.faults.clear()
        poll_until_it_reads(consumer)


@pytest.mark.parametrize(
    "error",
    [
        CoordinatorLoadInProgressError,
        pytest.param(RebalanceInProgressError, marks=pytest.mark.soak),
    ],
)
def test_a_coordinator_that_accepts_no_member_is_reported(
    servers: str, fake_kafka: FakeKafka, error: type[BrokerError]
) -> None:
    with fake_kafka.control() as cluster:
        cluster.faults.add(faults.fail_with(error), ApiKey.JOIN_GROUP, times=None)
    with reader(
        servers, subscribes=True, group_id="g", session_timeout_ms=SESSION_MIN_MS
    ) as consumer:
        poll_until_it_raises(consumer, error.name, SESSION_MIN_MS)
        with fake_kafka.control() as cluster:
            cluster.faults.clear()
        poll_until_it_reads(consumer)


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
