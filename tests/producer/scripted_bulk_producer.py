"""A `ScriptedProducer` with a broker that keeps logs; where a producer waits, it makes turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.records.batch import iterate_batches
from tests.producer.scripted_producer import ScriptedProducer
from tests.producer.sender_bench import NoWaiting

if TYPE_CHECKING:
    from pykclient.accel.abc import RecordColumns
    from pykclient.network.gate import Gate
    from pykclient.protocol.message import Message
    from pykclient.protocol.messages.metadata import MetadataResponseTopic
    from pykclient.protocol.messages.produce import PartitionProduceData, PartitionProduceResponse

__all__ = ["ScriptedBulkProducer", "Written"]

WAITING_TURNS_MAX = 50
MESSAGE_TOO_LARGE = 10


class Written(NamedTuple):
    """A batch that the broker took."""

    topic: str
    partition: int
    columns: RecordColumns


class TurningWaiting(NoWaiting):
    """Makes turns until the gate is open; if it does not open, the whole time has passed."""

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
    """Everything is done in the test's own thread, and time passes only when it says so.

    The broker keeps the values of each topic and partition in `logs`, refuses batches beyond
    `batch_bytes_max` as too large, and answers `refusals` for their partitions. With `makes_turns`
    False it says nothing while somebody waits, and each wait runs out.
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

    def _answer(self, message: Message) -> Message | None:
        answer = super()._answer(message)
        if isinstance(message, ProduceRequest):
            assert isinstance(answer, ProduceResponse)
            for asked, topic in zip(message.topic_data, answer.responses, strict=True):
                name = asked.topic_id.rstrip(b"\0").decode()
                for data, partition in zip(
                    asked.partition_data, topic.partition_responses, strict=True
                ):
                    self._write(name, data, partition)
        return answer

    def _topic(self, name: str) -> MetadataResponseTopic:
        topic = super()._topic(name)
        if not topic.error_code:
            topic.topic_id = name.encode().ljust(16, b"\0")
        return topic

    def _write(
        self, topic: str, data: PartitionProduceData, answer: PartitionProduceResponse
    ) -> None:
        assert data.records is not None
        log = self.logs.setdefault((topic, data.index), [])
        answer.base_offset = -1
        if data.index in self.refusals:
            answer.error_code = self.refusals[data.index]
        elif len(data.records) > self.batch_bytes_max:
            answer.error_code = MESSAGE_TOO_LARGE
        else:
            answer.base_offset = len(log)
            whole = memoryview(bytes(data.records))
            for batch in iterate_batches(whole, topic=topic, partition=data.index):
                columns = batch.records()
                log += list(columns.values)
                self.written.append(Written(topic, data.index, columns))
