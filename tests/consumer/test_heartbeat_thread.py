"""The thread that steps the group while the application is outside the consumer."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.heartbeat_thread import HeartbeatThread
from pykclient.consumer.thread_guard import BackgroundLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from _typeshed import TraceFunction

TIMEOUT_S = 10.0
CONFIG = ConsumerConfig.from_settings(bootstrap_servers="boot:9092", heartbeat_interval_ms=40)


class Steps:
    """A counter of steps; a test can wait for a step or make it fail."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.background = BackgroundLock(self.lock)
        self.is_failing = False
        self.next_in_ms = 1
        self.on_step: Callable[[int], int] | None = None
        self._made = threading.Semaphore(0)

    def step(self, now_ms: int) -> int:
        assert self.background.step_count % 2 == 1, "a step needs the core lock"
        self._made.release()
        if self.on_step is not None:
            return self.on_step(now_ms)
        if self.is_failing:
            raise ValueError("a mistake of ours")
        return now_ms + self.next_in_ms

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self._made.acquire(timeout=TIMEOUT_S)

    def drain(self) -> None:
        while self._made.acquire(blocking=False):
            pass

    @property
    def has_made_any(self) -> bool:
        return self._made.acquire(blocking=False)


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def thread(steps: Steps) -> Iterator[HeartbeatThread]:
    thread = HeartbeatThread(steps.step, steps.background, CONFIG)
    thread.start()
    yield thread
    thread.close(TIMEOUT_S)


def test_what_an_abandoned_one_uses_is_closed_after_its_last_step(steps: Steps) -> None:
    """The consumer was dropped while a step was running, maybe by the collector in that step."""
    thread = HeartbeatThread(steps.step, steps.background, CONFIG)
    closed = threading.Event()
    is_abandoned = threading.Event()
    made: list[bool] = []

    def step(now_ms: int) -> int:
        made.append(closed.is_set())
        thread.abandon(closed.set)
        made.append(closed.is_set())
        is_abandoned.set()
        return now_ms + 1

    steps.on_step = step
    thread.start()
    assert is_abandoned.wait(TIMEOUT_S)
    assert closed.wait(TIMEOUT_S)
    thread.close(TIMEOUT_S)
    assert made == [False, False]


@pytest.mark.parametrize("is_started", [True, False])
def test_what_one_without_steps_uses_is_closed_at_once(steps: Steps, is_started: bool) -> None:
    thread = HeartbeatThread(steps.step, steps.background, CONFIG)
    if is_started:
        thread.start()
        thread.close(TIMEOUT_S)
    closed = threading.Event()
    thread.abandon(closed.set)
    assert closed.is_set()


@pytest.mark.parametrize("next_in_ms", [1, 10**9])
def test_it_steps_often_enough_while_the_consumer_is_free(
    steps: Steps, thread: HeartbeatThread, next_in_ms: int
) -> None:
    steps.next_in_ms = next_in_ms
    steps.wait_for(5)
    assert thread.failure is None


def test_it_waits_for_no_lock_and_goes_on_when_it_is_free(
    steps: Steps, thread: HeartbeatThread
) -> None:
    steps.wait_for(1)
    with steps.lock:
        steps.drain()
        # A thread that waited for the lock could not be closed while we hold it.
        thread.close(TIMEOUT_S)
        assert not steps.has_made_any


def test_what_a_step_raises_is_kept_and_ends_it(
    steps: Steps, thread: HeartbeatThread, caplog: pytest.LogCaptureFixture
) -> None:
    steps.is_failing = True
    thread._thread.join(TIMEOUT_S)
    assert not thread._thread.is_alive()
    assert isinstance(thread.failure, ValueError)
    assert "heartbeats have stopped" in caplog.text


def test_it_ends_with_a_consumer_that_was_not_closed() -> None:
    steps = Steps()
    lock = steps.lock
    thread = HeartbeatThread(steps.step, steps.background, CONFIG)
    thread.start()
    steps.wait_for(1)
    with lock:  # no step is under way, which would hold it
        del steps
        gc.collect()
    thread._thread.join(TIMEOUT_S)
    assert not thread._thread.is_alive()


def interrupted_at(event_number: int, call: Callable[[], None]) -> bool:
    """Interrupt a call at an event of its functions; return whether it got that far."""
    events = 0

    def trace(frame: FrameType, event: str, arg: object) -> TraceFunction:
        nonlocal events
        events += 1
        if events == event_number:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_a_stop_that_is_interrupted_anywhere_can_be_made_again(steps: Steps) -> None:
    """Goal: no lock stays locked, at which this thread or the other one would hang."""
    for event_number in itertools.count(1):
        thread = HeartbeatThread(steps.step, steps.background, CONFIG)
        thread.start()
        was_interrupted = interrupted_at(event_number, thread.stop)
        again = threading.Thread(target=thread.close, args=(TIMEOUT_S,), daemon=True)
        again.start()
        again.join(2 * TIMEOUT_S)
        assert not again.is_alive(), event_number
        assert not thread._thread.is_alive(), event_number
        if not was_interrupted:
            return
