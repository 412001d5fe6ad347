"""What serves sockets to tests: a thread around a selector, and objects that are closed at an end.

The thread is *running* until it is closed, or until a turn of it has failed, which is raised by its
next use and by its close.

Owner: any thread may wake it, look at it and close it; the selector is the thread's.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Self

from pykclient.errors.base import ClosedError, KafkaError, KafkaTimeoutError
from pykclient.network.gate import Gate

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

CLOSE_TIMEOUT_S: Final = 10.0
LOOK_AGAIN_S: Final = 1.0
"""Windows hands Ctrl-C to a thread only when it has stopped waiting."""


class Closing(ABC):
    """A context manager that is closed when the block is left."""

    @abstractmethod
    def close(self) -> None:
        """End it. A second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class ServingThread:
    """Calls `turn` again and again, and `end` at last; `what` it is that it serves is for errors.

    `hint` says what may keep it from ending.
    """

    def __init__(
        self, what: str, turn: Callable[[], None], end: Callable[[], None], *, hint: str
    ) -> None:
        self.selector: Final = selectors.DefaultSelector()
        self._what = what
        self._turn = turn
        self._end = end
        self._hint = hint
        self._is_closing = False
        self._has_ended = False
        self._pid = os.getpid()
        self._waiting: dict[Gate, None] = {}
        self._failure: BaseException | None = None
        self._waker, self._woken = socket.socketpair()
        for side in (self._waker, self._woken):
            side.setblocking(False)
        self.selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called."""
        return self._is_closing

    @property
    def is_alive(self) -> bool:
        """Whether there will be another turn."""
        # In the child of a fork there is no such thread.
        return not self._has_ended and self._pid == os.getpid()

    def start(self, name: str) -> None:
        """Begin, under this name of the thread."""
        self._thread.name = name
        self._thread.start()

    def wake(self) -> None:
        """Have `select` return soon. May be called from any thread."""
        # Enough is there to wake it; or it has ended, which the next use raises.
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def select(self, timeout_s: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events of others than who wakes it, for so long, None = without limit."""
        ready = []
        for key, events in self.selector.select(timeout_s):
            if key.fileobj is self._woken:
                self._woken.recv(4096)
            else:
                ready.append((key, events))
        return ready

    def wait(self) -> None:
        """Wait until the thread has ended. Raises `KafkaError` when it has failed."""
        self._await_end(threading.TIMEOUT_MAX)
        self._check_failure()

    def check_open(self) -> None:
        """Raise `ClosedError` when it was closed, and `KafkaError` when it has failed."""
        if self._is_closing:
            raise ClosedError(f"{self._what} was closed; make a new one")
        self._check_failure()

    def close(self) -> None:
        """End the thread. A second call does nothing.

        Raises:
            KafkaTimeoutError: it does not end.
            KafkaError: it had failed, which is the cause.
        """
        if self._is_closing:
            return
        self._is_closing = True
        self.wake()
        if not self._await_end(CLOSE_TIMEOUT_S):
            raise KafkaTimeoutError(
                f"{self._what} did not end within {CLOSE_TIMEOUT_S * 1000:.0f} ms: {self._hint}"
            )
        self._waker.close()
        self._woken.close()
        self._check_failure()

    def _await_end(self, timeout_s: float) -> bool:
        """Wait until the thread uses nothing any more; return whether it does not.

        Not by `Thread.join`: before Python 3.13 a handler that raises in it, as that of Ctrl-C
        does, has the thread counted as ended while it runs (bpo-45274). Then what it uses would be
        closed under it.
        """
        deadline_s = time.monotonic() + timeout_s
        gate = Gate()
        try:
            self._waiting[gate] = None
            while self.is_alive:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return False
                gate.wait(min(left_s, LOOK_AGAIN_S))
        finally:
            self._waiting.pop(gate, None)
        return True

    def _check_failure(self) -> None:
        if isinstance(self._failure, KafkaError):
            raise self._failure  # it says what, where and how to cure it
        if self._failure is not None:
            raise KafkaError(f"{self._what} has failed: {self._failure!r}") from self._failure

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._turn()
        except Exception as error:  # noqa: BLE001 (raised by `check_open` and `close`)
            self._failure = error
        finally:
            try:
                self._end()
                self.selector.close()
            finally:
                self._has_ended = True
                for gate in list(self._waiting):
                    gate.open()
