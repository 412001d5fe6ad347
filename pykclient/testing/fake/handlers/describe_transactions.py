"""DescribeTransactions: the transactions of a coordinator, by transactional id.

Owner: none; it holds no state.
Source: KIP-664; Java class ``TransactionCoordinator``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import InvalidRequestError, TransactionalIdNotFoundError
from pykclient.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from pykclient.testing.fake.handlers.handler import Handler

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState


def handle(
    cluster: ClusterState, call: Call, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe each transaction, or return its error."""
    return DescribeTransactionsResponse(
        transaction_states=[_described(cluster, call, name) for name in request.transactional_ids]
    )


def refuse(
    _: ClusterState, request: DescribeTransactionsRequest, error_code: int
) -> DescribeTransactionsResponse:
    """Refuse every transactional id."""
    return DescribeTransactionsResponse(
        transaction_states=[_refused(name, error_code) for name in request.transactional_ids]
    )


def _refused(name: str, error_code: int) -> TransactionState:
    return TransactionState(transactional_id=name, error_code=error_code)


def _described(cluster: ClusterState, call: Call, name: str) -> TransactionState:
    if not name:
        return _refused(name, InvalidRequestError.code)
    refusal = cluster.transactions.check_coordinator(call.broker_id, name)
    found = cluster.transactions.find(name)
    if refusal is not None or found is None:
        return _refused(name, (refusal or TransactionalIdNotFoundError).code)
    topics: dict[str, TopicData] = {}
    for topic, number in found.partitions:
        topics.setdefault(topic, TopicData(topic, [])).partitions.append(number)
    return TransactionState(
        transactional_id=name,
        transaction_state=found.state.value,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer.producer_id,
        producer_epoch=found.producer.epoch,
        topics=list(topics.values()),
    )


HANDLER = Handler(DescribeTransactionsRequest, handle, refuse)
