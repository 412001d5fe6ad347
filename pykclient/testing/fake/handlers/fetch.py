"""Fetch: records from an offset on, at once or when there are enough.

Owner: the call, for its `_Reading`; the module holds no state.
Source: KIP-74 (limits), KIP-98 (isolation), KIP-227 (sessions), KIP-320 (epochs), KIP-392
(followers), KIP-595 (diverging epochs), KIP-951 (new leaders); Java class ``DelayedFetch``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    NotLeaderOrFollowerError,
    UnknownTopicIdError,
)
from pykclient.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from pykclient.protocol.primitives import ZERO_UUID
from pykclient.records.batch import first_batch_size_bytes
from pykclient.testing.fake.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
)
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.handlers.leadership import find_partition, led_partition
from pykclient.testing.fake.timers import DelayedOperation
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState
    from pykclient.testing.fake.topics import Partition

IDS_FROM_VERSION = 13
SESSIONS_FROM_VERSION = 7
FOLLOWERS_FROM_VERSION = 11
LEADERS_FROM_VERSION = 16
FIRST_WHOLE_FROM_VERSION = 3
READ_COMMITTED = 1
UNKNOWN = -1

RESPONSE_BYTES_MAX = 55 * 1024 * 1024
"""Maximum size of a response, whatever the client allows: a broker's ``fetch.max.bytes``."""

_LEADER_ERRORS = (NotLeaderOrFollowerError.code, FencedLeaderEpochError.code)


