"""An interrupt at each place of a producer's call, one after the other, leaves it whole."""

from __future__ import annotations

import dis
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pykclient
from pykclient import Producer
from pykclient.errors import UsageError
from pykclient.testing import FakeKafka
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

    from _typeshed import TraceFunction

    from pykclient.accel import Delivery
    from pykclient.producer.record import RecordMetadata

TIMEOUT_S = 30.0
PLACES_MAX = 5_000
ROOT = str(Path(pykclient.__file__).parent)
LOOKS_AFTER = {"CALL", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD", "CALL_KW"}


class Injector:
    """Calls `handler` in the n-th place of the client's code at which Python would call one.

    That is after a call into C, at a function's beginning and at a loop's end. Places in
    destructors are left out, which swallow what is raised in them.
    """

    def __init__(self, number: int, handler: Callable[[], object]) -> None:
        self._left = number
        self._handler = handler
        self._codes: dict[CodeType, bytes] = {}
        self._last: dict[FrameType, str] = {}
        self.has_called = False

    def on_call(self, frame: FrameType, event: str, argument: object) -> TraceFunction | None:
        code = frame.f_code
        if not code.co_filename.startswith(ROOT) or code.co_name == "__del__":
            return None
        self._last[frame] = "RESUME"
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._on_event

    def _on_event(self, frame: FrameType, event: str, argument: object) -> TraceFunction:
        if event == "return":
            self._last.pop(frame, None)
            if frame.f_back is not None:
                self._last[frame.f_back] = ""  # at a return it does not look
        elif event == "opcode":
            last = self._last.get(frame, "")
            code = self._codes.setdefault(frame.f_code, frame.f_code.co_code)
            self._last[frame] = dis.opname[code[frame.f_lasti]]
            if last in LOOKS_AFTER:
                self._left -= 1
                if self._left == -1:
                    self.has_called = True
                    self._handler()
        return self._on_event


def interrupt() -> None:
    raise KeyboardInterrupt


def interrupted_at(
    number: int, function: Callable[[], object], handler: Callable[[], object] = interrupt
) -> bool:
    """Call a function, and the handler at the place; return whether it has come so far."""
    injector = Injector(number, handler)
    previous = sys.gettrace()
    try:
        sys.settrace(injector.on_call)
        function()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(previous)
    return injector.has_called


@pytest.fixture
def fake() -> Iterator[FakeKafka]:
    with FakeKafka() as fake:
        with fake.control() as cluster:
            cluster.create_topic("t", 1)
        yield fake


def values_in(fake: FakeKafka) -> list[int]:
    """Return the numbers in the log, in order."""
    with fake.control() as cluster:
        batches = cluster.partition(TopicPartition("t", 0)).log.batches()
        return [int(value or b"") for batch in batches for value in batch.records().values]


class Numbers:
    """Sends one number after the other, and one again of which it is not known to be accepted."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.accepted = 0
        self.last: Delivery[RecordMetadata] | None = None

    def send(self, padding: int = 0) -> None:
        value = b"%0*d" % (padding, self.accepted)
        self.last = self.producer.send("t", value, partition=0)
        self.accepted += 1

    def send_new_batch(self) -> None:
        self.send(250)  # the open batch has no room for it, and this one none for another

    def send_rows(self) -> None:
        self.producer.send_batch("t", [b"%d" % self.accepted], partition=0)
        self.accepted += 1

    def flush(self) -> None:
        self.send()
        self.producer.flush(TIMEOUT_S)

    def result(self) -> None:
        self.send()
        assert self.last is not None
        self.last.result(TIMEOUT_S)


def check(producer: Producer) -> None:
    accumulator = producer._core.accumulator
    topic = accumulator._topics.get("t")
    assert topic is not None
    assert not any(queue.lock.locked() for queue in topic.used_queues())
    assert not accumulator.inside
    assert producer._core.pool.free_bytes == producer._core.pool.size_bytes


@pytest.mark.parametrize(
    "call", [Numbers.send_new_batch, Numbers.send_rows, Numbers.flush, Numbers.result]
)
def test_an_interrupt_anywhere_leaves_the_producer_whole(
    fake: FakeKafka, call: Callable[[Numbers], None]
) -> None:
    with Producer(bootstrap_servers=fake.bootstrap_servers, batch_size=300) as producer:
        numbers = Numbers(producer)
        numbers.send()
        place = 0
        while interrupted_at(place, lambda: call(numbers)):
            place += 1
            assert place < PLACES_MAX
            numbers.send()
            if place % 20 == 0:
                producer.flush(TIMEOUT_S)
                check(producer)
        producer.flush(TIMEOUT_S)
        check(producer)
    assert place > 10
    found = values_in(fake)
    assert sorted(set(found)) == list(range(numbers.accepted))
    assert found == sorted(found)


@pytest.mark.parametrize("call", [Numbers.send_new_batch, Numbers.send_rows, Numbers.flush])
def test_a_handler_anywhere_gets_the_result_of_its_record_or_a_refusal(
    fake: FakeKafka, call: Callable[[Numbers], None]
) -> None:
    """Goal: the sender knows of a batch before a handler can append to it and wait."""
    counts = {"delivered": 0, "refused": 0}
    with Producer(bootstrap_servers=fake.bootstrap_servers, batch_size=300) as producer:
        numbers = Numbers(producer)

        def handler() -> None:
            delivery = producer.send("t", b"-1", partition=0)
            try:
                delivery.result(TIMEOUT_S)
                counts["delivered"] += 1
            except UsageError as error:
                counts["refused"] += "interrupted send()" in str(error)

        numbers.send()
        place = 0
        while interrupted_at(place, lambda: call(numbers), handler):
            place += 1
            assert place < PLACES_MAX
        producer.flush(TIMEOUT_S)
        check(producer)
    assert counts["delivered"]
    assert counts["refused"]
    assert sum(counts.values()) == place
    found = values_in(fake)
    assert [number for number in found if number >= 0] == list(range(numbers.accepted))
    assert found.count(-1) == place


def test_a_handler_anywhere_gets_the_result_of_a_first_record_of_its_topic(
    fake: FakeKafka,
) -> None:
    with Producer(bootstrap_servers=fake.bootstrap_servers, max_block_ms=30_000) as producer:

        def send() -> Delivery[RecordMetadata]:
            return producer.send(f"new-{place}", b"")

        def send_and_wait() -> None:
            with suppress(UsageError):  # "interrupted send()"
                send().result(TIMEOUT_S)

        place = 0
        while interrupted_at(place, send, send_and_wait):
            place += 11  # each waits for metadata
            assert place < PLACES_MAX
    assert place > 30


def test_an_interrupt_anywhere_in_close_leaves_one_that_can_be_closed(fake: FakeKafka) -> None:
    place = 0
    while True:
        producer = Producer(bootstrap_servers=fake.bootstrap_servers, linger_ms=60_000)
        producer.send("t", b"%d" % place, partition=0)
        is_interrupted = interrupted_at(place, producer.close)
        producer.close(TIMEOUT_S)
        assert producer._core.lifecycle.is_over
        check(producer)
        if not is_interrupted:
            break
        place += 1
        assert place < PLACES_MAX
    assert place > 20
    assert values_in(fake) == list(range(place + 1))
