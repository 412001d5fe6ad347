"""OffsetForLeaderEpoch of a fake broker: where each leader's records end."""

from __future__ import annotations

import pytest

from pykclient.errors.broker import (
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pykclient.testing import FakeCluster
from pykclient.types import TopicPartition
from tests.testing.fake.asked import produce
from tests.testing.fake.batches import batch_of

T0 = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> FakeCluster:
    """Of one record in epoch 0, one in 1, none in 2 and two in 3; broker 0 leads again."""
    cluster = FakeCluster(2)
    cluster.create_topic("t")
    produce(cluster, 0, batch_of(b"v"))
    cluster.move_leader(T0, 1)
    produce(cluster, 1, batch_of(b"v"))
    cluster.move_leader(T0, 1)
    cluster.move_leader(T0, 0)
    produce(cluster, 0, batch_of(b"v", b"w"))
    return cluster


def ask(
    cluster: FakeCluster, epoch: int, *, broker_id: int = 0, topic: str = "t", believed: int = -1
) -> EpochEndOffset:
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=believed, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    )
    response = cluster.ask(broker_id, request, 0).answered()
    assert isinstance(response, OffsetForLeaderEpochResponse)
    return response.topics[0].partitions[0]


@pytest.mark.promise(
    "the fake cluster ends leader epochs as Kafka does, and drops deleted and old records"
)
@pytest.mark.parametrize(
    ("epoch", "told"), [(0, (0, 1)), (1, (1, 2)), (2, (1, 2)), (3, (3, 4)), (4, (-1, -1))]
)
def test_an_epoch_ends_where_the_next_one_with_records_begins(
    epoch: int, told: tuple[int, int], cluster: FakeCluster
) -> None:
    end = ask(cluster, epoch)
    assert (end.error_code, end.leader_epoch, end.end_offset) == (0, *told)


def test_who_believes_in_another_leader_is_told(cluster: FakeCluster) -> None:
    for end, error in (
        (ask(cluster, 0, believed=2), FencedLeaderEpochError),
        (ask(cluster, 0, believed=4), UnknownLeaderEpochError),
        (ask(cluster, 0, broker_id=1), NotLeaderOrFollowerError),
        (ask(cluster, 0, topic="other"), UnknownTopicOrPartitionError),
    ):
        assert end.error_code == error.code
    assert ask(cluster, 0, believed=3).error_code == 0
