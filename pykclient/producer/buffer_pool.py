"""BufferPool: how many bytes of records a producer may hold, and who waits for some.

It counts, it does not own memory: a batch reserves bytes before it grows and gives them back when
it is done and no request carries it any more. Whoever waits is served in the order of arrival, and
nobody who comes later passes him. The pool itself never blocks; how a waiter waits is his matter.

Owner: its own lock, taken last and held for a few operations only.
Source: Java class ``BufferPool``.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BufferPool", "MemoryWaiter"]


class MemoryWaiter:
    """A place in the queue for memory. Once `is_granted`, the bytes belong to whoever waited."""

    __slots__ = ("is_granted", "on_granted", "size_bytes")

    def __init__(self, size_bytes: int, on_granted: Callable[[], None]) -> None:
        self.size_bytes = size_bytes
        self.on_granted = on_granted
        self.is_granted = False

    def take(self) -> int:
        """Return how many bytes were granted; they are the caller's to give back from now on."""
        assert self.is_granted
        size_bytes, self.size_bytes = self.size_bytes, 0
        return size_bytes


class BufferPool:
    """`size_bytes` of memory for records, in reservations."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._free_bytes = size_bytes
        self._waiters: deque[MemoryWaiter] = deque()
        self._is_closed = False
        self._lock = threading.Lock()

    @property
    def free_bytes(self) -> int:
        """How many bytes nobody has reserved."""
        return self._free_bytes

    @property
    def has_waiters(self) -> bool:
        """Whether somebody waits for memory: then every batch is worth sending."""
        return bool(self._waiters)

    def try_reserve(self, size_bytes: int) -> bool:
        """Take bytes if there are so many and nobody waits for some."""
        with self._lock:
            if self._waiters or self._free_bytes < size_bytes:
                return False
            self._free_bytes -= size_bytes
            return True

    def wait_for(self, size_bytes: int, on_granted: Callable[[], None]) -> MemoryWaiter:
        """Queue up for bytes. `on_granted` is called once they are there, perhaps at once.

        It is called too when the pool closes; `is_granted` tells. It must not block and must not
        call the pool.
        """
        assert size_bytes <= self.size_bytes, "waiting for more than there is would never end"
        waiter = MemoryWaiter(size_bytes, on_granted)
        with self._lock:
            if self._is_closed:
                told = [waiter]
            else:
                self._waiters.append(waiter)
                told = self._grant()
        _tell(told)
        return waiter

    def give_up(self, waiter: MemoryWaiter) -> None:
        """Leave the queue; what was granted meanwhile, and not taken, goes back."""
        with self._lock:
            if waiter.is_granted:
                self._free_bytes += waiter.size_bytes
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            granted = self._grant()
        _tell(granted)

    def release(self, size_bytes: int) -> None:
        """Give back bytes, which goes to those who wait first."""
        with self._lock:
            self._free_bytes += size_bytes
            assert self._free_bytes <= self.size_bytes, "memory was given back twice"
            granted = self._grant()
        _tell(granted)

    def close(self) -> None:
        """Send everybody away who waits, now or later."""
        with self._lock:
            self._is_closed = True
            told = list(self._waiters)
            self._waiters.clear()
        _tell(told)

    def _grant(self) -> list[MemoryWaiter]:
        assert self._lock.locked()
        granted = []
        while self._waiters and self._waiters[0].size_bytes <= self._free_bytes:
            waiter = self._waiters.popleft()
            self._free_bytes -= waiter.size_bytes
            waiter.is_granted = True
            granted.append(waiter)
        return granted


def _tell(waiters: list[MemoryWaiter]) -> None:
    # Outside the lock: what a waiter does is not the pool's to know.
    for waiter in waiters:
        waiter.on_granted()
