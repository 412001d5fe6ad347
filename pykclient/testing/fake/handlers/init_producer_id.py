"""InitProducerId: a producer id for an idempotent producer, and a new epoch for a transactional id.

Owner: none; it holds no state.
Source: KIP-98, KIP-360; Java class ``TransactionCoordinator.handleInitProducerId``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    NotCoordinatorError,
)
from pykclient.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pykclient.testing.fake.handlers.handler import Handler

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState

_TRANSACTION = 1
TRANSACTION_TIMEOUT_MS_MAX = 900_000
EPOCH_MAX = 2**15 - 2


def handle(
    cluster: ClusterState, call: Call, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Give out an id."""
    name = request.transactional_id
    if name is None:
        return InitProducerIdResponse(producer_id=cluster.new_producer_id(), producer_epoch=0)
    if not name:
        return refuse(cluster, request, InvalidRequestError.code)
    coordinator = cluster.coordinator(_TRANSACTION, name)
    if coordinator is None or coordinator.id != call.broker_id:
        return refuse(cluster, request, NotCoordinatorError.code)
    if not 0 < request.transaction_timeout_ms <= TRANSACTION_TIMEOUT_MS_MAX:
        return refuse(cluster, request, InvalidTransactionTimeoutError.code)
    producer_id, epoch = cluster.transactional_ids.get(name, (-1, -1))
    if producer_id < 0 or epoch >= EPOCH_MAX:
        producer_id, epoch = cluster.new_producer_id(), -1
    cluster.transactional_ids[name] = producer_id, epoch + 1
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch + 1)


def refuse(_: ClusterState, __: InitProducerIdRequest, error_code: int) -> InitProducerIdResponse:
    """Refuse the request."""
    return InitProducerIdResponse(error_code=error_code, producer_id=-1, producer_epoch=-1)


HANDLER = Handler(InitProducerIdRequest, handle, refuse)
