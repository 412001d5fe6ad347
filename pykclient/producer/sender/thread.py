"""SenderThread: the thread that drives the producer's engine, and how others wait for it.

It never waits for itself: what would block it, in a delivery callback, is refused. So is waiting in
what interrupted a thread that has something the sender thread needs, or in a handler of log records
through which the sender thread logs.

Owner: started and joined by the front-end; the engine is its own while it runs.
Source: Java class ``KafkaThread`` around ``Sender``.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from typing import TYPE_CHECKING
from weakref import WeakSet

from pykclient.errors import ForkedClientError, UsageError
from pykclient.network.drive import drive_until, now_ms
from pykclient.network.gate import Gate
from pykclient.network.interrupts import call_masked
from pykclient.network.log import ClientLog, waits_for_handler_of_caller
from pykclient.network.manager import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Collection

    from pykclient.network.engine import Engine
    from pykclient.network.io.port import Port
    from pykclient.network.long_close import LongClose
    from pykclient.producer.delivery import Awaited
    from pykclient.producer.sender.lifecycle import Lifecycle

log = ClientLog("pykclient.producer", "")

EXIT_TIMEOUT_MS = 5_000
"""How long the end of the program waits for producers that were not closed."""

END_GRACE_S = 1.0
"""Time that the end is waited for beyond its own, so that failed records are reported."""

LOOK_AGAIN_S = 1.0
"""How often whoever waits for the end looks whether the thread still lives."""


class SenderThread:
    """One thread, *made*, *running*, then *over*. Also the `Waiting` of all deliveries.

    In a child process it only notes that it is one, and no lock may be taken: another thread may
    have held any of them at the moment of the fork.
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

        `inside` are the threads that have what this one needs, which must not wait for it.
        """
        self._inside = inside
        self._lifecycle = lifecycle

        def run() -> None:
            try:
                drive_until(engine, port, until=lifecycle.is_finished, deadline_ms=NEVER_MS)
            except BaseException as error:  # the thread's top: nothing else would report it
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

        # A daemon: a producer that was not closed must not keep the interpreter from ending.
        self._thread = threading.Thread(target=run, name=self._name, daemon=True)
        try:
            call_masked(self._thread.start)
        except BaseException:
            if self._thread.ident is None:  # nothing else closes the port's descriptors then
                self._is_over = True
                port.shutdown()
            else:  # an interrupt; the application will not have the producer
                lifecycle.request_close(0)
            raise

    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def needs_caller(self) -> bool:
        """Return whether this thread cannot go on before the caller has.

        The caller interrupted something that this thread needs, or is in a handler of log records
        through which it logs just now.
        """
        if threading.get_ident() in self._inside:
            return True
        return self._thread is not None and waits_for_handler_of_caller(self._thread.ident or 0)

    def check_may_wait(self, what: str) -> None:
        if threading.get_ident() in self._inside:
            raise UsageError(
                f"{what} was called by a signal handler, a destructor or a logging handler that "
                f"interrupted send() in the same thread, and would wait for what that send() has "
                f"yet to finish; call it in another thread, or request_close() in the handler"
            )
        if self.needs_caller():
            raise UsageError(
                f"{what} was called in a logging handler, and would wait for the producer's own "
                f"thread, which logs just now and waits for that handler; call it in another "
                f"thread, or request_close() in the handler"
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
        """Wait for the end; return whether it has come. It cannot come while `needs_caller`.

        `notice` is logged when the wait has become long.
        """
        assert self._thread is not None
        gate = Gate()
        deadline_s = time.monotonic() + timeout_s
        # Not by `Thread.join` alone, in which a handler that interrupts it would wait for itself.
        try:
            self._joining[gate] = None
            # When the interpreter ends, the thread does so without taking its last steps.
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
        """Close the producer, since the program ends; return whether that is to be awaited."""
        if self._is_over or self._is_forked or self._lifecycle is None:
            return False
        self._lifecycle.request_close(EXIT_TIMEOUT_MS, is_program_end=True)
        return True

    def end_exit(self, deadline_s: float) -> None:
        """Wait for the end of the producer; a Ctrl-C gives up what is not delivered."""
        assert self._lifecycle is not None
        timeout_s = deadline_s - time.monotonic()
        notice = self._lifecycle.long_close("the program ends", now_ms(), int(timeout_s * 1_000))
        if not self.join(timeout_s, notice):
            self._lifecycle.log_left("the program ends", is_program_end=True)

    def give_up(self, *, is_program_end: bool = False) -> None:
        """Fail what is not delivered, and wait a moment until that is logged."""
        assert self._lifecycle is not None
        self._lifecycle.request_close(0, is_program_end=is_program_end)
        self.join(END_GRACE_S)

    def end_program(self) -> None:
        """Log the failures that no code can read any more."""
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
                "the callback can bring; use add_done_callback"
            )
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while not result.is_done(index):
            if self._is_forked:
                raise ForkedClientError("this delivery belongs to a producer of the parent process")
            remaining_s = -1.0  # without limit
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
    """Close what the program has not closed, all at a time. A Ctrl-C gives up all of it."""
    deadline_s = time.monotonic() + EXIT_TIMEOUT_MS / 1000 + LOOK_AGAIN_S
    threads = [thread for thread in list(_threads) if thread.begin_exit()]
    try:
        for thread in threads:
            thread.end_exit(deadline_s)
    except KeyboardInterrupt:  # raised further, it would be a traceback of this function
        for thread in threads:
            thread.give_up(is_program_end=True)
    for thread in list(_threads):
        thread.end_program()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_note_fork)
# Daemon threads still run when this is called, and others have ended; after it none does.
atexit.register(_end_all)
