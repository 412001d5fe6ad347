"""Gate: a thread waits until another thread opens it.

A signal handler or a destructor may interrupt `open`, `open_at_once` or `wait` at any moment
without leaving a lock taken. Unlike `threading.Event`, a gate holds no Python lock meanwhile.

Owner: one thread waits; any thread may open it, more than once.
Source: `queue.SimpleQueue`, whose ``put`` is reentrant.
"""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue


class Gate:
    """A gate that is closed at first, and open after the first `open`."""

    __slots__ = ("_opened",)

    def __init__(self) -> None:
        self._opened: SimpleQueue[None] = SimpleQueue()

    def open(self) -> None:
        """Release the thread that waits, or the next one that will."""
        self._opened.put(None)

    def open_at_once(self) -> None:
        """Open the gate and release the GIL once, so that the waiting thread can run first."""
        self.open()
        time.sleep(0)

    def wait(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` seconds (negative: no limit); return whether it was opened."""
        limit_s = None if timeout_s < 0 else min(timeout_s, threading.TIMEOUT_MAX)
        try:
            self._opened.get(timeout=limit_s)
        except Empty:
            return False
        return True
