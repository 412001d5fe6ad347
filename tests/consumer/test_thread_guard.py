"""ThreadGuard: it rejects a second thread at once, and a nested call of the same thread."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.thread_guard import STEP_WAIT_S, ThreadGuard
from pykclient.errors import ClosedError, ConcurrentModificationError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


def enter(guard: ThreadGuard) -> None:
    with guard:
        pass


def is_held(guard: ThreadGuard) -> bool:
    return guard.is_held


def step(guard: ThreadGuard) -> bool:
    """Run a background step; return whether no thread was inside."""
    is_free = guard.background.acquire(blocking=False)
    if is_free:
        guard.background.release()
    return is_free


def test_a_second_thread_is_refused_at_once_and_the_first_goes_on() -> None:
    guard = ThreadGuard("consumer")
    message = rf"{threading.get_ident()}.*wakeup"
    with ThreadPoolExecutor(1) as other, guard:
        assert isinstance(other.submit(enter, guard).exception(), ConcurrentModificationError)
        with pytest.raises(ConcurrentModificationError, match=message):
            guard.call_unlocked(other.submit(enter, guard).result)
    enter(guard)


@pytest.mark.promise("the thread guard admits one thread at a time")
def test_the_same_thread_may_not_come_in_on_top_of_its_own_call() -> None:
    guard = ThreadGuard("consumer")
    with ThreadPoolExecutor(1) as other:
        with guard:
            with pytest.raises(UsageError, match="wakeup"):
                enter(guard)
            with pytest.raises(ConcurrentModificationError):
                other.submit(enter, guard).result()
            guard.call_unlocked(enter, guard)
        other.submit(enter, guard).result()


def test_what_user_code_leaves_torn_is_recovered_before_the_call_goes_on() -> None:
    def tear() -> None:
        with guard:
            guard.is_torn = True

    def recover() -> None:
        assert guard.is_held
        assert guard.is_in_user_code
        guard.is_torn = False
        recovered.append(True)

    recovered: list[bool] = []
    guard = ThreadGuard("consumer", recover)
    with guard:
        guard.call_unlocked(lambda: None)
        assert not recovered
        guard.call_unlocked(tear)
        assert recovered
        assert guard.is_torn, "the call goes on"


def test_an_error_inside_lets_go() -> None:
    guard = ThreadGuard("consumer")
    with pytest.raises(ZeroDivisionError), guard:
        raise ZeroDivisionError
    with ThreadPoolExecutor(1) as other:
        other.submit(enter, guard).result()


def test_no_thread_enters_after_close_not_even_from_inside() -> None:
    guard = ThreadGuard("consumer")
    with guard:
        guard.is_closed = True
        with pytest.raises(ClosedError):
            guard.call_unlocked(enter, guard)
    with pytest.raises(ClosedError, match="consumer is closed"):
        enter(guard)
    with ThreadPoolExecutor(1) as other, pytest.raises(ClosedError):
        other.submit(enter, guard).result()


@pytest.fixture
def busy_switching() -> Iterator[None]:
    """Switch threads after every few instructions."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


@pytest.mark.promise("the thread guard admits one thread at a time")
@pytest.mark.usefixtures("busy_switching")
def test_of_many_threads_one_is_inside() -> None:
    guard = ThreadGuard("consumer")
    inside = 0
    most = 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(300):
            try:
                with guard:
                    inside += 1
                    for _ in range(100):
                        most = max(most, inside)
                    inside -= 1
            except ConcurrentModificationError:
                pass

    with ThreadPoolExecutor(4) as threads:
        for future in [threads.submit(work) for _ in range(4)]:
            future.result()
    assert most == 1
    enter(guard)


FORK = """
import os
from pykclient.consumer.thread_guard import ThreadGuard
from pykclient.errors import ForkedClientError
guard = ThreadGuard("consumer")

def fork():
    if os.fork() == 0:
        try:
            with guard:
                pass
        except ForkedClientError as error:
            assert str(os.getpid()) in str(error) and str(os.getppid()) in str(error)
            os._exit(7)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.wait()[1])

with guard:
    inside = fork()
print(inside, fork())
"""


