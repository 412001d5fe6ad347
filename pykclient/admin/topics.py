"""Topics: their descriptions, and the handlers that create, read and delete them.

Source: the CreateTopics, CreatePartitions, DeleteTopics and Metadata APIs; KIP-195 (partitions),
KIP-464 (broker defaults), KIP-516 (topic ids), KIP-599 (creation quotas).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from pykclient.admin.call import AdminHandler, Receiver, failure
from pykclient.admin.configs import setting_text
from pykclient.arguments import check_topic, is_number, shown_argument
from pykclient.errors import (
    LeaderNotAvailableError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    UsageError,
    error_for_code,
)
from pykclient.network.cluster.cluster import topic_info
from pykclient.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from pykclient.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

if TYPE_CHECKING:
    from pykclient.admin.call import Results
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.cluster import PartitionInfo, TopicInfo
    from pykclient.protocol.message import Message

BROKER_DEFAULT: Final = -1
INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
DELETE_BY_NAME_MAX_VERSION: Final = 5
"""Last version of DeleteTopics that only has names. Later ones also accept topic ids."""

ALL_TOPICS: Final = "all topics"
"""The only key of a call that lists topics."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    `num_partitions` and `replication_factor` None mean the broker's default (2.4 or newer,
    KIP-464). `config` has topic settings by Kafka's name, such as ``{"cleanup.policy":
    "compact"}``; values are converted to text, True to ``true``. `replica_assignments` replaces the
    two numbers by the brokers of each partition, ``{0: [1, 2], 1: [2, 3]}``; the first one leads.

    Raises:
        UsageError: a number is out of range, or given together with `replica_assignments`.
    """

    name: str
    num_partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, object] = field(default_factory=dict)
    replica_assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_topic(self.name, "NewTopic")
        for field_name in ("config", "replica_assignments"):
            given = getattr(self, field_name)
            if not isinstance(given, Mapping):
                raise UsageError(
                    f"NewTopic {self.name!r}: {field_name} is {shown_argument(given)}; give a dict"
                )
        for what, number, most in (
            ("num_partitions", self.num_partitions, INT32_MAX),
            ("replication_factor", self.replication_factor, INT16_MAX),
        ):
            if number is not None and self.replica_assignments:
                raise UsageError(
                    f"NewTopic {self.name!r} has both {what} and replica_assignments, which "
                    f"define the same; give one of them"
                )
            if number is not None and not (is_number(number, most) and number):
                raise UsageError(
                    f"NewTopic {self.name!r}: {what}={shown_argument(number)}; give a number from "
                    f"1 to {most}, or None for the broker's default"
                )


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A new number of partitions for a topic: ``NewPartitions(8)`` means eight in all.

    `new_assignments` names the brokers of each new partition, ``[[1, 2], [2, 3]]`` for two of them;
    the first one leads. Without it the brokers choose.

    Raises:
        UsageError: the number is out of range, or `new_assignments` is not a list of lists.
    """

    total_count: int
    new_assignments: Sequence[Sequence[int]] = ()

    def __post_init__(self) -> None:
        if not (is_number(self.total_count, INT32_MAX) and self.total_count):
            raise UsageError(
                f"NewPartitions: total_count={shown_argument(self.total_count)}; give a number "
                f"from 1 to {INT32_MAX}, which includes existing partitions"
            )
        if not _are_broker_lists(self.new_assignments):
            raise UsageError(
                "NewPartitions: new_assignments must be a list with the ids of the brokers of "
                "each new partition, as in [[1, 2], [2, 3]]"
            )


class CreatedTopic(NamedTuple):
    """A topic that was just created. Values that older brokers omit are None."""

    name: str
    topic_id: bytes | None
    num_partitions: int | None
    replication_factor: int | None


class TopicListing(NamedTuple):
    """A topic in a list. `topic_id` is None for brokers before 2.8."""

    name: str
    topic_id: bytes | None
    is_internal: bool


