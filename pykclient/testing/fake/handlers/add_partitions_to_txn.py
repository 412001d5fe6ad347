"""AddPartitionsToTxn: a producer names the partitions it will write to.

From version 4 on it is a request between brokers, for several producers, and may only verify.

Owner: none; it holds no state.
Source: KIP-98, KIP-890; Java classes ``KafkaApis``, ``TransactionCoordinator``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import OperationNotAttemptedError, UnknownTopicOrPartitionError
from pykclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.handlers.leadership import find_partition
from pykclient.testing.fake.handlers.verification import fencing_code
from pykclient.testing.fake.transactions.metadata import BUMPING_VERSION, ProducerIdentity
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState

_MANY_FROM_VERSION = 4
_FENCED_FROM_VERSION = 2


def handle(
    cluster: ClusterState, call: Call, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add or verify the partitions of each transaction."""
    if call.version >= _MANY_FROM_VERSION:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(each.transactional_id, _added(cluster, call, each))
                for each in request.transactions
            ]
        )
    one = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_added(cluster, call, one))


def refuse(
    _: ClusterState, request: AddPartitionsToTxnRequest, error_code: int
) -> AddPartitionsToTxnResponse:
    """Refuse every partition."""
    return AddPartitionsToTxnResponse(
        error_code=error_code,
        results_by_transaction=[
            AddPartitionsToTxnResult(each.transactional_id, _results(each.topics, error_code))
            for each in request.transactions
        ],
        results_by_topic_v3_and_below=_results(request.v3_and_below_topics, error_code),
    )


def _results(
    topics: list[AddPartitionsToTxnTopic], codes: int | dict[TopicPartition, int]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnPartitionResult(
                    number,
                    codes if isinstance(codes, int) else codes[TopicPartition(topic.name, number)],
                )
                for number in topic.partitions
            ],
        )
        for topic in topics
    ]


def _added(
    cluster: ClusterState, call: Call, requested: AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnTopicResult]:
    topics, name = requested.topics, requested.transactional_id
    names = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
    unknown = {
        each
        for each in names
        if find_partition(cluster.topics.get(each.topic), each.partition) is None
    }
    if unknown:
        code, other = UnknownTopicOrPartitionError.code, OperationNotAttemptedError.code
        return _results(topics, {each: code if each in unknown else other for each in names})
    transactions = cluster.transactions
    producer = ProducerIdentity(requested.producer_id, requested.producer_epoch)
    refusal = transactions.check_coordinator(call.broker_id, name) if name else None
    if refusal is None and requested.verify_only:
        refusals = transactions.verify(name, producer, names)
    else:
        version = BUMPING_VERSION if call.version > _MANY_FROM_VERSION else 0
        if refusal is None:
            refusal = transactions.add(
                name, producer, names, version=version, now_ms=cluster.now_ms
            )
        refusals = dict.fromkeys(names, refusal)
    return _results(
        topics,
        {
            each: 0 if refused is None else fencing_code(refused, call, _FENCED_FROM_VERSION)
            for each, refused in refusals.items()
        },
    )


HANDLER = Handler(AddPartitionsToTxnRequest, handle, refuse)
