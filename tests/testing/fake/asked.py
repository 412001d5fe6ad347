"""Short ways to ask a fake cluster what the tests ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from pykclient.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.cluster import FakeCluster

__all__ = ["fetch", "fetched_bytes", "produce", "produced"]


def produce(
    cluster: FakeCluster,
    broker_id: int,
    data: bytes,
    *,
    acks: int = -1,
    timeout_ms: int = 1_000,
    now_ms: int = 0,
) -> Call:
    """Produce one batch to partition 0 of topic ``t``, by name."""
    request = ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(name="t", partition_data=[PartitionProduceData(records=data)])
        ],
    )
    return cluster.ask(broker_id, request, now_ms, version=9)


def produced(call: Call) -> PartitionProduceResponse:
    """What the answer says of the partition."""
    response = call.answered()
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0]


def fetch(
    cluster: FakeCluster,
    broker_id: int,
    offset: int,
    *,
    min_bytes: int = 1,
    max_wait_ms: int = 500,
    session_id: int = 0,
    session_epoch: int = -1,
    leader_epoch: int = -1,
    rack_id: str = "",
    isolation_level: int = 0,
    is_named: bool = True,
    now_ms: int = 0,
) -> Call:
    """Fetch partition 0 of topic ``t``; not `is_named`, as a session's later fetch."""
    partition = FetchPartition(
        fetch_offset=offset, partition_max_bytes=10**6, current_leader_epoch=leader_epoch
    )
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=10**6,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic="t", partitions=[partition])] if is_named else [],
        rack_id=rack_id,
    )
    return cluster.ask(broker_id, request, now_ms, version=12)


def fetched_bytes(call: Call) -> int:
    """How many bytes of records came."""
    response = call.answered()
    assert isinstance(response, FetchResponse)
    return sum(len(p.records or b"") for topic in response.responses for p in topic.partitions)