class _Reading:
    """A request in progress."""

    def __init__(
        self,
        cluster: ClusterState,
        call: Call,
        request: FetchRequest,
        wanted: Mapping[TopicPartition, FetchPartition],
        topic_ids: Mapping[TopicPartition, bytes],
        session: FetchSession | None,
    ) -> None:
        self._cluster = cluster
        self._call = call
        self._request = request
        self._wanted = wanted
        self._topic_ids = topic_ids
        self._session = session
        self._is_full = session is None or request.session_epoch == INITIAL_EPOCH
        self._unknown = _unknown_topics(cluster, call, request)

    def run(self) -> None:
        """Respond at once, or when the purgatory completes the operation."""
        now_ms = self._cluster.now_ms
        self._cluster.purgatory.complete_or_watch(
            DelayedOperation(self._try_complete, self._respond),
            list(self._wanted),
            deadline_ms=now_ms + max(0, self._request.max_wait_ms),
            now_ms=now_ms,
        )

    def _try_complete(self, now_ms: int) -> bool:
        data = self._read()
        size_bytes = sum(len(each.records or b"") for each in data.values())
        has_news = any(
            each.error_code or each.diverging_epoch.epoch >= 0 or each.preferred_read_replica >= 0
            for each in data.values()
        )
        is_enough = size_bytes >= self._request.min_bytes
        if not (is_enough or has_news or self._unknown or not self._wanted
                or self._request.max_wait_ms <= 0):  # fmt: skip
            return False
        self._send(data, now_ms)
        return True

    def _respond(self, now_ms: int) -> None:
        self._send(self._read(), now_ms)

    def _read(self) -> dict[TopicPartition, PartitionData]:
        """Read the partitions in turn until the response is full."""
        left_bytes = min(self._request.max_bytes, RESPONSE_BYTES_MAX)
        is_first = self._call.version >= FIRST_WHOLE_FROM_VERSION
        found: dict[TopicPartition, PartitionData] = {}
        for name, requested in self._wanted.items():
            data = self._read_one(name, requested, left_bytes, is_first=is_first)
            size_bytes = len(data.records or b"")
            left_bytes = max(0, left_bytes - size_bytes)
            is_first = is_first and not size_bytes
            found[name] = data
        return found

    def _read_one(
        self, name: TopicPartition, requested: FetchPartition, left_bytes: int, *, is_first: bool
    ) -> PartitionData:
        topic = self._cluster.topics.get(name.topic)
        if topic is not None and self._topic_ids.get(name, topic.topic_id) != topic.topic_id:
            return _refused(name, InconsistentTopicIdError.code)
        may_follow = self._call.version >= FOLLOWERS_FROM_VERSION
        partition = led_partition(
            self._cluster,
            self._call.broker_id,
            name.topic,
            name.partition,
            leader_epoch=requested.current_leader_epoch,
            also_follower=may_follow,
        )
        if isinstance(partition, type):
            return _refused(name, partition.code)
        response = self._described(partition)
        nearest = self._nearest_replica(partition)
        diverging = _diverging(partition, requested)
        if diverging is not None:
            response.diverging_epoch = diverging
        elif nearest is not None:
            response.preferred_read_replica = nearest
        else:
            limit_bytes = min(requested.partition_max_bytes, left_bytes)
            self._fill(response, partition, requested, limit_bytes, is_first=is_first)
        return response

    def _described(self, partition: Partition) -> PartitionData:
        log = partition.log
        # A follower can only return what it has copied, whatever the leader's watermark is.
        copied = partition.replica_ends[self._call.broker_id]
        return PartitionData(
            partition_index=partition.name.partition,
            high_watermark=min(log.high_watermark, copied),
            last_stable_offset=min(log.last_stable_offset, copied),
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )

    def _fill(
        self,
        response: PartitionData,
        partition: Partition,
        requested: FetchPartition,
        max_bytes: int,
        *,
        is_first: bool,
    ) -> None:
        is_committed = self._request.isolation_level == READ_COMMITTED
        end_offset = response.last_stable_offset if is_committed else response.high_watermark
        records = partition.log.read(
            requested.fetch_offset, end_offset=end_offset, max_bytes=max_bytes, whole_first=is_first
        )
        if isinstance(records, type):
            response.error_code = records.code
            response.high_watermark = response.last_stable_offset = UNKNOWN
            response.log_start_offset = UNKNOWN
            return
        if self._call.version >= FIRST_WHOLE_FROM_VERSION and _is_cut(records):
            records = b""  # no partial first batch
        response.records = records
        if is_committed:
            response.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in partition.log.aborted_between(requested.fetch_offset, end_offset)
            ]

    def _nearest_replica(self, partition: Partition) -> int | None:
        """Return an in-sync follower in the client's rack, to read from instead (KIP-392)."""
        cluster, rack = self._cluster, self._request.rack_id
        is_leader = partition.leader_id == self._call.broker_id
        if not (cluster.has_rack_aware_reads and rack and is_leader):
            return None
        if cluster.brokers[partition.leader_id].rack == rack:
            return None
        near = (
            each
            for each in partition.isr
            if each in cluster.alive and cluster.brokers[each].rack == rack
        )
        return next(near, None)

    def _send(self, data: dict[TopicPartition, PartitionData], now_ms: int) -> None:
        session = self._session
        if session is not None:
            data = {
                name: each
                for name, each in data.items()
                if session.is_news(name, each) or self._is_full
            }
        topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
        for name, each in data.items():
            topic_id = self._topic_ids.get(name, ZERO_UUID)
            topic = topics.setdefault(
                (name.topic, topic_id), FetchableTopicResponse(topic=name.topic, topic_id=topic_id)
            )
            topic.partitions.append(each)
        response = FetchResponse(
            session_id=NO_SESSION if session is None else session.session_id,
            responses=[*topics.values(), *self._unknown],
        )
        if self._call.version >= LEADERS_FROM_VERSION:
            self._name_leaders(response)
        self._call.respond(response, now_ms)

    def _name_leaders(self, response: FetchResponse) -> None:
        """Add the current leader to errors about leadership (KIP-951)."""
        leaders: set[int] = set()
        for topic in response.responses:
            for data in topic.partitions:
                found = self._cluster.topics.get(topic.topic)
                partition = find_partition(found, data.partition_index)
                if data.error_code in _LEADER_ERRORS and partition is not None:
                    data.current_leader = LeaderIdAndEpoch(
                        leader_id=partition.leader_id, leader_epoch=partition.leader_epoch
                    )
                    leaders.add(partition.leader_id)
        response.node_endpoints = [
            NodeEndpoint(broker.id, *broker.address(self._call.session.listener), broker.rack)
            for broker in self._cluster.brokers.values()
            if broker.id in leaders
        ]


