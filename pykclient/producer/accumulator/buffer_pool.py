"""BufferPool: limits the memory for records, and queues threads that wait for it.

The pool counts bytes; it does not own memory. A batch reserves bytes before it grows. It releases
all of them when it is done and no request carries it (`release_if_over`), or when it was never
queued (`release`). The parts of a split batch take their share (`divide`). A waiter that leaves
releases bytes that it did not hand to a batch. Waiters are served in order of arrival, and a later
reservation never passes them; while there is one, no batch lingers. The pool itself never blocks:
the waiting thread does.

Bytes that leave the pool belong to a batch or a waiter in the same moment: an interrupt (Ctrl-C), a
signal handler or a destructor can only run where something is called, and nothing is called under
the lock. A thread therefore never holds the lock for long, and the sender thread may wait for it.

Owner: its own lock, which is taken last and held for a few operations only.
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
    """A thread that waits for `size_bytes`, which are reserved for it once `is_granted`.

    `on_granted` is called when the bytes are granted or the pool closes. It must not block or call
    the pool, and may be called twice.
    """

    __slots__ = ("is_granted", "on_granted", "size_bytes")

    def __init__(self, size_bytes: int, on_granted: Callable[[], None]) -> None:
        self.size_bytes = size_bytes
        self.on_granted = on_granted
        self.is_granted = False


class BufferPool:
    """A pool of `size_bytes` for records."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._free_bytes = size_bytes
        self._waiters: deque[MemoryWaiter] = deque()
        self._is_closed = False
        self._lock = threading.RLock()  # reentrant in case a destructor runs under it after all

    @property
    def free_bytes(self) -> int:
        return self._free_bytes

    @property
    def has_waiters(self) -> bool:
        """True if a thread waits for memory; then every batch is sent at once."""
        return bool(self._waiters)

    def try_reserve(self, size_bytes: int, batch: ProducerBatch) -> bool:
        """Reserve bytes for a batch; return False if too few are free or a thread waits."""
        with self._lock:
            if self._waiters or self._free_bytes < size_bytes:
                return False
            self._free_bytes -= size_bytes
            batch.reserved_bytes += size_bytes
            return True

    def wait_for(self, waiter: MemoryWaiter) -> None:
        """Queue a waiter. It must call `give_up` afterwards, whether or not it was granted."""
        assert waiter.size_bytes <= self.size_bytes, "would never be granted"
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
        """Leave the queue; release bytes that were granted and not handed to a batch."""
        with self._lock:
            if waiter.is_granted:
                self._free_bytes += waiter.size_bytes
            # If it is still in the queue, it is granted 0 bytes when its turn comes.
            waiter.size_bytes = 0
        self._grant()

    def hand_to(self, waiter: MemoryWaiter, batch: ProducerBatch) -> None:
        assert waiter.is_granted
        batch.reserved_bytes += waiter.size_bytes
        waiter.size_bytes = 0

    def divide(self, batch: ProducerBatch, parts: Iterable[ProducerBatch]) -> None:
        """Give the parts of a batch the memory they need; the batch keeps the rest."""
        for part in parts:
            part.reserved_bytes = min(part.size_bytes, batch.reserved_bytes)
            batch.reserved_bytes -= part.reserved_bytes

    def release_if_over(self, batch: ProducerBatch) -> None:
        """Release a batch's memory once it is done and no request carries its bytes."""
        if batch.state is BatchState.DONE and not batch.is_in_request and batch.reserved_bytes:
            self.release(batch)

    def release(self, batch: ProducerBatch) -> None:
        with self._lock:
            self._free_bytes += batch.reserved_bytes
            batch.reserved_bytes = 0
        assert self._free_bytes <= self.size_bytes, "memory was released twice"
        self._grant()

    def close(self) -> None:
        """End every wait, and every later one at once."""
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
            except BaseException:  # an interrupt: the granted thread still waits for its call
                if granted is not None:
                    granted.on_granted()
                raise
