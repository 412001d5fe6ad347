"""CreateTopics: topics are created, or only validated.

Owner: none; it holds no state.
Source: KIP-4, KIP-464 (defaults), KIP-525 (results).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pykclient.errors.base import UsageError
from pykclient.errors.broker import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    TopicAlreadyExistsError,
)
from pykclient.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.topic_settings import check_config
from pykclient.testing.fake.topics import colliding_name, is_valid_name

if TYPE_CHECKING:
    from pykclient.errors.base import BrokerError
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState

DEFAULT = -1
PARTITION_COUNT_MAX = 10_000
_TOPIC_CONFIG = 1


def handle(cluster: ClusterState, _: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create each valid topic."""
    counts = Counter(topic.name for topic in request.topics)
    existing = list(cluster.topics)  # as in Kafka, names within a request do not collide

    def made(topic: CreatableTopic) -> CreatableTopicResult:
        if counts[topic.name] > 1:
            return _refused(topic, InvalidRequestError, "it is named twice")
        other = colliding_name(topic.name, existing)
        if other is not None and topic.name not in existing:
            reason = f"Topic '{topic.name}' collides with existing topic: {other}"
            return _refused(topic, InvalidTopicError, reason)
        return _created(cluster, topic, validate_only=request.validate_only)

    return CreateTopicsResponse(topics=[made(topic) for topic in request.topics])


def refuse(_: ClusterState, request: CreateTopicsRequest, error_code: int) -> CreateTopicsResponse:
    """Refuse every topic."""
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=error_code) for topic in request.topics
        ]
    )


def _created(
    cluster: ClusterState, topic: CreatableTopic, *, validate_only: bool
) -> CreatableTopicResult:
    if not is_valid_name(topic.name):
        return _refused(topic, InvalidTopicError, "the name is invalid")
    if topic.name in cluster.topics:
        return _refused(topic, TopicAlreadyExistsError, f"topic {topic.name!r} exists already")
    nulls = [each.name for each in topic.configs if each.value is None]
    if nulls:
        reason = f"Null value not supported for topic configs: {', '.join(nulls)}"
        return _refused(topic, InvalidConfigError, reason)
    config = {each.name: each.value or "" for each in topic.configs}
    try:
        check_config(config)
    except ValueError as error:
        return _refused(topic, InvalidConfigError, str(error))
    assignments = _assignments(cluster, topic)
    if isinstance(assignments, CreatableTopicResult):
        return assignments
    result = CreatableTopicResult(
        name=topic.name,
        num_partitions=len(assignments),
        replication_factor=len(assignments[0]),
        configs=[
            CreatableTopicConfigs(name=name, value=value, config_source=_TOPIC_CONFIG)
            for name, value in config.items()
        ],
    )
    if not validate_only:
        made = cluster.create_topic(topic.name, assignments=assignments, config=config)
        result.topic_id = made.topic_id
    return result


def _assignments(
    cluster: ClusterState, topic: CreatableTopic
) -> list[list[int]] | CreatableTopicResult:
    if topic.assignments:
        return _given(cluster, topic)
    count = topic.num_partitions
    if count == DEFAULT:
        count = cluster.default_partition_count
    if not 0 < count <= PARTITION_COUNT_MAX:
        return _refused(topic, InvalidPartitionsError, f"{count} partitions are not possible")
    factor = None if topic.replication_factor == DEFAULT else topic.replication_factor
    try:
        return cluster.spread(count, factor)
    except UsageError as error:
        return _refused(topic, InvalidReplicationFactorError, str(error))


def _given(cluster: ClusterState, topic: CreatableTopic) -> list[list[int]] | CreatableTopicResult:
    if topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT:
        return _refused(topic, InvalidRequestError, "give counts or assignments, not both")
    given = {each.partition_index: each.broker_ids for each in topic.assignments}
    are_in_a_row = sorted(given) == list(range(len(topic.assignments)))
    sizes = {len(replicas) for replicas in given.values()}
    are_known = all(
        set(replicas) <= cluster.brokers.keys() and len(set(replicas)) == len(replicas)
        for replicas in given.values()
    )
    if not are_in_a_row or not are_known or len(sizes) != 1 or 0 in sizes:
        return _refused(topic, InvalidReplicaAssignmentError, "the assignment is invalid")
    return [given[number] for number in range(len(given))]


def _refused(topic: CreatableTopic, error: type[BrokerError], message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=topic.name, error_code=error.code, error_message=message)


HANDLER = Handler(CreateTopicsRequest, handle, refuse)
