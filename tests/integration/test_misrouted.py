"""A route that leads to another cluster, on real brokers: nothing passes to or from it (KIP-1242).

Method: cluster A is behind a proxy, which then leads to cluster B. Broker ids and topics are the
same in both. Brokers of 4.4 refuse the connection; of older ones the client compares the cluster
ids.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal

import pytest

from pykclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pykclient.errors import ClusterMismatchError, DeliveryTimeoutError, KafkaError
from tests.soak import NEWEST_AND_OLDEST, OWN_BROKERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient import Delivery, RecordMetadata
    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

pytestmark = [pytest.mark.kafka, OWN_BROKERS]

TOPIC = "t"
PARTITION = TopicPartition(TOPIC, 0)
TIMEOUT_S = 30.0
COUNT = 2_000
QUICK = {
    "request_timeout_ms": 1_000,
    "delivery_timeout_ms": 4_000,
    "linger_ms": 0,
    "reconnect_backoff_max_ms": 100,
}
Pair = tuple["KafkaCluster", "KafkaCluster"]


@pytest.fixture(
    scope="module",
    params=NEWEST_AND_OLDEST,
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


@pytest.fixture
def refilled(pair: Pair) -> Iterator[Pair]:
    """Both clusters with a topic of the same name and one record, "a" or "b"."""
    for cluster, value in zip(pair, (b"a", b"b"), strict=True):
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            if TOPIC in admin.list_topics():
                admin.delete_topics([TOPIC])
            admin.create_topics([NewTopic(TOPIC, 1, 1)])
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send(TOPIC, value).result(TIMEOUT_S)
    yield pair
    pair[0].proxy(1).heal()


def replace_by(a: KafkaCluster, b: KafkaCluster) -> None:
    """Put another cluster at the address that clients of `a` have."""
    host, port = b.bootstrap_servers.rsplit(":", 1)
    a.proxy(1).redirect((host, int(port)))


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
    "group_protocol", [pytest.param("classic", marks=pytest.mark.soak), "auto"]
)
def test_records_for_one_cluster_never_reach_another_and_its_records_are_never_read(
    refilled: Pair, group_protocol: Literal["classic", "auto"]
) -> None:
    a, b = refilled
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
        replace_by(a, b)
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
    check_untouched(b)


def check_untouched(b: KafkaCluster) -> None:
    """Check that a cluster has its own record alone, and no group."""
    assert values(b) == [b"b"]
    with Admin(bootstrap_servers=b.bootstrap_servers) as admin:
        assert admin.list_groups() == {}


@pytest.mark.promise("nothing is sent to another cluster that took over a broker's address")
def test_a_cluster_that_is_replaced_under_load_leaves_nothing_in_the_next_one(
    refilled: Pair,
) -> None:
    """Records are in flight, a transaction is open, and a group has not committed."""
    a, b = refilled
    servers = a.bootstrap_servers
    with ExitStack() as clients:
        producer = clients.enter_context(Producer(QUICK, bootstrap_servers=servers))
        transactional = clients.enter_context(
            Producer(QUICK, bootstrap_servers=servers, transactional_id="t")
        )
        consumer = clients.enter_context(
            Consumer(
                bootstrap_servers=servers,
                group_id="g",
                group_protocol="auto",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                default_api_timeout_ms=2_000,
                reconnect_backoff_max_ms=100,
            )
        )
        admin = clients.enter_context(
            Admin(bootstrap_servers=servers, default_api_timeout_ms=2_000)
        )
        assert TOPIC in admin.list_topics()
        consumer.subscribe([TOPIC])
        assert [record.value for record in consumer.poll(TIMEOUT_S)] == [b"a"]
        transactional.init_transactions()
        transactional.begin_transaction()
        transactional.send(TOPIC, b"in a transaction").result(TIMEOUT_S)
        sent: dict[bytes, Delivery[RecordMetadata]] = {}
        for number in range(COUNT):
            if number == COUNT // 2:
                next(iter(sent.values())).result(TIMEOUT_S)  # So that others are in flight.
                replace_by(a, b)
            value = b"%d" % number
            sent[value] = producer.send(TOPIC, value)
        with pytest.raises(KafkaError, match="another cluster"):
            transactional.commit_transaction()
        with pytest.raises(KafkaError, match="another cluster"):
            consumer.commit({PARTITION: 1})
        with pytest.raises(ClusterMismatchError):
            admin.delete_topics([TOPIC])
        acknowledged = [value for value, delivery in sent.items() if is_acknowledged(delivery)]
    assert 0 < len(acknowledged) < COUNT
    check_untouched(b)
    a.proxy(1).heal()
    found = [value for value in values(a) if value not in {b"a", b"in a transaction"}]
    assert len(found) == len(set(found)), "nothing is doubled"
    assert [value for value in found if value in set(acknowledged)] == acknowledged


def is_acknowledged(delivery: Delivery[RecordMetadata]) -> bool:
    """Return True for an acknowledged record; False if it failed and says that this is why."""
    error = delivery.exception(TIMEOUT_S)
    if error is None:
        return True
    assert isinstance(error, DeliveryTimeoutError)
    assert isinstance(error.__cause__, ClusterMismatchError)
    assert "another cluster" in str(error)
    return False


def test_clients_that_check_nothing_follow_the_address(refilled: Pair) -> None:
    a, b = refilled
    follow = {"metadata_cluster_check_enable": False, "reconnect_backoff_max_ms": 100}
    with (
        Producer(follow, bootstrap_servers=a.bootstrap_servers) as producer,
        Consumer(
            follow, bootstrap_servers=a.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer,
        Admin(follow, bootstrap_servers=a.bootstrap_servers) as admin,
    ):
        consumer.assign([PARTITION])
        assert [record.value for record in consumer.poll(TIMEOUT_S)] == [b"a"]
        producer.send(TOPIC, b"one").result(TIMEOUT_S)
        assert [record.value for record in consumer.poll(TIMEOUT_S)] == [b"one"]
        replace_by(a, b)
        assert producer.send(TOPIC, b"two").result(TIMEOUT_S).offset == 1
        assert TOPIC in admin.list_topics()
        read: list[bytes | None] = []
        while b"two" not in read:
            read += [record.value for record in consumer.poll(TIMEOUT_S)]
    assert read == [b"b", b"two"], "the topic has another id, so it is read from its start"
    assert values(b) == [b"b", b"two"]
    a.proxy(1).heal()
    assert values(a) == [b"a", b"one"]
