"""ListTransactions: all transactions of a coordinator.

Owner: none; it holds no state.
Source: KIP-664, KIP-994 (durations), KIP-1152 (patterns); Java class ``TransactionStateManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import InvalidRegularExpressionError
from pykclient.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from pykclient.testing.fake.groups.kip848.regex import TopicRegexError, compile_topic_regex
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.transactions import metadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState
    from pykclient.testing.fake.transactions.metadata import TransactionMetadata

_STATES = frozenset(state.value for state in metadata.TransactionState)


def handle(
    cluster: ClusterState, call: Call, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """List the transactions that match the filters; an empty filter matches all."""
    try:
        is_wanted = _filter(cluster, request)
    except TopicRegexError:
        return refuse(cluster, request, InvalidRegularExpressionError.code)
    return ListTransactionsResponse(
        unknown_state_filters=[each for each in request.state_filters if each not in _STATES],
        transaction_states=[
            TransactionState(each.transactional_id, each.producer.producer_id, each.state.value)
            for each in cluster.transactions.coordinated_by(call.broker_id)
            if is_wanted(each)
        ],
    )


def refuse(
    _: ClusterState, __: ListTransactionsRequest, error_code: int
) -> ListTransactionsResponse:
    """Refuse the request."""
    return ListTransactionsResponse(error_code=error_code)


def _filter(
    cluster: ClusterState, request: ListTransactionsRequest
) -> Callable[[TransactionMetadata], bool]:
    """Build a filter. Raises `TopicRegexError` for an invalid pattern."""
    text = request.transactional_id_pattern
    pattern = compile_topic_regex(text) if text else None
    youngest_ms = cluster.wall_ms - request.duration_filter

    def is_wanted(each: TransactionMetadata) -> bool:
        return (
            (not request.state_filters or each.state.value in request.state_filters)
            and (
                not request.producer_id_filters
                or each.producer.producer_id in request.producer_id_filters
            )
            and (request.duration_filter < 0 or each.started_ms < youngest_ms)
            and (pattern is None or pattern.fullmatch(each.transactional_id) is not None)
        )

    return is_wanted


HANDLER = Handler(ListTransactionsRequest, handle, refuse)
