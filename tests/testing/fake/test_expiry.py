"""Expiry of unused offsets, groups and producers."""

from __future__ import annotations

import pytest

from pykclient.testing import FakeCluster, GroupSettings, TransactionSettings
from pykclient.testing.fake.groups.offsets import CommittedOffset
from pykclient.types import TopicPartition
from tests.testing.fake.groups.classic_client import SESSION_MS, ClassicClient, settled
from tests.testing.fake.groups.kip848_client import GROUP, Kip848Client
from tests.testing.fake.requests import batch_of, produce, produced

MINUTE_MS = 60_000
RETENTION_MINUTES = 60
RETENTION_MS = RETENTION_MINUTES * MINUTE_MS
LATE_MS = 6 * MINUTE_MS
"""More than the interval between two expiry checks."""


@pytest.fixture
def cluster() -> FakeCluster:
    settings = GroupSettings(
        offsets_retention_minutes=RETENTION_MINUTES,
        group_max_session_timeout_ms=10 * RETENTION_MS,
        group_consumer_session_timeout_ms=10 * RETENTION_MS,
    )
    cluster = FakeCluster(1, group_settings=settings)
    cluster.create_topic("t", 4)
    cluster.create_topic("u", 1)
    return cluster


def committed(cluster: FakeCluster, group: str) -> set[str]:
    """Return the topics for which the group has offsets."""
    return {name.topic for name in cluster.groups.offsets(group).all()}


def test_offsets_without_members_expire_with_their_group(cluster: FakeCluster) -> None:
    """KIP-211: offsets of consumers without a group membership expire from their commit on."""
    ClassicClient(cluster).commit({0: 1})
    cluster.advance(RETENTION_MS - 1)
    assert committed(cluster, "g") == {"t"}
    cluster.advance(RETENTION_MS + LATE_MS)
    assert cluster.groups.snapshot("g") is None
    assert committed(cluster, "g") == set()


def test_offsets_of_a_group_count_from_when_its_last_member_went(cluster: FakeCluster) -> None:
    (client,) = settled(cluster, None)
    client.commit({0: 1})
    for _ in range(2 * RETENTION_MS // SESSION_MS):
        cluster.advance(cluster.now_ms + SESSION_MS - 1)
        assert client.heartbeat() == 0
    assert committed(cluster, "g") == {"t"}, "a member uses them"
    client.leave()
    left_ms = cluster.now_ms
    cluster.advance(left_ms + RETENTION_MS - 1)
    assert committed(cluster, "g") == {"t"}
    cluster.advance(left_ms + RETENTION_MS + LATE_MS)
    assert cluster.groups.snapshot("g") is None


def test_offsets_of_topics_that_a_member_does_not_read_expire(cluster: FakeCluster) -> None:
    client = Kip848Client(cluster, "m", ["t"])
    client.settle()
    for name in ("t", "u"):
        partition, offset = TopicPartition(name, 0), CommittedOffset(1)
        cluster.groups.commit(GROUP, partition, offset, cluster.now_ms)
    cluster.groups.offsets(GROUP).hold(7, TopicPartition("u", 0), CommittedOffset(2), log_offset=7)
    cluster.advance(RETENTION_MS + LATE_MS)
    assert committed(cluster, GROUP) == {"t", "u"}, "a transaction may still change it"
    cluster.groups.offsets(GROUP).drop_held(7)
    cluster.advance(cluster.now_ms + LATE_MS)
    assert committed(cluster, GROUP) == {"t"}


def test_a_producer_that_was_silent_for_long_is_forgotten() -> None:
    settings = TransactionSettings(producer_id_expiration_ms=RETENTION_MS)
    cluster = FakeCluster(1, transaction_settings=settings)
    cluster.create_topic("t", 1)
    log = cluster.partition(TopicPartition("t", 0)).log

    def append(producer_id: int, *, is_transactional: bool = False) -> None:
        data = batch_of(
            b"v",
            producer_id=producer_id,
            base_sequence=0,
            timestamp_ms=cluster.wall_ms,
            is_transactional=is_transactional,
        )
        log.append(data, leader_epoch=0, now_ms=cluster.wall_ms)

    append(7)
    append(8, is_transactional=True)
    cluster.advance(RETENTION_MS // 2)
    append(9)
    cluster.advance(RETENTION_MS + LATE_MS)
    assert [each.producer_id for each in log.producers.active()] == [8, 9]
    again = batch_of(b"v", producer_id=7, base_sequence=0, timestamp_ms=cluster.wall_ms)
    assert produced(produce(cluster, 0, again, now_ms=cluster.now_ms)).base_offset == 3
