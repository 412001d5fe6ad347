"""TxnOffsetCommit: offsets that take effect when the producer's transaction is committed.

Owner: none; it holds no state.
Source: KIP-98, KIP-447 (members and generations), KIP-890, KIP-1319 (topic ids); Java classes
``OffsetMetadataManager``, ``GroupCoordinatorService``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    InvalidGroupIdError,
    InvalidProducerEpochError,
    OffsetMetadataTooLargeError,
    StaleMemberEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from pykclient.testing.fake.groups.classic.group import ClassicGroup
from pykclient.testing.fake.groups.offsets import CommittedOffset
from pykclient.testing.fake.groups.registry import utf16_unit_count
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.handlers.leadership import find_partition
from pykclient.testing.fake.handlers.verification import Verification, verify
from pykclient.testing.fake.transactions.metadata import ProducerIdentity
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestTopic
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.groups.group import Refusal
    from pykclient.testing.fake.state import ClusterState

_LOADING_FROM_VERSION = 2
_ABORTABLE_FROM_VERSION = 4
_IDS_FROM_VERSION = 6


def handle(
    cluster: ClusterState, call: Call, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Hold the offsets of existing partitions, if the group allows it."""
    if call.version >= _IDS_FROM_VERSION:
        _add_names(cluster, request)
    offsets, codes = _sorted_out(cluster, request)
    names = [*offsets, *(name for name, code in codes.items() if code == _TOO_LARGE)]
    if names:
        refusal = _check(cluster, call, request, names)
        if refusal is None:
            _hold(cluster, request, offsets)
        else:
            if refusal is CoordinatorLoadInProgressError and call.version < _LOADING_FROM_VERSION:
                refusal = CoordinatorNotAvailableError
            codes.update(dict.fromkeys(names, refusal.code))
    return _response(request, codes)


def refuse(
    _: ClusterState, request: TxnOffsetCommitRequest, error_code: int
) -> TxnOffsetCommitResponse:
    """Refuse every partition."""
    names = [name for topic in request.topics for name in _names(topic)]
    return _response(request, dict.fromkeys(names, error_code))


def _add_names(cluster: ClusterState, request: TxnOffsetCommitRequest) -> None:
    """Set each topic's name from its id; empty for an unknown id."""
    for requested in request.topics:
        topic = cluster.topic_by_id(requested.topic_id)
        requested.name = "" if topic is None else topic.name


_TOO_LARGE = OffsetMetadataTooLargeError.code


def _names(topic: TxnOffsetCommitRequestTopic) -> list[TopicPartition]:
    return [TopicPartition(topic.name, each.partition_index) for each in topic.partitions]


def _response(
    request: TxnOffsetCommitRequest, codes: dict[TopicPartition, int]
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [
                    TxnOffsetCommitResponsePartition(name.partition, codes.get(name, 0))
                    for name in _names(topic)
                ],
            )
            for topic in request.topics
        ]
    )


def _sorted_out(
    cluster: ClusterState, request: TxnOffsetCommitRequest
) -> tuple[dict[TopicPartition, CommittedOffset], dict[TopicPartition, int]]:
    """Return the offsets that may be committed, and the error codes of the others."""
    offsets: dict[TopicPartition, CommittedOffset] = {}
    codes: dict[TopicPartition, int] = {}
    size_max = cluster.groups.settings.offset_metadata_max_bytes
    for topic in request.topics:
        for name, each in zip(_names(topic), topic.partitions, strict=True):
            metadata = each.committed_metadata or ""
            if not name.topic:
                codes[name] = UnknownTopicIdError.code
            elif find_partition(cluster.topics.get(name.topic), name.partition) is None:
                codes[name] = UnknownTopicOrPartitionError.code
            elif utf16_unit_count(metadata) > size_max:
                codes[name] = _TOO_LARGE
            else:
                offsets[name] = CommittedOffset(
                    each.committed_offset, each.committed_leader_epoch, metadata
                )
    return offsets, codes


def _check(
    cluster: ClusterState,
    call: Call,
    request: TxnOffsetCommitRequest,
    names: list[TopicPartition],
) -> Refusal | None:
    groups, name = cluster.groups, request.group_id
    if not name:
        return InvalidGroupIdError
    refusal = groups.check_coordinator(call.broker_id, name) or _verified(cluster, call, request)
    if refusal is not None:
        return refusal
    group = groups.find(name)
    generation = request.generation_id_or_member_epoch
    if group is None and generation >= 0:
        return IllegalGenerationError if call.version < _IDS_FROM_VERSION else GroupIdNotFoundError
    if group is None:
        group = ClassicGroup(name, groups)
        groups.put(group)
    refusal = group.check_commit(
        request.member_id,
        generation,
        instance_id=request.group_instance_id,
        is_transactional=True,
        version=call.version,
        partitions=names,
    )
    if refusal is None:
        group.on_commit(request.member_id, cluster.now_ms)
    if refusal is StaleMemberEpochError and call.version < _IDS_FROM_VERSION:
        return IllegalGenerationError
    return refusal


def _verified(cluster: ClusterState, call: Call, request: TxnOffsetCommitRequest) -> Refusal | None:
    """Return an error unless the group's partition is in the producer's transaction."""
    partition = cluster.groups.partition(request.group_id)
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    producers = partition.log.producers
    if producers.has_open_transaction(*producer):
        return None
    if producers.has_later_epoch(*producer):
        return InvalidProducerEpochError
    verification = Verification.of(call.version, _ABORTABLE_FROM_VERSION)
    refusal = verify(
        cluster, request.transactional_id, producer, [partition.name], verification=verification
    )[partition.name]
    is_late = refusal is ConcurrentTransactionsError and verification is not Verification.ADD
    return CoordinatorNotAvailableError if is_late else refusal


def _hold(
    cluster: ClusterState,
    request: TxnOffsetCommitRequest,
    offsets: dict[TopicPartition, CommittedOffset],
) -> None:
    if offsets:
        cluster.groups.hold(
            request.group_id,
            offsets,
            cluster.now_ms,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
        )


HANDLER = Handler(TxnOffsetCommitRequest, handle, refuse)
