"""OffsetFetchCall: one OffsetFetch request about one group, and what is said of each partition.

What an error means is the manager's matter; that an answer tells of what was asked and of nothing
else, is checked here before the manager hears of it.

Owner: the driver of the engine.
Source: Java class ``CommitRequestManager``; KIP-447 (stable offsets), KIP-709 (several groups),
KIP-848 (member epochs, topic ids).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.errors import DecodeError
from pykclient.network.cluster.cluster import NO_TOPIC_ID
from pykclient.network.manager import Request, check_answered
from pykclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from pykclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pykclient.consumer.group.metadata import GroupMetadata
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.protocol.message import Message

__all__ = ["CommittedAnswer", "OffsetFetchCall"]

STABLE_FROM_VERSION: Final = 7
GROUPS_FROM_VERSION: Final = 8
MEMBERS_FROM_VERSION: Final = 9
TOPIC_NAMES_MAX_VERSION: Final = 9
"""Newer versions of OffsetFetch name topics by id alone."""


class CommittedAnswer(NamedTuple):
    """What is said of one partition. `committed` None means that nothing was committed."""

    partition: TopicPartition
    error_code: int
    committed: OffsetAndMetadata | None


class OffsetFetchCall:
    """A question about `partitions` as `member`; topic ids are those of `cluster`."""

    def __init__(
        self, member: GroupMetadata, partitions: Iterable[TopicPartition], cluster: Cluster
    ) -> None:
        self.member = member
        self._partitions = frozenset(partitions)
        self._indexes: dict[str, list[int]] = {}
        for name, index in sorted(self._partitions):
            self._indexes.setdefault(name, []).append(index)
        self._ids = {name: cluster.topic_id(name) for name in self._indexes}
        self._names_by_id = {topic_id: name for name, topic_id in self._ids.items()}

    def request(
        self,
        node_id: int,
        *,
        on_response: Callable[[Message | None, int], None],
        on_failure: Callable[[KafkaError, int], None],
    ) -> Request:
        """Make the request, in a version that names topics if one of them has no id."""
        has_ids = NO_TOPIC_ID not in self._names_by_id
        return Request(
            OffsetFetchRequest(),
            node_id,
            on_response=on_response,
            on_failure=on_failure,
            max_version=None if has_ids else TOPIC_NAMES_MAX_VERSION,
            check=self.check,
            build=self.build,
        )

    def build(self, version: int) -> OffsetFetchRequest:
        """Make the message for a version.

        Offsets of open transactions are waited for where the version has that (Kafka 2.5).
        """
        is_stable = version >= STABLE_FROM_VERSION
        if version < GROUPS_FROM_VERSION:
            return OffsetFetchRequest(
                group_id=self.member.group_id,
                topics=[OffsetFetchRequestTopic(*topic) for topic in self._indexes.items()],
                require_stable=is_stable,
            )
        group = OffsetFetchRequestGroup(
            group_id=self.member.group_id,
            topics=[
                OffsetFetchRequestTopics(name, self._ids[name], indexes)
                for name, indexes in self._indexes.items()
            ],
        )
        if version >= MEMBERS_FROM_VERSION and self.member.member_id:
            group.member_id = self.member.member_id
            group.member_epoch = self.member.generation
        return OffsetFetchRequest(groups=[group], require_stable=is_stable)

    def check(self, message: Message) -> None:
        """Make sure that an answer names the partitions asked for, each once.

        Raises:
            DecodeError: it does not.
        """
        assert isinstance(message, OffsetFetchResponse)
        groups = [group.group_id for group in message.groups]
        if groups not in ([], [self.member.group_id]):
            raise DecodeError(f"an OffsetFetch answer is about the groups {groups}")
        if self.group_error(message) != 0:
            return
        answered = (answer.partition for answer in self.answers(message))
        check_answered("OffsetFetch", self._partitions, answered)

    def group_error(self, message: Message) -> int:
        """Return the error code of the whole group; 0 if there is none."""
        assert isinstance(message, OffsetFetchResponse)
        return message.groups[0].error_code if message.groups else message.error_code

    def answers(self, message: Message) -> Iterator[CommittedAnswer]:
        """Return what is said of each partition."""
        assert isinstance(message, OffsetFetchResponse)
        for group in message.groups:
            for topic in group.topics:
                name = topic.name or self._names_by_id.get(topic.topic_id, "")
                for partition in topic.partitions:
                    yield _answer(name, partition)
        for older in message.topics:
            for older_partition in older.partitions:
                yield _answer(older.name, older_partition)


def _answer(
    topic: str, told: OffsetFetchResponsePartitions | OffsetFetchResponsePartition
) -> CommittedAnswer:
    committed = None
    if told.committed_offset >= 0:
        epoch = told.committed_leader_epoch
        committed = OffsetAndMetadata(
            told.committed_offset, told.metadata or "", None if epoch < 0 else epoch
        )
    return CommittedAnswer(TopicPartition(topic, told.partition_index), told.error_code, committed)
