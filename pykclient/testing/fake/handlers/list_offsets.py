"""ListOffsets: start and end of a log, and offsets by timestamp.

Owner: none; it holds no state.
Source: KIP-79, KIP-207, KIP-734 (largest timestamp), KIP-405 (local log), KIP-1023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.handlers.leadership import NO_EPOCH, led_partition

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState
    from pykclient.testing.fake.topics import Partition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

NOT_FOUND = -1
_READ_COMMITTED = 1
_EPOCHS_FROM_VERSION = 4


def handle(cluster: ClusterState, call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Look up each partition."""

    def look_up(topic: str, requested: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        partition = led_partition(
            cluster,
            call.broker_id,
            topic,
            requested.partition_index,
            leader_epoch=requested.current_leader_epoch,
        )
        if isinstance(partition, type):
            return _refused(requested, partition.code)
        is_committed = request.isolation_level == _READ_COMMITTED
        log = partition.log
        end_offset = log.last_stable_offset if is_committed else log.high_watermark
        found = _found(partition, requested, end_offset)
        if call.version < _EPOCHS_FROM_VERSION:
            found.leader_epoch = NO_EPOCH
        return found

    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[look_up(topic.name, requested) for requested in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def refuse(_: ClusterState, request: ListOffsetsRequest, error_code: int) -> ListOffsetsResponse:
    """Refuse every partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_refused(requested, error_code) for requested in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _found(
    partition: Partition, requested: ListOffsetsPartition, end_offset: int
) -> ListOffsetsPartitionResponse:
    log = partition.log
    response = ListOffsetsPartitionResponse(
        partition_index=requested.partition_index, offset=NOT_FOUND, timestamp=NOT_FOUND
    )
    if requested.timestamp == LATEST:
        response.offset = end_offset
        response.leader_epoch = partition.leader_epoch
    elif requested.timestamp in (EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD):
        response.offset = log.log_start_offset
        response.leader_epoch = log.epoch_at(log.log_start_offset)
    elif requested.timestamp != LATEST_TIERED:
        found = (
            log.find_max_timestamp(end_offset)
            if requested.timestamp == MAX_TIMESTAMP
            else log.find_timestamp(requested.timestamp, end_offset)
        )
        if found is not None:
            response.offset, response.timestamp, response.leader_epoch = found
    return response


def _refused(requested: ListOffsetsPartition, error_code: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=requested.partition_index,
        error_code=error_code,
        offset=NOT_FOUND,
        timestamp=NOT_FOUND,
    )


HANDLER = Handler(ListOffsetsRequest, handle, refuse)
