"""ThreadGuard: a second thread is refused at once, the same thread comes in again."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.thread_guard import ThreadGuard
from pykclient.errors import ClosedError, ConcurrentModificationError

if TYPE_CHECKING:
    from collections.abc import Iterator


def enter(guard: ThreadGuard) -> None:
    with guard:
        pass


def test_a_second_thread_is_refused_at_once_and_the_first_goes_on() -> None:
    guard = ThreadGuard("consumer")
    with ThreadPoolExecutor(1) as other, guard:
        with pytest.raises(ConcurrentModificationError, match=rf"{threading.get_ident()}.*wakeup"):
            other.submit(enter, guard).result()
        enter(guard)


def test_the_same_thread_may_come_in_again_and_holds_on_until_it_is_out() -> None:
    guard = ThreadGuard("consumer")
    with ThreadPoolExecutor(1) as other:
        with guard:
            with guard:
                pass
            with pytest.raises(ConcurrentModificationError):
                other.submit(enter, guard).result()
        other.submit(enter, guard).result()


def test_an_error_inside_lets_go() -> None:
    guard = ThreadGuard("consumer")
    with pytest.raises(ZeroDivisionError), guard:
        raise ZeroDivisionError
    with ThreadPoolExecutor(1) as other:
        other.submit(enter, guard).result()


def test_nobody_enters_after_close_not_even_from_inside() -> None:
    guard = ThreadGuard("consumer")
    with guard:
        guard.close()
        with pytest.raises(ClosedError):
            enter(guard)
    with pytest.raises(ClosedError, match="consumer is closed"):
        enter(guard)
    with ThreadPoolExecutor(1) as other, pytest.raises(ClosedError):
        other.submit(enter, guard).result()


@pytest.fixture
def busy_switching() -> Iterator[None]:
    """Threads take turns after every few instructions."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


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
    for call in (consumer.wakeup, consumer.paused, consumer.poll, consumer.close):
        try:
            call()
        except ForkedClientError:
            refused += 1
    os._exit(refused)
print(os.waitstatus_to_exitcode(os.wait()[1]))
consumer.close()
"""


def test_a_child_may_not_use_a_consumer_at_all() -> None:
    script = [sys.executable, "-c", CONSUMER]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "4"


def test_a_child_process_is_refused_even_one_that_was_forked_inside() -> None:
    # In an interpreter of its own: to fork beside other threads is not safe.
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["7", "7"]


def test_the_core_lock_is_held_inside_and_lent_to_user_code() -> None:
    guard = ThreadGuard("consumer")
    with guard:
        assert guard.core_lock.locked()
        with guard.lent():
            assert not guard.core_lock.locked()
            with guard:
                assert guard.core_lock.locked()
                with guard.lent():
                    assert not guard.core_lock.locked()
                assert guard.core_lock.locked()
            assert not guard.core_lock.locked()
        assert guard.core_lock.locked()
    assert not guard.core_lock.locked()


def test_while_it_is_lent_another_thread_is_refused_all_the_same() -> None:
    guard = ThreadGuard("consumer")
    with ThreadPoolExecutor(1) as other, guard, guard.lent():
        refused = other.submit(enter, guard).exception()
    assert isinstance(refused, ConcurrentModificationError)


def test_whoever_has_the_core_lock_is_waited_for() -> None:
    guard = ThreadGuard("consumer")
    with ThreadPoolExecutor(1) as other:
        with guard.core_lock:
            entering = other.submit(enter, guard)
            assert not entering.done()
        entering.result()
