"""ServingPort: a port without sockets and one broker that serves a log filled by the test.

It responds to a consumer as Kafka does, using the protocol layer. A fetch that finds nothing is
delayed for a while. It accepts the commits of consumers that are not members. `wait` never waits: a
drive loop spins until its time is up, so tests use short timeouts.

Owner: the test that created it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.consumer import Consumer
from pykclient.consumer.core import ConsumerCore
from pykclient.consumer.offsets.list_offsets import EARLIEST, LATEST
from pykclient.consumer.record import ConsumerRecords
from pykclient.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from pykclient.protocol.messages.api_versions import ApiVersionsRequest
from pykclient.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pykclient.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykclient.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pykclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pykclient.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from pykclient.types import TopicPartition
from tests.consumer.fetched_records import batch, value_at
from tests.network.scripted_port import ScriptedPort

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pykclient.errors import BrokerError
    from pykclient.protocol.message import Message, Request
    from tests.network.scripted_port import ScriptedPeer

TOPIC_ID = bytes(range(1, 17))
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
UNKNOWN = TopicPartition("absent", 0)
SHORT_S = 0.05
LONG_S = 20.0

HELD_MAX = 20
"""Number of waits that a fetch without data is delayed before it gets an empty response."""


class Log:
    """One partition's batches; `start` is the first offset that retention has left."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self._batches: list[tuple[int, bytes]] = []

    def append(self, count: int, data: bytes | None = None) -> None:
        """Append `count` records, or `data` in their place, as one batch."""
        records = batch(range(self.end, self.end + count)) if data is None else data
        self.end += count
        self._batches.append((self.end, records))

    def read(self, offset: int) -> bytes:
        """Return the batches from the one that contains `offset`."""
        return b"".join(data for end, data in self._batches if end > offset)


class ServingPort(ScriptedPort):
    """The port. `logs` has the partitions of topic ``t``, by number."""

    def __init__(self, partition_count: int = 1) -> None:
        super().__init__()
        self.logs = {number: Log() for number in range(partition_count)}
        self.topic_error: type[BrokerError] | None = None
        """Error of topic ``t`` in Metadata, instead of its partitions."""
        self.committed: dict[int, int] = {}
        """Latest committed offsets, by partition number."""
        self.is_silent = False
        """True if the broker does not respond at all."""
        self.on_wait: Callable[[int], None] = lambda timeout_ms: None
        """Called at the start of each wait."""
        self.last_fetch: FetchRequest | None = None
        self._held_count = 0
        self.responded: list[type[Request]] = []
        """Kinds of the requests with a response, in order."""

    def wait(self, timeout_ms: int) -> None:
        """Serve and deliver as many requests as possible."""
        self.on_wait(timeout_ms)
        for peer in self.peers:
            self._serve(peer)
        super().wait(timeout_ms)

    def pending(self, kind: type[Request]) -> list[Request]:
        """Return the requests of a kind that have no response yet."""
        return [
            received.message
            for peer in self.peers
            for received in peer.requests
            if isinstance(received.message, kind)
        ]

    def _serve(self, peer: ScriptedPeer) -> None:
        if not peer.is_accepted:
            peer.accept()
        while peer.requests and not self.is_silent:
            message = peer.requests[0].message
            if isinstance(message, ApiVersionsRequest):
                peer.respond_versions()
                continue
            response = self._response(message)
            if response is None:
                return
            self.responded.append(type(message))
            peer.respond(response)

    def _response(self, message: Request) -> Message | None:
        if isinstance(message, MetadataRequest):
            return self._metadata(message)
        if isinstance(message, ListOffsetsRequest):
            return self._list_offsets(message)
        if isinstance(message, OffsetForLeaderEpochRequest):
            return self._epoch_ends(message)
        if isinstance(message, FindCoordinatorRequest):
            found = [Coordinator(key, 1, "broker", 9092) for key in message.coordinator_keys]
            return FindCoordinatorResponse(coordinators=found)
        if isinstance(message, OffsetCommitRequest):
            return self._commit(message)
        assert isinstance(message, FetchRequest), message
        self.last_fetch = message
        return self._fetch(message)

    def _metadata(self, message: MetadataRequest) -> MetadataResponse:
        names = ["t"] if message.topics is None else [topic.name for topic in message.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="broker", port=9092)],
            controller_id=1,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str | None) -> MetadataResponseTopic:
        if name != "t":
            return MetadataResponseTopic(name=name, error_code=UnknownTopicOrPartitionError.code)
        if self.topic_error is not None:
            return MetadataResponseTopic(name=name, error_code=self.topic_error.code)
        partitions = [
            MetadataResponsePartition(partition_index=number, leader_id=1, leader_epoch=0)
            for number in self.logs
        ]
        return MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=partitions)

    def _list_offsets(self, message: ListOffsetsRequest) -> ListOffsetsResponse:
        (topic,) = message.topics
        responses = []
        for wanted in topic.partitions:
            log = self.logs[wanted.partition_index]
            offset = {EARLIEST: log.start, LATEST: log.end}.get(wanted.timestamp, -1)
            responses.append(
                ListOffsetsPartitionResponse(partition_index=wanted.partition_index, offset=offset)
            )
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name="t", partitions=responses)]
        )

    def _epoch_ends(self, message: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        (topic,) = message.topics
        responses = [
            EpochEndOffset(
                partition=wanted.partition,
                leader_epoch=0,
                end_offset=self.logs[wanted.partition].end,
            )
            for wanted in topic.partitions
        ]
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult("t", responses)])

    def _commit(self, message: OffsetCommitRequest) -> OffsetCommitResponse:
        (topic,) = message.topics
        for committed in topic.partitions:
            self.committed[committed.partition_index] = committed.committed_offset
        done = [OffsetCommitResponsePartition(number) for number in self.committed]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic("t", TOPIC_ID, done)])

    def _fetch(self, message: FetchRequest) -> FetchResponse | None:
        (topic,) = message.topics
        responses = []
        has_news = False
        for wanted in topic.partitions:
            log = self.logs[wanted.partition]
            is_inside = log.start <= wanted.fetch_offset <= log.end
            records = log.read(wanted.fetch_offset) if is_inside else b""
            has_news = has_news or bool(records) or not is_inside
            responses.append(
                PartitionData(
                    partition_index=wanted.partition,
                    error_code=0 if is_inside else OffsetOutOfRangeError.code,
                    high_watermark=log.end if is_inside else -1,
                    records=records or None,
                )
            )
        if not has_news and self._held_count < HELD_MAX:
            self._held_count += 1
            return None
        self._held_count = 0
        return FetchResponse(
            responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=responses)]
        )