class TopicDescription(NamedTuple):
    """A topic with its partitions, in order of their numbers."""

    name: str
    topic_id: bytes | None
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


class CreateTopics(AdminHandler[str, CreatedTopic]):
    receiver = Receiver.CONTROLLER
    # The broker continues to create it; a retry would only find that the topic exists.
    final_errors = (RequestTimedOutError,)

    def __init__(self, topics: Mapping[str, NewTopic]) -> None:
        self._topics = topics

    def request(self, keys: Sequence[str], timeout_ms: int) -> CreateTopicsRequest:
        return CreateTopicsRequest(
            topics=[_creatable(self._topics[name]) for name in keys], timeout_ms=timeout_ms
        )

    def results(self, message: Message, keys: Sequence[str]) -> Results[str, CreatedTopic]:
        assert isinstance(message, CreateTopicsResponse)
        for topic in message.topics:
            error = failure(topic.error_code, f"topic {topic.name!r}", topic.error_message)
            created = CreatedTopic(
                topic.name,
                _known_id(topic.topic_id),
                topic.num_partitions if topic.num_partitions >= 0 else None,
                topic.replication_factor if topic.replication_factor >= 0 else None,
            )
            yield topic.name, error or created


class CreatePartitions(AdminHandler[str, str]):
    receiver = Receiver.CONTROLLER
    # The broker continues; a retry would only find that the topic has as many already.
    final_errors = (RequestTimedOutError, UnknownTopicOrPartitionError)

    def __init__(
        self, new_partitions: Mapping[str, NewPartitions], *, is_validated_only: bool
    ) -> None:
        self._new_partitions = new_partitions
        self._is_validated_only = is_validated_only

    def request(self, keys: Sequence[str], timeout_ms: int) -> CreatePartitionsRequest:
        return CreatePartitionsRequest(
            topics=[_growing(name, self._new_partitions[name]) for name in keys],
            timeout_ms=timeout_ms,
            validate_only=self._is_validated_only,
        )

    def results(self, message: Message, keys: Sequence[str]) -> Results[str, str]:
        assert isinstance(message, CreatePartitionsResponse)
        for topic in message.results:
            error = failure(topic.error_code, f"topic {topic.name!r}", topic.error_message)
            yield topic.name, error or topic.name


class DeleteTopics(AdminHandler[str, str]):
    receiver = Receiver.CONTROLLER
    final_errors = (RequestTimedOutError, UnknownTopicOrPartitionError)
    max_version = DELETE_BY_NAME_MAX_VERSION

    def request(self, keys: Sequence[str], timeout_ms: int) -> DeleteTopicsRequest:
        return DeleteTopicsRequest(topic_names=list(keys), timeout_ms=timeout_ms)

    def results(self, message: Message, keys: Sequence[str]) -> Results[str, str]:
        assert isinstance(message, DeleteTopicsResponse)
        for topic in message.responses:
            if topic.name is not None:
                error = failure(topic.error_code, f"topic {topic.name!r}", topic.error_message)
                yield topic.name, error or topic.name


class ListTopics(AdminHandler[str, dict[str, TopicListing]]):
    """Lists all topics; the only key is `ALL_TOPICS`."""

    receiver = Receiver.ANY_BROKER

    def request(self, keys: Sequence[str], timeout_ms: int) -> MetadataRequest:
        return MetadataRequest(topics=None, allow_auto_topic_creation=False)

    def results(
        self, message: Message, keys: Sequence[str]
    ) -> Results[str, dict[str, TopicListing]]:
        assert isinstance(message, MetadataResponse)
        error = failure(message.error_code, "the list of topics")
        topics = {
            topic.name: TopicListing(topic.name, _known_id(topic.topic_id), topic.is_internal)
            for topic in message.topics
            if topic.error_code == 0 and topic.name is not None
        }
        yield ALL_TOPICS, error or topics


