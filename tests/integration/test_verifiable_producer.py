"""The verifiable producer does what Kafka's own system tests want of Java's."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Admin, Consumer, NewTopic, TopicPartition
from tests.integration.verifiable_member import VerifiableMember

if TYPE_CHECKING:
    from pathlib import Path

    from pykclient.testing import FakeKafka, KafkaCluster

TOPIC = "vt"
TIMEOUT_S = 60.0
LOOK_S = 0.02


class Sending(VerifiableMember):
    """A verifiable producer in a process of its own."""

    module = "pykclient.testing.verifiable_producer"
    java_tool = "VerifiableProducer"

    def wait_for(self, name: str) -> None:
        """Wait until it has printed such an event."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not self.named(name):
            assert time.monotonic() < deadline_s, (self.events, self.errors)
            time.sleep(LOOK_S)


@pytest.fixture
def servers(fake_kafka: FakeKafka) -> str:
    with fake_kafka.control() as cluster:
        cluster.create_topic(TOPIC, 3)
    return fake_kafka.bootstrap_servers


def written(servers: str, topic: str, count: int) -> list[tuple[int, int, Any, Any, int]]:
    """Partition, offset, key, value and timestamp of each record."""
    partitions = [TopicPartition(topic, number) for number in range(3)]
    rows: list[tuple[int, int, Any, Any, int]] = []
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(rows) < count and time.monotonic() < deadline_s:
            rows += [
                (each.partition, each.offset, each.key, each.value, each.timestamp_ms)
                for each in consumer.poll(1.0)
            ]
    return sorted(rows)


def test_it_reports_what_became_of_each_record_and_the_sums(servers: str) -> None:
    options = ("--max-messages", "50", "--value-prefix", "7", "--repeating-keys", "3")
    times = ("--message-create-time", "1000000")
    with Sending(servers, "--topic", TOPIC, *options, *times) as sending:
        assert sending.wait() == 0
    names = [event["name"] for event in sending.events]
    successes = ["producer_send_success"] * 50
    assert names == ["startup_complete", *successes, "shutdown_complete", "tool_data"]
    reported = sorted(
        (event["partition"], event["offset"], event["key"].encode(), event["value"].encode())
        for event in sending.named("producer_send_success")
    )
    rows = written(servers, TOPIC, 50)
    assert [row[:4] for row in rows] == reported
    assert {row[2:4] for row in rows} == {
        (b"%d" % (number % 3), b"7.%d" % number) for number in range(50)
    }
    assert all(1_000_000 <= row[4] < 1_000_000 + TIMEOUT_S * 1_000 for row in rows)
    (sums,) = sending.named("tool_data")
    assert (sums["sent"], sums["acked"], sums["target_throughput"]) == (50, 50, -1)
    assert sums["avg_throughput"] > 0


def test_it_sends_no_faster_than_it_is_told_and_ends_at_a_signal(servers: str) -> None:
    started_s = time.monotonic()
    with Sending(servers, "--topic", TOPIC, "--throughput", "50") as sending:
        sending.wait_for("producer_send_success")
        sending.terminate()
        assert sending.wait() == 0
    (sums,) = sending.named("tool_data")
    assert 1 <= sums["sent"] <= 1 + 50 * (time.monotonic() - started_s)
    assert sums["acked"] == sums["sent"] == len(sending.named("producer_send_success"))
    assert sending.events[-2]["name"] == "shutdown_complete"


def test_with_no_throughput_at_all_it_waits_for_a_signal(servers: str) -> None:
    with Sending(servers, "--topic", TOPIC, "--throughput", "0") as sending:
        sending.wait_for("startup_complete")
        sending.terminate()
        assert sending.wait() == 0
    assert [event["name"] for event in sending.events[1:]] == ["shutdown_complete", "tool_data"]


def test_what_fails_is_reported_with_its_reason(servers: str, tmp_path: Path) -> None:
    file = tmp_path / "producer.properties"
    file.write_text("max.request.size=70\nclient.id=small\nacks=1\n")
    options = ("--max-messages", "2", "--value-prefix", "123456789", "--command-config", str(file))
    with Sending(servers, "--topic", TOPIC, *options) as sending:
        assert sending.wait() == 0
    errors = sending.named("producer_send_error")
    assert [error["value"] for error in errors] == ["123456789.0", "123456789.1"]
    for error in errors:
        assert error["exception"] == "class pykclient.errors.base.RecordTooLargeError"
        assert "max_request_size" in error["message"]
        assert (error["topic"], error["key"]) == (TOPIC, None)
    assert sending.events[-1]["acked"] == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "--topic"),
        (("--topic", TOPIC, "--acks", "7"), "acks"),
        (("--topic", TOPIC, "--max-messages", "many"), "--max-messages"),
        (("--topic", TOPIC, "--command-config", "no-such-file"), "no-such-file"),
    ],
)
def test_a_wrong_call_is_reported(options: tuple[str, ...], expected: str) -> None:
    with Sending("localhost:1", *options) as sending:
        assert sending.wait() != 0
    assert expected in sending.errors
    assert sending.events == []


@pytest.mark.kafka
def test_ours_and_javas_write_the_same_and_report_the_same(kafka_cluster: KafkaCluster) -> None:
    servers = kafka_cluster.bootstrap_servers
    topics = {who: f"vp-{who}-{uuid.uuid4().hex[:8]}" for who in ("java", "ours", "bad")}
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topics[who], 3, 1) for who in ("java", "ours")])
    found = []
    for who, version in (("java", kafka_cluster.version), ("ours", None)):
        options = ("--max-messages", "40", "--value-prefix", "1", "--repeating-keys", "5")
        with Sending(servers, "--topic", topics[who], *options, java_version=version) as sending:
            assert sending.wait() == 0
        with Sending(
            servers, "--topic", "no topic!", "--max-messages", "1", java_version=version
        ) as refused:
            assert refused.wait() == 0
        events = sending.events + refused.events
        for event in events:
            for field in ("timestamp", "avg_throughput", "exception", "message", "topic"):
                event.pop(field, None)
        rows = [row[:4] for row in written(servers, topics[who], 40)]
        found.append((rows, sorted(map(repr, events)), [list(event) for event in events]))
    assert found[0][0] == found[1][0]
    assert found[0][1] == found[1][1]
    assert {tuple(fields) for fields in found[0][2]} == {tuple(fields) for fields in found[1][2]}
