"""Requests to a fake cluster, the batches in them, and the responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pykclient.protocol.message import Message
from pykclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pykclient.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pykclient.records.builder import RecordBatchBuilder

if TYPE_CHECKING:
    from pykclient.protocol.message import Request
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.cluster import FakeCluster

M = TypeVar("M", bound=Message)


def response_of(call: Call, kind: type[M]) -> M:
    """The response, which is of this type."""
    response = call.require_response()
    assert isinstance(response, kind)
    return response


def response_to(
    cluster: FakeCluster,
    request: Request,
    kind: type[M],
    *,
    broker_id: int = 0,
    version: int | None = None,
) -> M:
    """The response that comes at once, of this type."""
    return response_of(
        cluster.handle_request(broker_id, request, cluster.now_ms, version=version), kind
    )


def coordinator_id(cluster: FakeCluster, name: str = "g", kind: int = 0) -> int:
    """The broker that coordinates a group, or of kind 1 a transactional id."""
    broker = cluster.coordinator(kind, name)
    assert broker is not None
    return broker.id


def batch_of(
    *values: bytes | None,
    producer_id: int = -1,
    producer_epoch: int | None = None,
    base_sequence: int = -1,
    timestamp_ms: int = 1_000,
    is_transactional: bool = False,
) -> bytes:
    """One batch; its records' timestamps go up by one. A producer's epoch is 0 if none is given."""
    if producer_epoch is None:
        producer_epoch = 0 if producer_id >= 0 else -1
    builder: RecordBatchBuilder[None] = RecordBatchBuilder(batch_size_bytes=10_000_000)
    for number, value in enumerate(values):
        builder.try_append(timestamp_ms + number, None, value)
    return bytes(
        builder.close(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
    )


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
    return cluster.handle_request(broker_id, request, now_ms, version=9)


def produced(call: Call) -> PartitionProduceResponse:
    """What the response has of the partition."""
    return response_of(call, ProduceResponse).responses[0].partition_responses[0]


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
    last_fetched_epoch: int = -1,
    is_named: bool = True,
    now_ms: int = 0,
) -> Call:
    """Fetch partition 0 of topic ``t``; not `is_named`, as a session's later fetch."""
    partition = FetchPartition(
        fetch_offset=offset,
        partition_max_bytes=10**6,
        current_leader_epoch=leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
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
    return cluster.handle_request(broker_id, request, now_ms, version=12)


def fetched(call: Call) -> PartitionData:
    """What the response has of the partition."""
    return response_of(call, FetchResponse).responses[0].partitions[0]


def fetched_bytes(call: Call) -> int:
    """How many bytes of records came."""
    response = response_of(call, FetchResponse)
    return sum(len(p.records or b"") for topic in response.responses for p in topic.partitions)
