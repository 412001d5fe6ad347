"""BufferPool: how many bytes of records a producer may hold, and which threads wait for some.

It counts, it does not own memory: a batch reserves bytes before it grows. All of them come back
when it is done and no request carries it any more (`release_if_over`), or if it was never begun
(`release`); the parts of a split batch take what they need of it (`divide`). What a waiter was
granted and did not hand to a batch comes back when it gives up. Waiters are served in the order of
arrival, and no later reservation passes them; while there is one, no batch lingers. The pool itself
never blocks; the waiting thread does.

Bytes that leave the pool are a batch's or a waiter's in the same moment: an interrupt (Ctrl-C), a
signal handler or a destructor comes in only where something is called, and nothing is called under
the lock. So a thread that has it is not interrupted for long, and the sender thread may wait for
it.

Owner: its own lock, taken last and held for a few operations only.
Source: Java class ``BufferPool``.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from pykclient.producer.accumulator.batch import BatchState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pykclient.producer.accumulator.batch import ProducerBatch


class MemoryWaiter:
    """A thread that needs `size_bytes`, which are reserved for it once `is_granted`.

    `on_granted` is called when that is so, or when the pool closes. It must not block, must not
    call the pool, and may be called twice.
    """

    __slots__ = ("is_granted", "on_granted", "size_bytes")

    def __init__(self, size_bytes: int, on_granted: Callable[[], None]) -> None:
        self.size_bytes = size_bytes
        self.on_granted = on_granted
        self.is_granted = False


class BufferPool:
    """`size_bytes` of memory for records, in reservations."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._free_bytes = size_bytes
        self._waiters: deque[MemoryWaiter] = deque()
        self._is_closed = False
        self._lock = threading.RLock()  # should a destructor come in all the same

    @property
    def free_bytes(self) -> int:
        return self._free_bytes

    @property
    def has_waiters(self) -> bool:
        """Whether a thread waits for memory: then every batch is worth sending."""
        return bool(self._waiters)

    def try_reserve(self, size_bytes: int, batch: ProducerBatch) -> bool:
        """Reserve bytes for a batch if there are so many and no thread waits for some."""
        with self._lock:
            if self._waiters or self._free_bytes < size_bytes:
                return False
            self._free_bytes -= size_bytes
            batch.reserved_bytes += size_bytes
            return True

    def wait_for(self, waiter: MemoryWaiter) -> None:
        """Queue up, until granted or until `give_up`, which has to follow in any case."""
        assert waiter.size_bytes <= self.size_bytes, "more than there is would never come"
        entry = (waiter,)
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._waiters += entry
        if is_closed:
            waiter.on_granted()
        else:
            self._grant()

    def give_up(self, waiter: MemoryWaiter) -> None:
        """Leave the queue; what was granted meanwhile, and not handed on, goes back."""
        with self._lock:
            if waiter.is_granted:
                self._free_bytes += waiter.size_bytes
            # One that still stands in the queue is granted nothing when its turn comes.
            waiter.size_bytes = 0
        self._grant()

    def hand_to(self, waiter: MemoryWaiter, batch: ProducerBatch) -> None:
        assert waiter.is_granted
        batch.reserved_bytes += waiter.size_bytes
        waiter.size_bytes = 0

    def divide(self, batch: ProducerBatch, parts: Iterable[ProducerBatch]) -> None:
        """Let the parts of a batch have what they need of its memory; it keeps the rest."""
        for part in parts:
            part.reserved_bytes = min(part.size_bytes, batch.reserved_bytes)
            batch.reserved_bytes -= part.reserved_bytes

    def release_if_over(self, batch: ProducerBatch) -> None:
        """Take back all that a batch has once it is done and no request carries its bytes."""
        if batch.state is BatchState.DONE and not batch.is_in_request and batch.reserved_bytes:
            self.release(batch)

    def release(self, batch: ProducerBatch) -> None:
        with self._lock:
            self._free_bytes += batch.reserved_bytes
            batch.reserved_bytes = 0
        assert self._free_bytes <= self.size_bytes, "memory was given back twice"
        self._grant()

    def close(self) -> None:
        """End every wait, those to come as well."""
        none: deque[MemoryWaiter] = deque()
        with self._lock:
            self._is_closed = True
            waiters, self._waiters = self._waiters, none
        for waiter in waiters:
            waiter.on_granted()

    def _grant(self) -> None:
        while self._waiters:
            granted: MemoryWaiter | None = None
            try:
                with self._lock:
                    if self._waiters and self._waiters[0].size_bytes <= self._free_bytes:
                        granted = self._waiters[0]
                        self._free_bytes -= granted.size_bytes
                        granted.is_granted = True
                        del self._waiters[0]
                if granted is None:
                    return
                if granted.size_bytes:
                    granted.on_granted()
            except BaseException:  # an interrupt: it is another thread that waits to be called
                if granted is not None:
                    granted.on_granted()
                raise