def handle(cluster: ClusterState, call: Call, request: FetchRequest) -> FetchResponse | None:
    """Find or create the session, and read."""
    sessions = cluster.brokers[call.broker_id].fetch_sessions
    named, topic_ids = _named(cluster, call, request)
    epoch = request.session_epoch
    session: FetchSession | None = None
    if call.version >= SESSIONS_FROM_VERSION and epoch != FINAL_EPOCH:
        if epoch == INITIAL_EPOCH:
            sessions.end(request.session_id)
            session = sessions.begin()
        else:
            resumed = sessions.resume(request.session_id, epoch)
            if isinstance(resumed, type):
                return refuse(cluster, request, resumed.code)
            session = resumed
    else:
        sessions.end(request.session_id)
    if session is None:
        wanted: Mapping[TopicPartition, FetchPartition] = named
    else:
        for name in _forgotten(session, call, request):
            session.forget(name)
        session.wanted.update(named)
        session.topic_ids.update(topic_ids)
        wanted, topic_ids = dict(session.wanted), dict(session.topic_ids)
    _Reading(cluster, call, request, wanted, topic_ids, session).run()
    return None


def refuse(_: ClusterState, request: FetchRequest, error_code: int) -> FetchResponse:
    """Refuse the request and every partition; before version 7 only partitions have errors."""
    return FetchResponse(
        error_code=error_code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    _refused(TopicPartition(topic.topic, each.partition), error_code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _named(
    cluster: ClusterState, call: Call, request: FetchRequest
) -> tuple[dict[TopicPartition, FetchPartition], dict[TopicPartition, bytes]]:
    """Return the requested partitions with their topic ids, without unknown ids."""
    named: dict[TopicPartition, FetchPartition] = {}
    topic_ids: dict[TopicPartition, bytes] = {}
    for topic in request.topics:
        name = _name_of(cluster, call, topic.topic, topic.topic_id)
        if name is None:
            continue
        for each in topic.partitions:
            partition = TopicPartition(name, each.partition)
            named[partition] = each
            if call.version >= IDS_FROM_VERSION:
                topic_ids[partition] = topic.topic_id
    return named, topic_ids


def _forgotten(session: FetchSession, call: Call, request: FetchRequest) -> list[TopicPartition]:
    """Return the partitions to remove from the session; by id, even if the topic was deleted."""
    if call.version < IDS_FROM_VERSION:
        return [
            TopicPartition(topic.topic, number)
            for topic in request.forgotten_topics_data
            for number in topic.partitions
        ]
    forgotten = {
        (topic.topic_id, number)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    }
    return [
        name
        for name, topic_id in session.topic_ids.items()
        if (topic_id, name.partition) in forgotten
    ]


def _name_of(cluster: ClusterState, call: Call, name: str, topic_id: bytes) -> str | None:
    if call.version < IDS_FROM_VERSION:
        return name
    topic = cluster.topic_by_id(topic_id)
    return None if topic is None else topic.name


def _unknown_topics(
    cluster: ClusterState, call: Call, request: FetchRequest
) -> list[FetchableTopicResponse]:
    if call.version < IDS_FROM_VERSION:
        return []
    return [
        FetchableTopicResponse(
            topic_id=topic.topic_id,
            partitions=[
                _refused(TopicPartition("", each.partition), UnknownTopicIdError.code)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
        if cluster.topic_by_id(topic.topic_id) is None
    ]


def _is_cut(records: bytes) -> bool:
    """Return whether the first batch is incomplete."""
    size_bytes = first_batch_size_bytes(memoryview(records))
    return size_bytes is None or size_bytes > len(records)


def _diverging(partition: Partition, requested: FetchPartition) -> EpochEndOffset | None:
    """Return where the reader's log diverges from this one, None if they agree."""
    if requested.last_fetched_epoch < 0:
        return None
    epoch, end_offset = partition.log.epoch_end(requested.last_fetched_epoch)
    if epoch < requested.last_fetched_epoch or end_offset < requested.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def _refused(name: TopicPartition, error_code: int) -> PartitionData:
    return PartitionData(
        partition_index=name.partition,
        error_code=error_code,
        high_watermark=UNKNOWN,
        last_stable_offset=UNKNOWN,
        log_start_offset=UNKNOWN,
        aborted_transactions=None,
        records=b"",
    )


HANDLER = Handler(FetchRequest, handle, refuse)
