"""SenderThread: the thread that drives the producer's engine, and how others wait for it.

It never waits for itself: what would block it, in a delivery callback, is refused.

Owner: started and joined by the front-end; the engine is its own while it runs.
Source: Java class ``KafkaThread`` around ``Sender``.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING
from weakref import WeakSet

from pykclient.errors import ForkedClientError, UsageError
from pykclient.network.drive import drive
from pykclient.network.manager import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.network.engine import Engine
    from pykclient.network.port import Port
    from pykclient.producer.delivery import Awaited

__all__ = ["SenderThread"]

log = logging.getLogger("pykclient.producer")


class SenderThread:
    """One thread, *made*, *running*, then *over*. Also the `Waiting` of all deliveries.

    `on_fork` is called in each child process, where no lock may be taken: another thread may have
    held any of them at the moment of the fork.
    """

    def __init__(self, name: str, *, on_fork: Callable[[], None]) -> None:
        self._thread: threading.Thread | None = None
        self._name = name
        self._on_fork = on_fork
        self._is_forked = False
        _threads.add(self)

    def start(
        self,
        engine: Engine,
        port: Port,
        *,
        until: Callable[[], bool],
        on_death: Callable[[BaseException], None],
        on_end: Callable[[], None],
    ) -> None:
        """Drive the engine until `until()` holds, then close port and connections.

        `on_death` hears of whatever ended it before; `on_end` is called last, in any case.
        """

        def run() -> None:
            try:
                drive(engine, port, until=until, deadline_ms=NEVER_MS)
            except BaseException as error:  # the thread's top: nobody else would hear of it
                log.exception("%s failed", self._name)
                on_death(error)
            finally:
                engine.client.close()
                port.shutdown()
                on_end()

        # A daemon: a producer that nobody closed must not keep the interpreter from ending.
        self._thread = threading.Thread(target=run, name=self._name, daemon=True)
        self._thread.start()

    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; return whether it has come."""
        assert self._thread is not None
        self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive()

    def on_fork(self) -> None:
        """Note that this is a child process, in which the thread does not run."""
        self._is_forked = True
        self._on_fork()

    def wait(self, outcome: Awaited, index: int, timeout: float | None) -> bool:
        """Wait until the record's fate is known, at most `timeout` seconds; return whether it is.

        Raises:
            UsageError: this is a callback in the sender thread itself.
            ForkedClientError: this is a child process.
        """
        if self.is_current():
            if outcome.is_decided(index):
                return True
            raise UsageError(
                "a delivery callback waits for another delivery, which only the thread that runs "
                "the callback can bring; use add_done_callback"
            )
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while not outcome.is_done(index):
            if self._is_forked:
                raise ForkedClientError("this delivery belongs to a producer of the parent process")
            remaining_s = -1.0  # without limit
            if deadline_s is not None:
                remaining_s = max(0.0, deadline_s - time.monotonic())
            if not _wait_once(outcome, index, min(remaining_s, threading.TIMEOUT_MAX)):
                return outcome.is_done(index)
        return True


def _wait_once(outcome: Awaited, index: int, timeout_s: float) -> bool:
    gate = threading.Lock()
    gate.acquire()
    waker = gate.release
    outcome.add_waker(index, waker)
    try:
        return gate.acquire(timeout=timeout_s)
    finally:
        outcome.remove_waker(index, waker)


_threads: WeakSet[SenderThread] = WeakSet()


def _tell_of_fork() -> None:
    for thread in _threads:
        thread.on_fork()


os.register_at_fork(after_in_child=_tell_of_fork)
