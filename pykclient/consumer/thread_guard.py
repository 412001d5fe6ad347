"""ThreadGuard: one thread at a time uses a consumer, and the same thread may re-enter.

*Free*, *held* (by one thread, so many levels deep), *closed*. It never waits for another thread of
the application: that gets an error at once, since waiting would hide a mistake.

Inside is the core lock, which whoever touches the consumer's state holds: a thread from its
outermost call on, apart from while it is *lent* for user code to run; and the heartbeat thread,
which only tries it, for a moment, while nobody else has it. Guard before core lock, always.

Owner: the thread that holds it. The lock inside is what makes taking it atomic.
Source: ``acquire`` and ``release`` of Java's ``KafkaConsumer``.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pykclient.errors import ClosedError, ConcurrentModificationError, ForkedClientError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

__all__ = ["ThreadGuard"]


class ThreadGuard:
    """A context manager around each public method of the object called `name`.

    Entering raises `ClosedError` after `close`, `ForkedClientError` in a child process, and
    `ConcurrentModificationError` while another thread is inside.
    """

    def __init__(self, name: str) -> None:
        self.is_closed = False
        self._name = name
        self.core_lock = threading.Lock()
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._depth = 0
        self._lent_depth = 0
        """At this depth the core lock is not held: outside, and in user code that was called."""
        self._process_id = os.getpid()

    def __enter__(self) -> None:
        # First, because a child may have inherited the locks as another thread held them.
        self.check_process()
        me = threading.get_ident()
        if self._owner != me:
            self._take(me)
        elif self.is_closed:
            raise self._closed()
        if self._depth == self._lent_depth:
            self.core_lock.acquire()
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == self._lent_depth:
            self.core_lock.release()
        if self._depth == 0:
            self._owner = None
            self._lock.release()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Run user code without the core lock; it may enter again. Requires the core lock."""
        outer_depth, self._lent_depth = self._lent_depth, self._depth
        self.core_lock.release()
        try:
            yield
        finally:
            self.core_lock.acquire()
            self._lent_depth = outer_depth

    def check_process(self) -> None:
        """Raise `ForkedClientError` in a child process, where nothing here may be touched."""
        if os.getpid() != self._process_id:
            raise ForkedClientError(
                f"this {self._name} was made in process {self._process_id}, and this is process "
                f"{os.getpid()}; make a new one after a fork"
            )

    def close(self) -> None:
        """Let nobody enter from now on. Requires the guard."""
        assert self._lock.locked()
        self.is_closed = True

    def _take(self, me: int) -> None:
        if self.is_closed:
            raise self._closed()
        if not self._lock.acquire(blocking=False):
            raise ConcurrentModificationError(
                f"another thread is using this {self._name} (thread id {self._owner}); give each "
                f"thread its own, or hand work over; only wakeup() may be called from any thread"
            )
        self._owner = me

    def _closed(self) -> ClosedError:
        return ClosedError(f"this {self._name} is closed; make a new one")
