"""Produce: the leader appends batches; with acks=all the response waits for the replicas.

Owner: the call, for its `_Production`; the module holds no state.
Source: KIP-98, KIP-467 (record errors), KIP-516 (topic ids), KIP-890 (transactions), KIP-951 (new
leaders); Java class ``ReplicaManager.appendRecords``, ``DelayedProduce``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.base import CorruptRecordError
from pykclient.errors.broker import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    InvalidRequiredAcksError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from pykclient.records.batch import RecordBatch
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.handlers.leadership import find_partition, led_partition
from pykclient.testing.fake.handlers.verification import Verification, verify
from pykclient.testing.fake.log import Refused
from pykclient.testing.fake.timers import DelayedOperation
from pykclient.testing.fake.transactions.metadata import ProducerIdentity
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.groups.group import Refusal
    from pykclient.testing.fake.state import ClusterState
    from pykclient.testing.fake.topics import Partition

ALL, NONE, LEADER = -1, 0, 1
IDS_FROM_VERSION = 13
LEADERS_FROM_VERSION = 10
NO_OFFSET = -1
_ABORTABLE_FROM_VERSION = 11


class _Waiting:
    """A partition that is not replicated up to `end_offset` yet."""

    def __init__(
        self, partition: Partition, response: PartitionProduceResponse, end_offset: int
    ) -> None:
        self.partition = partition
        self.response = response
        self.end_offset = end_offset
        self._leader_epoch = partition.leader_epoch

    def is_settled(self, min_isr: int) -> bool:
        """Return whether the outcome is known, and put it into the response."""
        if self.partition.leader_epoch != self._leader_epoch:
            self._fail(NotLeaderOrFollowerError.code)
            return True
        if self.partition.log.high_watermark < self.end_offset:
            return False
        if len(self.partition.isr) < min_isr:
            self._fail(NotEnoughReplicasAfterAppendError.code)
        return True

    def time_out(self) -> None:
        self._fail(RequestTimedOutError.code)

    def _fail(self, error_code: int) -> None:
        self.response.error_code = error_code
        self.response.base_offset = NO_OFFSET


class _Production:
    """A request in progress."""

    def __init__(self, cluster: ClusterState, call: Call, request: ProduceRequest) -> None:
        self._cluster = cluster
        self._call = call
        self._request = request
        self._waiting: list[_Waiting] = []
        self._verification = Verification.of(call.version, _ABORTABLE_FROM_VERSION)
        self._unverified = _unverified(cluster, call, request, self._verification)
        self._response = ProduceResponse(
            responses=[self._topic(topic) for topic in request.topic_data]
        )

    def run(self) -> ProduceResponse | None:
        """Respond at once, or when the purgatory completes the operation."""
        now_ms = self._cluster.now_ms
        if self._request.acks == NONE:
            # With acks=0 there is no response for an error: Kafka closes the connection instead.
            has_failed = any(p.error_code for t in self._response.responses
                             for p in t.partition_responses)  # fmt: skip
            if has_failed:
                self._call.close(now_ms)
            elif self._cluster.profile.responds_without_acks:
                return self._response
            else:
                self._call.silence(now_ms)
            return None
        if self._request.acks == LEADER or not self._waiting:
            self._name_leaders()
            return self._response
        self._cluster.purgatory.complete_or_watch(
            DelayedOperation(self._try_complete, self._expire),
            list(dict.fromkeys(each.partition.name for each in self._waiting)),
            deadline_ms=now_ms + max(0, self._request.timeout_ms),
            now_ms=now_ms,
        )
        return None

    def _topic(self, data: TopicProduceData) -> TopicProduceResponse:
        name, error_code = data.name, UnknownTopicOrPartitionError.code
        if self._call.version >= IDS_FROM_VERSION:
            name = _topic_name(self._cluster, self._call, data)
            error_code = UnknownTopicIdError.code
        responses = [
            self._partition(name, each)
            if name in self._cluster.topics
            else _refused(each, error_code)
            for each in data.partition_data
        ]
        return TopicProduceResponse(
            name=data.name, topic_id=data.topic_id, partition_responses=responses
        )

    def _partition(self, topic: str, data: PartitionProduceData) -> PartitionProduceResponse:
        cluster = self._cluster
        partition = led_partition(cluster, self._call.broker_id, topic, data.index)
        if isinstance(partition, type):
            return _refused(data, partition.code)
        if self._request.acks == ALL and len(partition.isr) < self._min_isr(topic):
            return _refused(data, NotEnoughReplicasError.code)
        refusal = self._unverified.get(partition.name)
        if refusal is not None:
            return _refused(data, refusal.code)
        appended = partition.log.append(
            bytes(data.records or b""),
            leader_epoch=partition.leader_epoch,
            now_ms=cluster.wall_ms,
            begins_at_zero=partition.name in self._unverified
            and self._verification is Verification.ADD,
        )
        if isinstance(appended, Refused):
            return _refused(data, appended.error.code, appended.reason)
        response = PartitionProduceResponse(
            index=data.index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.log_append_time_ms,
            log_start_offset=partition.log.log_start_offset,
        )
        self._waiting.append(_Waiting(partition, response, partition.log.log_end_offset))
        if not appended.is_duplicate:
            cluster.replication.on_append(partition, cluster.now_ms)
        return response

    def _min_isr(self, topic: str) -> int:
        """Return the in-sync replicas needed for acks=all; 0 if the topic was deleted."""
        found = self._cluster.topics.get(topic)
        if found is None:
            return 0
        if found.min_insync_replicas is None:
            return self._cluster.min_insync_replicas
        return found.min_insync_replicas

    def _try_complete(self, now_ms: int) -> bool:
        self._waiting = [
            each
            for each in self._waiting
            if not each.is_settled(self._min_isr(each.partition.name.topic))
        ]
        if self._waiting:
            return False
        self._respond(now_ms)
        return True

    def _expire(self, now_ms: int) -> None:
        for each in self._waiting:
            each.time_out()
        self._respond(now_ms)

    def _respond(self, now_ms: int) -> None:
        self._name_leaders()
        self._call.respond(self._response, now_ms)

    def _name_leaders(self) -> None:
        """Add the new leader to NOT_LEADER_OR_FOLLOWER errors (KIP-951)."""
        if self._call.version < LEADERS_FROM_VERSION:
            return
        leaders: set[int] = set()
        for topic in self._response.responses:
            found = self._cluster.topics.get(topic.name) or self._cluster.topic_by_id(
                topic.topic_id
            )
            for response in topic.partition_responses:
                partition = find_partition(found, response.index)
                if response.error_code == NotLeaderOrFollowerError.code and partition is not None:
                    response.current_leader = LeaderIdAndEpoch(
                        leader_id=partition.leader_id, leader_epoch=partition.leader_epoch
                    )
                    leaders.add(partition.leader_id)
        self._response.node_endpoints = [
            NodeEndpoint(broker.id, *broker.address(self._call.session.listener), broker.rack)
            for broker in self._cluster.brokers.values()
            if broker.id in leaders
        ]


def handle(cluster: ClusterState, call: Call, request: ProduceRequest) -> ProduceResponse | None:
    """Append, and respond when `acks` is satisfied."""
    is_transactional = any(True for _ in _transactional_batches(cluster, call, request))
    if is_transactional and request.transactional_id is None:
        return refuse(cluster, request, TransactionalIdAuthorizationFailedError.code)
    if request.acks not in (ALL, NONE, LEADER):
        return refuse(cluster, request, InvalidRequiredAcksError.code)
    return _Production(cluster, call, request).run()


def refuse(_: ClusterState, request: ProduceRequest, error_code: int) -> ProduceResponse:
    """Refuse every partition."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_refused(each, error_code) for each in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def _topic_name(cluster: ClusterState, call: Call, data: TopicProduceData) -> str:
    """Return the topic's name; empty for an unknown id."""
    if call.version < IDS_FROM_VERSION:
        return data.name
    topic = cluster.topic_by_id(data.topic_id)
    return "" if topic is None else topic.name


