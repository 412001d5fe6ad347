"""The step after a producer id's last epoch: the fake coordinator behaves as Kafka's.

Goal: a producer that has used up 32,767 epochs goes on with another producer id, at its next
transaction or its next start, and nothing of it is lost. Method: InitProducerId until the id has
one epoch left, which is a matter of seconds; each script of requests then goes to Kafka and to the
fake broker, and each step must have the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer, Producer, TopicPartition
from pykclient.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pykclient.testing import FakeCluster, TransactionSettings
from tests.integration.exchange import FakeExchange, RealExchange
from tests.integration.test_fake_transactions_against_kafka import (
    NEW_END,
    NEW_OFFSETS,
    NEW_PRODUCE,
    OLD_PRODUCE,
    TransactionalClient,
)
from tests.soak import OLDEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.testing import KafkaCluster
    from tests.integration.test_fake_transactions_against_kafka import Producer as Identity

    Script = Callable[["EpochClient"], Iterator[object]]

pytestmark = pytest.mark.kafka

LAST_EPOCH = 2**15 - 2
"""The one above it is for fencing alone."""


class EpochClient(TransactionalClient):
    """Begins in the last epochs of a producer id."""

    def begin_late(self, epoch: int = LAST_EPOCH) -> Identity:
        """Return a producer in this epoch."""
        first = self.begin()
        assert first == (0, 0)
        request = InitProducerIdRequest(self.name, 60_000, -1, -1)
        response = self._exchange.send_often(request, InitProducerIdResponse, epoch)
        assert response.error_code == 0
        return self._producer(response.producer_id, response.producer_epoch)


def starts(client: EpochClient) -> Iterator[object]:
    yield client.begin_late(LAST_EPOCH - 1)
    yield client.init()
    following = client.begin()
    yield following
    yield client.described()
    yield client.add((0, LAST_EPOCH), 0)
    yield client.end((0, LAST_EPOCH))
    yield client.init(was=(0, LAST_EPOCH))
    yield client.init(was=following)
    yield client.init()


def starts_after_an_error(client: EpochClient) -> Iterator[object]:
    """KIP-360: what a producer has had so far is known by its former id, too."""
    last = client.begin_late()
    error, following = client.init(was=last)
    yield error, following
    yield client.init(was=last)
    yield client.init(was=(0, LAST_EPOCH - 1))
    yield client.init(was=following)
    yield client.init(was=last)


def an_end_of_kip_98(client: EpochClient) -> Iterator[object]:
    """End transactions as before KIP-890: the epoch stays the same."""
    last = client.begin_late()
    yield client.add(last, 0)
    yield client.produce(last, 0, b"a")
    yield client.end(last)
    yield client.end(last)
    yield client.described()
    yield client.add(last, 0)
    yield client.produce(last, 1, b"b")
    yield client.end(last, is_commit=False)
    yield client.read(), client.producers()
    yield client.begin()


def ends_of_kip_890(client: EpochClient) -> Iterator[object]:
    last = client.begin_late()
    yield client.produce(last, 0, b"a", version=NEW_PRODUCE)
    yield client.commit_offset(last, 5, version=NEW_OFFSETS)
    error, following = client.end(last, version=NEW_END)
    yield error, following
    yield client.described()
    yield client.offsets(), client.producers()
    yield client.end(last, version=NEW_END)
    yield client.end(last, is_commit=False, version=NEW_END)
    for partition in range(2):  # of which one knows the producer
        yield client.produce(last, 1, b"late", version=NEW_PRODUCE, partition=partition)
        yield client.produce(last, 1, b"late", version=OLD_PRODUCE, partition=partition)
    yield client.commit_offset(last, 6, version=NEW_OFFSETS), client.commit_offset(last, 6)
    yield client.produce(following, 0, b"b", version=NEW_PRODUCE)
    yield client.end(last, version=NEW_END)
    yield client.end(following, is_commit=False, version=NEW_END)
    yield client.read(), client.producers()


def an_abort_of_kip_890_of_what_was_never_begun(client: EpochClient) -> Iterator[object]:
    last = client.begin_late()
    error, following = client.end(last, is_commit=False, version=NEW_END)
    yield error, following
    yield client.end(last, is_commit=False, version=NEW_END)
    yield client.described()


def a_fencing_in_the_last_epoch(client: EpochClient) -> Iterator[object]:
    last = client.begin_late()
    yield client.produce(last, 0, b"a", version=NEW_PRODUCE)
    yield client.init()[0]
    client.settle()
    yield client.described(), client.producers()
    yield client.end(last, version=NEW_END)
    yield client.begin()
    yield client.read()


def a_fencing_of_kip_98_in_the_last_epoch(client: EpochClient) -> Iterator[object]:
    last = client.begin_late()
    yield client.add(last, 0)
    yield client.produce(last, 0, b"a")
    yield client.init()[0]
    client.settle()
    yield client.producers()
    yield client.end(last)
    following = client.begin()
    yield client.add(following, 0)
    yield client.produce(following, 0, b"b")
    yield client.end(following)
    yield client.read()


SCRIPTS: list[Script] = [
    starts,
    starts_after_an_error,
    an_end_of_kip_98,
    ends_of_kip_890,
    an_abort_of_kip_890_of_what_was_never_begun,
    a_fencing_in_the_last_epoch,
    a_fencing_of_kip_98_in_the_last_epoch,
]


def check(script: Script, servers: str, version: int) -> None:
    """Both brokers respond the same to a script."""
    settings = TransactionSettings(transaction_version=version)
    fake = FakeExchange(FakeCluster(1, transaction_settings=settings))
    outcomes = []
    for exchange in (fake, RealExchange(servers)):
        client = EpochClient(exchange)
        client.prepare()
        outcomes.append(list(script(client)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.soak
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_the_last_epoch_is_followed_by_another_id(
    script: Script, kafka_cluster: KafkaCluster
) -> None:
    check(script, kafka_cluster.bootstrap_servers, 2)


@pytest.mark.soak
@pytest.mark.parametrize(
    "script",
    [starts, starts_after_an_error, an_end_of_kip_98, a_fencing_of_kip_98_in_the_last_epoch],
    ids=lambda script: script.__name__,
)
def test_older_brokers_do_so_without_kip_890(
    script: Script, old_kafka_cluster: KafkaCluster
) -> None:
    check(script, old_kafka_cluster.bootstrap_servers, 1)


@pytest.mark.soak
def test_a_producer_goes_on_when_its_epochs_are_used_up(each_kafka_cluster: KafkaCluster) -> None:
    client = EpochClient(RealExchange(each_kafka_cluster.bootstrap_servers))
    client.prepare()
    client.begin_late(LAST_EPOCH - 1)
    expected = [b"%d" % number for number in range(6)]
    with Producer(
        bootstrap_servers=each_kafka_cluster.bootstrap_servers, transactional_id=client.name
    ) as producer:
        producer.init_transactions()
        for number, value in enumerate(expected):
            if number == 3:
                producer.begin_transaction()
                producer.send(client.topic, b"aborted", partition=0).result(30)
                producer.abort_transaction()
            with producer.transaction():
                producer.send(client.topic, value, partition=0)
        client.settle()
        _, _, _, _, identity, _ = client.described()
    is_new = each_kafka_cluster.version != OLDEST
    assert identity == ((1, 6) if is_new else (0, LAST_EPOCH))
    with Consumer(
        bootstrap_servers=each_kafka_cluster.bootstrap_servers, isolation_level="read_committed"
    ) as consumer:
        partition = TopicPartition(client.topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning([partition])
        end = consumer.end_offsets([partition])[partition]
        found: list[bytes | None] = []
        while consumer.position(partition) < end:
            found += [record.value for record in consumer.poll(1)]
    assert found == expected
