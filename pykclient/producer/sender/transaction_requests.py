"""Requests of transactions: built for each version, and checks of their responses.

Owner: none; it holds no state.
Source: KIP-98, KIP-360, KIP-447, KIP-1319; Java class ``TransactionManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.errors import DecodeError, UnsupportedVersionError
from pykclient.network.cluster.cluster import NO_TOPIC_ID
from pykclient.network.manager import check_partitions
from pykclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from pykclient.protocol.messages.end_txn import EndTxnResponse
from pykclient.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pykclient.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from pykclient.types import TopicPartition, by_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pykclient.producer.accumulator.batch import ProducerIdentity
    from pykclient.protocol.message import Message
    from pykclient.types import GroupMetadata, OffsetAndMetadata

    Offsets = Mapping[TopicPartition, OffsetAndMetadata]

NEW_EPOCH_FROM_VERSION: Final = 3
"""First version of InitProducerId with which a producer keeps its id (KIP-360), Kafka 2.5."""

TWO_PHASE_COMMIT_VERSION: Final = 6
"""First version of InitProducerId with two-phase commits (KIP-939), an unstable one of Kafka 4.3. A
producer without two-phase commits must not use it."""

MEMBERS_FROM_VERSION: Final = 3
"""First version of TxnOffsetCommit that names a member of the group (KIP-447), Kafka 2.5."""

TOPIC_IDS_FROM_VERSION: Final = 6
"""First version of TxnOffsetCommit that identifies topics by id (KIP-1319), Kafka 4.4."""

PRODUCE_MAX_OF_VERSION_1: Final = 11
TXN_OFFSET_COMMIT_MAX_OF_VERSION_1: Final = 4
END_TXN_MAX_OF_VERSION_1: Final = 4
ADD_PARTITIONS_MAX: Final = 3
"""Later versions of AddPartitionsToTxn are for brokers."""

NO_LEADER_EPOCH: Final = -1


def build_init_producer_id(message: InitProducerIdRequest, version: int) -> InitProducerIdRequest:
    """Return the message if the version supports it.

    Raises:
        UnsupportedVersionError: the broker cannot keep the id, or has no two-phase commits.
    """
    if version < TWO_PHASE_COMMIT_VERSION and message.enable2_pc:
        raise UnsupportedVersionError(
            f"transactional_id {message.transactional_id!r}: the broker supports InitProducerId up "
            f"to version {version}, and transaction_two_phase_commit_enable (KIP-939) needs "
            f"version {TWO_PHASE_COMMIT_VERSION}, which Kafka 4.3 has with "
            f"unstable.api.versions.enable=true and transaction.two.phase.commit.enable=true in "
            f"the settings of all brokers. If they cannot be set, leave the setting out: "
            f"transactions can be prepared without it, and are aborted after "
            f"transaction_timeout_ms"
        )
    if version < NEW_EPOCH_FROM_VERSION and message.producer_id >= 0:
        raise UnsupportedVersionError(
            f"the broker supports InitProducerId up to version {version}, and cannot give a "
            f"producer a new epoch after an error; use Kafka 2.5 or newer (KIP-360)"
        )
    return message


def check_identity(response: Message) -> None:
    assert isinstance(response, InitProducerIdResponse)
    if response.error_code == 0 and (response.producer_id < 0 or response.producer_epoch < 0):
        raise DecodeError(
            f"an InitProducerId response has producer id {response.producer_id}, epoch "
            f"{response.producer_epoch}; neither can be negative"
        )


def check_end(response: Message) -> None:
    """Check that a response has both a producer id and an epoch, or neither (-1)."""
    assert isinstance(response, EndTxnResponse)
    if (response.producer_id < 0) != (response.producer_epoch < 0):
        raise DecodeError(
            f"an EndTxn response has producer id {response.producer_id}, epoch "
            f"{response.producer_epoch}; it must have both or neither"
        )


def added(response: AddPartitionsToTxnResponse) -> Iterable[tuple[TopicPartition, int]]:
    for topic in response.results_by_topic_v3_and_below:
        for part in topic.results_by_partition:
            yield TopicPartition(topic.name, part.partition_index), part.partition_error_code


def check_added(partitions: list[TopicPartition], response: Message) -> None:
    assert isinstance(response, AddPartitionsToTxnResponse)
    named = (partition for partition, _ in added(response))
    check_partitions("AddPartitionsToTxn", partitions, named)


def committed(
    group: GroupMetadata, response: TxnOffsetCommitResponse
) -> Iterable[tuple[TopicPartition, int]]:
    names = {topic_id: name for name, topic_id in group.topic_ids}
    for topic in response.topics:
        name = topic.name or names.get(topic.topic_id, "")
        for part in topic.partitions:
            yield TopicPartition(name, part.partition_index), part.error_code


def check_offsets(group: GroupMetadata, offsets: Offsets, response: Message) -> None:
    assert isinstance(response, TxnOffsetCommitResponse)
    named = (partition for partition, _ in committed(group, response))
    check_partitions("TxnOffsetCommit", list(offsets), named)


def offsets_max_version(group: GroupMetadata, offsets: Offsets, *, is_v2: bool) -> int | None:
    """Return the maximum usable version of TxnOffsetCommit; None for no limit."""
    if not is_v2:
        return TXN_OFFSET_COMMIT_MAX_OF_VERSION_1
    known = dict(group.topic_ids)
    if all(partition.topic in known for partition in offsets):
        return None
    return TOPIC_IDS_FROM_VERSION - 1


def add_partitions(
    transactional_id: str, identity: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(topic, numbers)
            for topic, numbers in by_topic(partitions).items()
        ],
    )


def build_offsets(
    group: GroupMetadata,
    offsets: Offsets,
    version: int,
    *,
    transactional_id: str,
    identity: ProducerIdentity,
) -> TxnOffsetCommitRequest:
    """Return the request for a version.

    Raises:
        UnsupportedVersionError: the version cannot name the group's member.
    """
    if version < MEMBERS_FROM_VERSION and group.is_member:
        raise UnsupportedVersionError(
            f"the broker supports TxnOffsetCommit up to version {version}, which cannot say that "
            f"the offsets are those of a member of group {group.group_id!r}; use Kafka 2.5 or "
            f"newer (KIP-447)"
        )
    topic_ids = dict(group.topic_ids)
    message = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                topic,
                topic_ids.get(topic, NO_TOPIC_ID),
                [_to_commit(number, offsets[TopicPartition(topic, number)]) for number in numbers],
            )
            for topic, numbers in by_topic(offsets).items()
        ],
    )
    if version >= MEMBERS_FROM_VERSION:
        message.generation_id_or_member_epoch = group.generation
        message.member_id = group.member_id
        message.group_instance_id = group.group_instance_id
    return message


def _to_commit(number: int, offset: OffsetAndMetadata) -> TxnOffsetCommitRequestPartition:
    leader_epoch = NO_LEADER_EPOCH if offset.leader_epoch is None else offset.leader_epoch
    return TxnOffsetCommitRequestPartition(number, offset.offset, leader_epoch, offset.metadata)
