"""A sender with its accumulator and idempotence, driven by numbers and scripted responses.

It has no clock, thread or socket. `poll` makes one turn at the bench's time; the requests it
creates stay in `requests` until the test responds to them or fails them.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any

from pykclient.errors import DisconnectedError, KafkaError
from pykclient.network.broker.client import NetworkClient
from pykclient.network.broker.handshake import FinalizedFeatures
from pykclient.network.cluster.cluster import Cluster, PartitionInfo, TopicInfo
from pykclient.network.cluster.metadata import Metadata
from pykclient.network.coordinators import Coordinators
from pykclient.network.manager import NEVER_MS
from pykclient.network.retry import Backoff
from pykclient.producer.accumulator.accumulator import RecordAccumulator
from pykclient.producer.accumulator.append import Blocked
from pykclient.producer.accumulator.buffer_pool import BufferPool
from pykclient.producer.config import ProducerConfig
from pykclient.producer.failure_reports import FailureReports
from pykclient.producer.record import RecordMetadata, SerializedRecord
from pykclient.producer.sender.idempotence import Idempotence
from pykclient.producer.sender.sender import Sender
from pykclient.producer.sender.transactions import Transactions
from pykclient.protocol.messages.init_producer_id import InitProducerIdResponse
from pykclient.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pykclient.records.batch import iterate_batches
from pykclient.records.builder import batch_size_upper_bound
from pykclient.types import Node, TopicPartition
from tests.network.responding import respond_checked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.accel import Delivery, Gate, TopicAppenders
    from pykclient.accel.abc import OnDelivery
    from pykclient.errors import BrokerError, DecodeError
    from pykclient.network.manager import Request, UserCall
    from pykclient.producer.accumulator.batch import ProducerBatch
    from pykclient.producer.delivery import Awaited
    from pykclient.records.batch import RecordBatch

TOPIC = "t"
TOPIC_ID = bytes(range(16))
PRODUCER_ID = 7


class NoWaiting:
    """A `Waiting` whose time is always up, called from the test's thread."""

    def is_current(self) -> bool:
        return True

    def failures(self) -> tuple[str, KafkaError | None]:
        return "", None

    def check_may_wait(self, what: str) -> None:
        pass

    def await_gate(self, gate: Gate, timeout_s: float, what: str) -> bool:
        return gate.wait(0)

    def wait(self, result: Awaited, index: int, timeout: float | None) -> bool:
        return result.is_done(index)


class ScriptedClient(NetworkClient):
    """A network client whose nodes are ready unless the test changes that."""

    def __init__(self) -> None:
        self.unready: set[int] = set()
        self.connected: list[int] = []
        self.failures = ""
        self.errors: dict[int, KafkaError] = {}
        self.features = FinalizedFeatures()

    def refusal(self) -> KafkaError | None:
        return None

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        return node_id not in self.unready

    def connect(self, node_id: int, now_ms: int) -> None:
        self.connected.append(node_id)

    def next_ready_ms(self, node_id: int, now_ms: int) -> int:
        return now_ms + 50

    def is_unavailable(self, node_id: int, now_ms: int) -> bool:
        return node_id in self.unready

    def suspect_ms(self, node_id: int) -> int:
        return NEVER_MS

    def describe_failures(self) -> str:
        return self.failures

    def last_error(self, node_id: int) -> KafkaError | None:
        return self.errors.get(node_id)


class ScriptedMetadata(Metadata):
    """Metadata that sends nothing: the test sets its cluster, and it counts the requests."""

    added: list[str]
    update_count = 0

    def take_over(self, cluster: Cluster) -> None:
        """Replace the cluster, as a response does."""
        self._swap(cluster)

    def add_topic(self, topic: str, now_ms: int) -> None:
        self.added.append(topic)

    def request_update(self) -> None:
        self.update_count += 1


