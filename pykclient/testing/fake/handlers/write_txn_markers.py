"""WriteTxnMarkers: a coordinator, or an administrator, ends transactions in partitions.

Owner: none; it holds no state.
Source: KIP-98, KIP-664 (hanging transactions); Java class ``KafkaApis``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.handlers.leadership import led_partition
from pykclient.testing.fake.transactions.metadata import ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.protocol.messages.write_txn_markers import WritableTxnMarker
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState


def handle(
    cluster: ClusterState, call: Call, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Write each marker into each partition that this broker leads."""

    def written(marker: WritableTxnMarker, topic: str, number: int) -> int:
        partition = led_partition(cluster, call.broker_id, topic, number)
        if isinstance(partition, type):
            return partition.code
        refusal = cluster.transactions.write_marker(
            partition,
            ProducerIdentity(marker.producer_id, marker.producer_epoch),
            marker.coordinator_epoch,
            cluster.now_ms,
            is_commit=marker.transaction_result,
        )
        return 0 if refusal is None else refusal.code

    return _response(request, written)


def refuse(
    _: ClusterState, request: WriteTxnMarkersRequest, error_code: int
) -> WriteTxnMarkersResponse:
    """Refuse every partition."""
    return _response(request, lambda *_: error_code)


def _response(
    request: WriteTxnMarkersRequest, code_of: Callable[[WritableTxnMarker, str, int], int]
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                marker.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        [
                            WritableTxnMarkerPartitionResult(
                                number, code_of(marker, topic.name, number)
                            )
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


HANDLER = Handler(WriteTxnMarkersRequest, handle, refuse)
