"""Fetch of a fake broker: how much of several partitions is returned."""

from __future__ import annotations

import pytest

from pykclient.errors.broker import InconsistentTopicIdError, UnknownTopicOrPartitionError
from pykclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from pykclient.testing import FakeCluster
from pykclient.types import TopicPartition
from tests.testing.fake.requests import batch_of, fetch, fetched, response_to

READ_COMMITTED = 1


@pytest.fixture
def cluster() -> FakeCluster:
    """Return a broker with a batch in each of two partitions."""
    cluster = FakeCluster(1)
    cluster.create_topic("t", 2)
    for number in range(2):
        append(cluster, number, batch_of(b"v"))
    return cluster


def append(cluster: FakeCluster, number: int, data: bytes) -> None:
    partition = cluster.partition(TopicPartition("t", number))
    partition.log.append(data, leader_epoch=0, now_ms=cluster.wall_ms)
    cluster.replication.on_append(partition, cluster.now_ms)


def fetch_partitions(
    cluster: FakeCluster, request: FetchRequest
) -> tuple[int, list[PartitionData]]:
    """Return the session id and the topic's partitions."""
    response = response_to(cluster, request, FetchResponse, version=12)
    assert response.error_code == 0
    topics = [each for topic in response.responses for each in topic.partitions]
    return response.session_id, topics


def test_of_a_session_a_partition_that_was_read_comes_last_the_next_time(
    cluster: FakeCluster,
) -> None:
    """A response with room for one batch serves the partitions in turn (KIP-74)."""
    both = [FetchPartition(partition=n, partition_max_bytes=10_000) for n in range(2)]
    topics = [FetchTopic(topic="t", partitions=both)]
    session_id, responded = fetch_partitions(
        cluster, FetchRequest(max_bytes=1, session_epoch=0, topics=topics)
    )
    read = [[each.partition_index for each in responded if each.records]]
    for epoch in range(1, 4):
        later = FetchRequest(max_bytes=1, session_id=session_id, session_epoch=epoch)
        read.append(
            [each.partition_index for each in fetch_partitions(cluster, later)[1] if each.records]
        )
    assert read == [[0], [1], [0], [1]]


def test_a_reader_of_committed_records_gets_none_of_an_open_transaction(
    cluster: FakeCluster,
) -> None:
    opened = batch_of(b"w", producer_id=7, is_transactional=True, base_sequence=0)
    append(cluster, 0, opened)
    assert fetched(fetch(cluster, 0, 1)).records
    committed = fetched(fetch(cluster, 0, 1, isolation_level=READ_COMMITTED, max_wait_ms=0))
    assert not committed.records
    assert (committed.high_watermark, committed.last_stable_offset) == (2, 1)


@pytest.mark.parametrize(("epoch", "diverging"), [(0, None), (1, None), (2, (1, 2)), (3, (3, 2))])
def test_a_reader_of_a_diverged_log_gets_the_end_offset_of_the_epoch(
    epoch: int, diverging: tuple[int, int] | None, cluster: FakeCluster
) -> None:
    """The leader wrote in epochs 0 and 1, and nothing in its current epoch 2 (KIP-595)."""
    partition = cluster.partition(TopicPartition("t", 0))
    partition.log.append(batch_of(b"w"), leader_epoch=1, now_ms=cluster.wall_ms)
    cluster.replication.on_append(partition, 0)
    partition.leader_epoch = 3
    partition.log.begin_epoch(3)
    offset = 3 if diverging else min(epoch + 1, 2)
    call = fetch(cluster, 0, offset, last_fetched_epoch=epoch, max_wait_ms=0)
    responded = fetched(call).diverging_epoch
    assert (responded.epoch, responded.end_offset) == (diverging or (-1, -1))


def test_a_session_names_a_topic_by_the_id_of_its_request(cluster: FakeCluster) -> None:
    """The id stays, even if the topic is deleted; a client with another id cannot read it."""
    old_id = cluster.topics["t"].topic_id
    session_id = 0

    def responded(epoch: int, *named: bytes, forgotten: bytes = b"") -> list[tuple[bytes, int]]:
        nonlocal session_id
        request = FetchRequest(
            max_wait_ms=0,
            max_bytes=10_000,
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic_id=name, partitions=[FetchPartition()]) for name in named],
            forgotten_topics_data=[ForgottenTopic(topic_id=forgotten, partitions=[0])]
            if forgotten
            else [],
        )
        response = response_to(cluster, request, FetchResponse, version=13)
        session_id = response.session_id
        return [(t.topic_id, p.error_code) for t in response.responses for p in t.partitions]

    assert responded(0, old_id) == [(old_id, 0)]
    cluster.delete_topic("t")
    assert responded(1) == [(old_id, UnknownTopicOrPartitionError.code)]
    cluster.create_topic("t")
    new_id = cluster.topics["t"].topic_id
    assert responded(2) == [(old_id, InconsistentTopicIdError.code)]
    assert responded(3, new_id, forgotten=old_id) == [(new_id, 0)]
    cluster.delete_topic("t")
    responded(4)
    assert responded(5, forgotten=new_id) == []
