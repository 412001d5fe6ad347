"""A cluster snapshot answers who leads what, and never changes."""

from __future__ import annotations

import pytest

from pykclient.errors import UnknownTopicOrPartitionError
from pykclient.network.cluster.cluster import NO_TOPIC_ID, Cluster, PartitionInfo, TopicInfo
from pykclient.types import Node, TopicPartition

TOPIC_ID = bytes(range(16))
NODES = (Node(1, "one", 9092), Node(2, "two", 9092))
LED, LEADERLESS, LED_BY_UNKNOWN = (
    PartitionInfo("t", 0, 2, 5),
    PartitionInfo("t", 1, None, 5),
    PartitionInfo("t", 2, 9, 5),
)
CLUSTER = Cluster(
    version=3,
    nodes=NODES,
    topics=[
        TopicInfo("t", TOPIC_ID, False, (LED, LEADERLESS, LED_BY_UNKNOWN)),
        TopicInfo("old", NO_TOPIC_ID, False, ()),
    ],
    topic_errors={"gone": UnknownTopicOrPartitionError("gone")},
)


def test_partitions_are_found_by_topic_and_by_number() -> None:
    assert CLUSTER.partitions_for("t") == (LED, LEADERLESS, LED_BY_UNKNOWN)
    assert CLUSTER.partition(TopicPartition("t", 1)) == LEADERLESS


@pytest.mark.parametrize("unknown", [("t", 3), ("t", -1), ("u", 0)])
def test_what_is_not_known_is_none(unknown: tuple[str, int]) -> None:
    assert CLUSTER.partition(TopicPartition(*unknown)) is None
    assert CLUSTER.leader_of(TopicPartition(*unknown)) is None
    assert CLUSTER.partitions_for("u") is None


def test_a_leader_is_a_known_broker_or_none() -> None:
    assert CLUSTER.leader_of(TopicPartition("t", 0)) == NODES[1]
    assert CLUSTER.leader_of(TopicPartition("t", 1)) is None
    assert CLUSTER.leader_of(TopicPartition("t", 2)) is None


def test_topic_ids_and_names_lead_to_each_other() -> None:
    assert CLUSTER.topic_id("t") == TOPIC_ID
    assert CLUSTER.topic_name(TOPIC_ID) == "t"
    assert CLUSTER.topic_id("u") == NO_TOPIC_ID
    assert CLUSTER.topic_name(bytes(15) + b"x") is None


def test_the_id_that_means_none_names_no_topic() -> None:
    assert CLUSTER.topic_id("old") == NO_TOPIC_ID
    assert CLUSTER.topic_name(NO_TOPIC_ID) is None


@pytest.mark.parametrize("mapping", ["nodes", "topics", "topic_errors"])
def test_a_snapshot_cannot_be_changed(mapping: str) -> None:
    with pytest.raises(TypeError):
        getattr(CLUSTER, mapping)["new"] = None
