"""CreatePartitions: topics get more partitions.

Owner: none; it holds no state.
Source: KIP-195; Java class ``ReplicationControlManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from pykclient.testing.fake.handlers.create_topics import PARTITION_COUNT_MAX
from pykclient.testing.fake.handlers.handler import Handler

if TYPE_CHECKING:
    from pykclient.errors.base import BrokerError
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState


def handle(
    cluster: ClusterState, _: Call, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions to each valid topic."""

    def grown(requested: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
        topic = cluster.topics.get(requested.name)
        if topic is None:
            return _refused(requested, UnknownTopicOrPartitionError, "the topic does not exist")
        if requested.assignments is not None:
            return _refused(
                requested, InvalidReplicaAssignmentError, "this broker chooses replicas itself"
            )
        if not len(topic.partitions) < requested.count <= PARTITION_COUNT_MAX:
            reason = f"the topic has {len(topic.partitions)} partitions, not {requested.count}"
            return _refused(requested, InvalidPartitionsError, reason)
        if not request.validate_only:
            cluster.add_partitions(requested.name, requested.count)
        return CreatePartitionsTopicResult(name=requested.name, error_message=None)

    return CreatePartitionsResponse(results=[grown(requested) for requested in request.topics])


def refuse(
    _: ClusterState, request: CreatePartitionsRequest, error_code: int
) -> CreatePartitionsResponse:
    """Refuse every topic."""
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=error_code)
            for topic in request.topics
        ]
    )


def _refused(
    requested: CreatePartitionsTopic, error: type[BrokerError], reason: str
) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=requested.name, error_code=error.code, error_message=reason
    )


HANDLER = Handler(CreatePartitionsRequest, handle, refuse)
