"""Name resolution that cannot hold up a call.

`getaddrinfo` has no time-out, so it runs on a daemon thread, one per name that is being looked up;
the result is put into a mailbox and the port is woken. An attempt that is given up calls `forget`,
so that a look-up that hangs keeps nothing alive. What fails is tried again after a back-off.

Owner: the port that made it; `_run` alone is on the look-up's thread.
Source: KIP-302 (all addresses of a name are used).
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from typing import TYPE_CHECKING

from pykclient.errors import ConnectionFailedError
from pykclient.network.interrupts import call_masked, raise_of_signal_handler

if TYPE_CHECKING:
    from collections.abc import Callable

Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]
"""What `socket.socket` and `connect` need to know."""

Resolution = tuple["Address", ...] | ConnectionFailedError

LOOKUP_FAILURES = (OSError, ValueError, OverflowError)
"""What `getaddrinfo` raises: a refused look-up; a name, or a port, that cannot be one."""

LOOKUPS_MAX = 32
"""Names looked up at the same time, each on a thread."""


class Resolver:
    """Looks names up in the background. `wakeup` is called from another thread."""

    def __init__(self, wakeup: Callable[[], None]) -> None:
        self._wakeup = wakeup
        self._waiting: dict[tuple[str, int], list[Callable[[Resolution], None]]] = {}
        """What to call, by names that are being looked up; perhaps nothing any more."""
        self._results: deque[tuple[tuple[str, int], Resolution]] = deque()

    def resolve(self, host: str, port: int, on_resolved: Callable[[Resolution], None]) -> None:
        """Have `on_resolved` called, by a later `deliver`, with the addresses or an error."""
        name = (host, port)
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.append(on_resolved)
            return
        self._waiting[name] = [on_resolved]
        try:
            result = self._immediate(host, port)
            if result is None:
                self._start(name)
        except BaseException as error:
            del self._waiting[name]  # or it would never be looked up
            if not isinstance(error, RuntimeError):
                raise
            raise_of_signal_handler(error)
            self._waiting[name] = [on_resolved]
            result = ConnectionFailedError(
                f"the host name {host!r} was not looked up: no thread could be started for it "
                f"({error}); raise the limit of threads or processes (ulimit -u, or the "
                f"container's pids limit)"
            )
            result.__cause__ = error
        if result is not None:
            self._results.append((name, result))
            self._wakeup()

    def forget(self, on_resolved: Callable[[Resolution], None]) -> None:
        for waiting in self._waiting.values():
            if on_resolved in waiting:
                waiting.remove(on_resolved)

    def deliver(self) -> None:
        """Call back the attempts whose look-ups have ended."""
        while self._results:
            name, result = self._results.popleft()
            for on_resolved in self._waiting.pop(name, ()):
                on_resolved(result)

    def restart(self) -> None:
        self._waiting.clear()
        self._results.clear()

    def _start(self, name: tuple[str, int]) -> None:
        thread = threading.Thread(
            target=self._run, args=(name,), name=f"pykclient-resolve-{name[0]}", daemon=True
        )
        call_masked(thread.start)

    def _immediate(self, host: str, port: int) -> Resolution | None:
        """Return what needs no look-up: the addresses in numbers, or a failure."""
        try:
            return _addresses(host, port, flags=socket.AI_NUMERICHOST)
        except LOOKUP_FAILURES:
            pass  # a name, not a number
        if len(self._waiting) > LOOKUPS_MAX:
            return ConnectionFailedError(
                f"the host name {host!r} was not looked up: {LOOKUPS_MAX} other look-ups are still "
                f"under way; check the name server"
            )
        return None

    def _run(self, name: tuple[str, int]) -> None:
        result: Resolution
        try:
            result = _addresses(*name)
        except LOOKUP_FAILURES as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            result = ConnectionFailedError(
                f"the host name {name[0]!r} cannot be resolved: {reason}; check "
                f"bootstrap_servers, or the broker's advertised.listeners"
            )
            result.__cause__ = error
        self._results.append((name, result))
        self._wakeup()


def _addresses(host: str, port: int, *, flags: int = 0) -> tuple[Address, ...]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    # A name may be listed twice; what is refused once need not be tried again.
    return tuple(dict.fromkeys((entry[0], entry[4]) for entry in found))  # type: ignore[misc]
