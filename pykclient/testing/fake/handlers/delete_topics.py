"""DeleteTopics: topics are deleted, by name or by id.

Owner: none; it holds no state.
Source: KIP-4, KIP-516 (topic ids).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import UnknownTopicIdError, UnknownTopicOrPartitionError
from pykclient.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from pykclient.testing.fake.handlers.handler import Handler

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState


def handle(cluster: ClusterState, _: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete each existing topic."""
    return DeleteTopicsResponse(
        responses=[_deleted(cluster, requested) for requested in _requested(request)]
    )


def refuse(_: ClusterState, request: DeleteTopicsRequest, error_code: int) -> DeleteTopicsResponse:
    """Refuse every topic."""
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=requested.name, topic_id=requested.topic_id, error_code=error_code
            )
            for requested in _requested(request)
        ]
    )


def _requested(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    """Return the requested topics, in the form of any version."""
    return request.topics or [DeleteTopicState(name=name) for name in request.topic_names]


def _deleted(cluster: ClusterState, requested: DeleteTopicState) -> DeletableTopicResult:
    if requested.name is None:
        topic = cluster.topic_by_id(requested.topic_id)
        error: int = UnknownTopicIdError.code
    else:
        topic = cluster.topics.get(requested.name)
        error = UnknownTopicOrPartitionError.code
    if topic is None:
        return DeletableTopicResult(
            name=requested.name, topic_id=requested.topic_id, error_code=error
        )
    cluster.delete_topic(topic.name)
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


HANDLER = Handler(DeleteTopicsRequest, handle, refuse)
