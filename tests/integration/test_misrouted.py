"""A route that leads to another cluster, on real brokers: nothing passes to or from it (KIP-1242).

Method: cluster A is behind a proxy, which then leads to cluster B. Broker ids and topics are the
same in both. Brokers of 4.4 refuse the connection; of older ones the client compares the cluster
ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from pykclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pykclient.errors import ClusterMismatchError, DeliveryTimeoutError
from tests.soak import BETWEEN, NEWEST, OWN_BROKERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

pytestmark = [pytest.mark.kafka, OWN_BROKERS]

TOPIC = "t"
PARTITION = TopicPartition(TOPIC, 0)
TIMEOUT_S = 30.0
QUICK = {
    "request_timeout_ms": 1_000,
    "delivery_timeout_ms": 4_000,
    "linger_ms": 0,
    "reconnect_backoff_max_ms": 100,
}
Pair = tuple["KafkaCluster", "KafkaCluster"]


@pytest.fixture(
    scope="module",
    params=[NEWEST, *(pytest.param(version, marks=pytest.mark.soak) for version in BETWEEN)],
)
def pair(
    request: pytest.FixtureRequest, kafka_cluster_factory: KafkaClusterFactory
) -> Iterator[Pair]:
    version = request.param
    with (
        kafka_cluster_factory(version=version, proxied=True) as a,
        kafka_cluster_factory(version=version) as b,
    ):
        yield a, b


def values(cluster: KafkaCluster) -> list[bytes | None]:
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([PARTITION])
        consumer.seek_to_beginning([PARTITION])
        end = consumer.end_offsets([PARTITION])[PARTITION]
        found: list[bytes | None] = []
        while consumer.position(PARTITION) < end:
            found += [record.value for record in consumer.poll(TIMEOUT_S)]
        return found


def poll_without_end(consumer: Consumer[bytes, bytes]) -> None:
    while True:
        assert not consumer.poll(1.0)


@pytest.mark.promise("nothing is sent to another cluster that took over a broker's address")
@pytest.mark.parametrize(
    "group_protocol", [pytest.param("classic", marks=pytest.mark.soak), "consumer"]
)
def test_records_for_one_cluster_never_reach_another_and_its_records_are_never_read(
    pair: Pair, group_protocol: Literal["classic", "consumer"]
) -> None:
    a, b = pair
    for cluster in pair:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            if TOPIC in admin.list_topics():
                admin.delete_topics([TOPIC])
            admin.create_topics([NewTopic(TOPIC, 1, 1)])
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send(TOPIC, b"a" if cluster is a else b"b").result(TIMEOUT_S)
    with (
        Producer(QUICK, bootstrap_servers=a.bootstrap_servers) as producer,
        Consumer(
            bootstrap_servers=a.bootstrap_servers,
            group_id=f"g-{group_protocol}",
            group_protocol=group_protocol,
            auto_offset_reset="earliest",
            reconnect_backoff_max_ms=100,
        ) as consumer,
    ):
        producer.send(TOPIC, b"before").result(TIMEOUT_S)
        consumer.subscribe([TOPIC])
        read: list[bytes | None] = []
        while len(read) < 2:
            read += [record.value for record in consumer.poll(TIMEOUT_S)]
        host, port = b.bootstrap_servers.rsplit(":", 1)
        a.proxy(1).redirect((host, int(port)))
        with pytest.raises(DeliveryTimeoutError, match="another cluster") as caught:
            producer.send(TOPIC, b"astray").result(TIMEOUT_S)
        assert isinstance(caught.value.__cause__, ClusterMismatchError)
        with pytest.raises(ClusterMismatchError):
            poll_without_end(consumer)
        a.proxy(1).heal()
        producer.send(TOPIC, b"after").result(TIMEOUT_S)
        while len(read) < 3:
            read += [record.value for record in consumer.poll(TIMEOUT_S)]
    assert read == [b"a", b"before", b"after"]
    assert values(a) == [b"a", b"before", b"after"]
    assert values(b) == [b"b"]
