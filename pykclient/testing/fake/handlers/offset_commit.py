"""OffsetCommit: a member of a group, or a client without membership, commits offsets.

Owner: none; it holds no state.
Source: KIP-320 (leader epochs), KIP-848 (member epochs); Java class ``OffsetMetadataManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    GroupIdNotFoundError,
    IllegalGenerationError,
    OffsetMetadataTooLargeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pykclient.testing.fake.groups.classic.group import ClassicGroup
from pykclient.testing.fake.groups.offsets import CommittedOffset
from pykclient.testing.fake.groups.registry import utf16_unit_count
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.handlers.leadership import find_partition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.protocol.messages.offset_commit import OffsetCommitRequestPartition
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.groups.group import Refusal
    from pykclient.testing.fake.state import ClusterState
    from pykclient.testing.fake.topics import Topic

_DEFAULT_RETENTION = -1
_IDS_FROM_VERSION = 10
_GROUP_NOT_FOUND_FROM_VERSION = 9


def handle(cluster: ClusterState, call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commit offsets of existing partitions, if the group allows it."""
    uses_ids = call.version >= _IDS_FROM_VERSION
    found = [
        cluster.topic_by_id(requested.topic_id) if uses_ids else cluster.topics.get(requested.name)
        for requested in request.topics
    ]
    unknown = UnknownTopicIdError if uses_ids else UnknownTopicOrPartitionError
    is_any_there = any(
        find_partition(topic, each.partition_index) is not None
        for topic, requested in zip(found, request.topics, strict=True)
        for each in requested.partitions
    )
    # Without any offset to commit, Kafka does not check the coordinator.
    refusal = _check(cluster, call, request, found) if is_any_there else None
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=requested.name,
                topic_id=requested.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=unknown.code
                        if topic is None
                        else _committed(cluster, request, topic, each, refusal),
                    )
                    for each in requested.partitions
                ],
            )
            for topic, requested in zip(found, request.topics, strict=True)
        ]
    )


def refuse(_: ClusterState, request: OffsetCommitRequest, error_code: int) -> OffsetCommitResponse:
    """Refuse every partition."""
    return OffsetCommitResponse(
        topics=[_refused(requested, error_code) for requested in request.topics]
    )


def _refused(requested: OffsetCommitRequestTopic, error_code: int) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=requested.name,
        topic_id=requested.topic_id,
        partitions=[
            OffsetCommitResponsePartition(
                partition_index=each.partition_index, error_code=error_code
            )
            for each in requested.partitions
        ],
    )


def _check(
    cluster: ClusterState, call: Call, request: OffsetCommitRequest, found: Sequence[Topic | None]
) -> Refusal | None:
    groups, name = cluster.groups, request.group_id
    refusal = groups.check_coordinator(call.broker_id, name)
    if refusal is not None:
        return refusal
    generation = request.generation_id_or_member_epoch
    group = groups.find(name)
    if group is None and generation >= 0:
        has_error = call.version >= _GROUP_NOT_FOUND_FROM_VERSION
        return GroupIdNotFoundError if has_error else IllegalGenerationError
    if group is None:
        # A consumer that assigns partitions by hand may commit; the group then has no members.
        group = ClassicGroup(name, groups)
        groups.put(group)
    refusal = group.check_commit(
        request.member_id,
        generation,
        instance_id=request.group_instance_id,
        version=call.version,
        partitions=[
            partition.name
            for topic, requested in zip(found, request.topics, strict=True)
            for each in requested.partitions
            if (partition := find_partition(topic, each.partition_index)) is not None
        ],
    )
    if refusal is None:
        group.on_commit(request.member_id, cluster.now_ms)
    return refusal


def _committed(
    cluster: ClusterState,
    request: OffsetCommitRequest,
    topic: Topic,
    requested: OffsetCommitRequestPartition,
    refusal: Refusal | None,
) -> int:
    """Commit the offset of a partition and return the error code."""
    partition = find_partition(topic, requested.partition_index)
    if partition is None:
        return UnknownTopicOrPartitionError.code
    if refusal is not None:
        return refusal.code
    metadata = requested.committed_metadata or ""
    if utf16_unit_count(metadata) > cluster.groups.settings.offset_metadata_max_bytes:
        return OffsetMetadataTooLargeError.code
    committed = CommittedOffset(
        requested.committed_offset, requested.committed_leader_epoch, metadata
    )
    retention_ms = request.retention_time_ms  # only in versions 2 to 4
    cluster.groups.commit(
        request.group_id,
        partition.name,
        committed,
        cluster.now_ms,
        retention_ms=None if retention_ms == _DEFAULT_RETENTION else retention_ms,
    )
    return 0


HANDLER = Handler(OffsetCommitRequest, handle, refuse)
