"""SenderThread: it drives until it is stopped, reports its failure, and others wait for it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, cast

import pytest

from pykclient.errors import ForkedClientError, UsageError
from pykclient.network.engine import Engine
from pykclient.network.io.selector import SelectorPort
from pykclient.network.log import ClientLog
from pykclient.network.long_close import LongClose
from pykclient.network.manager import NEVER_MS, PollResult
from pykclient.producer.delivery import ProduceResult
from pykclient.producer.failure_reports import FailureReports
from pykclient.producer.producer import Producer
from pykclient.producer.sender.thread import EXIT_TIMEOUT_MS, SenderThread
from pykclient.types import TopicPartition
from tests.producer.scripted_producer import ScriptedProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.producer.sender.lifecycle import Lifecycle

JOIN_S = 30.0


class WakeablePort:
    """A port that waits until it is woken; the thread uses no other methods of a port."""

    def __init__(self) -> None:
        self.woken = threading.Event()
        self.is_shut_down = False

    def wait(self, timeout_ms: int) -> None:
        assert timeout_ms > NEVER_MS // 2
        self.woken.wait()
        self.woken.clear()

    def wakeup(self) -> None:
        self.woken.set()

    def shutdown(self) -> None:
        self.is_shut_down = True


class Idle:
    """A manager that fails on command."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None

    def poll(self, now_ms: int) -> PollResult:
        if self.failure is not None:
            raise self.failure
        return PollResult()


class Running:
    """A started thread over an engine that does nothing."""

    def __init__(self) -> None:
        self.port = WakeablePort()
        self.manager = Idle()
        self.is_over = False
        self.deaths: list[BaseException] = []
        self.order: list[str] = []
        self.forks: list[str] = []
        self.close_times_ms: list[int] = []
        self.inside: set[int] = set()
        self.thread = SenderThread("test")
        client = ScriptedProducer().core.client
        client.wakeup = self.port.wakeup  # type: ignore[method-assign]
        client.metadata_due_ms = lambda: NEVER_MS  # type: ignore[method-assign]
        self.engine = Engine(client, [self.manager])
        self.thread.start(
            self.engine,
            self.port,  # type: ignore[arg-type]
            cast("Lifecycle", self),
            inside=self.inside,
        )

    # The part of a producer's lifecycle that the thread uses.

    def is_finished(self) -> bool:
        return self.is_over

    def on_death(self, cause: BaseException) -> None:
        self.deaths.append(cause)

    def on_end(self) -> None:
        self.order.append(f"shut down: {self.port.is_shut_down}")

    def on_fork(self) -> None:
        self.forks.append("forked")

    def request_close(self, time_ms: int, *, is_program_end: bool = False) -> None:
        self.close_times_ms.append(time_ms)
        self.is_over = True
        self.port.wakeup()

    def long_close(self, call: str, started_ms: int, wait_ms: int) -> LongClose:
        return LongClose(
            ClientLog("pykclient.producer", ""),
            call,
            what=lambda: "the end",
            why=str,
            cost="",
            started_ms=started_ms,
            deadline_ms=started_ms + wait_ms,
        )

    def log_left(self, why: str, *, is_program_end: bool = False) -> None:
        self.order.append(why)

    def end_program(self) -> None:
        pass

    def end(self) -> None:
        self.is_over = True
        self.port.wakeup()
        assert self.thread.join(JOIN_S)

    def run_in_it(self, function: Callable[[], object]) -> object:
        """Call a function in the sender thread; return what it returns or raises."""
        results: list[object] = []
        done = threading.Event()

        def call(now_ms: int) -> None:
            try:
                results.append(function())
            except Exception as error:  # noqa: BLE001 - handed to the test
                results.append(error)
            done.set()

        self.engine.post(call)
        assert done.wait(JOIN_S)
        return results[0]


@pytest.fixture
def running() -> Iterator[Running]:
    running = Running()
    yield running
    running.end()


