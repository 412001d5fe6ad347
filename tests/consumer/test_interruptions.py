"""Consumer: wake-ups, other threads, interrupts and close; none of them loses records."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.consumer import Consumer
from pykclient.errors import ClosedError, ConcurrentModificationError, WakeupError
from pykclient.protocol.messages.fetch import FetchRequest
from tests.consumer.serving_port import (
    LONG_S,
    SHORT_S,
    A,
    ServingPort,
    consumer_over,
    offsets,
    poll_until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.consumer.record import ConsumerRecords


def test_a_wakeup_ends_the_wait_of_another_thread(consumer: Consumer, port: ServingPort) -> None:
    waits = threading.Event()
    port.on_wait = lambda _: waits.set()
    with ThreadPoolExecutor(1) as other:
        polled = other.submit(consumer.poll, LONG_S)
        waits.wait()
        consumer.wakeup()
        with pytest.raises(WakeupError):
            polled.result()
    port.logs[0].append(1)
    assert offsets(consumer.poll(LONG_S)) == [0]


def test_a_wakeup_before_the_call_counts_once(consumer: Consumer) -> None:
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll(SHORT_S)
    assert len(consumer.poll(SHORT_S)) == 0


def test_records_at_hand_come_before_a_wakeup(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(1)

    def wake(_: int) -> None:
        if port.responded.count(FetchRequest):
            port.on_wait = lambda _: None
            consumer.wakeup()

    port.on_wait = wake
    assert offsets(consumer.poll(LONG_S)) == [0]
    with pytest.raises(WakeupError):
        consumer.poll(LONG_S)


def test_a_second_thread_is_refused_while_the_first_polls(
    consumer: Consumer, port: ServingPort
) -> None:
    waits = threading.Event()
    port.on_wait = lambda _: waits.set()
    with ThreadPoolExecutor(1) as other:
        polled = other.submit(consumer.poll, LONG_S)
        waits.wait()
        calls: list[Callable[[], object]] = [
            lambda: consumer.poll(SHORT_S),
            lambda: consumer.position(A),
            consumer.assignment,
            consumer.close,
        ]
        for call in calls:
            with pytest.raises(ConcurrentModificationError):
                call()
        port.logs[0].append(1)
        assert offsets(polled.result()) == [0]


def test_an_interrupt_before_records_are_returned_loses_none(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(3)
    consumer.position(A)

    def interrupt(timeout_ms: int) -> None:
        # The last call of `wait`, after records were taken, waits for nothing.
        if timeout_ms == 0 and consumer._wiring.subscription.require(A).offset == 3:
            port.on_wait = lambda _: None
            raise KeyboardInterrupt

    port.on_wait = interrupt
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(LONG_S)
    assert consumer.position(A) == 0
    assert poll_until(consumer, 3) == [0, 1, 2]


class Interrupted:
    """An interceptor that does something with the consumer once, and is interrupted."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act: Callable[[], object] | None = act

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        act, self._act = self._act, None
        if act is not None:
            act()
            raise KeyboardInterrupt
        return records


@pytest.mark.parametrize("position", [0, 1, 3])
def test_an_interrupt_in_an_interceptor_leaves_a_position_that_it_has_set(
    port: ServingPort, position: int
) -> None:
    port.logs[0].append(4)
    interceptor = Interrupted(lambda: consumer.seek(A, position))
    with consumer_over(port, A, interceptors=[interceptor], max_poll_records=2) as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(LONG_S)
        assert consumer.position(A) == position
        assert poll_until(consumer, 4 - position) == list(range(position, 4))


def test_an_interrupt_in_an_interceptor_that_polls_loses_nothing(port: ServingPort) -> None:
    port.logs[0].append(4)
    interceptor = Interrupted(lambda: consumer.poll(LONG_S))
    with consumer_over(port, A, interceptors=[interceptor], max_poll_records=2) as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(LONG_S)
        assert consumer.position(A) == 0
        assert poll_until(consumer, 4) == [0, 1, 2, 3]


def test_after_close_every_call_raises(port: ServingPort) -> None:
    consumer = consumer_over(port, A)
    consumer.close()
    consumer.close()
    assert port.is_shut_down
    calls: list[Callable[[], object]] = [
        lambda: consumer.poll(LONG_S),
        lambda: consumer.poll_arrow(LONG_S),
        lambda: next(iter(consumer)),
        lambda: consumer.assign([A]),
        lambda: consumer.seek(A, 1),
        consumer.seek_to_beginning,
        consumer.seek_to_end,
        lambda: consumer.pause([A]),
        lambda: consumer.resume([A]),
        consumer.paused,
        consumer.assignment,
        lambda: consumer.subscribe(["t"]),
        lambda: consumer.position(A),
        lambda: consumer.current_lag(A),
        lambda: consumer.beginning_offsets([A]),
        lambda: consumer.end_offsets([A]),
        lambda: consumer.offsets_for_times({A: 1}),
        lambda: consumer.partitions_for("t"),
        consumer.list_topics,
    ]
    for call in calls:
        with pytest.raises(ClosedError):
            call()
    consumer.wakeup()


class Closing:
    """An interceptor that records its close."""

    def __init__(self) -> None:
        self.is_closed = False

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        return records

    def close(self) -> None:
        self.is_closed = True


def test_the_end_of_a_with_block_closes_everything(port: ServingPort) -> None:
    interceptor = Closing()
    with consumer_over(port, A, interceptors=[interceptor]) as consumer:
        consumer.position(A)
    assert port.is_shut_down
    assert all(peer.is_closed for peer in port.peers)
    assert interceptor.is_closed


def interrupt(_timeout_s: float) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_while_close_waits_for_the_heartbeat_thread_closes_everything(
    port: ServingPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    interceptor = Closing()
    consumer = consumer_over(port, A, interceptors=[interceptor])
    consumer.position(A)
    heartbeats = consumer._wiring.heartbeats
    heartbeats.watch()
    assert heartbeats.thread is not None
    thread = heartbeats.thread._thread
    with monkeypatch.context() as patch:
        patch.setattr(thread, "join", interrupt)
        with pytest.raises(KeyboardInterrupt):
            consumer.close()
    thread.join(LONG_S)
    assert not thread.is_alive()
    assert port.is_shut_down
    assert all(peer.is_closed for peer in port.peers)
    assert interceptor.is_closed
    with pytest.raises(ClosedError):
        consumer.poll(LONG_S)


def test_it_shows_its_name() -> None:
    with Consumer(bootstrap_servers="localhost:1", client_id="reader") as consumer:
        assert repr(consumer) == "<Consumer reader at localhost:1: open>"
