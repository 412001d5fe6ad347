"""Reading from the replica in the client's rack (KIP-392), with real brokers and fake ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pykclient.testing import FakeKafka
from tests.integration.sent_fetches import SentFetches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing.fixtures import KafkaClusterFactory

COUNT = 200
TIMEOUT_S = 20.0
RACKS = {
    "broker.rack": "rack-${node.id}",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}


@pytest.fixture(scope="module")
def real_servers(kafka_cluster_factory: KafkaClusterFactory) -> Iterator[str]:
    with kafka_cluster_factory(brokers=3, config=RACKS) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def fake_servers() -> Iterator[str]:
    with FakeKafka(brokers=3, racks=("rack-0", "rack-1", "rack-2")) as fake:
        yield fake.bootstrap_servers


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> str:
    servers: str = request.getfixturevalue(f"{request.param}_servers")
    return servers


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
