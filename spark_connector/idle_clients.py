"""IdleClients: clients of one kind that a process keeps for their next use.

A client is closed when it was idle for `idle_s_max`, or when more than `count_max` are idle: then
the one that is idle longest. Both are looked at when a client is put back. Clients of another
process, which a fork has copied, are never touched.

Owner: the process, in which one thread uses them.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

IDLE_S_MAX: Final = 120.0
"""Seconds that a client is kept without a use. Spark ends a worker without work after a minute, so
a client that is older belongs to a query that has ended, or has rare batches."""

COUNT_MAX: Final = 32
"""Idle clients of one kind that a process keeps: far more than queries of one application."""

_Client = TypeVar("_Client")


class _Idle(NamedTuple, Generic[_Client]):
    client: _Client
    since_s: float


class IdleClients(Generic[_Client]):
    """See the module. `close` closes one client; `now_s` is a monotonic clock."""

    def __init__(
        self,
        close: Callable[[_Client], object],
        *,
        count_max: int = COUNT_MAX,
        idle_s_max: float = IDLE_S_MAX,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._close = close
        self._count_max = count_max
        self._idle_s_max = idle_s_max
        self._now_s = now_s
        self._idle: dict[tuple[int, Hashable], _Idle[_Client]] = {}
        """In the order in which they were put back."""

    def take(self, key: Hashable) -> _Client | None:
        """Return the client that is kept under a key, which is not kept any more; None without."""
        found = self._idle.pop((os.getpid(), key), None)
        return None if found is None else found.client

    def put(self, key: Hashable, client: _Client) -> None:
        """Keep a client; another one under the same key is closed."""
        own = (os.getpid(), key)
        if (other := self._idle.pop(own, None)) is not None and other.client is not client:
            self._close(other.client)
        self._idle[own] = _Idle(client, self._now_s())
        self._close_idle()

    def close_all(self) -> None:
        """Close all clients of this process."""
        for key in self._own():
            self._close(self._idle.pop(key).client)

    def _close_idle(self) -> None:
        own = self._own()
        oldest_s = self._now_s() - self._idle_s_max
        for place, key in enumerate(own):
            if place < len(own) - self._count_max or self._idle[key].since_s < oldest_s:
                self._close(self._idle.pop(key).client)

    def _own(self) -> list[tuple[int, Hashable]]:
        return [key for key in self._idle if key[0] == os.getpid()]
