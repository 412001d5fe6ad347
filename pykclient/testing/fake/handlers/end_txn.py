"""EndTxn: a producer commits or aborts.

From version 5 on the response contains the producer's next epoch (KIP-890).

Owner: none; it holds no state.
Source: KIP-98, KIP-588, KIP-890; Java class ``TransactionCoordinator``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.handlers.verification import fencing_code
from pykclient.testing.fake.transactions.metadata import BUMPING_VERSION, ProducerIdentity

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState

_FENCED_FROM_VERSION = 2
_BUMPS_FROM_VERSION = 5


def handle(cluster: ClusterState, call: Call, request: EndTxnRequest) -> EndTxnResponse:
    """Decide the end of the transaction; the markers follow."""
    transactions, name = cluster.transactions, request.transactional_id
    refusal = transactions.check_coordinator(call.broker_id, name) if name else None
    if refusal is not None:
        return refuse(cluster, request, refusal.code)
    ended = transactions.end(
        name,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        BUMPING_VERSION if call.version >= _BUMPS_FROM_VERSION else 0,
        cluster.now_ms,
        is_commit=request.committed,
    )
    if isinstance(ended, type):
        return refuse(cluster, request, fencing_code(ended, call, _FENCED_FROM_VERSION))
    if call.version < _BUMPS_FROM_VERSION:
        return EndTxnResponse()
    return EndTxnResponse(producer_id=ended.producer_id, producer_epoch=ended.epoch)


def refuse(_: ClusterState, __: EndTxnRequest, error_code: int) -> EndTxnResponse:
    """Refuse the request."""
    return EndTxnResponse(error_code=error_code)


HANDLER = Handler(EndTxnRequest, handle, refuse)
