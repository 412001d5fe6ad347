"""A thread that serves sockets to tests with a selector, and a base class of closable objects.

The thread *runs* until it is closed or a turn fails; the next use, and `close`, raise that failure.

Owner: any thread may wake, inspect and close it; the selector belongs to the thread.
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

from pykclient.accel import Gate
from pykclient.errors.base import ClosedError, KafkaError, KafkaTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

CLOSE_TIMEOUT_S: Final = 10.0
LOOK_AGAIN_S: Final = 1.0
"""Longest wait in one piece: on Windows, Ctrl-C is only handled between two waits."""


class Closing(ABC):
    """A context manager that closes itself when the block ends."""

    @abstractmethod
    def close(self) -> None:
        """Close it. Idempotent."""

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
    """A thread that calls `turn` repeatedly, and `end` at the end.

    `what` names the served object in errors; `hint` tells what may keep the thread from ending.
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
        """True once `close` was called."""
        return self._is_closing

    @property
    def is_alive(self) -> bool:
        """True if the thread will make another turn."""
        # A forked child does not have this thread.
        return not self._has_ended and self._pid == os.getpid()

    def start(self, name: str) -> None:
        """Start the thread under this name."""
        self._thread.name = name
        self._thread.start()

    def wake(self) -> None:
        """Make `select` return soon. May be called from any thread."""
        # The buffer is full, so it will wake; or it has ended, which the next use raises.
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def select(self, timeout_s: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events other than `wake`, for `timeout_s` seconds or without limit (None)."""
        ready = []
        for key, events in self.selector.select(timeout_s):
            if key.fileobj is self._woken:
                self._woken.recv(4096)
            else:
                ready.append((key, events))
        return ready

    def wait(self) -> None:
        """Wait until the thread has ended. Raises `KafkaError` if it has failed."""
        self._await_end(threading.TIMEOUT_MAX)
        self._check_failure()

    def check_open(self) -> None:
        """Raise `ClosedError` if it was closed, and `KafkaError` if the thread has failed."""
        if self._is_closing:
            raise ClosedError(f"{self._what} was closed; make a new one")
        self._check_failure()

    def close(self) -> None:
        """End the thread. Idempotent.

        Raises:
            KafkaTimeoutError: it does not end.
            KafkaError: it had failed; the cause is attached.
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
        """Wait until the thread no longer uses anything; return whether that is so.

        `Thread.join` does not do: before Python 3.13, an exception of a signal handler (Ctrl-C) in
        it makes the thread count as ended while it still runs (bpo-45274). Its sockets would then
        be closed while it uses them.
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
            raise self._failure  # its message is complete
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
