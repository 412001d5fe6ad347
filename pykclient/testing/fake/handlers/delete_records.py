"""DeleteRecords: a log's start moves forward.

Owner: none; it holds no state.
Source: KIP-107.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import OffsetOutOfRangeError
from pykclient.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.handlers.leadership import led_partition

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState

TO_HIGH_WATERMARK = -1
_NO_WATERMARK = -1


def handle(
    cluster: ClusterState, call: Call, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Delete the records before an offset from each partition."""

    def deleted(topic: str, requested: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        partition = led_partition(cluster, call.broker_id, topic, requested.partition_index)
        if isinstance(partition, type):
            return _refused(requested, partition.code)
        log = partition.log
        offset = log.high_watermark if requested.offset == TO_HIGH_WATERMARK else requested.offset
        if not log.log_start_offset <= offset <= log.high_watermark:
            return _refused(requested, OffsetOutOfRangeError.code)
        log.delete_records(offset)
        cluster.purgatory.check(partition.name, cluster.now_ms)
        return DeleteRecordsPartitionResult(
            partition_index=requested.partition_index, low_watermark=log.log_start_offset
        )

    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[deleted(topic.name, requested) for requested in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def refuse(
    _: ClusterState, request: DeleteRecordsRequest, error_code: int
) -> DeleteRecordsResponse:
    """Refuse every partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_refused(requested, error_code) for requested in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _refused(requested: DeleteRecordsPartition, error_code: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=requested.partition_index,
        low_watermark=_NO_WATERMARK,
        error_code=error_code,
    )


HANDLER = Handler(DeleteRecordsRequest, handle, refuse)
