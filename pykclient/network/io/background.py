"""Blocking calls: each runs on a daemon thread of its own, and its result goes into a mailbox.

The port is woken by each result, and delivers it from inside its `wait`. Whoever gives up calls
`forget`, so that a call that hangs keeps nothing of it alive. Calls beyond `THREADS_MAX` wait for
the end of another one.

Owner: the port that made it; `_run` alone is on the call's thread.
Source: Java has threads for this as well, the one of ``ExpiringCredentialRefreshingLogin`` for one.
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
"""Calls that run at the same time."""


@dataclass(slots=True, eq=False)
class _Call:
    function: Callable[[], object]
    on_done: Callable[[Any], None] | None
    """None once it was forgotten."""
    name: str


class BackgroundCalls:
    """Runs functions in the background. `wakeup` is called from another thread."""

    def __init__(self, wakeup: Callable[[], None]) -> None:
        self._wakeup = wakeup
        self._running: set[_Call] = set()
        self._queue: deque[_Call] = deque()
        self._ended: deque[tuple[_Call, object]] = deque()

    def call(
        self, function: Callable[[], T], on_done: Callable[[T | BaseException], None], *, name: str
    ) -> None:
        """Have `on_done` called, by a later `deliver`, with what `function` returns or raises.

        Where no thread can be started that is a `ConnectionFailedError`. The thread's name is
        `name` behind "pykclient-".
        """
        call = _Call(function, on_done, name)
        if len(self._running) < THREADS_MAX:
            self._start(call)
        else:
            self._queue.append(call)

    def forget(self, on_done: Callable[[Any], None]) -> None:
        """Never call `on_done`. What runs already goes on to its end."""
        self._queue = deque(call for call in self._queue if call.on_done != on_done)
        for call in self._running:
            if call.on_done == on_done:
                call.on_done = None

    def deliver(self) -> None:
        """Pass on the results that have come."""
        while self._ended:
            call, result = self._ended.popleft()
            if call not in self._running:
                continue  # it was begun before a restart
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
        except BaseException as error:  # noqa: BLE001  # user code; whoever called handles it
            result = error
        self._end(call, result)

    def _end(self, call: _Call, result: object) -> None:
        self._ended.append((call, result))
        self._wakeup()
