"""A `ScriptedProducer` with the bulk methods; where a real front-end waits, it makes turns."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors import BufferExhaustedError, KafkaTimeoutError
from pykclient.producer.accumulator.append import Blocked
from pykclient.producer.accumulator.buffer_pool import MemoryWaiter
from pykclient.producer.bulk.producer import BulkProducer
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.records.batch import iterate_batches
from tests.producer.scripted_producer import ScriptedProducer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.accel import Delivery
    from pykclient.accel.abc import RecordColumns
    from pykclient.producer.record import RecordMetadata, SerializedRecord
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


class ScriptedBulkProducer(ScriptedProducer, BulkProducer):
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

    def _append(self, record: SerializedRecord) -> Delivery[RecordMetadata]:
        outcome = self._accumulator.append(record)
        if isinstance(outcome, Blocked):
            raise BufferExhaustedError(str(outcome.need))
        return outcome

    def _await_topic(self, topic: str, partition: int | None, deadline_ms: int) -> None:
        if self.makes_turns:
            self.know(topic)
        if not self._has_partition(topic, partition):
            raise KafkaTimeoutError(f"no {topic}-{partition}")

    @contextmanager
    def _memory(self, topic: str, size_bytes: int, deadline_ms: int) -> Iterator[MemoryWaiter]:
        waiter = MemoryWaiter(size_bytes, lambda: None)
        try:
            self._pool.wait_for(waiter)
            self._accumulator.want_memory()
            for _ in range(WAITING_TURNS_MAX if self.makes_turns else 0):
                if waiter.is_granted:
                    break
                self.turn(after_ms=1)
            if not waiter.is_granted:
                raise BufferExhaustedError("no memory")
            self._check_usable()
            yield waiter
        finally:
            self._pool.give_up(waiter)
