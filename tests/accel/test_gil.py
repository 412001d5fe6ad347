"""A thread that waits for a socket, or at a gate, has the GIL soon, whatever another computes.

Before CPython 3.12, that is. Method: the switch interval is half a minute, so that a thread which
only waits for it comes last.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from pykclient.accel import Gate, implementation, select_ready

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(
    implementation == "pure"
    or not hasattr(selectors, "EpollSelector")
    or sys.version_info >= (3, 12),
    reason="a thread that wants the GIL waits for the switch interval",
)

LONG_S = 30.0
TRIES_MAX = 5
ROUNDS_MAX = 100_000_000
"""Some five seconds of computing."""


@pytest.fixture(autouse=True)
def long_interval() -> Iterator[None]:
    """Set a long switch interval, and restore it afterwards."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(LONG_S)
    yield
    after_s = sys.getswitchinterval()
    sys.setswitchinterval(before_s)
    assert after_s == LONG_S


def is_soon_beside(wait: Callable[[], object], release: Callable[[], object]) -> bool:
    """Compute while another thread waits; return whether it had its turn in a few seconds."""
    is_over = False
    begun = threading.Event()

    def wait_once() -> None:
        nonlocal is_over
        begun.set()
        wait()
        is_over = True

    thread = threading.Thread(target=wait_once)
    thread.start()
    begun.wait()
    release()
    rounds = 0
    while not is_over and rounds < ROUNDS_MAX:
        rounds += 1
    is_soon = is_over
    thread.join()
    return is_soon


def is_soon_once(wait: Callable[[], object], release: Callable[[], object]) -> bool:
    """Return whether it had its turn soon in one of a few tries.

    Threads of other tests' brokers may use up the turns that all threads together have.
    """
    return any(is_soon_beside(wait, release) for _ in range(TRIES_MAX))


def test_a_wait_for_a_socket_ends_beside_a_busy_main_thread() -> None:
    near, far = socket.socketpair()
    with near, far, selectors.DefaultSelector() as selector:
        selector.register(near, selectors.EVENT_READ)
        assert is_soon_once(lambda: select_ready(selector, LONG_S), lambda: far.send(b"x"))


def test_a_wait_at_a_gate_ends_beside_a_busy_main_thread() -> None:
    gate = Gate()
    assert is_soon_once(lambda: gate.wait(LONG_S), gate.open)


def test_the_interval_is_as_it_was_after_waits_of_many_threads() -> None:
    gates = [Gate() for _ in range(8)]

    def pass_on(place: int) -> None:
        for _ in range(200):
            gates[place].wait(LONG_S)
            gates[(place + 1) % len(gates)].open()

    threads = [threading.Thread(target=pass_on, args=(place,)) for place in range(len(gates))]
    for thread in threads:
        thread.start()
    gates[0].open()
    for thread in threads:
        thread.join()
    # The fixture compares the interval.


@pytest.mark.parametrize("interval_s", [1e-6, 5.0])
def test_an_interval_that_the_application_sets_meanwhile_stays(interval_s: float) -> None:
    gate, back = Gate(), Gate()
    is_over = False

    def answer() -> None:
        while gate.wait(LONG_S) and not is_over:
            back.open()

    thread = threading.Thread(target=answer)
    thread.start()
    after_s = []
    for _ in range(5):
        for is_set in (False, True):
            for _ in range(500):  # longer than the burst, in which all ask for the GIL
                gate.open()
                assert back.wait(LONG_S)
            if is_set:
                after_s.append(sys.getswitchinterval())
            sys.setswitchinterval(LONG_S if is_set else interval_s)
    is_over = True
    gate.open()
    thread.join()
    assert after_s == [interval_s] * 5


def test_a_child_process_begins_with_the_usual_interval() -> None:
    gates = [Gate(), Gate()]
    is_over = False

    def pass_on(place: int) -> None:
        while not is_over:
            gates[place].wait(0.01)
            gates[1 - place].open()

    threads = [threading.Thread(target=pass_on, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    statuses = []
    for _ in range(20):
        child = os.fork()
        if child == 0:
            os._exit(0 if sys.getswitchinterval() == LONG_S else 1)
        statuses.append(os.waitpid(child, 0)[1])
    is_over = True
    for thread in threads:
        thread.join()
    assert statuses == [0] * 20
