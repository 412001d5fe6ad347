"""The transactional copier does what Kafka's own system tests want of Java's."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pykclient.errors import CoordinatorLoadInProgressError
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake.faults import fail_with
from tests.integration.transactional_copier import Copier

if TYPE_CHECKING:
    from pykclient.testing import FakeKafka, KafkaCluster

PARTITION_COUNT = 2
COUNT = 120


class Topics:
    """A source with numbers, the same ones in each partition's order, and a sink."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        stem = uuid.uuid4().hex[:8]
        self.source, self.sink, self.group = (f"{name}-{stem}" for name in ("in", "out", "g"))
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic(n, PARTITION_COUNT, 1) for n in (self.source, self.sink)])
        with Producer(bootstrap_servers=servers) as producer:
            for number in range(COUNT):
                producer.send(
                    self.source,
                    b"%d" % number,
                    b"k%d" % number,
                    partition=number % PARTITION_COUNT,
                )

    def options(self, partition: int = 0) -> tuple[str, ...]:
        return (
            *("--input-topic", self.source, "--input-partition", str(partition)),
            *("--output-topic", self.sink, "--consumer-group", self.group),
            *("--transaction-size", "7", "--transactional-id", f"{self.group}-{uuid.uuid4().hex}"),
        )

    def copied(self, partition: int) -> list[int]:
        """Return the committed records in a partition of the sink, in order."""
        found: list[int] = []
        with Consumer(
            bootstrap_servers=self.servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer:
            place = TopicPartition(self.sink, partition)
            consumer.assign([place])
            end = consumer.end_offsets([place])[place]
            while consumer.position(place) < end:
                for record in consumer.poll(0.2):
                    assert record.value is not None
                    assert record.key == b"k" + record.value
                    found.append(int(record.value))
        return found

    def check(self) -> None:
        """All is there, once, and in order."""
        for partition in range(PARTITION_COUNT):
            assert self.copied(partition) == list(range(partition, COUNT, PARTITION_COUNT))


def test_it_copies_a_partition_and_says_how_far_it_is(fake_kafka: FakeKafka) -> None:
    topics = Topics(fake_kafka.bootstrap_servers)
    with Copier(topics.servers, *topics.options(1), "--enable-random-aborts") as copier:
        assert copier.wait() == 0
    assert topics.copied(0) == []
    assert topics.copied(1) == list(range(1, COUNT, PARTITION_COUNT))
    first, last = copier.events[0], copier.events[-1]
    assert (first["stage"], last["stage"]) == ("ProcessLoop", "ShutdownComplete")
    half = COUNT // PARTITION_COUNT
    counts = ("totalProcessed", "consumed", "remaining")
    assert [first[name] for name in counts] == [0, 0, half]
    assert [last[name] for name in counts] == [half, half, 0]
    for event in copier.events:
        assert re.fullmatch(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d:\d{3}", event["time"])


def test_it_copies_no_more_than_it_is_told_but_whole_transactions(fake_kafka: FakeKafka) -> None:
    topics = Topics(fake_kafka.bootstrap_servers)
    with Copier(topics.servers, *topics.options(), "--max-messages", "10") as copier:
        assert copier.wait() == 0
    assert len(topics.copied(0)) == copier.events[-1]["totalProcessed"] == 14
    with Admin(bootstrap_servers=topics.servers) as admin:
        (committed,) = admin.list_group_offsets(topics.group).values()
    assert committed.offset == 14


def test_one_that_is_killed_leaves_nothing_half_copied(fake_kafka: FakeKafka) -> None:
    topics = Topics(fake_kafka.bootstrap_servers)
    options = (*topics.options(), "--enable-random-aborts")
    with Copier(topics.servers, *options) as ends:
        ends.wait_for("ProcessLoop")
        ends.kill()
        ends.wait()
    with Copier(topics.servers, *options) as goes_on:  # with its transactional id
        assert goes_on.wait() == 0
    assert topics.copied(0) == list(range(0, COUNT, PARTITION_COUNT))


def test_one_that_is_fenced_ends_with_status_1(fake_kafka: FakeKafka) -> None:
    topics = Topics(fake_kafka.bootstrap_servers)
    options = topics.options()
    name = options[-1]
    with (
        Copier(topics.servers, *options) as copier,
        Producer(bootstrap_servers=topics.servers, transactional_id=name) as newer,
    ):
        with fake_kafka.control() as cluster:  # it is not to end its first transaction before
            loading = fail_with(CoordinatorLoadInProgressError)
            fault = cluster.faults.add(loading, ApiKey.END_TXN, times=None)
        copier.wait_for("ProcessLoop")
        newer.init_transactions()
        fault.remove()
        assert copier.wait() == 1
    assert re.search(rf"ProducerFencedError: .*{name}", copier.errors)
    assert copier.events[-1]["stage"] == "ShutdownComplete"
    assert copier.events[-1]["totalProcessed"] == 0
    assert topics.copied(0) == []


def test_a_signal_ends_it_cleanly(fake_kafka: FakeKafka) -> None:
    topics = Topics(fake_kafka.bootstrap_servers)
    with fake_kafka.control() as cluster:
        cluster.create_topic("empty", 1)
    options = topics.options()[2:]
    with Copier(topics.servers, "--input-topic", "empty", *options, "--group-mode") as copier:
        copier.wait_for("ProcessLoop")
        copier.terminate()
        assert copier.wait() == 0
    assert copier.events[-1]["stage"] == "ShutdownComplete"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "--input-topic"),
        (("--transaction-timeout", "-1"), "transaction.timeout.ms"),
    ],
)
def test_a_wrong_call_is_reported(options: tuple[str, ...], expected: str) -> None:
    good = ("--input-topic", "i", "--input-partition", "0", "--output-topic", "o")
    needed = (*good, "--transactional-id", "x", "--consumer-group", "g")
    with Copier("localhost:1", *(needed if options else ()), *options) as copier:
        assert copier.wait() != 0
    assert expected in copier.errors
    assert copier.events == []


@pytest.mark.kafka
def test_ours_and_javas_copy_in_one_group_exactly_once(kafka_cluster: KafkaCluster) -> None:
    topics = Topics(kafka_cluster.bootstrap_servers)
    options = ("--group-mode", "--use-group-metadata", "--enable-random-aborts")
    java = Copier(topics.servers, *topics.options(), *options, java_version=kafka_cluster.version)
    with java, Copier(topics.servers, *topics.options(), *options) as ours:
        assert ours.wait() == java.wait() == 0
    topics.check()
    lines = {who: {tuple(event) for event in who.events} for who in (java, ours)}
    assert lines[java] == lines[ours]
    assert {event["stage"] for event in ours.events} == {
        *("ProcessLoop", "RebalanceComplete", "ShutdownComplete")
    }
