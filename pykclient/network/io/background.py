"""Blocking calls: each runs on its own daemon thread, and its result goes into a mailbox.

Each result wakes the port, which delivers it inside its `wait`. A caller that stops waiting calls
`forget`, so that a call that hangs keeps none of the caller's objects alive. Calls beyond
`THREADS_MAX` wait for a free thread.

Owner: the port that made it; only `_run` runs on the call's thread.
Source: Java uses threads for this as well, such as ``ExpiringCredentialRefreshingLogin``'s.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pykclient.errors import ConnectionFailedError
from pykclient.network.interrupts import call_masked, raise_of_signal_handler

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

THREADS_MAX: Final = 32
"""Maximum number of calls that run at the same time."""


@dataclass(slots=True, eq=False)
class _Call:
    function: Callable[[], object]
    on_done: Callable[[Any], None] | None
    """None after `forget`."""
    name: str


class BackgroundCalls:
    """Runs functions in the background. `wakeup` is called from their threads."""

    def __init__(self, wakeup: Callable[[], None]) -> None:
        self._wakeup = wakeup
        self._running: set[_Call] = set()
        self._queue: deque[_Call] = deque()
        self._ended: deque[tuple[_Call, object]] = deque()

    def call(
        self, function: Callable[[], T], on_done: Callable[[T | BaseException], None], *, name: str
    ) -> None:
        """Run a function, and pass its result or exception to `on_done` in a later `deliver`.

        If no thread can be started, the result is a `ConnectionFailedError`. The thread is named
        "pykclient-" and `name`.
        """
        call = _Call(function, on_done, name)
        if len(self._running) < THREADS_MAX:
            self._start(call)
        else:
            self._queue.append(call)

    def forget(self, on_done: Callable[[Any], None]) -> None:
        """Cancel the call of `on_done`. A function that already runs continues."""
        self._queue = deque(call for call in self._queue if call.on_done != on_done)
        for call in self._running:
            if call.on_done == on_done:
                call.on_done = None

    def deliver(self) -> None:
        """Deliver the results that have arrived."""
        while self._ended:
            call, result = self._ended.popleft()
            if call not in self._running:
                continue  # it started before a restart
            self._running.discard(call)
            if self._queue:
                self._start(self._queue.popleft())
            if call.on_done is not None:
                call.on_done(result)

    def restart(self) -> None:
        """Forget every call."""
        self._running.clear()
        self._queue.clear()
        self._ended.clear()

    def _start(self, call: _Call) -> None:
        thread = threading.Thread(
            target=self._run, args=(call,), name=f"pykclient-{call.name}", daemon=True
        )
        self._running.add(call)
        try:
            call_masked(thread.start)
        except BaseException as error:
            self._running.discard(call)
            if not isinstance(error, RuntimeError):
                raise
            raise_of_signal_handler(error)
            failure = ConnectionFailedError(
                f"no thread could be started for it ({error}); raise the limit of threads or "
                f"processes (ulimit -u, or the container's pids limit)"
            )
            failure.__cause__ = error
            self._running.add(call)
            self._end(call, failure)

    def _run(self, call: _Call) -> None:
        result: object
        try:
            result = call.function()
        except BaseException as error:  # noqa: BLE001  # user code; the caller handles it
            result = error
        self._end(call, result)

    def _end(self, call: _Call, result: object) -> None:
        self._ended.append((call, result))
        self._wakeup()
