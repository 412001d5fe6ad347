"""Gate: where one thread waits until another opens it.

A signal handler or a destructor may interrupt a call of `open`, `open_at_once` or `wait`, at any
moment, and nothing is left locked: no lock of Python's own is held meanwhile, as `threading.Event`
does.

Owner: one thread waits; any may open it, more than once.
Source: `queue.SimpleQueue`; its ``put`` may be interrupted and come in again.
"""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue


class Gate:
    """Closed when it is made; open from the first `open` on."""

    __slots__ = ("_opened",)

    def __init__(self) -> None:
        self._opened: SimpleQueue[None] = SimpleQueue()

    def open(self) -> None:
        self._opened.put(None)

    def open_at_once(self) -> None:
        """Open it, and let go of the GIL once, so that the thread that waits may go on first."""
        self.open()
        time.sleep(0)

    def wait(self, timeout_s: float) -> bool:
        """Wait at most so long (negative: without limit); return whether it was opened."""
        limit_s = None if timeout_s < 0 else min(timeout_s, threading.TIMEOUT_MAX)
        try:
            self._opened.get(timeout=limit_s)
        except Empty:
            return False
        return True