def new_result(thread: SenderThread) -> ProduceResult:
    return ProduceResult(TopicPartition("t", 0), FailureReports("", lambda: 0), thread)


def test_it_runs_until_its_end_and_closes_its_port_before_it_has_ended(running: Running) -> None:
    assert not running.thread.join(0)
    running.end()
    assert running.order == ["shut down: True"]
    assert running.deaths == []


def test_its_death_is_reported_and_everything_is_closed_all_the_same(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    running.manager.failure = ValueError("a bug")
    running.port.wakeup()
    assert running.thread.join(JOIN_S)
    assert running.deaths == [running.manager.failure]
    assert running.order == ["shut down: True"]
    assert "a bug" in caplog.text


def test_others_wait_until_the_result_is_announced(running: Running) -> None:
    result = new_result(running.thread)
    waiting = threading.Event()
    results: list[bool] = []

    def wait() -> None:
        waiting.set()
        results.append(running.thread.wait(result, 0, None))

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert waiting.wait(JOIN_S)
    result.succeed(1, None)
    result.take_call()
    waiter.join(JOIN_S)
    assert results == [True]


def test_a_wait_ends_when_its_time_is_up(running: Running) -> None:
    result = new_result(running.thread)
    assert not running.thread.wait(result, 0, 0.0)
    assert not running.thread.wait(result, 0, 0.01)
    assert not running.thread.wait(result, 0, -1.0)
    assert not result._wakers


def test_a_wait_goes_on_with_the_part_of_a_split_batch(running: Running) -> None:
    whole, part = new_result(running.thread), new_result(running.thread)
    results: list[bool] = []
    waiter = threading.Thread(target=lambda: results.append(running.thread.wait(whole, 0, JOIN_S)))
    waiter.start()
    whole.split(((0, part),))
    part.succeed(1, None)
    part.take_call()
    waiter.join(JOIN_S)
    assert results == [True]


def test_the_thread_itself_never_waits(running: Running) -> None:
    result = new_result(running.thread)
    refusal = running.run_in_it(lambda: running.thread.wait(result, 0, None))
    assert isinstance(refusal, UsageError)
    result.succeed(1, None)  # decided, but not announced: its own callbacks may read it
    assert running.run_in_it(lambda: running.thread.wait(result, 0, None)) is True


def test_a_child_process_cannot_wait(running: Running) -> None:
    running.thread.on_fork()
    assert running.forks == ["forked"]
    with pytest.raises(ForkedClientError):
        running.thread.wait(new_result(running.thread), 0, None)


def test_what_interrupted_a_send_cannot_wait(running: Running) -> None:
    running.inside.add(threading.get_ident())
    with pytest.raises(UsageError, match="interrupted send"):
        running.thread.wait(new_result(running.thread), 0, None)
    running.inside.clear()


def test_the_end_of_the_program_closes_for_a_bounded_time(running: Running) -> None:
    assert running.thread.begin_exit()
    running.thread.end_exit(time.monotonic() + JOIN_S)
    assert running.close_times_ms == [EXIT_TIMEOUT_MS]
    assert running.order == ["shut down: True"]
    assert not running.thread.begin_exit()


def test_the_end_of_the_program_reports_what_it_cannot_wait_for(running: Running) -> None:
    running.request_close = lambda *_, **__: None  # type: ignore[method-assign]
    assert running.thread.begin_exit()
    running.thread.end_exit(time.monotonic())
    assert running.order == ["the program ends"]


def test_the_end_of_a_child_process_leaves_the_parents_thread_alone(running: Running) -> None:
    running.thread.on_fork()
    assert not running.thread.begin_exit()


def test_a_thread_that_cannot_be_started_leaves_no_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    shut_down: list[SelectorPort] = []
    real = SelectorPort.shutdown

    def shutdown(port: SelectorPort) -> None:
        shut_down.append(port)
        real(port)

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(SelectorPort, "shutdown", shutdown)
    with pytest.raises(RuntimeError, match="new thread"):
        Producer(bootstrap_servers="localhost:9092")
    assert len(shut_down) == 1
