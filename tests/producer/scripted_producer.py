"""A whole producer over a scripted port: real managers and network client, no socket, no thread.

The test drives it turn by turn; one broker responds to every request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pykclient.accel import SendCore
from pykclient.network.live_client import LiveClient, describe_client
from pykclient.producer.bulk.sending import BulkSender
from pykclient.producer.bulk.table import BulkInput
from pykclient.producer.config import ProducerConfig
from pykclient.producer.core import ProducerCore
from pykclient.producer.record import RecordMetadata
from pykclient.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pykclient.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pykclient.records.batch import iterate_batches
from tests.network.scripted_port import ScriptedPort
from tests.producer.sender_bench import NoWaiting

if TYPE_CHECKING:
    from pykclient.accel import Delivery, Gate
    from pykclient.accel.abc import RecordColumns
    from pykclient.producer.bulk.delivery import RecordMetadataRange
    from pykclient.protocol.message import Message
    from pykclient.protocol.messages.produce import PartitionProduceData

WALL_CLOCK_NS = 1_700_000_000_123_456_789
TOPIC_ID = bytes(range(16))


class ScriptedProducer(SendCore[RecordMetadata], LiveClient):
    """A front end that never waits: instead of blocking it raises `BufferExhaustedError`.

    The broker has the topics of `partition_counts`. Other topics get their `topic_errors`, by
    default 3 (UNKNOWN_TOPIC_OR_PARTITION).
    """

    waiting: NoWaiting = NoWaiting()

    def __init__(self, **settings: object) -> None:
        self.clock_ms = 1_000
        self.port = ScriptedPort()
        self.partition_counts: dict[str, int] = {"t": 3}
        self.topic_errors: dict[str, int] = {}
        self.produced: list[ProduceRequest] = []
        self.produce_error = 0
        self.metadata_error = 0
        settings.setdefault("bootstrap_servers", "localhost:9092")
        self.core = ProducerCore(
            ProducerConfig.from_settings(settings),
            port=self.port,
            waiting=self.waiting,
            clock_ms=lambda: self.clock_ms,
            clock_ns=lambda: self.clock_ms * 1_000_000,
            wall_clock_ns=lambda: WALL_CLOCK_NS,
        )
        super().__init__(self.core.send_slowly, lambda: WALL_CLOCK_NS, self.core.topics)
        self._bulk = BulkSender(self.core)
        self.send_arrow = self._bulk.send_arrow

    def send_batch(
        self, topic: str, values: Any, keys: Any = None, **rest: Any
    ) -> Delivery[list[RecordMetadataRange]]:
        return self._bulk.send_batch(BulkInput(topic, values, keys, **rest))

    def __repr__(self) -> str:
        return describe_client(self, self.core.config, self.core.state)

    def turn(self, times: int = 1, *, after_ms: int = 0) -> None:
        """Advance the clock and make turns; the broker responds in each."""
        self.clock_ms += after_ms
        for _ in range(times):
            self.core.engine.step(self.clock_ms)
            self.serve()
            self.port.wait(0)
            self.core.engine.complete(self.clock_ms)
            self.run_user_calls()

    def run_user_calls(self) -> None:
        while self.core.engine.user_calls:
            call = self.core.engine.user_calls.popleft()
            call.function(*call.args)
            call.on_done(None)

    def serve(self) -> None:
        """Respond to all requests received so far."""
        for peer in self.port.peers:
            if peer.is_closed() or peer.is_ended:
                continue
            if not peer.is_accepted:
                peer.accept()
            while peer.requests:
                response = self._response_to(peer.requests[0].message)
                if response is None:
                    peer.respond_versions()
                else:
                    peer.respond(response)

    def await_metadata(self, topic: str) -> None:
        """Request the metadata of a topic, and receive the response."""
        self.core.want_topic(topic)
        self.turn(8, after_ms=1)
        self.turn(8, after_ms=2_000)

    def _response_to(self, message: Message) -> Message | None:
        if isinstance(message, MetadataRequest):
            names = [topic.name for topic in message.topics or () if topic.name is not None]
            return MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=1, host="localhost", port=9092)],
                topics=[self._topic(name) for name in names],
                error_code=self.metadata_error,
            )
        if isinstance(message, InitProducerIdRequest):
            return InitProducerIdResponse(producer_id=7)
        if isinstance(message, ProduceRequest):
            self.produced.append(message)
            return ProduceResponse(
                responses=[
                    TopicProduceResponse(
                        name="",
                        topic_id=topic.topic_id,
                        partition_responses=[
                            PartitionProduceResponse(
                                index=data.index, base_offset=0, error_code=self.produce_error
                            )
                            for data in topic.partition_data
                        ],
                    )
                    for topic in message.topic_data
                ]
            )
        return None

    def _topic(self, name: str) -> MetadataResponseTopic:
        count = self.partition_counts.get(name)
        if count is None:
            return MetadataResponseTopic(name=name, error_code=self.topic_errors.get(name, 3))
        return MetadataResponseTopic(
            name=name,
            topic_id=TOPIC_ID,
            partitions=[
                MetadataResponsePartition(partition_index=index, leader_id=1, leader_epoch=1)
                for index in range(count)
            ],
        )


WAITING_TURNS_MAX = 50
MESSAGE_TOO_LARGE = 10


class Written(NamedTuple):
    """A batch that the broker accepted."""

    topic: str
    partition: int
    columns: RecordColumns


class TurningWaiting(NoWaiting):
    """A wait that makes turns until the gate opens; otherwise it uses its whole time."""

    producer: ScriptedBulkProducer

    def is_current(self) -> bool:
        return False

    def await_gate(self, gate: Gate, timeout_s: float, what: str) -> bool:
        for _ in range(WAITING_TURNS_MAX if self.producer.makes_turns else 0):
            if gate.wait(0):
                return True
            self.producer.turn(after_ms=1)
        self.producer.clock_ms += round(timeout_s * 1000)
        return gate.wait(0)


class ScriptedBulkProducer(ScriptedProducer):
    """A bulk producer in the test's own thread; time passes only when the test advances the clock.

    The broker stores values by topic and partition in `logs`. It rejects batches larger than
    `batch_bytes_max`, and responds with the errors in `refusals` for their partitions. If
    `makes_turns` is False, nothing is sent while a call waits, and each wait times out.
    """

    makes_turns = True

    def __init__(self, **settings: object) -> None:
        self.logs: dict[tuple[str, int], list[bytes | None]] = {}
        self.written: list[Written] = []
        self.batch_bytes_max = 10**9
        self.refusals: dict[int, int] = {}
        self.waiting = TurningWaiting()
        self.waiting.producer = self
        super().__init__(**settings)

    def _response_to(self, message: Message) -> Message | None:
        response = super()._response_to(message)
        if isinstance(message, ProduceRequest):
            assert isinstance(response, ProduceResponse)
            for topic_data, topic in zip(message.topic_data, response.responses, strict=True):
                name = topic_data.topic_id.rstrip(b"\0").decode()
                for data, partition in zip(
                    topic_data.partition_data, topic.partition_responses, strict=True
                ):
                    self._write(name, data, partition)
        return response

    def _topic(self, name: str) -> MetadataResponseTopic:
        topic = super()._topic(name)
        if not topic.error_code:
            topic.topic_id = name.encode().ljust(16, b"\0")
        return topic

    def _write(
        self, topic: str, data: PartitionProduceData, response: PartitionProduceResponse
    ) -> None:
        assert data.records is not None
        log = self.logs.setdefault((topic, data.index), [])
        response.base_offset = -1
        if data.index in self.refusals:
            response.error_code = self.refusals[data.index]
        elif len(data.records) > self.batch_bytes_max:
            response.error_code = MESSAGE_TOO_LARGE
        else:
            response.base_offset = len(log)
            whole = memoryview(bytes(data.records))
            for batch in iterate_batches(whole, topic=topic, partition=data.index):
                columns = batch.records()
                log += list(columns.values)
                self.written.append(Written(topic, data.index, columns))
