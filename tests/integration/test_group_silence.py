"""A group that gets nowhere though its brokers are there: polls that find nothing say why."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer, Producer, TopicPartition
from pykclient.errors import (
    BrokerError,
    CoordinatorLoadInProgressError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    UnstableOffsetCommitError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake import faults

if TYPE_CHECKING:
    from pykclient.testing import FakeKafka

TIMEOUT_S = 20.0
PATIENCE_MS = 2_000
A = TopicPartition("t", 0)
SESSION_MIN_MS = 6_000
"""What brokers allow."""


@pytest.fixture
def servers(fake_kafka: FakeKafka) -> str:
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        producer.send("t", b"v", partition=0).result(TIMEOUT_S)
    return fake_kafka.bootstrap_servers


def member(servers: str, **settings: object) -> Consumer:
    return Consumer(
        bootstrap_servers=servers,
        group_id="g",
        auto_offset_reset="earliest",
        default_api_timeout_ms=PATIENCE_MS,
        **settings,
    )


def poll_for(consumer: Consumer, seconds: float) -> None:
    """Poll, and find nothing."""
    started_s = time.monotonic()
    while time.monotonic() - started_s < seconds:
        assert not consumer.poll(0.1)


def poll_until_it_raises(consumer: Consumer, match: str, least_ms: int) -> None:
    """Polls that find nothing, until one tells why, not before `least_ms`."""
    started_s = time.monotonic()
    with pytest.raises(KafkaTimeoutError, match=match):
        poll_for(consumer, TIMEOUT_S)
    assert time.monotonic() - started_s >= least_ms / 1_000


def poll_until_it_reads(consumer: Consumer) -> None:
    """Polls that find nothing, until one has the record; the trouble is over."""
    started_s = time.monotonic()
    while time.monotonic() - started_s < TIMEOUT_S:
        if consumer.poll(0.5):
            return
    raise AssertionError("the record was not read")


@pytest.mark.promise(
    "a stalled group is raised by empty polls; a group that waits for its members is not"
)
@pytest.mark.parametrize("is_member", [True, False])
def test_offsets_of_a_transaction_that_does_not_end_are_told(
    servers: str, fake_kafka: FakeKafka, is_member: bool
) -> None:
    with fake_kafka.control() as cluster:
        fault = faults.fail_with(UnstableOffsetCommitError)
        cluster.faults.add(fault, ApiKey.OFFSET_FETCH, times=None)
    with member(servers) as consumer:
        if is_member:
            consumer.subscribe(["t"])
        else:
            consumer.assign([A])
        poll_until_it_raises(consumer, "UNSTABLE_OFFSET_COMMIT", PATIENCE_MS)
        with fake_kafka.control() as cluster:
            cluster.faults.clear()
        poll_until_it_reads(consumer)


@pytest.mark.promise(
    "a stalled group is raised by empty polls; a group that waits for its members is not"
)
@pytest.mark.promise("joins that are refused again and again back off, and are reported")
@pytest.mark.parametrize("error", [CoordinatorLoadInProgressError, RebalanceInProgressError])
def test_a_coordinator_that_takes_nobody_in_is_told(
    servers: str, fake_kafka: FakeKafka, error: type[BrokerError]
) -> None:
    with fake_kafka.control() as cluster:
        cluster.faults.add(faults.fail_with(error), ApiKey.JOIN_GROUP, times=None)
    with member(servers, session_timeout_ms=SESSION_MIN_MS) as consumer:
        consumer.subscribe(["t"])
        poll_until_it_raises(consumer, error.name, SESSION_MIN_MS)
        with fake_kafka.control() as cluster:
            cluster.faults.clear()
        poll_until_it_reads(consumer)
