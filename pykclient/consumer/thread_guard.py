"""ThreadGuard: lets one thread at a time use a consumer, and no call on top of another.

States: *free*; *held* by a thread of the application; *unlocked* while that calls user code;
*stepped* by the heartbeat thread; in the end *closed*. It never waits for another thread of the
application: that one gets an error at once, since waiting would hide a bug. The thread inside must
not enter again (in a signal handler, a destructor, a logging handler), unless it is in user code.

The thread that uses the consumer's state holds the core lock; nothing else says whether it is held.
A signal may raise after any function call, so the lock is taken and released by calls into C.
`is_torn` says that the state may be half changed: see `network.interrupts`.
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
"""Time to wait for the heartbeat thread before checking again which thread has the lock."""

P = ParamSpec("P")
T = TypeVar("T")


class BackgroundLock:
    """The core lock as the heartbeat thread uses it, which makes that thread recognizable."""

    def __init__(self, core_lock: threading.RLock) -> None:
        self.step_count = 0
        """Odd while that thread has the lock, or tries to get it."""
        self._core_lock = core_lock

    def acquire(self, *, blocking: Literal[False]) -> bool:
        """Take the lock if it is free; return whether it was."""
        self.step_count += 1
        is_taken = self._core_lock.acquire(blocking=blocking)
        if not is_taken:
            self.step_count += 1
        return is_taken

    def release(self) -> None:
        self._core_lock.release()
        self.step_count += 1


class ThreadGuard:
    """A context manager around each public method of an object; `name` is for messages.

    Entering raises `ClosedError` after `close`, `ForkedClientError` in a child process,
    `ConcurrentModificationError` while another thread is inside or in user code called from inside,
    and `UsageError` on top of a call of the same thread. `recover` repairs the state; it is called
    if user code left it torn by a call of its own.
    """

    def __init__(self, name: str, recover: Callable[[], None] = lambda: None) -> None:
        self.is_closed = False
        """True if no thread may enter any more. Set with the guard held."""
        self.is_torn = False
        """True if the state may be half changed: during a call, and after one that did not
        end. Requires the core lock."""
        self.inside: int | None = None
        """The thread that is in a call; None outside of calls and in user code."""
        self._name = name
        self._recover = recover
        self._process_id = os.getpid()
        self._core_lock = threading.RLock()  # for its owner; it is never taken twice
        # The method that `threading.Condition` uses.
        self._is_owned: Callable[[], bool] = self._core_lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001
        self._owner: int | None = None
        """The thread that entered last, for messages."""
        self._user_thread: int | None = None
        """The thread that is in user code, without the lock."""
        self.background = BackgroundLock(self._core_lock)

    @property
    def is_held(self) -> bool:
        """True if the calling thread is inside, and not in user code."""
        return self._is_owned()

    @property
    def is_in_user_code(self) -> bool:
        """True if a call is in user code, and so encloses the call of the thread inside."""
        return self._user_thread is not None

    @property
    def is_in_call(self) -> bool:
        """True if the calling thread is on top of its own call."""
        return self.inside == threading.get_ident() or self.is_held

    @property
    def is_in_child(self) -> bool:
        """True in a child process, where nothing here may be used."""
        return os.getpid() != self._process_id

    def __enter__(self) -> None:
        # First: a child may have inherited the lock while another thread held it.
        if os.getpid() != self._process_id:
            self.check_process()
        if self.is_closed:
            raise self._closed()
        if self._is_owned():
            raise self.refused("a call")
        self._come_in()

    @property
    def __exit__(self) -> Callable[..., object]:
        """The function that ends the block which is about to be entered.

        A `with` statement gets it before it enters. It is not a Python method, because a signal
        could raise at the beginning of one, before it has done anything.
        """
        return self._core_lock.__exit__

    def call_unlocked(self, function: Callable[P, T], /, *args: P.args, **keywords: P.kwargs) -> T:
        """Call user code without the core lock; it may enter. Requires the core lock."""
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
                self._take_back()  # again, if an interrupt came while waiting for it
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
        """Raise `ForkedClientError` in a child process, where nothing here may be used."""
        if self.is_in_child:
            raise ForkedClientError(
                f"this {self._name} was created in process {self._process_id}, and this is process "
                f"{os.getpid()}; create a new one after a fork"
            )

    def refused(self, call: str) -> UsageError:
        """Return the error for `call` on top of another call of the same thread."""
        return UsageError(
            f"{call} was called while this {self._name} is in the middle of another call of the "
            f"same thread, by a signal handler, a destructor or a logging handler. Call wakeup() "
            f"there, which makes the running call raise WakeupError, or close(), which takes "
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
                # Meanwhile the thread inside may have called user code, or closed the object.
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
        """Take the lock; wait only for the heartbeat thread."""
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
            f"own, or pass work between threads; only wakeup(), metrics() and store_offset() may "
            f"be called from any thread"
        )

    def _closed(self) -> ClosedError:
        return ClosedError(f"this {self._name} is closed; create a new one")
