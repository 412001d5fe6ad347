"""The producer where no broker answers: every call ends in time and says why."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pykclient import Producer
from pykclient.errors import ClosedError, KafkaTimeoutError, SerializationError, UsageError
from tests.integration.loopback_server import unused_address

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = 30.0


@pytest.fixture
def producer() -> Iterator[Producer]:
    with Producer(bootstrap_servers=unused_address(), max_block_ms=300) as producer:
        yield producer


def test_a_send_ends_when_its_time_is_up_and_names_what_failed(producer: Producer) -> None:
    with pytest.raises(KafkaTimeoutError, match=r"'t'.*300 ms \(max_block_ms\).*refused"):
        producer.send("t", b"v")
    with pytest.raises(KafkaTimeoutError, match="'t'"):
        producer.partitions_for("t")


@pytest.mark.promise("log messages name their client")
def test_the_log_tells_which_client_it_is_of(caplog: pytest.LogCaptureFixture) -> None:
    address = unused_address()
    with (
        Producer(bootstrap_servers=address, max_block_ms=300, client_id="till-7") as producer,
        pytest.raises(KafkaTimeoutError),
    ):
        producer.send("t", b"v")
    messages = [record.getMessage() for record in caplog.records]
    assert any(
        message.startswith("[till-7] could not connect to bootstrap server") for message in messages
    )
    assert all(message.startswith("[till-7] ") for message in messages)


def test_what_is_wrong_with_the_record_is_told_before_any_waiting(producer: Producer) -> None:
    with pytest.raises(SerializationError):
        producer.send("t", "text")


def test_with_no_time_to_wait_the_answer_comes_at_once() -> None:
    with (
        Producer(bootstrap_servers=unused_address(), max_block_ms=0) as producer,
        pytest.raises(KafkaTimeoutError, match="within 0 ms"),
    ):
        producer.send("t", b"v")


def test_flushing_and_closing_with_nothing_sent_do_not_wait(producer: Producer) -> None:
    producer.flush(timeout=TIMEOUT_S)
    producer.close(timeout=TIMEOUT_S)
    producer.close()
    for call in (lambda: producer.send("t", b"v"), producer.flush):
        with pytest.raises(ClosedError):
            call()


@pytest.mark.promise("a negative timeout is refused by every call")
def test_times_below_zero_are_refused_and_nothing_else_happens(producer: Producer) -> None:
    for call in (producer.flush, producer.close):
        with pytest.raises(UsageError, match="timeout=-1: give seconds, from 0"):
            call(timeout=-1)
    producer.flush(timeout=TIMEOUT_S)


def test_a_send_that_waits_is_ended_by_closing() -> None:
    producer = Producer(bootstrap_servers=unused_address(), max_block_ms=60_000)
    outcomes: list[BaseException] = []

    def send() -> None:
        try:
            producer.send("t", b"v")
        except ClosedError as error:
            outcomes.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    while not producer._core.metadata._named_ms:  # until it has asked for the topic, and waits
        time.sleep(0.001)
    producer.close()
    thread.join(TIMEOUT_S)
    assert len(outcomes) == 1


def test_an_interrupt_ends_the_wait_and_the_producer_still_closes() -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        with Producer(bootstrap_servers=unused_address(), max_block_ms=60_000) as producer:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt):
                producer.send("t", b"v")
    finally:
        signal.signal(signal.SIGALRM, previous)


def test_waiting_costs_few_turns(producer: Producer) -> None:
    step = producer._core.engine.step
    turns: list[int] = []

    def counted(now_ms: int) -> int:
        turns.append(now_ms)
        return step(now_ms)

    producer._core.engine.step = counted  # type: ignore[method-assign]
    with pytest.raises(KafkaTimeoutError):
        producer.send("t", b"v")
    assert 0 < len(turns) < 100
