"""SenderThread: the thread that drives the producer's engine, and waiting for it.

Waiting is refused where it would be a deadlock: in a delivery callback, in code that interrupted a
thread that holds something the sender thread needs, and in a logging handler through which the
sender thread logs.

Owner: the front-end starts and joins it; while it runs, it owns the engine.
Source: Java class ``KafkaThread`` around ``Sender``.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from typing import TYPE_CHECKING
from weakref import WeakSet

from pykclient.accel import Gate
from pykclient.errors import ForkedClientError, UsageError
from pykclient.network.drive import drive_until, now_ms
from pykclient.network.interrupts import call_masked
from pykclient.network.log import ClientLog, waits_for_handler_of_caller
from pykclient.network.manager import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Collection

    from pykclient.errors import KafkaError
    from pykclient.network.engine import Engine
    from pykclient.network.io.port import Port
    from pykclient.network.long_close import LongClose
    from pykclient.producer.delivery import Awaited
    from pykclient.producer.sender.lifecycle import Lifecycle

log = ClientLog("pykclient.producer", "")

EXIT_TIMEOUT_MS = 5_000
"""Time that the end of the program waits for producers that were not closed."""

END_GRACE_S = 1.0
"""Additional time that callers wait for the end, so that failed records are reported."""

LOOK_AGAIN_S = 1.0
"""Interval at which a waiting thread checks that the sender thread is alive."""


class SenderThread:
    """One thread: *created*, *running*, then *over*. It is also the `Waiting` of all deliveries.

    In a child process it only notes the fork. No lock may be taken there: another thread may have
    held it when the process was forked.
    """

    def __init__(self, name: str) -> None:
        self._thread: threading.Thread | None = None
        self._name = name
        self._is_forked = False
        self._is_over = False
        self._joining: dict[Gate, None] = {}
        self._inside: Collection[int] = ()
        self._lifecycle: Lifecycle | None = None
        _threads.add(self)

    def start(
        self, engine: Engine, port: Port, lifecycle: Lifecycle, *, inside: Collection[int]
    ) -> None:
        """Drive the engine until the producer is finished, then close port and connections.

        `inside` holds the threads that this one may have to wait for, which must not wait for it.
        """
        self._inside = inside
        self._lifecycle = lifecycle

        def run() -> None:
            try:
                drive_until(engine, port, until=lifecycle.is_finished, deadline_ms=NEVER_MS)
            except BaseException as error:  # top of the thread: nothing else would report it
                log.exception("%s failed", self._name)
                lifecycle.on_death(error)
            finally:
                try:
                    engine.client.close()
                    port.shutdown()
                    lifecycle.on_end()
                finally:
                    self._is_over = True
                    for gate in list(self._joining):
                        gate.open()

        # A daemon thread, so that an unclosed producer does not keep the interpreter running.
        self._thread = threading.Thread(target=run, name=self._name, daemon=True)
        try:
            call_masked(self._thread.start)
        except BaseException:
            if self._thread.ident is None:  # nothing else would close the port's descriptors
                self._is_over = True
                port.shutdown()
            else:  # interrupted; the application will not get the producer
                lifecycle.request_close(0)
            raise

    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def needs_caller(self) -> bool:
        """Return True if this thread cannot continue before the caller does.

        The caller interrupted something that this thread needs, or is in a logging handler through
        which this thread is logging.
        """
        if threading.get_ident() in self._inside:
            return True
        return self._thread is not None and waits_for_handler_of_caller(self._thread.ident or 0)

    def failures(self) -> tuple[str, KafkaError | None]:
        if self._lifecycle is None or self._is_forked:
            return "", None
        client = self._lifecycle.engine.client
        return client.describe_failures(), client.refusal()

    def check_may_wait(self, what: str) -> None:
        if threading.get_ident() in self._inside:
            raise UsageError(
                f"{what} was called by a signal handler, a destructor or a logging handler that "
                f"interrupted send() in the same thread, and would wait for that send() to "
                f"finish; call it in another thread, or request_close() in the handler"
            )
        if self.needs_caller():
            raise UsageError(
                f"{what} was called in a logging handler, and would wait for the producer's sender "
                f"thread, which is logging and waits for that handler; call it in another thread, "
                f"or request_close() in the handler"
            )

    def await_gate(self, gate: Gate, timeout_s: float, what: str) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while True:
            self.check_may_wait(what)
            remaining_s = LOOK_AGAIN_S if timeout_s < 0 else deadline_s - time.monotonic()
            if gate.wait(max(0.0, min(remaining_s, LOOK_AGAIN_S))):
                return True
            if timeout_s >= 0 and deadline_s <= time.monotonic():
                return False

    def join(self, timeout_s: float, notice: LongClose | None = None) -> bool:
        """Wait for the thread's end; return whether it came. Return early while `needs_caller`.

        `notice` is logged if the wait is long.
        """
        assert self._thread is not None
        gate = Gate()
        deadline_s = time.monotonic() + timeout_s
        # Not only `Thread.join`: a handler that interrupts that would wait for itself.
        try:
            self._joining[gate] = None
            # At the end of the interpreter the thread dies without its last steps.
            while not self._is_over and self._thread.is_alive():
                remaining_s = deadline_s - time.monotonic()
                if remaining_s <= 0 or self.needs_caller():
                    return False
                gate.wait(min(remaining_s, LOOK_AGAIN_S))
                if notice is not None and not self._is_over:
                    notice.look(now_ms())
        finally:
            self._joining.pop(gate, None)
        self._thread.join(LOOK_AGAIN_S)
        return True

    def begin_exit(self) -> bool:
        """Close the producer at the end of the program; return whether to wait for it."""
        if self._is_over or self._is_forked or self._lifecycle is None:
            return False
        self._lifecycle.request_close(EXIT_TIMEOUT_MS, is_program_end=True)
        return True

    def end_exit(self, deadline_s: float) -> None:
        """Wait for the producer's end, and log records that are left."""
        assert self._lifecycle is not None
        timeout_s = deadline_s - time.monotonic()
        notice = self._lifecycle.long_close("the program ends", now_ms(), int(timeout_s * 1_000))
        if not self.join(timeout_s, notice):
            self._lifecycle.log_left("the program ends", is_program_end=True)

    def give_up(self, *, is_program_end: bool = False) -> None:
        """Fail undelivered records, and wait a moment until that is logged."""
        assert self._lifecycle is not None
        self._lifecycle.request_close(0, is_program_end=is_program_end)
        self.join(END_GRACE_S)

    def end_program(self) -> None:
        """Log failures that no code can read any more."""
        if self._lifecycle is not None:
            self._lifecycle.end_program()

    def on_fork(self) -> None:
        self._is_forked = True
        if self._lifecycle is not None:
            self._lifecycle.on_fork()

    def wait(self, result: Awaited, index: int, timeout: float | None) -> bool:
        if self.is_current():
            if result.is_decided(index):
                return True
            raise UsageError(
                "a delivery callback waits for another delivery, which only the thread that runs "
                "the callback can complete; use add_done_callback"
            )
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while not result.is_done(index):
            if self._is_forked:
                raise ForkedClientError("this delivery belongs to a producer of the parent process")
            remaining_s = -1.0  # no limit
            if deadline_s is not None:
                remaining_s = max(0.0, deadline_s - time.monotonic())
            if not self._wait_once(result, index, remaining_s):
                return result.is_done(index)
        return True

    def _wait_once(self, result: Awaited, index: int, timeout_s: float) -> bool:
        gate = Gate()
        waker = gate.open
        try:
            result.add_waker(index, waker)
            return self.await_gate(gate, timeout_s, "result() of a delivery")
        finally:
            result.remove_waker(index, waker)


_threads: WeakSet[SenderThread] = WeakSet()


def _note_fork() -> None:
    for thread in list(_threads):
        thread.on_fork()


def _end_all() -> None:
    """Close all unclosed producers at the same time. A Ctrl-C drops undelivered records."""
    deadline_s = time.monotonic() + EXIT_TIMEOUT_MS / 1000 + LOOK_AGAIN_S
    threads = [thread for thread in list(_threads) if thread.begin_exit()]
    try:
        for thread in threads:
            thread.end_exit(deadline_s)
    except KeyboardInterrupt:  # re-raised, it would show a traceback of this function
        for thread in threads:
            thread.give_up(is_program_end=True)
    for thread in list(_threads):
        thread.end_program()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_note_fork)
# Daemon threads still run when this is called, and other threads have ended; none runs after it.
atexit.register(_end_all)
