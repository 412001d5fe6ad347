"""Offsets of groups: the handlers that read, alter and delete committed offsets.

Source: the OffsetFetch, OffsetCommit and OffsetDelete APIs; KIP-222, KIP-396 (altering), KIP-496
(deleting).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.admin.call import AdminHandler, Receiver, failure
from pykclient.errors import (
    NotCoordinatorError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from pykclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pykclient.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from pykclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
)
from pykclient.types import OffsetAndMetadata, TopicPartition, by_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pykclient.admin.call import Results
    from pykclient.errors import BrokerError
    from pykclient.protocol.message import Message

FETCH_ONE_GROUP_MAX_VERSION: Final = 7
"""Last version of OffsetFetch with one group. Later ones (KIP-709) need brokers 3.0 or newer."""
COMMIT_BY_NAME_MAX_VERSION: Final = 9
"""Last version of OffsetCommit that names topics. Later ones use topic ids."""
NO_OFFSET: Final = -1
NO_EPOCH: Final = -1

Committed = dict[TopicPartition, OffsetAndMetadata]


class ListGroupOffsets(AdminHandler[str, Committed]):
    """Reads a group's committed offsets; the key is the group.

    `partitions` None means all. Partitions without an offset are left out. `is_stable` waits for
    transactions that are about to commit offsets (brokers 2.5 or newer, KIP-447).
    """

    receiver = Receiver.COORDINATOR
    max_version = FETCH_ONE_GROUP_MAX_VERSION
    keys_per_request_max = 1

    def __init__(self, partitions: Iterable[TopicPartition] | None, *, is_stable: bool) -> None:
        self._topics = None if partitions is None else by_topic(partitions)
        self._is_stable = is_stable

    def request(self, keys: Sequence[str], timeout_ms: int) -> OffsetFetchRequest:
        (group,) = keys
        topics = None
        if self._topics is not None:
            topics = [OffsetFetchRequestTopic(name, ids) for name, ids in self._topics.items()]
        return OffsetFetchRequest(group_id=group, topics=topics, require_stable=self._is_stable)

    def results(self, message: Message, keys: Sequence[str]) -> Results[str, Committed]:
        assert isinstance(message, OffsetFetchResponse)
        (group,) = keys
        error = failure(message.error_code, f"the offsets of group {group!r}")
        committed: Committed = {}
        for topic in message.topics:
            for found in topic.partitions:
                partition = TopicPartition(topic.name, found.partition_index)
                error = error or _failure(found.error_code, group, partition)
                if found.committed_offset != NO_OFFSET:
                    committed[partition] = _committed(found)
        yield group, committed if error is None else error


class ListGroupOffsetsOnBroker(ListGroupOffsets):
    """Reads a group's committed offsets from one broker, without waiting for transactions."""

    receiver = Receiver.BROKER
    final_errors = (NotCoordinatorError, UnstableOffsetCommitError)

    def __init__(
        self, partitions: Iterable[TopicPartition] | None, *, is_stable: bool, coordinator_id: int
    ) -> None:
        super().__init__(partitions, is_stable=is_stable)
        self._coordinator_id = coordinator_id

    def broker_id(self, key: str) -> int:
        del key
        return self._coordinator_id


class AlterGroupOffsets(AdminHandler[TopicPartition, TopicPartition]):
    """Commits offsets for a group without members; the keys are the partitions."""

    receiver = Receiver.COORDINATOR
    group: str
    final_errors = (UnknownTopicOrPartitionError,)
    max_version = COMMIT_BY_NAME_MAX_VERSION

    def __init__(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.group = group
        self._offsets = offsets

    def request(self, keys: Sequence[TopicPartition], timeout_ms: int) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=self.group,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        _to_commit(index, self._offsets[TopicPartition(topic, index)])
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(keys).items()
            ],
        )

    def results(
        self, message: Message, keys: Sequence[TopicPartition]
    ) -> Results[TopicPartition, TopicPartition]:
        assert isinstance(message, OffsetCommitResponse)
        for topic in message.topics:
            for found in topic.partitions:
                partition = TopicPartition(topic.name, found.partition_index)
                yield partition, _failure(found.error_code, self.group, partition) or partition


class DeleteGroupOffsets(AdminHandler[TopicPartition, TopicPartition]):
    """Deletes offsets of a group for topics that no member reads; the keys are the partitions."""

    receiver = Receiver.COORDINATOR
    group: str
    final_errors = (UnknownTopicOrPartitionError,)

    def __init__(self, group: str) -> None:
        self.group = group

    def request(self, keys: Sequence[TopicPartition], timeout_ms: int) -> OffsetDeleteRequest:
        return OffsetDeleteRequest(
            group_id=self.group,
            topics=[
                OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(i) for i in indexes])
                for topic, indexes in by_topic(keys).items()
            ],
        )

    def results(
        self, message: Message, keys: Sequence[TopicPartition]
    ) -> Results[TopicPartition, TopicPartition]:
        assert isinstance(message, OffsetDeleteResponse)
        error = failure(message.error_code, f"the offsets of group {self.group!r}")
        if error is not None:
            yield from dict.fromkeys(keys, error).items()
            return
        for topic in message.topics:
            for found in topic.partitions:
                partition = TopicPartition(topic.name, found.partition_index)
                yield partition, _failure(found.error_code, self.group, partition) or partition


def _committed(found: OffsetFetchResponsePartition) -> OffsetAndMetadata:
    epoch = found.committed_leader_epoch
    return OffsetAndMetadata(
        found.committed_offset, found.metadata or "", None if epoch < 0 else epoch
    )


def _to_commit(index: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=NO_EPOCH if offset.leader_epoch is None else offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def _failure(code: int, group: str, partition: TopicPartition) -> BrokerError | None:
    cure = None
    if code == UnknownMemberIdError.code:
        cure = "the group has members, and only they may commit; stop them first"
    return failure(code, f"the offset of group {group!r} for {partition}", cure)
