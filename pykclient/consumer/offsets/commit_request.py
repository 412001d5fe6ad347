"""OffsetCommitCall: one OffsetCommit request, from the offsets it carries to what is said of each.

What an answer means is the manager's matter; that it tells of what was committed and of nothing
else, is checked here before the manager hears of it.

Owner: the driver of the engine.
Source: Java class ``CommitRequestManager``; KIP-320 (leader epochs), KIP-848 (member epochs, topic
ids).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.network.cluster.cluster import NO_TOPIC_ID
from pykclient.network.manager import Request, check_answered
from pykclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pykclient.consumer.group.metadata import GroupMetadata
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.protocol.message import Message
    from pykclient.types import OffsetAndMetadata

__all__ = ["OffsetCommitCall"]

TOPIC_NAMES_MAX_VERSION: Final = 9
"""Newer versions of OffsetCommit name topics by id alone."""

NO_LEADER_EPOCH: Final = -1


class OffsetCommitCall:
    """A commit of `offsets` as `member`; topic ids are those of `cluster`."""

    def __init__(
        self,
        member: GroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        cluster: Cluster,
    ) -> None:
        self.member = member
        self._offsets = offsets
        self._topics: dict[str, OffsetCommitRequestTopic] = {}
        self._names_by_id: dict[bytes, str] = {}
        for (name, index), committed in offsets.items():
            topic = self._topics.get(name)
            if topic is None:
                topic_id = cluster.topic_id(name)
                topic = self._topics[name] = OffsetCommitRequestTopic(name, topic_id, [])
                self._names_by_id[topic_id] = name
            epoch = committed.leader_epoch
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    index,
                    committed.offset,
                    NO_LEADER_EPOCH if epoch is None else epoch,
                    committed.metadata,
                )
            )

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
            OffsetCommitRequest(
                group_id=self.member.group_id,
                generation_id_or_member_epoch=self.member.generation,
                member_id=self.member.member_id,
                group_instance_id=self.member.group_instance_id,
                topics=list(self._topics.values()),
            ),
            node_id,
            on_response=on_response,
            on_failure=on_failure,
            max_version=None if has_ids else TOPIC_NAMES_MAX_VERSION,
            check=self.check,
        )

    def check(self, message: Message) -> None:
        """Make sure that an answer names the partitions that were committed, each once.

        Raises:
            DecodeError: it does not.
        """
        answered = (partition for partition, _ in self._answers(message))
        check_answered("OffsetCommit", self._offsets, answered)

    def refusals(self, message: Message) -> dict[TopicPartition, int]:
        """Return the error code of each partition whose offset was not taken."""
        return {partition: code for partition, code in self._answers(message) if code != 0}

    def _answers(self, message: Message) -> Iterator[tuple[TopicPartition, int]]:
        assert isinstance(message, OffsetCommitResponse)
        for topic in message.topics:
            name = topic.name or self._names_by_id.get(topic.topic_id, "")
            for answer in topic.partitions:
                yield TopicPartition(name, answer.partition_index), answer.error_code
