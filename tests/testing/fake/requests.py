"""Requests to a fake cluster, their batches, and their responses."""

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
    """Return the response, which must be of this type."""
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
    """Send a request and return its immediate response, of this type."""
    return response_of(
        cluster.handle_request(broker_id, request, cluster.now_ms, version=version), kind
    )


def coordinator_id(cluster: FakeCluster, name: str = "g", kind: int = 0) -> int:
    """Return the coordinator of a group, or with kind 1 of a transactional id."""
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
    """Return a batch; timestamps increase by one, and a producer's default epoch is 0."""
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
    """Produce a batch to partition 0 of topic ``t``, by name."""
    request = ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(name="t", partition_data=[PartitionProduceData(records=data)])
        ],
    )
    return cluster.handle_request(broker_id, request, now_ms, version=9)


def produced(call: Call) -> PartitionProduceResponse:
    """Return the partition in the response."""
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
    """Fetch partition 0 of topic ``t``; without `is_named`, as a later fetch of a session."""
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
    """Return the partition in the response."""
    return response_of(call, FetchResponse).responses[0].partitions[0]


def fetched_bytes(call: Call) -> int:
    """Return the size of the records in the response."""
    response = response_of(call, FetchResponse)
    return sum(len(p.records or b"") for topic in response.responses for p in topic.partitions)
