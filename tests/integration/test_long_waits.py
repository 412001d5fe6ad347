"""Calls that wait long log a WARNING with what they wait for; the wait goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Admin, Consumer, Producer, TopicPartition
from pykclient.errors import (
    BufferExhaustedError,
    CoordinatorLoadInProgressError,
    KafkaTimeoutError,
)
from pykclient.network import log
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake.faults import drop, fail_with
from tests.integration.loopback_server import unused_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing import FakeKafka

LONG_WAIT_MS, TIMEOUT_MS = 200, 600
TIMEOUT_S = 20.0
PARTITION = TopicPartition("t", 0)
PRODUCER = {"max_block_ms": TIMEOUT_MS}
ADMIN = {"default_api_timeout_ms": TIMEOUT_MS}
CONSUMER = {**ADMIN, "group_id": "g"}


@pytest.fixture(autouse=True)
def short_long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "LONG_WAIT_MS", LONG_WAIT_MS)


def logged_waits(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log's lines on waits."""
    messages = [record.getMessage() for record in caplog.records]
    return [message for message in messages if "still waiting for" in message]


def test_a_long_send_logs_that_it_waits_for_memory(
    fake_kafka: FakeKafka, caplog: pytest.LogCaptureFixture
) -> None:
    with Producer(
        bootstrap_servers=fake_kafka.bootstrap_servers,
        max_block_ms=TIMEOUT_MS,
        buffer_memory=20_000,
    ) as producer:
        producer.send("t", b"v").result(TIMEOUT_S)
        with fake_kafka.control() as cluster:
            cluster.faults.add(drop(), ApiKey.PRODUCE)
        producer.send("t", bytes(15_000))
        with pytest.raises(BufferExhaustedError):
            producer.send("t", bytes(15_000))
        [logged] = logged_waits(caplog)
        assert "bytes of memory" in logged
        assert "buffer_memory is 20000" in logged
        assert "has not responded to PRODUCE yet" in logged
        producer.close(0)


@pytest.mark.parametrize(
    ("client", "settings", "call", "what"),
    [
        (
            Producer,
            PRODUCER,
            lambda p: p.send("t", b"v"),
            f"topic 't' after {LONG_WAIT_MS} ms: no broker could be",
        ),
        (Consumer, CONSUMER, lambda c: c.commit({PARTITION: 0}), "the commit of t-0"),
        (Consumer, CONSUMER, lambda c: c.committed([PARTITION]), "the committed offsets of t-0"),
        (Consumer, CONSUMER, lambda c: c.list_topics(), "the list of topics"),
        (Admin, ADMIN, lambda a: a.delete_topics(["t"]), "DeleteTopics of t"),
    ],
)
def test_a_long_call_logs_what_it_waits_for_and_why(
    client: type[Any],
    settings: dict[str, object],
    call: Callable[[Any], object],
    what: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        client(bootstrap_servers=unused_address(), **settings) as waiting,
        pytest.raises(KafkaTimeoutError),
    ):
        call(waiting)
    [logged] = logged_waits(caplog)
    assert f"still waiting for {what}" in logged
    assert "connection refused" in logged


def test_what_brokers_have_responded_is_why_a_call_still_waits(
    fake_kafka: FakeKafka, caplog: pytest.LogCaptureFixture
) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic("t")
        fault = fail_with(CoordinatorLoadInProgressError)
        cluster.faults.add(fault, ApiKey.OFFSET_COMMIT, times=None)
    with (
        Consumer(
            bootstrap_servers=fake_kafka.bootstrap_servers,
            group_id="g",
            default_api_timeout_ms=TIMEOUT_MS,
        ) as consumer,
        pytest.raises(KafkaTimeoutError, match="COORDINATOR_LOAD_IN_PROGRESS"),
    ):
        consumer.commit({PARTITION: 0})
    [logged] = logged_waits(caplog)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in logged


def test_a_partition_that_the_topic_has_not_is_why_a_send_still_waits(
    fake_kafka: FakeKafka, caplog: pytest.LogCaptureFixture
) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic("t", 4)
    with (
        Producer(
            bootstrap_servers=fake_kafka.bootstrap_servers, max_block_ms=TIMEOUT_MS
        ) as producer,
        pytest.raises(KafkaTimeoutError),
    ):
        producer.send("t", b"v", partition=9)
    [logged] = logged_waits(caplog)
    assert "partition t-9 " in logged
    assert "topic 't' has no partition 9, only 0 to 3" in logged