def _transactional_batches(
    cluster: ClusterState, call: Call, request: ProduceRequest
) -> Iterator[tuple[TopicPartition, RecordBatch]]:
    """Yield transactional batches; damaged ones are skipped and refused when appended."""
    for topic in request.topic_data:
        name = _topic_name(cluster, call, topic)
        for data in topic.partition_data:
            records = memoryview(bytes(data.records or b""))
            try:
                batch = RecordBatch(records, topic=name, partition=data.index, check_crcs=False)
            except CorruptRecordError:
                continue
            if batch.is_transactional and batch.producer_id >= 0:
                yield TopicPartition(name, data.index), batch


def _unverified(
    cluster: ClusterState, call: Call, request: ProduceRequest, verification: Verification
) -> dict[TopicPartition, Refusal | None]:
    """Verify partitions that must be in the transaction first, and return their errors (KIP-890).

    None means the partition is in the transaction. No check is needed if the producer has written
    to it before, or if a later epoch has, which the partition itself refuses.
    """
    new: dict[TopicPartition, None] = {}
    producer: ProducerIdentity | None = None
    for name, batch in _transactional_batches(cluster, call, request):
        partition = led_partition(cluster, call.broker_id, *name)
        batch_producer = ProducerIdentity(batch.producer_id, batch.producer_epoch)
        if isinstance(partition, type):
            continue
        producers = partition.log.producers
        is_decided = producers.has_open_transaction(*batch_producer)
        if not (is_decided or producers.has_later_epoch(*batch_producer)):
            producer, new[name] = batch_producer, None
    if producer is None:
        return {}
    found = verify(
        cluster, request.transactional_id or "", producer, new, verification=verification
    )
    return {name: _for_producers(refusal, verification) for name, refusal in found.items()}


def _for_producers(refusal: Refusal | None, verification: Verification) -> Refusal | None:
    """Translate an error for producers: old ones do not retry a coordinator's errors."""
    is_late = refusal is ConcurrentTransactionsError and verification is not Verification.ADD
    is_passing = is_late or refusal is CoordinatorNotAvailableError
    return NotEnoughReplicasError if is_passing else refusal


def _refused(
    data: PartitionProduceData, error_code: int, reason: str | None = None
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=data.index,
        error_code=error_code,
        base_offset=NO_OFFSET,
        log_append_time_ms=-1,
        log_start_offset=-1,
        error_message=reason,
    )


# Kafka 4 announces version 0 without supporting it, because old librdkafka needs it (KAFKA-18659).
HANDLER = Handler(ProduceRequest, handle, refuse, versions=(0, ProduceRequest.max_version))
