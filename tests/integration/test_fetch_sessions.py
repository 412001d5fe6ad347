"""Fetch sessions (KIP-227) with real brokers and fake ones, by what requests name."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.integration.sent_fetches import SentFetches

if TYPE_CHECKING:
    from pykclient.testing import FakeKafka

PARTITION_COUNT = 60
TIMEOUT_S = 20.0
TAIL_COUNT = 8


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> str:
    name = "fake_kafka" if request.param == "fake" else "kafka_cluster"
    servers: str = request.getfixturevalue(name).bootstrap_servers
    return servers


def read(consumer: Consumer, count: int) -> int:
    found = 0
    while found < count:
        records = consumer.poll(TIMEOUT_S)
        assert records, f"only {found} of {count} came"
        found += len(records)
    return found


@pytest.mark.promise("a fetch names only what is new in its session, on real and fake brokers")
def test_a_fetch_names_only_what_has_moved(servers: str) -> None:
    """Every partition once at first; then a record at a time, of one partition."""
    topic = "sessions"
    partitions = [TopicPartition(topic, number) for number in range(PARTITION_COUNT)]
    with (
        Admin(bootstrap_servers=servers) as admin,
        Producer(bootstrap_servers=servers, linger_ms=0) as producer,
        Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
    ):
        admin.create_topics([NewTopic(topic, PARTITION_COUNT, 1)])
        sent = SentFetches(consumer)
        consumer.assign(partitions)
        for partition in range(PARTITION_COUNT):
            producer.send(topic, b"first", partition=partition)
        producer.flush(TIMEOUT_S)
        assert read(consumer, PARTITION_COUNT) == PARTITION_COUNT
        assert len(consumer.poll(0.7)) == 0
        fulls = [m for _, m in sent.all if m.session_epoch == 0]
        assert {(t.topic, p.partition) for m in fulls for t in m.topics for p in t.partitions} == {
            *partitions
        }
        assert len(fulls) == len({node_id for node_id, _ in sent.all})
        sent.all.clear()
        for _ in range(TAIL_COUNT):
            producer.send(topic, b"next", partition=7).result(TIMEOUT_S)
            read(consumer, 1)
        assert len(consumer.poll(0.7)) == 0
        assert max(sent.named_counts()) == 1
        assert sum(sent.named_counts()) <= TAIL_COUNT + 1
        assert all(message.session_epoch > 0 for _, message in sent.all)
        assert consumer.position(partitions[7]) == 1 + TAIL_COUNT


@pytest.mark.promise("brokers forget the session of a closed consumer")
def test_brokers_forget_a_reader_that_has_all_it_wanted(fake_kafka: FakeKafka) -> None:
    servers = fake_kafka.bootstrap_servers
    partition = TopicPartition("t", 0)
    with Producer(bootstrap_servers=servers) as producer:
        producer.send("t", b"v", partition=0).result(TIMEOUT_S)
    with fake_kafka.control() as cluster:
        leader = cluster.brokers[cluster.partition(partition).leader_id]
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        assert consumer.poll_arrow(TIMEOUT_S, until={partition: 1}).num_rows == 1
        with fake_kafka.control():
            assert len(leader.fetch_sessions) == 1
    deadline_s = time.monotonic() + TIMEOUT_S
    is_left = True
    while is_left and time.monotonic() < deadline_s:
        with fake_kafka.control():
            is_left = len(leader.fetch_sessions) > 0
    assert not is_left
