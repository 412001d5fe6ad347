"""OffsetFetch: committed offsets of groups.

Owner: none; it holds no state.
Source: KIP-88 (all partitions), KIP-447 (stable offsets), KIP-709 (several groups), KIP-848 (member
epochs); Java class ``OffsetMetadataManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import UnknownTopicIdError, UnstableOffsetCommitError
from pykclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from pykclient.testing.fake.groups.offsets import GroupOffsets
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState

_MANY_FROM_VERSION = 8
_IDS_FROM_VERSION = 10
_GROUP_ERRORS_FROM_VERSION = 2
_NOTHING = -1


class _Reading:
    """The response for one group of a request."""

    def __init__(
        self,
        cluster: ClusterState,
        call: Call,
        requested: OffsetFetchRequestGroup,
        *,
        is_stable: bool,
    ) -> None:
        self._cluster = cluster
        self._requested = requested
        self._uses_ids = call.version >= _IDS_FROM_VERSION
        self._is_stable = is_stable
        self._refusal = cluster.groups.check_coordinator(call.broker_id, requested.group_id)
        self._offsets = GroupOffsets()
        group = cluster.groups.find(requested.group_id)
        if self._refusal is None and group is not None:
            self._refusal = group.check_fetch(requested.member_id, requested.member_epoch)
            self._offsets = cluster.groups.offsets(requested.group_id)

    def response(self) -> OffsetFetchResponseGroup:
        """Return the requested offsets, or all."""
        if self._refusal is not None:
            return OffsetFetchResponseGroup(
                group_id=self._requested.group_id, error_code=self._refusal.code
            )
        topics = self._all() if self._requested.topics is None else self._requested.topics
        return OffsetFetchResponseGroup(
            group_id=self._requested.group_id, topics=[self._topic(topic) for topic in topics]
        )

    def _all(self) -> list[OffsetFetchRequestTopics]:
        numbers: dict[str, list[int]] = {}
        for name in self._offsets.all():
            numbers.setdefault(name.topic, []).append(name.partition)
        return [
            OffsetFetchRequestTopics(
                name=topic,
                topic_id=self._cluster.topics[topic].topic_id,
                partition_indexes=indexes,
            )
            for topic, indexes in numbers.items()
        ]

    def _topic(self, requested: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
        name: str | None = requested.name
        if self._uses_ids:
            topic = self._cluster.topic_by_id(requested.topic_id)
            name = None if topic is None else topic.name
        return OffsetFetchResponseTopics(
            name=requested.name,
            topic_id=requested.topic_id,
            partitions=[
                _refused(number, UnknownTopicIdError.code)
                if name is None
                else self._partition(TopicPartition(name, number))
                for number in requested.partition_indexes
            ],
        )

    def _partition(self, name: TopicPartition) -> OffsetFetchResponsePartitions:
        if self._is_stable and self._offsets.is_unstable(name):
            return _refused(name.partition, UnstableOffsetCommitError.code)
        committed = self._offsets.get(name)
        if committed is None:
            return _refused(name.partition, 0)
        return OffsetFetchResponsePartitions(
            partition_index=name.partition,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
        )


def handle(cluster: ClusterState, call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Return the committed offsets of each group."""
    is_stable = request.require_stable
    if call.version >= _MANY_FROM_VERSION:
        return OffsetFetchResponse(
            groups=[
                _Reading(cluster, call, requested, is_stable=is_stable).response()
                for requested in request.groups
            ]
        )
    topics = request.topics
    requested = OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
            for each in topics
        ],
    )
    group = _Reading(cluster, call, requested, is_stable=is_stable).response()
    if group.error_code and call.version < _GROUP_ERRORS_FROM_VERSION:
        return refuse(cluster, request, group.error_code)
    return OffsetFetchResponse(
        error_code=group.error_code, topics=[_older(topic) for topic in group.topics]
    )


def refuse(_: ClusterState, request: OffsetFetchRequest, error_code: int) -> OffsetFetchResponse:
    """Refuse every group and partition; in version 1 only partitions have errors."""
    return OffsetFetchResponse(
        error_code=error_code,
        groups=[
            OffsetFetchResponseGroup(group_id=requested.group_id, error_code=error_code)
            for requested in request.groups
        ],
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    _older_partition(_refused(number, error_code))
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )


def _refused(number: int, error_code: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=number, committed_offset=_NOTHING, error_code=error_code
    )


def _older(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    """Convert to the form before version 8."""
    partitions = [_older_partition(each) for each in topic.partitions]
    return OffsetFetchResponseTopic(name=topic.name, partitions=partitions)


def _older_partition(each: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=each.partition_index,
        committed_offset=each.committed_offset,
        committed_leader_epoch=each.committed_leader_epoch,
        metadata=each.metadata,
        error_code=each.error_code,
    )


HANDLER = Handler(OffsetFetchRequest, handle, refuse)
