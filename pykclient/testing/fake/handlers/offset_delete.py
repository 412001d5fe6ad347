"""OffsetDelete: a group's offsets are deleted for topics that no member reads.

Owner: none; it holds no state.
Source: KIP-496; Java class ``OffsetMetadataManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.handlers.leadership import find_partition

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.groups.group import Group
    from pykclient.testing.fake.state import ClusterState


def handle(cluster: ClusterState, call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete each offset that is not in use."""
    refusal = cluster.groups.check_named(call.broker_id, request.group_id)
    if refusal is not None:
        return refuse(cluster, request, refusal.code)
    group = cluster.groups.find(request.group_id)
    if group is None:
        return refuse(cluster, request, GroupIdNotFoundError.code)
    refusal = group.check_offset_delete()
    if refusal is not None:
        return refuse(cluster, request, refusal.code)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=requested.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=_deleted(cluster, group, requested.name, each.partition_index),
                    )
                    for each in requested.partitions
                ],
            )
            for requested in request.topics
        ]
    )


def refuse(_: ClusterState, __: OffsetDeleteRequest, error_code: int) -> OffsetDeleteResponse:
    """Refuse the request."""
    return OffsetDeleteResponse(error_code=error_code)


def _deleted(cluster: ClusterState, group: Group, topic: str, number: int) -> int:
    """Delete the offset of a partition and return the error code."""
    partition = find_partition(cluster.topics.get(topic), number)
    if partition is None:
        return UnknownTopicOrPartitionError.code
    if group.is_subscribed_to(topic):
        return GroupSubscribedToTopicError.code
    cluster.groups.remove_offset(group.name, partition.name, cluster.now_ms)
    return 0


HANDLER = Handler(OffsetDeleteRequest, handle, refuse)
