"""Plain commits beside the offsets of transactions: a fake coordinator does as Kafka's own.

Goal: what stands in the end, of a group and a partition that both have committed, is the same. Both
write into the same log, and the record that stands later there wins, whenever the transaction ends.
Method: each script of requests goes to Kafka and to the fake broker, and each step must
have the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from pykclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pykclient.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from pykclient.testing import FakeCluster, TransactionSettings
from tests.integration.exchange import FakeExchange, RealExchange
from tests.integration.test_fake_transactions_against_kafka import (
    NEW_END,
    NEW_OFFSETS,
    TransactionalClient,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.testing import KafkaCluster
    from tests.integration.test_fake_transactions_against_kafka import Producer

    Script = Callable[["OffsetsClient"], Iterator[object]]

pytestmark = pytest.mark.kafka

PLAIN_VERSION = 9
"""The last version of OffsetCommit that names topics, not ids."""
DELETE_VERSION = 2
"""Version of DeleteGroups that all tested brokers support."""


class OffsetsClient(TransactionalClient):
    """Commits partition 0 of its group with and without a transaction."""

    def __init__(self, exchange: RealExchange | FakeExchange, *, is_new: bool) -> None:
        super().__init__(exchange)
        self._is_new = is_new

    def hold(self, producer: Producer, offset: int) -> list[str]:
        """Commit in the producer's transaction, which may be its first request."""
        if not self._is_new:
            assert self.add_offsets(producer) == "NONE"
            return self.commit_offset(producer, offset)
        return self.commit_offset(producer, offset, version=NEW_OFFSETS)

    def finish(self, producer: Producer, *, is_commit: bool = True) -> Producer:
        """End the transaction; return the producer's next state."""
        if not self._is_new:
            assert self.end(producer, is_commit=is_commit)[0] == "NONE"
            return producer
        error, following = self.end(producer, is_commit=is_commit, version=NEW_END)
        assert error == "NONE"
        return following

    def commit(self, offset: int) -> list[int]:
        """Send OffsetCommit as a client that is not a member."""
        partition = OffsetCommitRequestPartition(0, offset)
        topics = [OffsetCommitRequestTopic(self.topic, partitions=[partition])]
        request = OffsetCommitRequest(self.group, topics=topics)
        response = self._exchange.send(request, OffsetCommitResponse, PLAIN_VERSION)
        return [each.error_code for topic in response.topics for each in topic.partitions]

    def delete_offset(self) -> list[int]:
        """OffsetDelete."""
        partitions = [OffsetDeleteRequestPartition(0)]
        request = OffsetDeleteRequest(
            self.group, [OffsetDeleteRequestTopic(self.topic, partitions)]
        )
        response = self._exchange.send(request, OffsetDeleteResponse)
        return [response.error_code] + [
            each.error_code for topic in response.topics for each in topic.partitions
        ]

    def delete_group(self) -> int:
        """Delete the group with DeleteGroups; return the error code."""
        request = DeleteGroupsRequest([self.group])
        response = self._exchange.send(request, DeleteGroupsResponse, DELETE_VERSION)
        return response.results[0].error_code

    def state(self) -> tuple[object, object]:
        """Return the offset with and without waiting for transactions."""
        return self.offsets(), self.offsets(is_stable=False)


def a_plain_commit_after_that_of_a_transaction(client: OffsetsClient) -> Iterator[object]:
    producer = client.begin()
    yield client.hold(producer, 5)
    yield client.commit(3)
    yield client.state()
    producer = client.finish(producer)
    yield client.state()
    yield client.hold(producer, 7)
    yield client.state()
    client.finish(producer)
    yield client.state()


def a_plain_commit_before_that_of_a_transaction(client: OffsetsClient) -> Iterator[object]:
    yield client.commit(3)
    producer = client.begin()
    yield client.hold(producer, 1)
    yield client.state()
    client.finish(producer)
    yield client.state()


def a_plain_commit_within_a_transaction_that_goes_on(client: OffsetsClient) -> Iterator[object]:
    producer = client.begin()
    yield client.hold(producer, 5)
    yield client.commit(3)
    yield client.hold(producer, 4)
    client.finish(producer)
    yield client.state()


def a_plain_commit_beside_one_that_is_aborted(client: OffsetsClient) -> Iterator[object]:
    producer = client.begin()
    yield client.hold(producer, 5)
    yield client.commit(3)
    client.finish(producer, is_commit=False)
    yield client.state()


def an_offset_that_is_deleted_before_the_end(client: OffsetsClient) -> Iterator[object]:
    producer = client.begin()
    yield client.hold(producer, 5)
    yield client.delete_offset()
    yield client.state()
    client.finish(producer)
    yield client.state()


def an_offset_that_comes_after_a_deletion(client: OffsetsClient) -> Iterator[object]:
    yield client.commit(3)
    producer = client.begin()
    yield client.hold(producer, 5)
    yield client.delete_offset()
    yield client.hold(producer, 6)
    yield client.state()
    client.finish(producer)
    yield client.state()


def a_group_that_is_deleted_before_the_end(client: OffsetsClient) -> Iterator[object]:
    producer = client.begin()
    yield client.hold(producer, 5)
    yield client.delete_group()
    yield client.state()
    client.finish(producer)
    yield client.state()
    yield client.delete_group()


SCRIPTS: list[Script] = [
    a_plain_commit_after_that_of_a_transaction,
    a_plain_commit_before_that_of_a_transaction,
    a_plain_commit_within_a_transaction_that_goes_on,
    a_plain_commit_beside_one_that_is_aborted,
    an_offset_that_is_deleted_before_the_end,
    an_offset_that_comes_after_a_deletion,
    a_group_that_is_deleted_before_the_end,
]


def check(script: Script, servers: str, version: int) -> None:
    """Both brokers respond the same to a script."""
    settings = TransactionSettings(transaction_version=version)
    fake = FakeExchange(FakeCluster(1, transaction_settings=settings))
    outcomes = []
    for exchange in (fake, RealExchange(servers)):
        client = OffsetsClient(exchange, is_new=version > 1)
        client.prepare()
        outcomes.append(list(script(client)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_plain_commits_beside_transactions(script: Script, kafka_cluster: KafkaCluster) -> None:
    check(script, kafka_cluster.bootstrap_servers, 2)


@pytest.mark.soak
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_plain_commits_beside_transactions_of_older_brokers(
    script: Script, old_kafka_cluster: KafkaCluster
) -> None:
    check(script, old_kafka_cluster.bootstrap_servers, 1)