class SenderBench:
    """The bench described in the module. `leaders` are node ids by partition, None for no leader.

    All other settings are those of a producer; `linger_ms` is 0 by default.
    """

    next_poll_ms = 0

    def __init__(
        self,
        *,
        leaders: Iterable[int | None] = (1,),
        has_producer_id: bool = True,
        seed: int = 1,
        **settings: object,
    ) -> None:
        config = ProducerConfig.from_settings(
            {"bootstrap_servers": "localhost:9092", "linger_ms": 0, "request_timeout_ms": 100}
            | settings
        )
        self.now_ms = 1_000
        self.wakeup_count = self.failed_count = 0
        self.client = ScriptedClient()
        self.metadata = ScriptedMetadata(config, allow_auto_topic_creation=True)
        self.metadata.added = []
        self.user_calls: deque[UserCall] = deque()
        self.requests: list[Request] = []
        self.fast_topics: dict[object, TopicAppenders[RecordMetadata]] = {}
        self.pool = BufferPool(config.buffer_memory)
        self.reports = FailureReports("", lambda: self.now_ms)
        self.random = Random(seed)
        self.accumulator = RecordAccumulator(
            config,
            self.pool,
            reports=self.reports,
            waiting=NoWaiting(),
            clock_ms=lambda: self.now_ms,
            wakeup=self._on_wakeup,
            random=self.random,
            fast_topics=self.fast_topics,
        )
        backoff = Backoff(100, 1_000, jitter=0.0)
        self._make_sequences(config, backoff)
        self.metadata.add_listener(self.accumulator.on_cluster)
        self.sender = Sender(
            config,
            self.accumulator,
            client=self.client,
            reports=self.reports,
            metadata=self.metadata,
            idempotence=self.idempotence,
            backoff=backoff,
            user_calls=self.user_calls,
            on_failed=self._on_failed,
            transactions=self.transactions,
        )
        self._epoch = 0
        self.lead(*leaders)
        if self.idempotence is not None and has_producer_id and self.transactions is None:
            self.give_producer_id()

    def _make_sequences(self, config: ProducerConfig, backoff: Backoff) -> None:
        self.idempotence: Idempotence | None = None
        self.transactions: Transactions | None = None
        self.coordinators = Coordinators(self.metadata, self.client, retry_backoff=backoff)
        if config.transactional_id is not None:
            self.transactions = Transactions(
                config,
                self.accumulator,
                client=self.client,
                coordinators=self.coordinators,
                backoff=backoff,
                withdraw=lambda error, now_ms: self.sender.withdraw_unsent(error, now_ms),
                on_fatal=lambda error, now_ms: self.sender.fail(error, now_ms),
            )
            self.idempotence = self.transactions.sequences
        elif config.enable_idempotence:
            self.idempotence = Idempotence(
                in_flight_max=config.max_in_flight_requests_per_connection,
                backoff=backoff,
                on_assigned=self.accumulator.look_at_all,
                on_failed=lambda error, now_ms: self.sender.fail(error, now_ms),
            )
        if self.idempotence is not None:
            self.metadata.add_listener(self.idempotence.on_cluster)

    # The cluster.

    def lead(
        self,
        *leaders: int | None,
        topics: Iterable[str] = (TOPIC,),
        topic_id: bytes = TOPIC_ID,
    ) -> None:
        """Make these nodes lead the partitions of each topic."""
        self._epoch += 1
        infos = [
            TopicInfo(
                topic,
                topic_id,
                False,
                tuple(
                    PartitionInfo(topic, index, leader, self._epoch)
                    for index, leader in enumerate(leaders)
                ),
            )
            for topic in topics
        ]
        self.metadata.take_over(Cluster(version=self._epoch, nodes=_nodes(leaders), topics=infos))

    def forget_topic(self, error: BrokerError | None = None) -> None:
        """Remove the topic from the cluster."""
        errors = {} if error is None else {TOPIC: error}
        nodes = self.metadata.cluster.nodes.values()
        self.metadata.take_over(Cluster(version=self._epoch, nodes=nodes, topic_errors=errors))

    def give_producer_id(self) -> None:
        """Respond to the pending request for a producer id."""
        assert self.idempotence is not None
        (request,) = self.idempotence.poll(self.now_ms).requests
        request.on_response(InitProducerIdResponse(producer_id=PRODUCER_ID), self.now_ms)

    # Sending.

    def append(
        self,
        value: bytes = b"v",
        *,
        partition: int | None = 0,
        key: bytes | None = None,
        on_delivery: OnDelivery[RecordMetadata] | None = None,
    ) -> Delivery[RecordMetadata] | Blocked:
        """Try to append a record."""
        return self.accumulator.append(
            SerializedRecord(
                TOPIC,
                value,
                key,
                partition,
                5_000,
                (),
                on_delivery,
                batch_size_upper_bound(key, value),
            )
        )

    def send(self, value: bytes = b"v", **fields: Any) -> Delivery[RecordMetadata]:
        """Append a record, which must succeed."""
        delivery = self.append(value, **fields)
        assert not isinstance(delivery, Blocked)
        return delivery

    def send_batch(self, value: bytes = b"v", *, partition: int = 0) -> Delivery[RecordMetadata]:
        """Send one record in a batch and a request of its own."""
        delivery = self.send(value, partition=partition)
        self.poll()
        return delivery

    def poll(self, after_ms: int = 0) -> list[Request]:
        """Advance the clock, make one turn, and return the requests it created."""
        self.now_ms += after_ms
        if self.transactions is not None:
            managers = (self.sender, self.transactions, self.coordinators)
            results = [manager.poll(self.now_ms) for manager in managers]
            self.next_poll_ms = min(result.next_poll_ms for result in results)
            requests = [request for result in results for request in result.requests]
            self.requests.extend(requests)
            return requests
        if self.idempotence is not None:
            self.idempotence.poll(self.now_ms)
        result = self.sender.poll(self.now_ms)
        self.next_poll_ms = result.next_poll_ms
        self.requests.extend(result.requests)
        return list(result.requests)

    def drain(self, node_id: int = 1, size_bytes_max: int = 10**6) -> list[ProducerBatch]:
        """Drain the ready batches of a node, bypassing the sender."""
        self.accumulator.look(self.now_ms)
        return self.accumulator.drain(
            node_id, self.now_ms, size_bytes_max=size_bytes_max, may_send=lambda _: True
        )

    # Responding.

    def respond(self, request: Request, error_code: int = 0, base_offset: int = 100) -> None:
        """Respond to all partitions of a request with the same result."""
        self.respond_to_each(
            request,
            {
                partition: PartitionProduceResponse(
                    index=partition.partition,
                    error_code=error_code,
                    base_offset=-1 if error_code else base_offset,
                )
                for partition in batches_of(request)
            },
        )

    def respond_to_each(
        self, request: Request, responses: dict[TopicPartition, PartitionProduceResponse]
    ) -> None:
        """Respond to each partition of a request."""
        assert isinstance(request.message, ProduceRequest)
        (topic_id,) = {topic.topic_id for topic in request.message.topic_data}
        assert self.respond_with(request, list(responses.values()), topic_id) is None

    def respond_with(
        self,
        request: Request,
        responses: list[PartitionProduceResponse],
        topic_id: bytes = TOPIC_ID,
    ) -> DecodeError | None:
        """Respond with what may not fit the request; return the contradiction, or None."""
        self.requests.remove(request)
        topic = TopicProduceResponse(topic_id=topic_id, partition_responses=responses)
        return respond_checked(request, ProduceResponse(responses=[topic]), self.now_ms)

    def lose(self, request: Request, error: KafkaError | None = None) -> None:
        """End a request without a response."""
        self.requests.remove(request)
        request.on_failure(error or DisconnectedError("lost"), self.now_ms)

    def run_user_calls(self) -> None:
        """Run the pending calls of user code, as a driver does."""
        while self.user_calls:
            call = self.user_calls.popleft()
            call.function(*call.args)
            call.on_done(None)

    def _on_wakeup(self) -> None:
        self.wakeup_count += 1

    def _on_failed(self) -> None:
        self.failed_count += 1


def batches_of(request: Request) -> dict[TopicPartition, RecordBatch]:
    """Return the batches that a Produce request carries, by partition."""
    message = request.message
    assert isinstance(message, ProduceRequest)
    batches = {}
    for topic in message.topic_data:
        for data in topic.partition_data:
            assert data.records is not None
            (batch,) = iterate_batches(
                memoryview(bytes(data.records)), topic=topic.name, partition=data.index
            )
            batches[TopicPartition(topic.name, data.index)] = batch
    return batches


def values_of(request: Request) -> list[bytes | None]:
    """Return the values of all records that a Produce request carries, in order."""
    return [value for batch in batches_of(request).values() for value in batch.records().values]


def _nodes(leaders: Iterable[int | None]) -> list[Node]:
    ids = {leader for leader in leaders if leader is not None}
    return [Node(node_id, "localhost", 9_000 + node_id) for node_id in sorted(ids)]
