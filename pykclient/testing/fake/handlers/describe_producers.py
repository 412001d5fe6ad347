"""DescribeProducers: the producers that partition leaders know.

Owner: none; it holds no state.
Source: KIP-664; Java class ``ReplicaManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.handlers.leadership import led_partition

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState


def handle(
    cluster: ClusterState, call: Call, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Describe the producers of each partition that this broker leads."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name,
                [_described(cluster, call, topic.name, each) for each in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def refuse(
    _: ClusterState, request: DescribeProducersRequest, error_code: int
) -> DescribeProducersResponse:
    """Refuse every partition."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name,
                [PartitionResponse(each, error_code) for each in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _described(cluster: ClusterState, call: Call, topic: str, number: int) -> PartitionResponse:
    partition = led_partition(cluster, call.broker_id, topic, number)
    if isinstance(partition, type):
        return PartitionResponse(number, partition.code)
    return PartitionResponse(
        number,
        active_producers=[
            ProducerState(
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.last_timestamp_ms,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_start_offset=each.open_from,
            )
            for each in partition.log.producers.active()
        ],
    )


HANDLER = Handler(DescribeProducersRequest, handle, refuse)
