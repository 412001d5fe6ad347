"""Interrupts: whether an exception that comes out of a call has left things half done.

A signal handler may raise between any two instructions of the main thread, in a `finally` too; what
a client does about it is in docs/decisions/0015. What is raised where nothing is being changed
costs no recovery: in a function that is marked by `harmless` (waiting for sockets, code of the
user), and our own errors. `Consumer.wakeup` has nothing to do with signals: see
`consumer/waiting.py`.

Owner: none; it holds no state but that register.
"""

from __future__ import annotations

import signal
import threading
from traceback import walk_tb
from types import CodeType
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from pykclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

OUR_PACKAGES: Final = frozenset({__name__.partition(".")[0], "selectors", "socket", "ssl"})
"""Whose errors are caught where they are known; what a handler raises comes from elsewhere."""

CHAIN_MAX: Final = 100
"""Maximum number of exceptions looked at, each the context of the one before it."""

P = ParamSpec("P")
T = TypeVar("T")

_harmless_codes: set[CodeType] = set()


def harmless(function: Callable[P, T]) -> Callable[P, T]:
    """Register a function in which, and below which, no state of a client is being changed."""
    _harmless_codes.add(function.__code__)
    return function


@harmless
def call_harmless(function: Callable[P, T], /, *args: P.args, **keywords: P.kwargs) -> T:
    """Call what is the user's: whatever it raises, the client is as it was."""
    return function(*args, **keywords)


def call_masked(function: Callable[[], None]) -> None:
    """Call what no signal should come into the midst of; it is handled after that, here.

    `Thread.start` takes locks of Python's own: a handler that raises in its midst leaves a thread
    that waits for one of them for ever, or that is not known of. A thread that is started by this
    takes no signals with handlers of Python's, either. Those that the system gives to threads of
    the application's own are handled at once all the same.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows has none
        function()
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    handled = [number for number in signal.valid_signals() if callable(signal.getsignal(number))]
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, handled)
        function()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leaves_whole(error: BaseException) -> bool:
    """Return whether what is being handled was raised where nothing was half done.

    Where a second exception replaces the first on its way, the second one counts.
    """
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    if any(frame.f_code in _harmless_codes for frame in frames):
        return True
    return isinstance(error, KafkaError) and _is_ours(frames)


def raise_foreign(error: BaseException) -> None:
    """Raise what a signal handler raised, though it is of a type that is handled here.

    Python's `TimeoutError`, a handler's favourite, is an `OSError`.
    """
    if not _is_ours([frame for frame, _ in walk_tb(error.__traceback__)]):
        raise error


def raise_of_signal_handler(error: BaseException) -> None:
    """Raise what a signal handler raised, where whatever else is raised is contained."""
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {code for handler in handlers if (code := _code_of(handler)) is not None}
    if any(frame.f_code in codes for frame, _ in walk_tb(error.__traceback__)):
        raise error


def receives_interrupts() -> bool:
    """Return whether a Ctrl-C raises `KeyboardInterrupt` in this thread."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def interrupt_count(error: BaseException | None) -> int:
    """Return how often Ctrl-C was pressed since the first exception that is being handled.

    A `KeyboardInterrupt` that came while another one was being handled has that as its context. One
    that was raised ``from`` another is the same interrupt.
    """
    count = 0
    for _ in range(CHAIN_MAX):
        if error is None:
            break
        is_raised_again = isinstance(error.__cause__, KeyboardInterrupt)
        if isinstance(error, KeyboardInterrupt) and not is_raised_again:
            count += 1
        error = error.__cause__ or error.__context__
    return count


def _code_of(handler: object) -> CodeType | None:
    for function in (handler, getattr(type(handler), "__call__", None)):  # noqa: B004
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None


def _is_ours(frames: Sequence[FrameType]) -> bool:
    module: str = frames[-1].f_globals.get("__name__", "") if frames else ""
    return module.partition(".")[0] in OUR_PACKAGES
