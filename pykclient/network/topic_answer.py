"""From a Metadata answer's topic to our own `TopicInfo`.

Owner: no state.
Source: the Metadata API of the Kafka protocol guide; Java class ``MetadataResponse``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import DecodeError
from pykclient.network.cluster.cluster import PartitionInfo, TopicInfo

if TYPE_CHECKING:
    from pykclient.protocol.messages.metadata import (
        MetadataResponsePartition,
        MetadataResponseTopic,
    )

__all__ = ["partition_info", "topic_info"]


def topic_info(answer: MetadataResponseTopic) -> TopicInfo:
    """Return what an answer without an error tells about a topic.

    Raises:
        DecodeError: it has no name, or its partitions are not numbered from 0 without gaps.
    """
    if answer.name is None:
        raise DecodeError("a Metadata answer names a topic by neither name nor known id")
    partitions = sorted(answer.partitions, key=lambda partition: partition.partition_index)
    for expected, partition in enumerate(partitions):
        if partition.partition_index != expected:
            raise DecodeError(
                f"a Metadata answer lists partition {partition.partition_index} of topic "
                f"{answer.name!r} where {expected} must stand"
            )
    infos = tuple(partition_info(answer.name, partition) for partition in partitions)
    return TopicInfo(answer.name, answer.topic_id, answer.is_internal, infos)


def partition_info(topic: str, answer: MetadataResponsePartition) -> PartitionInfo:
    """Return what an answer tells about a partition."""
    return PartitionInfo(
        topic=topic,
        partition=answer.partition_index,
        leader_id=None if answer.leader_id < 0 else answer.leader_id,
        leader_epoch=None if answer.leader_epoch < 0 else answer.leader_epoch,
        replica_ids=tuple(answer.replica_nodes),
        in_sync_replica_ids=tuple(answer.isr_nodes),
        offline_replica_ids=tuple(answer.offline_replicas),
    )
