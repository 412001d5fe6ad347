"""Replicas: one nearby is read from (KIP-392), and one that lost records is found out (KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pykclient.errors import LogTruncationError
from pykclient.testing import FakeKafka
from tests.integration.sent_fetches import SentFetches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

COUNT = 200
TIMEOUT_S = 20.0
CONFIG: dict[str, str | int] = {
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    "broker.rack": "rack-${node.id}",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}


@pytest.fixture(scope="module")
def three_brokers(kafka_cluster_factory: KafkaClusterFactory) -> Iterator[KafkaCluster]:
    """All run again after each test that uses them."""
    with kafka_cluster_factory(brokers=3, config=CONFIG) as cluster:
        yield cluster


@pytest.fixture
def real_servers(three_brokers: KafkaCluster) -> str:
    return three_brokers.bootstrap_servers


@pytest.fixture
def fake_servers() -> Iterator[str]:
    with FakeKafka(brokers=3, racks=("rack-0", "rack-1", "rack-2")) as fake:
        yield fake.bootstrap_servers


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> str:
    servers: str = request.getfixturevalue(f"{request.param}_servers")
    return servers


@pytest.mark.promise("the replica in the same rack is read, and the leader when that fails")
def test_the_leader_is_asked_once_and_then_the_replica_in_the_same_rack(servers: str) -> None:
    topic, partition = "near", TopicPartition("near", 0)
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        admin.create_topics([NewTopic(topic, 1, 3)])
        (info,) = admin.describe_topics([topic])[topic].partitions
        for number in range(COUNT):
            producer.send(topic, b"%d" % number, partition=0)
        producer.flush(TIMEOUT_S)
    near = next(number for number in info.replica_ids if number != info.leader_id)
    with Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", client_rack=f"rack-{near}"
    ) as consumer:
        sent = SentFetches(consumer)
        consumer.assign([partition])
        values: list[object] = []
        while len(values) < COUNT:
            records = consumer.poll(TIMEOUT_S)
            assert records, "nothing more came"
            values += [record.value for record in records]
        nodes = [node_id for node_id, _ in sent.all]
    assert values == [b"%d" % number for number in range(COUNT)]
    assert nodes[0] == info.leader_id
    assert set(nodes[1:]) == {near}


def read(consumer: Consumer, count: int) -> list[object]:
    values: list[object] = []
    while len(values) < count:
        records = consumer.poll(TIMEOUT_S)
        assert records, f"only {values} came"
        values += [record.value for record in records]
    return values


def write(servers: str, topic: str, *values: bytes) -> None:
    with Producer(bootstrap_servers=servers, delivery_timeout_ms=60_000) as producer:
        for value in values:
            producer.send(topic, value, partition=0)
        producer.flush(60.0)


@pytest.mark.promise(
    "records that a log has lost are detected: read again from there, or reported with the place"
)
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
        Consumer(bootstrap_servers=servers, auto_offset_reset="none") as told,
    ):
        for consumer in (returning, told):
            consumer.assign([partition])
            consumer.seek(partition, 0)
        three_brokers.kill(other)
        write(servers, topic, b"lost", b"lost too")  # acknowledged once the other is out of the ISR
        for consumer in (returning, told):
            assert len(read(consumer, 5)) == 5
        three_brokers.kill(info.leader_id)
        three_brokers.start(other)
        write(servers, topic, b"3", b"4", b"5", b"6")
        assert read(returning, 4) == [b"3", b"4", b"5", b"6"]
        with pytest.raises(LogTruncationError) as raised:
            read(told, 1)
        assert (raised.value.offset, raised.value.diverging_offset) == (5, 3)
        told.seek(partition, 3)
        assert read(told, 4) == [b"3", b"4", b"5", b"6"]
    three_brokers.start(info.leader_id)
