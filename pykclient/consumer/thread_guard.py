"""ThreadGuard: one thread at a time uses a consumer, and none on top of its own call.

*Free*, *held* by a thread of the application, *unlocked* while that calls user code, *stepped* by
the heartbeat thread, and in the end *closed*. It never waits for another thread of the application:
that one gets an error at once, since waiting would hide a mistake. Nor may the thread that is
inside come in again (a signal handler, a destructor, a handler of log records), unless it is in
user code.

The core lock inside is held by the thread that touches the consumer's state; nothing else says
whether it is held. A signal may raise after any call of a function, so the lock is taken and given
back by calls into C. `is_torn` says that the state may be half changed: see `network.interrupts`.

Owner: the thread that holds it.
Source: ``acquire`` and ``release`` of Java's ``KafkaConsumer``.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final, Literal, ParamSpec, TypeVar

from pykclient.errors import ClosedError, ConcurrentModificationError, ForkedClientError, UsageError
from pykclient.network.interrupts import call_harmless

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_WAIT_S: Final = 0.005
"""How long the heartbeat thread is waited for before it is looked which thread has the lock."""

P = ParamSpec("P")
T = TypeVar("T")


class BackgroundLock:
    """The core lock for the heartbeat thread, which is known from other threads by this."""

    def __init__(self, core_lock: threading.RLock) -> None:
        self.step_count = 0
        """Odd while that thread has the lock, or tries it."""
        self._core_lock = core_lock

    def acquire(self, *, blocking: Literal[False]) -> bool:
        """Take the lock if it is free; return whether."""
        self.step_count += 1
        is_taken = self._core_lock.acquire(blocking=blocking)
        if not is_taken:
            self.step_count += 1
        return is_taken

    def release(self) -> None:
        self._core_lock.release()
        self.step_count += 1


class ThreadGuard:
    """A context manager around each public method of the object called `name`.

    Entering raises `ClosedError` after `close`, `ForkedClientError` in a child process,
    `ConcurrentModificationError` while another thread is inside, or in user code that it called,
    and `UsageError` on top of a call of the same thread. `recover` makes the state whole; it is
    called where user code that was called has left it torn, by a call of its own.
    """

    def __init__(self, name: str, recover: Callable[[], None] = lambda: None) -> None:
        self.is_closed = False
        """Whether no thread may enter any more. Set with the guard held."""
        self.is_torn = False
        """Whether the state may be half changed: true inside a call, and after one that did not
        end. Requires the core lock."""
        self.inside: int | None = None
        """The thread that is in a call; None while it is in user code, and after the last one."""
        self._name = name
        self._recover = recover
        self._process_id = os.getpid()
        self._core_lock = threading.RLock()  # one that knows its owner; it is never taken twice
        # As `threading.Condition` calls it.
        self._is_owned: Callable[[], bool] = self._core_lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001
        self._owner: int | None = None
        """The thread that came in last, for messages."""
        self._user_thread: int | None = None
        """The thread that is in user code now, without the lock."""
        self.background = BackgroundLock(self._core_lock)

    @property
    def is_held(self) -> bool:
        """Whether the calling thread is inside, and not in user code."""
        return self._is_owned()

    @property
    def is_in_user_code(self) -> bool:
        """Whether a call is in user code, so that there is one around the thread that is inside."""
        return self._user_thread is not None

    @property
    def is_in_call(self) -> bool:
        """Whether the calling thread is on top of a call of its own."""
        return self.inside == threading.get_ident() or self.is_held

    @property
    def is_in_child(self) -> bool:
        """Whether this is a child process, where nothing here may be touched."""
        return os.getpid() != self._process_id

    def __enter__(self) -> None:
        # First, because a child may have inherited the lock as another thread held it.
        if os.getpid() != self._process_id:
            self.check_process()
        if self.is_closed:
            raise self._closed()
        if self._is_owned():
            raise self.refused("a call")
        self._come_in()

    @property
    def __exit__(self) -> Callable[..., object]:
        """What ends the block that is about to be entered.

        A `with` statement gets it before it enters. It is no method of ours because a signal
        could raise at the beginning of one, before it has done anything.
        """
        return self._core_lock.__exit__

    def call_unlocked(self, function: Callable[P, T], /, *args: P.args, **keywords: P.kwargs) -> T:
        """Call user code without the core lock; it may come in. Requires the core lock."""
        assert self.is_held
        outer, inside = self._user_thread, self.inside
        try:
            self._user_thread = threading.get_ident()
            self.inside = None
            self.is_torn = False
            try:
                self._core_lock.release()
                return call_harmless(function, *args, **keywords)
            finally:
                self._core_lock.acquire()
        finally:
            try:
                self._take_back()  # again, if an interrupt came while it was waited for
                self._recover_if_torn()
            finally:
                self._user_thread, self.inside = outer, inside
                self.is_torn = True

    def _take_back(self) -> None:
        if not self.is_held:
            self._core_lock.acquire()

    def _recover_if_torn(self) -> None:
        if self.is_torn:
            self._recover()

    def check_process(self) -> None:
        """Raise `ForkedClientError` in a child process, where nothing here may be touched."""
        if self.is_in_child:
            raise ForkedClientError(
                f"this {self._name} was made in process {self._process_id}, and this is process "
                f"{os.getpid()}; make a new one after a fork"
            )

    def refused(self, call: str) -> UsageError:
        """Return why `call` is not made on top of another one of the same thread."""
        return UsageError(
            f"{call} was called while this {self._name} is in the middle of another call of this "
            f"thread, by a signal handler, a destructor or a handler of log records. Call wakeup() "
            f"there, which makes the call under way raise WakeupError, or close(), which takes "
            f"effect when that call ends"
        )

    def _come_in(self) -> None:
        me = threading.get_ident()
        outside = self._user_thread
        try:
            if outside == me:
                self._core_lock.acquire()  # no other thread has it for longer than a step
            elif outside is not None:
                raise self._refusal(outside)
            else:
                self._acquire()
                # Meanwhile the thread inside may have called user code, or closed for good.
                if self._user_thread is not None:
                    raise self._refusal(self._user_thread)
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

    def _refusal(self, owner: int | None) -> ConcurrentModificationError:
        return ConcurrentModificationError(
            f"another thread is using this {self._name} (thread id {owner}); give each thread its "
            f"own, or hand work over; only wakeup(), metrics() and store_offset() may be called "
            f"from any thread"
        )

    def _closed(self) -> ClosedError:
        return ClosedError(f"this {self._name} is closed; make a new one")
