"""Another cluster at the address of the one that a client belongs to: nothing passes to or from it.

Method: fake cluster A stops, and B starts at the same port, as where a container platform gives a
broker's address to another one. Broker ids and topic names are the same in both.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, Producer, TopicPartition
from pykclient.errors import ClusterMismatchError, DeliveryTimeoutError, KafkaError
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import FakeKafka
from tests.integration.recording_stream import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "t"
PARTITION = TopicPartition(TOPIC, 0)
TIMEOUT_S = 20.0
QUICK = {
    "request_timeout_ms": 1_000,
    "delivery_timeout_ms": 2_000,
    "linger_ms": 0,
    "max_block_ms": 5_000,
    "reconnect_backoff_max_ms": 100,
}


class Address:
    """A port at which one cluster after the other listens."""

    def __init__(self, api_versions_max: int) -> None:
        self.api_versions_max = api_versions_max
        self.port = free_port()
        self.servers = f"127.0.0.1:{self.port}"
        self.cluster: FakeKafka | None = None

    def start(self) -> FakeKafka:
        self.stop()
        self.cluster = FakeKafka(port=self.port)
        with self.cluster.control() as cluster:
            cluster.limit_versions({ApiKey.API_VERSIONS: (0, self.api_versions_max)})
        return self.cluster

    def stop(self) -> None:
        if self.cluster is not None:
            self.cluster.close()
            self.cluster = None

    def fill(self, *values: bytes) -> None:
        with Producer(bootstrap_servers=self.servers) as producer:
            for value in values:
                producer.send(TOPIC, value, partition=0).result(TIMEOUT_S)

    def values(self) -> list[object]:
        with Consumer(bootstrap_servers=self.servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([PARTITION])
            count = consumer.end_offsets([PARTITION])[PARTITION]
            values: list[object] = []
            while len(values) < count:
                values += [record.value for record in consumer.poll(TIMEOUT_S)]
            return values


def poll_without_end(consumer: Consumer) -> None:
    while True:
        assert not consumer.poll(TIMEOUT_S)


@pytest.fixture(params=[4, pytest.param(5, marks=pytest.mark.soak)])
def address(request: pytest.FixtureRequest) -> Iterator[Address]:
    """Provide an address at which a cluster runs that has one record.

    With version 5 of ApiVersions brokers compare themselves with what is meant (KIP-1242); see
    test_misrouted.py for real ones. With version 4 the client compares the clusters.
    """
    address = Address(request.param)
    address.start()
    address.fill(b"of A")
    yield address
    address.stop()


@pytest.mark.promise("nothing is sent to another cluster that took over a broker's address")
def test_a_record_for_one_cluster_is_not_written_to_another_one(
    address: Address, caplog: pytest.LogCaptureFixture
) -> None:
    with Producer(QUICK, bootstrap_servers=address.servers) as producer:
        producer.send(TOPIC, b"one", partition=0).result(TIMEOUT_S)
        address.start()
        address.fill(b"of B")
        with caplog.at_level(logging.WARNING):
            delivery = producer.send(TOPIC, b"two", partition=0)
            with pytest.raises(DeliveryTimeoutError, match="another cluster") as caught:
                delivery.result(TIMEOUT_S)
    assert isinstance(caught.value.__cause__, ClusterMismatchError)
    assert address.values() == [b"of B"]
    warnings = [r.getMessage() for r in caplog.records if "another cluster" in r.getMessage()]
    assert warnings
    assert "make a new client" in warnings[0]


def test_a_first_send_after_the_change_raises_what_is_wrong(address: Address) -> None:
    with Producer(QUICK, bootstrap_servers=address.servers) as producer:
        producer.send(TOPIC, b"one", partition=0).result(TIMEOUT_S)
        address.start()
        address.fill(b"of B")
        with pytest.raises(ClusterMismatchError) as caught:
            producer.send("unknown", b"two").result(TIMEOUT_S)
    assert caught.value.expected_cluster_id != caught.value.found_cluster_id
    assert not caught.value.fatal


@pytest.mark.promise("nothing is sent to another cluster that took over a broker's address")
@pytest.mark.parametrize("group_id", [None, "g"])
def test_a_consumer_of_one_cluster_reads_nothing_of_another_one(
    address: Address, group_id: str | None
) -> None:
    with Consumer(
        bootstrap_servers=address.servers,
        group_id=group_id,
        auto_offset_reset="earliest",
        session_timeout_ms=6_000,
    ) as consumer:
        if group_id is None:
            consumer.assign([PARTITION])
        else:
            consumer.subscribe([TOPIC])
        assert [record.value for record in consumer.poll(TIMEOUT_S)] == [b"of A"]
        address.start()
        address.fill(b"of B", b"also of B")
        with pytest.raises(ClusterMismatchError):
            poll_without_end(consumer)
        if group_id is not None:
            with pytest.raises(KafkaError, match="another cluster"):
                consumer.commit({PARTITION: 1}, timeout=2.0)
    assert address.cluster is not None
    with address.cluster.control() as cluster:
        assert cluster.groups.find("g") is None


def test_an_admin_client_of_one_cluster_does_nothing_at_another_one(address: Address) -> None:
    with Admin(bootstrap_servers=address.servers, default_api_timeout_ms=3_000) as admin:
        assert set(admin.list_topics()) >= {TOPIC}
        address.start()
        address.fill(b"of B")
        with pytest.raises(ClusterMismatchError):
            admin.delete_topics([TOPIC])
    assert address.values() == [b"of B"]


def test_a_client_goes_on_when_its_cluster_is_back(address: Address) -> None:
    assert address.cluster is not None
    with address.cluster.control() as cluster:
        own_id = cluster.cluster_id
    with Producer(QUICK, bootstrap_servers=address.servers) as producer:
        producer.send(TOPIC, b"one", partition=0).result(TIMEOUT_S)
        address.start()
        with pytest.raises(DeliveryTimeoutError):
            producer.send(TOPIC, b"two", partition=0).result(TIMEOUT_S)
        own = address.start()
        with own.control() as cluster:
            cluster.cluster_id = own_id
        producer.send(TOPIC, b"three", partition=0).result(TIMEOUT_S)
    assert address.values() == [b"three"]


def test_two_fake_clusters_have_no_ids_in_common() -> None:
    ids: list[tuple[str, bytes]] = []
    for _ in range(2):
        with FakeKafka() as fake, fake.control() as cluster:
            ids.append((cluster.cluster_id, cluster.create_topic(TOPIC).topic_id))
    assert len({cluster_id for cluster_id, _ in ids}) == 2
    assert len({topic_id for _, topic_id in ids}) == 2
