"""Expiry of unused producers, transactional ids, offsets and groups: the fake, beside Kafka.

Goal: what a fake broker forgets, and what it keeps, is what a real one does. Method: a real broker
that forgets after a second, and looks often; each script of requests goes to it and to the fake
one, and waits until something is gone. What is in use must be there still. Kafka counts the
retention of offsets in minutes: old versions of OffsetCommit have another, and soak waits a minute.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pykclient import Producer as OurProducer
from pykclient.errors import InvalidProducerIdMappingError, TransactionAbortableError
from pykclient.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from pykclient.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pykclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pykclient.testing import FakeCluster, GroupSettings, TransactionSettings
from pykclient.testing.cluster.jars import KAFKA_VERSIONS
from tests.integration.exchange import FakeExchange, RealExchange
from tests.integration.group_members import WAIT_TIMEOUT_S, wait_until
from tests.integration.test_fake_transactions_against_kafka import (
    NEW_END,
    NEW_OFFSETS,
    NEW_PRODUCE,
    TransactionalClient,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory
    from tests.integration.exchange import Exchange
    from tests.integration.test_fake_transactions_against_kafka import Producer

    Script = Callable[["IdleClient"], Iterator[object]]

pytestmark = [pytest.mark.soak, pytest.mark.kafka]

EXPIRATION_MS = 1_000
MINUTE_MS = 60_000
LONG_MS = 900_000
"""The longest time of a transaction: it is not what ends one here."""
JOINING_MS = 5_000
"""More than a member takes to join."""
OLD_COMMIT, NEW_COMMIT = 4, 9
"""The last version of OffsetCommit with a time of retention, and the last that names topics."""
BROKER_SETTINGS = {
    "producer.id.expiration.ms": EXPIRATION_MS,
    "producer.id.expiration.check.interval.ms": 100,
    "transactional.id.expiration.ms": EXPIRATION_MS,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 100,
    "offsets.retention.minutes": 1,
    "offsets.retention.check.interval.ms": 100,
    "group.consumer.assignment.interval.ms": 0,
}


class IdleClient(TransactionalClient):
    """Waits until something is forgotten."""

    def wait_for(
        self, condition: Callable[[], bool], what: str, timeout_s: float = WAIT_TIMEOUT_S
    ) -> None:
        """Wait until a condition holds; advance a fake broker's clock."""
        exchange = self._exchange
        if isinstance(exchange, FakeExchange):  # later than its next look at what is too old
            exchange.cluster.advance(exchange.cluster.now_ms + MINUTE_MS + 300_000)
        wait_until(condition, what, timeout_s=timeout_s)

    def idempotent(self) -> Producer:
        """Return a producer without a transactional id."""
        response = self._exchange.send(InitProducerIdRequest(None), InitProducerIdResponse)
        return self._producer(response.producer_id, response.producer_epoch)

    def batches(self, partition: int = 0) -> list[tuple[object, ...]]:
        """Return the batches that `read` returns."""
        *_, batches = self.read(partition)
        assert isinstance(batches, list)
        return batches

    def commit(self, offset: int, *, partition: int = 0, retention_ms: int = -1) -> list[int]:
        """OffsetCommit, by a client that is no member; -1: for as long as brokers keep it."""
        each = OffsetCommitRequestPartition(partition, offset)
        request = OffsetCommitRequest(
            self.group,
            retention_time_ms=retention_ms,
            topics=[OffsetCommitRequestTopic(self.topic, partitions=[each])],
        )
        version = NEW_COMMIT if retention_ms == -1 else OLD_COMMIT
        response = self._exchange.send(request, OffsetCommitResponse, version)
        return [each.error_code for topic in response.topics for each in topic.partitions]

    def group_state(self) -> tuple[int, str]:
        """DescribeGroups: an error, and the state of the group."""
        response = self._exchange.send(DescribeGroupsRequest([self.group]), DescribeGroupsResponse)
        (group,) = response.groups
        return group.error_code, group.group_state

    def is_committed(self) -> bool:
        """Return whether the group has an offset of partition 0."""
        return self.offsets(is_stable=False) != [("NONE", -1)]


def producers_without_transactions(client: IdleClient) -> Iterator[object]:
    busy, silent = client.begin(timeout_ms=LONG_MS), client.idempotent()
    more = {"is_transactional": False, "has_name": False}
    yield client.produce(silent, 0, b"a", b"b", **more)
    yield client.produce(busy, 0, b"c", version=NEW_PRODUCE)
    client.wait_for(lambda: len(client.producers()) == 1, "one producer is forgotten")
    yield client.producers()
    yield client.produce(silent, 0, b"a", b"b", **more)
    yield client.produce(silent, 7, b"gap", **more)
    yield client.produce(busy, 1, b"d", version=NEW_PRODUCE)
    yield client.producers()


def producers_of_transactions(client: IdleClient) -> Iterator[object]:
    first = client.begin()
    yield client.produce(first, 0, b"a", version=NEW_PRODUCE)
    yield client.end(first, version=NEW_END)
    yield client.producers()
    client.wait_for(lambda: client.producers() == [], "the producer is forgotten")
    yield client.read()