class _ConsumerOver(Consumer):
    """A consumer with a port other than sockets; everything else is real."""

    def __init__(self, port: ServingPort, **settings: object) -> None:
        config = ConsumerConfig.from_settings(bootstrap_servers="boot:9092", **settings)
        ConsumerCore.__init__(self, config, port=port)


def consumer_over(
    port: ServingPort, *partitions: TopicPartition, **settings: object
) -> Consumer[Any, Any]:
    """Return a consumer that reads these partitions from the port, by default from the start."""
    consumer = _ConsumerOver(port, **{"auto_offset_reset": "earliest", **settings})
    consumer.assign(partitions)
    return consumer


def offsets(records: ConsumerRecords) -> list[int]:
    """Return the offsets of the records a poll returned."""
    return [record.offset for record in records]


def poll_until(consumer: Consumer, count: int) -> list[int]:
    """Poll until there are `count` records; return their offsets."""
    got: list[int] = []
    while len(got) < count:
        got += offsets(consumer.poll(LONG_S))
    return got


def refuse_twos(value: bytes) -> str:
    """Deserialize a value, except one that raises."""
    if value == value_at(2):
        raise ValueError("no twos")
    return value.decode()


class KeepEven:
    """An interceptor that keeps records at even offsets."""

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        """Return the records at even offsets, in spans of one."""
        kept = [
            span._replace(columns=span.columns.rows(row, row + 1))
            for span in records._spans
            for row, offset in enumerate(span.columns.offsets)
            if offset % 2 == 0
        ]
        return ConsumerRecords(kept)


def consumed(consumer: Consumer) -> dict[TopicPartition, int]:
    """Return the offsets that a commit without offsets would cover."""
    commits = consumer._wiring.require_commits("commit")
    return {partition: each.offset for partition, each in commits.consumed().items()}


def processed(consumer: Consumer) -> dict[TopicPartition, int]:
    """Return the offsets that an automatic commit would cover between two polls."""
    commits = consumer._wiring.require_commits("commit")
    return {partition: each.offset for partition, each in commits.processed().items()}
