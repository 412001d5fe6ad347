"""A gate: each time that it is opened ends one wait, whoever opens it and whatever interrupts."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import FrameType, ModuleType

LONG_S = 60.0


def test_a_gate_opened_before_the_wait_does_not_hold_it_up(core: ModuleType) -> None:
    gate = core.Gate()
    gate.open()
    assert gate.wait(LONG_S)


@pytest.mark.parametrize("timeout_s", [0.0, 1e-9, 0.01])
def test_a_gate_that_nobody_opens_stays_closed(core: ModuleType, timeout_s: float) -> None:
    assert not core.Gate().wait(timeout_s)


def test_each_opening_ends_one_wait(core: ModuleType) -> None:
    gate = core.Gate()
    for _ in range(3):
        gate.open()
    assert [gate.wait(0) for _ in range(4)] == [True, True, True, False]
    gate.open_at_once()
    assert gate.wait(0)


@pytest.mark.parametrize("timeout_s", [LONG_S, -1.0, threading.TIMEOUT_MAX * 2])
def test_another_thread_ends_a_wait(core: ModuleType, timeout_s: float) -> None:
    gate, back = core.Gate(), core.Gate()

    def answer() -> None:
        for _ in range(100):
            assert gate.wait(LONG_S)
            back.open()

    thread = threading.Thread(target=answer)
    thread.start()
    for _ in range(100):
        gate.open()
        assert back.wait(timeout_s)
    thread.join()


def test_many_threads_open_it(core: ModuleType) -> None:
    gate = core.Gate()
    threads = [
        threading.Thread(target=lambda: [gate.open() for _ in range(1_000)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    assert all(gate.wait(LONG_S) for _ in range(4_000))
    for thread in threads:
        thread.join()
    assert not gate.wait(0)


def test_a_signal_handler_opens_the_gate_at_which_its_thread_waits(core: ModuleType) -> None:
    gate = core.Gate()
    before = signal.signal(signal.SIGALRM, lambda *_: gate.open())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        assert gate.wait(LONG_S)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("timeout_s", [LONG_S, -1.0])
def test_what_a_signal_handler_raises_ends_the_wait(core: ModuleType, timeout_s: float) -> None:
    gate = core.Gate()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise InterruptedError("from the handler")

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        with pytest.raises(InterruptedError, match="from the handler"):
            gate.wait(timeout_s)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not gate.wait(0)
    gate.open()
    assert gate.wait(0)


def test_a_gate_is_dropped_open_or_closed(core: ModuleType) -> None:
    for openings in range(3):
        gate = core.Gate()
        for _ in range(openings):
            gate.open()
        gate.wait(0)
        del gate


PROGRAM = """
import queue
class Cooperative(queue._PySimpleQueue):
    pass
queue.SimpleQueue = Cooperative
from pykclient.accel import Gate, pure
assert Gate is pure.Gate
gate = Gate()
gate.open()
assert gate.wait(60)
"""


def test_a_gate_is_made_of_the_queues_that_a_library_has_put_in_place() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