CONSUMER = """
import os
from pykclient import Consumer
from pykclient.errors import ForkedClientError
consumer = Consumer(bootstrap_servers="localhost:9")
if os.fork() == 0:
    refused = 0
    consumer.close()
    with consumer:
        pass
    for call in (consumer.wakeup, consumer.paused, consumer.poll):
        try:
            call()
        except ForkedClientError:
            refused += 1
    os._exit(refused)
print(os.waitstatus_to_exitcode(os.wait()[1]))
consumer.close()
"""


@pytest.mark.promise(
    "a child process gets `ForkedClientError` from every call; clients refuse to be pickled"
)
def test_a_child_may_not_use_a_consumer_at_all() -> None:
    script = [sys.executable, "-c", CONSUMER]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "3"
    assert not done.stderr


@pytest.mark.promise(
    "a child process gets `ForkedClientError` from every call; clients refuse to be pickled"
)
def test_a_child_process_is_refused_even_one_that_was_forked_inside() -> None:
    # In a separate interpreter: forking is not safe while other threads run.
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["7", "7"]


def test_the_core_lock_is_held_inside_and_not_held_in_user_code() -> None:
    guard = ThreadGuard("consumer")

    def call() -> None:
        assert not is_held(guard)
        with guard:
            assert is_held(guard)
            guard.call_unlocked(lambda: held.append(is_held(guard)))
            assert is_held(guard)
        assert not is_held(guard)

    held: list[bool] = []
    with guard:
        assert is_held(guard)
        guard.call_unlocked(call)
        assert is_held(guard)
    assert not is_held(guard)
    assert held == [False]


def test_what_user_code_returns_and_raises_comes_out() -> None:
    guard = ThreadGuard("consumer")
    with guard:
        assert guard.call_unlocked(max, 1, 2) == 2
        with pytest.raises(ZeroDivisionError):
            guard.call_unlocked(lambda: 1 / 0)
        assert is_held(guard)
    enter(guard)


def test_a_step_in_the_background_is_waited_for() -> None:
    guard = ThreadGuard("consumer")
    with ThreadPoolExecutor(1) as other:
        assert guard.background.acquire(blocking=False)
        entering = other.submit(enter, guard)
        with pytest.raises(TimeoutError):
            entering.result(timeout=10 * STEP_WAIT_S)
        guard.background.release()
        entering.result()


def test_a_step_in_the_background_does_not_wait() -> None:
    guard = ThreadGuard("consumer")
    with ThreadPoolExecutor(1) as other, guard:
        assert not other.submit(step, guard).result()
        assert guard.call_unlocked(lambda: other.submit(step, guard).result())


@pytest.mark.usefixtures("busy_switching")
def test_steps_in_the_background_refuse_no_thread() -> None:
    guard = ThreadGuard("consumer")
    is_over = threading.Event()

    def go_on_stepping() -> None:
        while not is_over.is_set():
            step(guard)

    with ThreadPoolExecutor(1) as other:
        stepping = other.submit(go_on_stepping)
        try:
            for _ in range(300):
                with guard:
                    guard.call_unlocked(enter, guard)
        finally:
            is_over.set()
        stepping.result()


INTERRUPTS = """
import random
import signal
import threading
from pykclient.consumer.thread_guard import ThreadGuard

class Interrupt(Exception):
    pass

def interrupt(*_):
    raise Interrupt

def enter():
    with guard:
        pass

def work():
    with guard:
        guard.call_unlocked(enter)

def enter_from_another_thread():
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()

signal.signal(signal.SIGALRM, interrupt)
guard = ThreadGuard("consumer")
source = random.Random(1)
places = set()
for _ in range(5_000):
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, source.uniform(5e-6, 60e-6))
            while True:
                work()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt as error:
        traceback = error.__traceback__
        while traceback.tb_next.tb_next is not None:
            traceback = traceback.tb_next
        places.add((traceback.tb_frame.f_code.co_name, traceback.tb_lasti))
    assert not guard.is_held, places
    assert guard._user_thread is None, places
threading.excepthook = lambda failed: print(failed.exc_value)
enter_from_another_thread()
print(len(places))
"""


def test_an_interrupt_at_whatever_moment_leaves_it_free() -> None:
    """A signal can raise between any two of our steps: tested at thousands of random moments."""
    script = [sys.executable, "-c", INTERRUPTS]
    done = subprocess.run(script, capture_output=True, text=True, check=True, timeout=60)
    place_count = int(done.stdout)
    assert place_count > 10, "the moments were always the same"
