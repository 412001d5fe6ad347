"""A fetcher with its collaborators, and a broker whose responses the test writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.fetch.buffer import FetchBuffer
from pykclient.consumer.fetch.fetcher import Fetcher
from pykclient.consumer.fetch.stalls import Stalls
from pykclient.consumer.metrics import ConsumerMetrics
from pykclient.consumer.subscription import AssignedPartition, OffsetReset, SubscriptionState
from pykclient.network.broker.client import NetworkClient
from pykclient.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pykclient.types import IsolationLevel, TopicPartition
from tests.consumer.known_cluster import (
    RETRY_BACKOFF,
    START_MS,
    TOPIC_ID,
    make_metadata,
    refresh,
    topic,
    update_metadata,
)
from tests.network.responding import respond_checked

if TYPE_CHECKING:
    from pykclient.network.manager import Request

A, B, C = (TopicPartition("t", number) for number in range(3))
OTHER_ID = bytes(reversed(range(16)))
REPLICA_MS = 300_000


class Nodes(NetworkClient):
    """The nodes in a back-off, and the end of each."""

    def __init__(self) -> None:
        self.retry_ms: dict[int, int] = {}

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        return not self.is_unavailable(node_id, now_ms)

    def is_unavailable(self, node_id: int, now_ms: int) -> bool:
        return self.next_ready_ms(node_id, now_ms) > now_ms

    def next_ready_ms(self, node_id: int, now_ms: int) -> int:
        return self.retry_ms.get(node_id, now_ms)


class Scene:
    """A fetcher with its collaborators, which reads these partitions, all from the same offset.

    Broker 1 leads partitions 0 and 2, broker 2 leads partition 1.
    """

    def __init__(
        self,
        *partitions: TopicPartition,
        offset: int = 0,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        rack: str = "",
        reset: OffsetReset = OffsetReset.EARLIEST,
        prefers_lag: bool = False,
    ) -> None:
        self.metadata = make_metadata()
        refresh(self.metadata)
        update_metadata(self.metadata, topic("t", [1, 2, 1]))
        self.nodes = Nodes()
        self.subscription = SubscriptionState()
        self.buffer = FetchBuffer(RETRY_BACKOFF, parked_max_bytes=50_000)
        self.stalls = Stalls()
        is_by_duration = reset is OffsetReset.BY_DURATION
        self.fetcher = Fetcher(
            ConsumerConfig.from_settings(
                bootstrap_servers="boot:9092",
                fetch_min_bytes=3,
                fetch_max_wait_ms=500,
                fetch_max_bytes=50_000,
                max_partition_fetch_bytes=1_000,
                isolation_level=isolation_level.name.lower(),
                client_rack=rack,
                metadata_max_age_ms=REPLICA_MS,
                auto_offset_reset="by_duration:PT1H" if is_by_duration else reset.value,
                fetch_order="lag" if prefers_lag else "fair",
            ),
            subscription=self.subscription,
            buffer=self.buffer,
            metadata=self.metadata,
            client=cast("NetworkClient", self.nodes),
            retry_backoff=RETRY_BACKOFF,
            metrics=ConsumerMetrics(self.subscription, isolation_level),
            stalls=self.stalls,
        )
        if partitions:
            self.read(*partitions, offset=offset)

    def read(self, *partitions: TopicPartition, offset: int = 0) -> AssignedPartition:
        """Assign partitions, all at the same offset; return the first."""
        self.subscription.assign(partitions)
        for assigned in self.subscription:
            self.subscription.seek(assigned, offset)
        return self.subscription.require(partitions[0])

    def poll(self, now_ms: int = START_MS) -> list[Request]:
        return list(self.fetcher.poll(now_ms).requests)

    def fetch(self, now_ms: int = START_MS) -> Request:
        (request,) = self.poll(now_ms)
        return request

    def taken(self, count_max: int = 100) -> list[int]:
        return [
            offset
            for run in self.buffer.take(count_max, START_MS)
            for offset in run.columns.offsets
        ]


def message_of(request: Request) -> FetchRequest:
    assert isinstance(request.message, FetchRequest)
    return request.message


def named(request: Request) -> list[tuple[str, int, int]]:
    return [
        (each.topic, partition.partition, partition.fetch_offset)
        for each in message_of(request).topics
        for partition in each.partitions
    ]


def part(
    index: int,
    records: bytes = b"",
    *,
    code: int = 0,
    high_watermark: int = 1_000,
    last_stable_offset: int = -1,
    replica: int = -1,
) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1 if code else high_watermark,
        last_stable_offset=last_stable_offset,
        preferred_read_replica=replica,
        records=records or None,
    )


def reply(
    request: Request,
    *parts: PartitionData,
    now_ms: int = START_MS,
    topic_id: bytes = TOPIC_ID,
    error_code: int = 0,
    session_id: int = 0,
) -> None:
    # A newer broker identifies the topic only by its id.
    responses = [FetchableTopicResponse(topic_id=topic_id, partitions=list(parts))]
    response = FetchResponse(error_code=error_code, session_id=session_id, responses=responses)
    respond_checked(request, response, now_ms)
