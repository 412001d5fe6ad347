"""Fetches of real and fake brokers: their contents (KIP-227), order and replica (KIP-392).

A replica that lost records is detected (KIP-320).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pykclient.errors import LogTruncationError
from pykclient.protocol.messages.fetch import FetchRequest
from pykclient.testing import FakeKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.network.manager import Request
    from pykclient.testing import KafkaCluster

TIMEOUT_S = 20.0
PARTITION_COUNT = 60
TAIL_COUNT = 8
BEHIND, AHEAD = TopicPartition("order", 0), TopicPartition("order", 1)
COUNTS = {BEHIND: 600, AHEAD: 60}
SIZE_BYTES = 1_000
RESPONSE_COUNT = 10
"""Approximate number of records that fit in a response."""
NEAR_COUNT = 200


@pytest.fixture
def racks() -> Iterator[FakeKafka]:
    with FakeKafka(brokers=3, racks=("rack-0", "rack-1", "rack-2")) as fake:
        yield fake


@pytest.fixture
def single() -> Iterator[FakeKafka]:
    with FakeKafka(1) as fake:
        yield fake


@pytest.fixture(params=["single", pytest.param("kafka_cluster", marks=pytest.mark.kafka)])
def server(request: pytest.FixtureRequest) -> str:
    """One broker, fake or real."""
    server: str = request.getfixturevalue(request.param).bootstrap_servers
    return server


@pytest.fixture(params=["racks", pytest.param("three_brokers", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> str:
    """Three brokers in racks, fake or real."""
    servers: str = request.getfixturevalue(request.param).bootstrap_servers
    return servers


class SentFetches:
    """Records the requests that a consumer sends."""

    def __init__(self, consumer: Consumer) -> None:
        self.all: list[tuple[int | None, FetchRequest]] = []
        """Node and request."""
        client = consumer._wiring.client
        send = client.send

        def note_and_send(request: Request, now_ms: int) -> None:
            if isinstance(request.message, FetchRequest):
                self.all.append((request.node_id, request.message))
            send(request, now_ms)

        client.send = note_and_send  # type: ignore[method-assign]

    def named_counts(self) -> list[int]:
        """Return the number of partitions in each request, including forgotten ones."""
        return [
            sum(len(topic.partitions) for topic in message.topics)
            + sum(len(topic.partitions) for topic in message.forgotten_topics_data)
            for _, message in self.all
        ]


def read(consumer: Consumer, count: int) -> list[object]:
    """Poll until this number of values has come."""
    values: list[object] = []
    while len(values) < count:
        records = consumer.poll(TIMEOUT_S)
        assert records, f"only {values} came"
        values += [record.value for record in records]
    assert len(values) == count
    return values


def write(servers: str, topic: str, *values: bytes) -> None:
    with Producer(bootstrap_servers=servers, delivery_timeout_ms=60_000) as producer:
        for value in values:
            producer.send(topic, value, partition=0)
        producer.flush(60.0)


@pytest.mark.promise(
    "a fetch request names only the changes of its session, on real and fake brokers"
)
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
        read(consumer, PARTITION_COUNT)
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


def lag_when_the_other_is_read(servers: str, order: str) -> int:
    """Return the lag of one partition when the one with fewer records is at its end."""
    with Consumer(
        {"fetch_order": order},
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        fetch_max_bytes=RESPONSE_COUNT * SIZE_BYTES,
        max_partition_fetch_bytes=RESPONSE_COUNT * SIZE_BYTES,
        max_poll_records=RESPONSE_COUNT,
    ) as consumer:
        consumer.assign([BEHIND, AHEAD])
        while consumer.current_lag(AHEAD) != 0:
            assert consumer.poll(TIMEOUT_S)
        return COUNTS[BEHIND] - consumer.position(BEHIND)


def test_partitions_take_turns_or_the_one_furthest_behind_comes_first(server: str) -> None:
    with (
        Admin(bootstrap_servers=server) as admin,
        Producer(bootstrap_servers=server, batch_size=SIZE_BYTES) as producer,
    ):
        admin.create_topics([NewTopic("order", 2, 1)])
        for partition, count in COUNTS.items():
            for _ in range(count):
                producer.send("order", bytes(SIZE_BYTES), partition=partition.partition)
    assert lag_when_the_other_is_read(server, "fair") > COUNTS[BEHIND] / 2
    assert lag_when_the_other_is_read(server, "lag") < 4 * RESPONSE_COUNT


@pytest.mark.promise(
    "the consumer reads from the replica in its rack, and from the leader if that fails"
)
def test_the_leader_gets_one_fetch_and_then_the_replica_in_the_same_rack(servers: str) -> None:
    topic, partition = "near", TopicPartition("near", 0)
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        admin.create_topics([NewTopic(topic, 1, 3)])
        (info,) = admin.describe_topics([topic])[topic].partitions
        for number in range(NEAR_COUNT):
            producer.send(topic, b"%d" % number, partition=0)
        producer.flush(TIMEOUT_S)
    near = next(number for number in info.replica_ids if number != info.leader_id)
    with Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", client_rack=f"rack-{near}"
    ) as consumer:
        sent = SentFetches(consumer)
        consumer.assign([partition])
        values = read(consumer, NEAR_COUNT)
        nodes = [node_id for node_id, _ in sent.all]
    assert values == [b"%d" % number for number in range(NEAR_COUNT)]
    assert nodes[0] == info.leader_id
    assert set(nodes[1:]) == {near}


@pytest.mark.promise("lost records of a log are detected, and reported or reread with their place")
@pytest.mark.slow
@pytest.mark.kafka
def test_records_that_an_unclean_election_lost_are_not_read_past(
    three_brokers: KafkaCluster,
) -> None:
    """A replica that was away leads when the one that has everything is gone."""
    servers, topic = three_brokers.bootstrap_servers, "unclean"
    partition = TopicPartition(topic, 0)
    config = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 2, config)])
        (info,) = admin.describe_topics([topic])[topic].partitions
    assert info.leader_id is not None
    (other,) = set(info.replica_ids) - {info.leader_id}
    write(servers, topic, b"0", b"1", b"2")
    with (
        Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as returning,
        Consumer(bootstrap_servers=servers, auto_offset_reset="none") as raising,
    ):
        for consumer in (returning, raising):
            consumer.assign([partition])
            consumer.seek(partition, 0)
        three_brokers.kill(other)
        write(servers, topic, b"lost", b"lost too")  # acknowledged once the other is out of the ISR
        for consumer in (returning, raising):
            assert len(read(consumer, 5)) == 5
        three_brokers.kill(info.leader_id)
        three_brokers.start(other)
        write(servers, topic, b"3", b"4", b"5", b"6")
        assert read(returning, 4) == [b"3", b"4", b"5", b"6"]
        with pytest.raises(LogTruncationError) as raised:
            read(raising, 1)
        assert (raised.value.offset, raised.value.diverging_offset) == (5, 3)
        raising.seek(partition, 3)
        assert read(raising, 4) == [b"3", b"4", b"5", b"6"]
    three_brokers.start(info.leader_id)
