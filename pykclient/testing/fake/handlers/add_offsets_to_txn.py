"""AddOffsetsToTxn: a producer names the group for which it will commit offsets.

Owner: none; it holds no state.
Source: KIP-98; Java class ``KafkaApis``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.handlers.verification import fencing_code
from pykclient.testing.fake.transactions.metadata import ProducerIdentity

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState

_FENCED_FROM_VERSION = 2


def handle(
    cluster: ClusterState, call: Call, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add the partition that stores the group's offsets."""
    transactions, name = cluster.transactions, request.transactional_id
    refusal = transactions.check_coordinator(call.broker_id, name) if name else None
    if refusal is None:
        refusal = transactions.add(
            name,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            [cluster.groups.partition(request.group_id).name],
            version=0,
            now_ms=cluster.now_ms,
        )
    if refusal is None:
        return AddOffsetsToTxnResponse()
    return refuse(cluster, request, fencing_code(refusal, call, _FENCED_FROM_VERSION))


def refuse(_: ClusterState, __: AddOffsetsToTxnRequest, error_code: int) -> AddOffsetsToTxnResponse:
    """Refuse the request."""
    return AddOffsetsToTxnResponse(error_code=error_code)


HANDLER = Handler(AddOffsetsToTxnRequest, handle, refuse)
