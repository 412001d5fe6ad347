"""From a broker's answer to a topic: numbered without gaps, or refused."""

from __future__ import annotations

import pytest

from pykclient.errors import DecodeError
from pykclient.network.cluster.cluster import PartitionInfo, TopicInfo, topic_info
from pykclient.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

TOPIC_ID = bytes(range(16))


def partitions(*numbers: int) -> list[MetadataResponsePartition]:
    return [MetadataResponsePartition(partition_index=number, leader_id=1) for number in numbers]


def test_partitions_stand_in_order_of_their_numbers() -> None:
    answer = MetadataResponseTopic(
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
    assert topic_info(answer) == TopicInfo(
        "t",
        TOPIC_ID,
        True,
        (PartitionInfo("t", 0, None, None), PartitionInfo("t", 1, 2, 7, (2, 3), (2,), (3,))),
    )


@pytest.mark.parametrize("leader_id", [-1, -2, -(2**31)])
def test_a_negative_leader_is_none(leader_id: int) -> None:
    answer = MetadataResponseTopic(
        name="t", partitions=[MetadataResponsePartition(partition_index=0, leader_id=leader_id)]
    )
    assert topic_info(answer).partitions[0].leader_id is None


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
    answer = MetadataResponseTopic(name="t", partitions=partitions(*numbers))
    with pytest.raises(DecodeError, match=rf"lists partition {named} of topic 't' where"):
        topic_info(answer)


def test_a_topic_without_a_name_is_refused() -> None:
    with pytest.raises(DecodeError, match="neither name nor known id"):
        topic_info(MetadataResponseTopic(name=None))
