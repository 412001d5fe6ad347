"""InitProducerId: a producer id for an idempotent producer, and a new epoch for a transactional id.

Owner: none; it holds no state.
Source: KIP-98, KIP-360 (expected epochs), KIP-588 (PRODUCER_FENCED), KIP-939 (two-phase commits);
Java class ``TransactionCoordinator``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import InvalidRequestError
from pykclient.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.handlers.verification import fencing_code
from pykclient.testing.fake.transactions.metadata import (
    NO_PRODUCER,
    NO_TIME_OUT_MS,
    ProducerIdentity,
)

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState

_FENCED_FROM_VERSION = 4


def handle(
    cluster: ClusterState, call: Call, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Assign a producer id."""
    given = ProducerIdentity(request.producer_id, request.producer_epoch)
    if -1 in given and given != NO_PRODUCER:
        return refuse(cluster, request, InvalidRequestError.code)
    name = request.transactional_id
    if name is None:
        return InitProducerIdResponse(producer_id=cluster.new_producer_id(), producer_epoch=0)
    transactions = cluster.transactions
    expected = None if given == NO_PRODUCER else given
    timeout_ms = NO_TIME_OUT_MS if request.enable2_pc else request.transaction_timeout_ms
    # Any broker refuses what no coordinator would accept.
    refusal = transactions.check_initialize(
        name,
        request.transaction_timeout_ms,
        is_two_phase=request.enable2_pc,
        keeps_prepared=request.keep_prepared_txn,
    )
    refusal = refusal or transactions.check_coordinator(call.broker_id, name)
    if refusal is not None:
        return refuse(cluster, request, refusal.code)
    begun = transactions.initialize(name, expected, timeout_ms, cluster.now_ms)
    if isinstance(begun, type):
        code = fencing_code(begun, call, _FENCED_FROM_VERSION)
        return refuse(cluster, request, code)
    return InitProducerIdResponse(producer_id=begun.producer_id, producer_epoch=begun.epoch)


def refuse(_: ClusterState, __: InitProducerIdRequest, error_code: int) -> InitProducerIdResponse:
    """Refuse the request."""
    return InitProducerIdResponse(error_code=error_code, producer_id=-1, producer_epoch=-1)


HANDLER = Handler(InitProducerIdRequest, handle, refuse)
