"""LeaderHints: which of them change the picture of the cluster, and which do not."""

from __future__ import annotations

import pytest

from pykclient.network.cluster.cluster import Cluster, LeaderHints, PartitionInfo, TopicInfo
from pykclient.protocol.messages.produce import LeaderIdAndEpoch, NodeEndpoint
from pykclient.types import Node, TopicPartition

KNOWN = TopicPartition("t", 1)


def cluster(epoch: int | None = 5) -> Cluster:
    return Cluster(
        version=7,
        cluster_id="c",
        controller_id=1,
        nodes=[Node(1, "a", 9092), Node(2, "b", 9092)],
        topics=[
            TopicInfo(
                "t", bytes(range(16)), False, tuple(PartitionInfo("t", n, 1, epoch) for n in (0, 1))
            ),
            TopicInfo("other", bytes(16), False, (PartitionInfo("other", 0, 1, 0),)),
        ],
    )


def hinted(
    leader_id: int,
    epoch: int,
    *endpoints: NodeEndpoint,
    partition: TopicPartition = KNOWN,
    known_epoch: int | None = 5,
) -> Cluster | None:
    hints = LeaderHints(endpoints)
    hints.add(partition, LeaderIdAndEpoch(leader_id, epoch))
    return hints.newer_than(cluster(known_epoch))


@pytest.mark.promise("a response that names the new leader is followed at once (KIP-951)")
def test_a_newer_leader_replaces_the_old_one_and_nothing_else_changes() -> None:
    before, after = cluster(), hinted(2, 6)
    assert after is not None
    assert after.leader_of(KNOWN) == Node(2, "b", 9092)
    assert after.partition(KNOWN) == PartitionInfo("t", 1, 2, 6)
    assert after.partition(TopicPartition("t", 0)) == before.partition(TopicPartition("t", 0))
    assert after.topics["other"] == before.topics["other"]
    assert (after.version, after.cluster_id, after.controller_id) == (8, "c", 1)
    assert after.nodes == before.nodes


def test_a_partition_without_an_epoch_takes_any() -> None:
    assert hinted(2, 0, known_epoch=None) is not None


def test_a_leader_that_was_not_known_comes_with_its_address() -> None:
    after = hinted(3, 6, NodeEndpoint(3, "new", 9093, "r"))
    assert after is not None
    assert after.leader_of(KNOWN) == Node(3, "new", 9093, "r")


def test_the_address_of_a_known_broker_stays_until_the_metadata_says_otherwise() -> None:
    after = hinted(2, 6, NodeEndpoint(2, "elsewhere", 9999))
    assert after is not None
    assert after.nodes[2] == Node(2, "b", 9092)


@pytest.mark.parametrize(
    ("leader_id", "epoch", "partition"),
    [
        (-1, -1, KNOWN),
        (2, -1, KNOWN),
        (-1, 6, KNOWN),
        (2, 5, KNOWN),
        (2, 4, KNOWN),
        (3, 6, KNOWN),
        (2, 6, TopicPartition("t", 2)),
        (2, 6, TopicPartition("unknown", 0)),
    ],
)
def test_what_tells_nothing_new_or_makes_no_sense_changes_nothing(
    leader_id: int, epoch: int, partition: TopicPartition
) -> None:
    assert hinted(leader_id, epoch, partition=partition) is None


def test_a_leader_where_nobody_can_be_is_logged_and_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert hinted(3, 6, NodeEndpoint(3, "", 0)) is None
    assert "broker 3 is at host ''" in caplog.text
