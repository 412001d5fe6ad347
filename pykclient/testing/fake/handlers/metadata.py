"""Metadata: brokers, topics, partitions and leaders; missing topics are created if allowed.

Owner: none; it holds no state.
Source: Kafka protocol guide; KIP-516 (topic ids); Java class ``KafkaApis``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    InvalidRequestError,
    InvalidTopicError,
    LeaderNotAvailableError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pykclient.protocol.primitives import ZERO_UUID
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.topics import NO_LEADER, colliding_name, is_valid_name

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState
    from pykclient.testing.fake.topics import Partition, Topic

_MAY_FORBID_CREATION_FROM_VERSION = 4
IDS_FROM_VERSION = 12


def handle(cluster: ClusterState, call: Call, request: MetadataRequest) -> MetadataResponse:
    """Describe the requested topics; all for None, or in version 0 for an empty list."""
    requested = request.topics
    if requested is None or (not requested and call.version == 0):
        topics = [_described(cluster, topic) for topic in cluster.topics.values()]
    else:
        may_create = (
            request.allow_auto_topic_creation or call.version < _MAY_FORBID_CREATION_FROM_VERSION
        )
        topics = [
            _looked_up(cluster, topic, call.version, may_create=may_create) for topic in requested
        ]
    return MetadataResponse(
        brokers=_brokers(cluster, call.session.listener),
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        topics=topics,
    )


def refuse(cluster: ClusterState, request: MetadataRequest, error_code: int) -> MetadataResponse:
    """Refuse every topic; the brokers are returned nevertheless."""
    return MetadataResponse(
        brokers=_brokers(cluster, None),
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        topics=[
            MetadataResponseTopic(
                name=topic.name or "", topic_id=topic.topic_id, error_code=error_code
            )
            for topic in request.topics or ()
        ],
    )


def _brokers(cluster: ClusterState, listener: str | None) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(broker.id, *broker.address(listener), broker.rack)
        for broker in cluster.brokers.values()
        if broker.is_alive
    ]


def _looked_up(
    cluster: ClusterState, requested: MetadataRequestTopic, version: int, *, may_create: bool
) -> MetadataResponseTopic:
    if requested.name is None and version < IDS_FROM_VERSION:
        return MetadataResponseTopic(name="", error_code=InvalidRequestError.code)
    if requested.topic_id != ZERO_UUID and version >= IDS_FROM_VERSION:
        topic = cluster.topic_by_id(requested.topic_id)
        if topic is not None:
            return _described(cluster, topic)
        return MetadataResponseTopic(
            topic_id=requested.topic_id, name=None, error_code=UnknownTopicIdError.code
        )
    name = requested.name or ""
    if name in cluster.topics:
        return _described(cluster, cluster.topics[name])
    if not is_valid_name(name):
        return MetadataResponseTopic(name=name, error_code=InvalidTopicError.code)
    is_free = colliding_name(name, cluster.topics) is None
    if may_create and cluster.auto_create_topics and is_free:
        cluster.create_topic(name)
    # Like a real broker, report the topic as missing now, and return it next time.
    return MetadataResponseTopic(name=name, error_code=UnknownTopicOrPartitionError.code)


def _described(cluster: ClusterState, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(cluster, partition) for partition in topic.partitions],
    )


def _partition(cluster: ClusterState, partition: Partition) -> MetadataResponsePartition:
    has_leader = partition.leader_id != NO_LEADER
    return MetadataResponsePartition(
        error_code=0 if has_leader else LeaderNotAvailableError.code,
        partition_index=partition.name.partition,
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=[each for each in partition.replicas if each not in cluster.alive],
    )


HANDLER = Handler(MetadataRequest, handle, refuse)