def transactional_ids(client: IdleClient) -> Iterator[object]:
    """One whose transaction is open stays; what the other one has left is refused."""
    first = client.begin()
    yield client.produce(first, 0, b"a", version=NEW_PRODUCE)
    busy = TransactionalClient(client._exchange)
    opened = busy.begin(timeout_ms=LONG_MS)
    assert busy.add(opened, 0, topic=client.topic) == [(0, "NONE")]
    error, second = client.end(first, is_commit=False, version=NEW_END)
    yield error, second
    client.wait_for(
        lambda: client.described()[0] == "TRANSACTIONAL_ID_NOT_FOUND", "the id is forgotten"
    )
    yield busy.described()[:2]
    yield client.add(second, 0), client.add_offsets(second)
    yield client.produce(second, 0, b"b", version=NEW_PRODUCE, partition=1)
    yield client.commit_offset(second, 5, version=NEW_OFFSETS)
    yield client.end(second), client.end(second, version=NEW_END)
    yield client.end(second, is_commit=False, version=NEW_END)
    yield client.listed()
    yield client.init(was=second)
    yield client.read()


def offsets_with_a_time_of_their_own(client: IdleClient) -> Iterator[object]:
    yield client.commit(5, retention_ms=1)
    client.wait_for(lambda: not client.is_committed(), "the offset is forgotten")
    yield client.group_state()
    yield client.commit(6)
    yield client.commit(7, partition=1, retention_ms=1)
    wait_for_another(client)
    yield client.offsets(), client.group_state()


def offsets_that_a_transaction_may_change(client: IdleClient) -> Iterator[object]:
    producer = client.begin(timeout_ms=LONG_MS)
    yield client.commit_offset(producer, 6, version=NEW_OFFSETS)
    yield client.commit(5, retention_ms=1)
    wait_for_another(client)
    yield client.offsets(), client.offsets(is_stable=False)
    yield client.end(producer, is_commit=False, version=NEW_END)
    client.wait_for(lambda: not client.is_committed(), "the offset is forgotten")
    yield client.group_state()


def offsets_of_members(client: IdleClient) -> Iterator[object]:
    """They stay while a member reads the topic; those of another topic go."""
    yield client.commit(5, retention_ms=JOINING_MS)
    yield client.join("m", 0)
    wait_for_another(client, JOINING_MS)
    yield client.offsets()


def wait_for_another(client: IdleClient, retention_ms: int = 1) -> None:
    """Wait until an offset of another group is gone, which was committed later."""
    other = IdleClient(client._exchange)
    other.topic = client.topic
    wait_until(
        lambda: other.commit(1, retention_ms=retention_ms) == [0], "the other group is there"
    )
    other.wait_for(lambda: not other.is_committed(), "the other group's offset is forgotten")


def offsets_of_a_group_without_members(client: IdleClient) -> Iterator[object]:
    """Commit in a group that never has a member: its offset expires a minute later."""
    yield client.commit(5)
    yield client.offsets()
    client.wait_for(
        lambda: not client.is_committed(), "the offset is forgotten", 2 * WAIT_TIMEOUT_S
    )
    yield client.group_state()


SCRIPTS: list[Script] = [
    producers_without_transactions,
    producers_of_transactions,
    transactional_ids,
    offsets_with_a_time_of_their_own,
    offsets_that_a_transaction_may_change,
    offsets_of_members,
]


@pytest.fixture(scope="module")
def forgetful(kafka_cluster_factory: KafkaClusterFactory) -> Iterator[KafkaCluster]:
    with kafka_cluster_factory(version=KAFKA_VERSIONS[0], config=BROKER_SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka(forgetful: KafkaCluster) -> Exchange:
    return RealExchange(forgetful.bootstrap_servers)


def check(script: Script, kafka: Exchange, retention_minutes: int) -> None:
    """Both brokers respond the same to a script.

    The fake one's look for what is too old is as rare as Kafka's is by default.
    """
    fake = FakeExchange(
        FakeCluster(
            1,
            epoch_ms=int(
                time.time() * 1000
            ),  # producers are forgotten by the time of their records
            group_settings=GroupSettings(
                group_consumer_assignment_interval_ms=0,
                offsets_retention_minutes=retention_minutes,
                group_consumer_session_timeout_ms=LONG_MS,
            ),
            transaction_settings=TransactionSettings(
                producer_id_expiration_ms=EXPIRATION_MS,
                transactional_id_expiration_ms=EXPIRATION_MS,
            ),
        )
    )
    outcomes = []
    for exchange in (fake, kafka):
        client = IdleClient(exchange)
        client.prepare()
        outcomes.append(list(script(client)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_fake_brokers_forget_what_kafka_forgets(script: Script, kafka: Exchange) -> None:
    check(script, kafka, 10)


@pytest.mark.soak
@pytest.mark.timeout(4 * WAIT_TIMEOUT_S)
def test_offsets_are_forgotten_after_the_brokers_own_time(kafka: Exchange) -> None:
    check(offsets_of_a_group_without_members, kafka, 1)


def test_a_producer_that_was_idle_for_too_long_goes_on_after_an_abort(
    forgetful: KafkaCluster, kafka: Exchange
) -> None:
    client = IdleClient(kafka)
    client.prepare()
    servers = forgetful.bootstrap_servers
    with OurProducer(bootstrap_servers=servers, transactional_id=client.name) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(client.topic, b"a", partition=0)
        client.wait_for(
            lambda: client.described()[0] == "TRANSACTIONAL_ID_NOT_FOUND", "the id is forgotten"
        )
        producer.begin_transaction()
        producer.send(client.topic, b"never", partition=1)
        with pytest.raises(TransactionAbortableError, match="Call abort_transaction") as caught:
            producer.commit_transaction()
        assert isinstance(caught.value.__cause__, InvalidProducerIdMappingError)
        producer.abort_transaction()
        with producer.transaction():
            producer.send(client.topic, b"b", partition=0)
        client.settle()
    records = [[count, values] for *_, count, values in client.batches() if count == 1]
    assert records == [[1, [b"a"]], [1, [b"b"]]]
    assert client.batches(1) == []
