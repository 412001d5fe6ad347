"""OffsetForLeaderEpoch: the end of a leader epoch, which lets a client detect lost records.

Owner: none; it holds no state.
Source: KIP-101, KIP-279, KIP-320.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.handlers.leadership import led_partition

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState


def handle(
    cluster: ClusterState, call: Call, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Look up each partition."""

    def look_up(topic: str, requested: OffsetForLeaderPartition) -> EpochEndOffset:
        partition = led_partition(
            cluster,
            call.broker_id,
            topic,
            requested.partition,
            leader_epoch=requested.current_leader_epoch,
        )
        if isinstance(partition, type):
            return EpochEndOffset(partition=requested.partition, error_code=partition.code)
        epoch, end_offset = partition.log.epoch_end(requested.leader_epoch)
        return EpochEndOffset(
            partition=requested.partition, leader_epoch=epoch, end_offset=end_offset
        )

    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[look_up(topic.topic, requested) for requested in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def refuse(
    _: ClusterState, request: OffsetForLeaderEpochRequest, error_code: int
) -> OffsetForLeaderEpochResponse:
    """Refuse every partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=requested.partition, error_code=error_code)
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLER = Handler(OffsetForLeaderEpochRequest, handle, refuse)
