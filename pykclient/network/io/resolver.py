"""Resolver: name resolution that never blocks a call.

`getaddrinfo` has no time-out, so it runs in the background, once per name at a time. An attempt
that ends early calls `forget`, so that a hanging lookup keeps nothing alive. A failed lookup is
retried after a back-off.

Owner: the port that made it; only `_addresses` runs on the lookup's thread.
Source: KIP-302 (all addresses of a name are used).
"""

from __future__ import annotations

import socket
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from pykclient.errors import ConnectionFailedError
from pykclient.network.io.background import BackgroundCalls

if TYPE_CHECKING:
    from collections.abc import Callable

Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]
"""The arguments for `socket.socket` and `connect`."""

Resolution = tuple["Address", ...] | ConnectionFailedError

LOOKUP_FAILURES = (OSError, ValueError, OverflowError)
"""Errors of `getaddrinfo`: a refused lookup, or an invalid name or port."""

LOOKUPS_MAX = 32
"""Maximum number of names looked up at the same time, each on its own thread."""


class Resolver:
    """Looks names up in the background. `wakeup` is called from their threads."""

    def __init__(self, wakeup: Callable[[], None]) -> None:
        self._wakeup = wakeup
        # A separate pool: hanging name servers must not block other background calls.
        self._calls = BackgroundCalls(wakeup)
        self._waiting: dict[tuple[str, int], list[Callable[[Resolution], None]]] = {}
        """Callbacks by the name that is being looked up; the list may be empty by now."""
        self._results: deque[tuple[tuple[str, int], Resolution]] = deque()

    def resolve(self, host: str, port: int, on_resolved: Callable[[Resolution], None]) -> None:
        """Look a name up, and pass the result to `on_resolved` in a later `deliver`."""
        name = (host, port)
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.append(on_resolved)
            return
        self._waiting[name] = [on_resolved]
        try:
            result = self._immediate(host, port)
            if result is None:
                on_done = partial(self._on_looked_up, name)
                self._calls.call(partial(_addresses, *name), on_done, name=f"resolve-{host}")
        except BaseException:
            del self._waiting[name]  # or it would never be looked up
            raise
        if result is not None:
            self._results.append((name, result))
            self._wakeup()

    def forget(self, on_resolved: Callable[[Resolution], None]) -> None:
        for waiting in self._waiting.values():
            if on_resolved in waiting:
                waiting.remove(on_resolved)

    def deliver(self) -> None:
        """Run the callbacks of lookups that have ended."""
        self._calls.deliver()
        while self._results:
            name, result = self._results.popleft()
            for on_resolved in self._waiting.pop(name, ()):
                on_resolved(result)

    def restart(self) -> None:
        self._calls.restart()
        self._waiting.clear()
        self._results.clear()

    def _immediate(self, host: str, port: int) -> Resolution | None:
        """Return a result that needs no lookup: numeric addresses, or a failure."""
        try:
            return _addresses(host, port, flags=socket.AI_NUMERICHOST)
        except LOOKUP_FAILURES:
            pass  # a name, not a number
        if len(self._waiting) > LOOKUPS_MAX:
            return ConnectionFailedError(
                f"the host name {host!r} was not looked up: {LOOKUPS_MAX} other lookups are still "
                f"under way; check the name server"
            )
        return None

    def _on_looked_up(self, name: tuple[str, int], result: Resolution | BaseException) -> None:
        if isinstance(result, BaseException):
            result = _failure(name[0], result)
        self._results.append((name, result))


def _failure(host: str, cause: BaseException) -> ConnectionFailedError:
    if isinstance(cause, LOOKUP_FAILURES):
        reason = (cause.strerror if isinstance(cause, OSError) else None) or cause
        failure = ConnectionFailedError(
            f"the host name {host!r} cannot be resolved: {reason}; check bootstrap_servers, or the "
            f"broker's advertised.listeners"
        )
    else:
        failure = ConnectionFailedError(f"the host name {host!r} was not looked up: {cause}")
    failure.__cause__ = cause
    return failure


def _addresses(host: str, port: int, *, flags: int = 0) -> tuple[Address, ...]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    # A name may be listed twice; an address that refused need not be tried again.
    return tuple(dict.fromkeys((entry[0], entry[4]) for entry in found))  # type: ignore[misc]
