"""The immutable snapshot of a cluster, built from responses and leader hints."""

from __future__ import annotations

import pytest

from pykclient.errors import DecodeError, UnknownTopicOrPartitionError
from pykclient.network.cluster.cluster import (
    NO_TOPIC_ID,
    Cluster,
    LeaderHints,
    PartitionInfo,
    TopicInfo,
    bootstrap_nodes,
    topic_info,
)
from pykclient.network.cluster.node import broker_node
from pykclient.protocol.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pykclient.protocol.messages.produce import LeaderIdAndEpoch, NodeEndpoint
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
    assert CLUSTER.topic_id("old") == NO_TOPIC_ID
    assert CLUSTER.topic_name(NO_TOPIC_ID) is None


def partitions(*numbers: int) -> list[MetadataResponsePartition]:
    return [MetadataResponsePartition(partition_index=number, leader_id=1) for number in numbers]


def test_partitions_stand_in_order_of_their_numbers() -> None:
    response = MetadataResponseTopic(
        name="t",
        topic_id=TOPIC_ID,
        is_internal=True,
        partitions=[
            MetadataResponsePartition(
                partition_index=1,
                leader_id=2,
                leader_epoch=7,
                replica_nodes=[2, 3],
                isr_nodes=[2],
                offline_replicas=[3],
            ),
            MetadataResponsePartition(partition_index=0, leader_id=-1, leader_epoch=-1),
        ],
    )
    assert topic_info(response) == TopicInfo(
        "t",
        TOPIC_ID,
        True,
        (PartitionInfo("t", 0, None, None), PartitionInfo("t", 1, 2, 7, (2, 3), (2,), (3,))),
    )


@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        ((1,), "1"),
        ((0, 2), "2"),
        ((0, 0), "0"),
        ((-1, 0), "-1"),
        ((0, 1, 2**31 - 1), str(2**31 - 1)),
    ],
)
def test_gaps_doubles_and_negative_numbers_are_refused(
    numbers: tuple[int, ...], named: str
) -> None:
    response = MetadataResponseTopic(name="t", partitions=partitions(*numbers))
    with pytest.raises(DecodeError, match=rf"lists partition {named} of topic 't' in place of"):
        topic_info(response)


def test_a_name_that_no_request_can_have_is_refused() -> None:
    assert topic_info(MetadataResponseTopic(name="t" * 32_767)).name
    with pytest.raises(DecodeError, match="has a topic's name of 32768 bytes, and 32767 are"):
        topic_info(MetadataResponseTopic(name="t" * 32_768))


def test_a_topic_without_a_name_is_refused() -> None:
    with pytest.raises(DecodeError, match="neither name nor known id"):
        topic_info(MetadataResponseTopic(name=None))


@pytest.mark.parametrize(
    ("node_id", "host", "port"),
    [
        (-1, "h", 1),
        (1, "", 1),
        (1, "h" * 254, 1),
        (1, "a\nb", 1),
        (1, "a b", 1),
        (1, "h", 0),
        (1, "h", 65_536),
    ],
)
def test_an_impossible_address_is_refused(node_id: int, host: str, port: int) -> None:
    with pytest.raises(DecodeError, match=r"check the broker's advertised\.listeners"):
        broker_node(MetadataResponseBroker(node_id=node_id, host=host, port=port))


def test_addresses_get_negative_ids_in_the_order_given() -> None:
    assert bootstrap_nodes([("a", 1), ("b", 2)]) == (Node(-1, "a", 1), Node(-2, "b", 2))


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


def test_a_newer_leader_replaces_the_old_one_and_nothing_else_changes() -> None:
    assert hinted(2, 0, known_epoch=None) is not None, "any is newer than none"
    before, after = cluster(), hinted(2, 6)
    assert after is not None
    assert after.leader_of(KNOWN) == Node(2, "b", 9092)
    assert after.partition(KNOWN) == PartitionInfo("t", 1, 2, 6)
    assert after.partition(TopicPartition("t", 0)) == before.partition(TopicPartition("t", 0))
    assert after.topics["other"] == before.topics["other"]
    assert (after.version, after.cluster_id, after.controller_id) == (8, "c", 1)
    assert after.nodes == before.nodes


def test_a_leader_that_was_not_known_comes_with_its_address() -> None:
    after = hinted(3, 6, NodeEndpoint(3, "new", 9093, "r"))
    assert after is not None
    assert after.leader_of(KNOWN) == Node(3, "new", 9093, "r")


def test_a_leader_that_has_moved_comes_with_its_new_address() -> None:
    after = hinted(2, 6, NodeEndpoint(2, "elsewhere", 9999))
    assert after is not None
    assert after.leader_of(KNOWN) == Node(2, "elsewhere", 9999)


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
def test_what_is_not_new_or_makes_no_sense_changes_nothing(
    leader_id: int, epoch: int, partition: TopicPartition
) -> None:
    assert hinted(leader_id, epoch, partition=partition) is None


def test_a_leader_at_an_impossible_address_is_logged_and_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert hinted(3, 6, NodeEndpoint(3, "", 0)) is None
    assert "broker 3 is at host ''" in caplog.text