class DescribeTopics(AdminHandler[str, TopicDescription]):
    receiver = Receiver.ANY_BROKER
    final_errors = (UnknownTopicOrPartitionError,)

    def request(self, keys: Sequence[str], timeout_ms: int) -> MetadataRequest:
        return _metadata_request(keys)

    def results(self, message: Message, keys: Sequence[str]) -> Results[str, TopicDescription]:
        assert isinstance(message, MetadataResponse)
        if message.error_code != 0:
            for name in keys:
                yield name, error_for_code(message.error_code, f"topic {name!r}")
            return
        for topic in message.topics:
            if topic.name is not None:
                error = failure(topic.error_code, f"topic {topic.name!r}")
                yield topic.name, error or _description(topic_info(topic))


class _Spread(AdminHandler[int, int]):
    """Waits until brokers, by id, have a change in their metadata, except those that are down."""

    receiver = Receiver.BROKER

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = topics

    def request(self, keys: Sequence[int], timeout_ms: int) -> MetadataRequest:
        return _metadata_request(self._topics)

    def results(self, message: Message, keys: Sequence[int]) -> Results[int, int]:
        assert isinstance(message, MetadataResponse)
        outdated = self._outdated(message)
        refusal = failure(message.error_code, "Metadata")
        for key in keys:
            error = LeaderNotAvailableError(f"broker {key} has not caught up on {outdated}")
            yield key, refusal or (error if outdated else key)

    @abstractmethod
    def _outdated(self, response: MetadataResponse) -> list[str | None]: ...

    def on_unreachable(self, key: int, error: KafkaError) -> int | KafkaError:
        return key


class TopicsPresent(_Spread):
    """Waits until brokers know topics, with a leader for each partition."""

    def _outdated(self, response: MetadataResponse) -> list[str | None]:
        known = {
            topic.name
            for topic in response.topics
            if topic.error_code == 0 and all(p.leader_id >= 0 for p in topic.partitions)
        }
        return [name for name in self._topics if name not in known]


class PartitionsPresent(_Spread):
    """Waits until brokers know a number of partitions of topics, each with a leader."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        super().__init__(list(counts))
        self._counts = counts

    def _outdated(self, response: MetadataResponse) -> list[str | None]:
        led = {
            topic.name: sum(p.leader_id >= 0 for p in topic.partitions) for topic in response.topics
        }
        return [name for name, count in self._counts.items() if led.get(name, 0) < count]


class TopicsAbsent(_Spread):
    """Waits until brokers no longer know topics."""

    def _outdated(self, response: MetadataResponse) -> list[str | None]:
        return [topic.name for topic in response.topics if topic.error_code == 0]


def _metadata_request(names: Sequence[str]) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=partition, broker_ids=list(broker_ids))
        for partition, broker_ids in topic.replica_assignments.items()
    ]
    return CreatableTopic(
        name=topic.name,
        num_partitions=_or_default(topic.num_partitions),
        replication_factor=_or_default(topic.replication_factor),
        assignments=assignments,
        configs=[
            CreatableTopicConfig(name=name, value=setting_text(value))
            for name, value in topic.config.items()
        ],
    )


def _growing(name: str, new: NewPartitions) -> CreatePartitionsTopic:
    return CreatePartitionsTopic(
        name=name,
        count=new.total_count,
        assignments=[CreatePartitionsAssignment(list(ids)) for ids in new.new_assignments] or None,
    )


def _are_broker_lists(assignments: object) -> bool:
    return _is_list(assignments) and all(
        _is_list(ids) and ids and all(is_number(broker_id, INT32_MAX) for broker_id in ids)
        for ids in assignments
    )


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def _or_default(number: int | None) -> int:
    return BROKER_DEFAULT if number is None else number


def _description(info: TopicInfo) -> TopicDescription:
    return TopicDescription(info.name, _known_id(info.topic_id), info.is_internal, info.partitions)


def _known_id(topic_id: bytes) -> bytes | None:
    return topic_id if any(topic_id) else None
