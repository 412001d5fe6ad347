"""ThreadGuard: one thread at a time uses a consumer, and the same thread may come in again.

*Free*, *held* by a thread of the application, *lent* by it to user code that it calls, *stepped* by
the heartbeat thread, and in the end *closed*. It never waits for another thread of the application:
that one gets an error at once, since waiting would hide a mistake.

The core lock inside is held by whoever touches the consumer's state, and is all that tells whether
it is held: there is no count beside it that an interrupt could put out of step. A signal may raise
after any call of a function, so what must not be left half done is either one call into C, or made
good in a `finally`.

Owner: the thread that holds it.
Source: ``acquire`` and ``release`` of Java's ``KafkaConsumer``.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final, Literal, ParamSpec, TypeVar

from pykclient.errors import ClosedError, ConcurrentModificationError, ForkedClientError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BackgroundLock", "ThreadGuard"]

STEP_WAIT_S: Final = 0.005
"""How long the heartbeat thread is waited for before it is looked who has the lock."""

P = ParamSpec("P")
T = TypeVar("T")


class BackgroundLock:
    """The core lock for the heartbeat thread, which can be told from other threads by this."""

    def __init__(self, core_lock: threading.RLock) -> None:
        self.step_count = 0
        """Odd while that thread has the lock, or tries it."""
        self._core_lock = core_lock

    def acquire(self, *, blocking: Literal[False]) -> bool:
        """Take the lock if nobody has it; return whether."""
        self.step_count += 1
        is_taken = self._core_lock.acquire(blocking=blocking)
        if not is_taken:
            self.step_count += 1
        return is_taken

    def release(self) -> None:
        """Give the lock back."""
        self._core_lock.release()
        self.step_count += 1


class ThreadGuard:
    """A context manager around each public method of the object called `name`.

    Entering raises `ClosedError` after `close`, `ForkedClientError` in a child process, and
    `ConcurrentModificationError` while another thread is inside, or in user code that it called.
    """

    def __init__(self, name: str) -> None:
        self.is_closed = False
        self._name = name
        self._process_id = os.getpid()
        self._core_lock = threading.RLock()  # one that knows its owner; it is never taken twice
        self._owner: int | None = None
        """Who came in last, for messages."""
        self._lender: int | None = None
        """The thread that is in user code now, without the lock."""
        self.background = BackgroundLock(self._core_lock)

    @property
    def is_held(self) -> bool:
        """Whether the thread that asks is inside, and not in user code that it was lent to."""
        # As `threading.Condition` asks it.
        is_owned: bool = self._core_lock._is_owned()  # type: ignore[attr-defined]  # noqa: SLF001
        return is_owned

    def __enter__(self) -> None:
        # First, because a child may have inherited the lock as another thread held it.
        self.check_process()
        if self.is_closed:
            raise self._closed()
        if not self.is_held:
            self._come_in()

    @property
    def __exit__(self) -> Callable[..., object]:
        """What ends the block that is about to be entered: nothing where it is inside another one.

        A `with` statement asks for it before it enters. It is no method of ours because a signal
        could raise at the beginning of one, before it has done anything.
        """
        return _nothing if self.is_held else self._core_lock.__exit__

    def lend(self, function: Callable[P, T], /, *args: P.args, **keywords: P.kwargs) -> T:
        """Call user code without the core lock; it may come in again. Requires the core lock."""
        assert self.is_held
        outer = self._lender
        try:
            self._lender = threading.get_ident()
            try:
                self._core_lock.release()
                return function(*args, **keywords)
            finally:
                self._take_back()
        finally:
            self._lender = outer
            self._take_back()  # again, where an interrupt came between

    def check_process(self) -> None:
        """Raise `ForkedClientError` in a child process, where nothing here may be touched."""
        if os.getpid() != self._process_id:
            raise ForkedClientError(
                f"this {self._name} was made in process {self._process_id}, and this is process "
                f"{os.getpid()}; make a new one after a fork"
            )

    def close(self) -> None:
        """Let nobody enter from now on. Requires the guard."""
        assert self.is_held
        self.is_closed = True

    def _come_in(self) -> None:
        me = threading.get_ident()
        lender = self._lender
        try:
            if lender == me:
                self._core_lock.acquire()  # nobody else has it for longer than a step
            elif lender is not None:
                raise self._refusal(lender)
            else:
                self._acquire()
                # Meanwhile whoever was inside may have lent it, or closed for good.
                if self._lender is not None:
                    raise self._refusal(self._lender)
            if self.is_closed:
                raise self._closed()
            self._owner = me
        except BaseException:
            if self.is_held:
                self._core_lock.release()
            raise

    def _acquire(self) -> None:
        """Take the lock, for which the heartbeat thread alone is waited for."""
        while True:
            step_count = self.background.step_count
            if self._core_lock.acquire(blocking=False):
                return
            if step_count == self.background.step_count and step_count % 2 == 0:
                raise self._refusal(self._owner)
            if self._core_lock.acquire(timeout=STEP_WAIT_S):
                return

    def _take_back(self) -> None:
        if not self.is_held:
            self._core_lock.acquire()

    def _refusal(self, owner: int | None) -> ConcurrentModificationError:
        return ConcurrentModificationError(
            f"another thread is using this {self._name} (thread id {owner}); give each thread its "
            f"own, or hand work over; only wakeup() may be called from any thread"
        )

    def _closed(self) -> ClosedError:
        return ClosedError(f"this {self._name} is closed; make a new one")


_nothing: Final[Callable[..., object]] = "".format
"""Takes anything, does nothing, and is written in C."""
