"""Interrupts: whether an exception that comes out of a call has left things half done.

A signal handler may raise between any two instructions of the main thread, in a `finally` too; what
a client does about it is in docs/decisions/0015. What is raised where nothing is being changed
costs no recovery: in a function that is marked by `harmless` (waiting for sockets, code of the
user), and our own errors. `Consumer.wakeup` has nothing to do with signals: see
`consumer/waiting.py`.

An error is a signal handler's if it came through the handler's call, and for no other reason. It
does not matter which module raised it: a socket may be an object of any library (gevent, PySocks),
and an `OSError` out of a call of it is a network error.

Owner: none; it holds no state but that register.
"""

from __future__ import annotations

import signal
import threading
from inspect import CO_VARARGS
from itertools import pairwise
from traceback import walk_tb
from types import CodeType
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from pykclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

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
    if any(frame.f_code in _harmless_codes for frame, _ in walk_tb(error.__traceback__)):
        return True
    return isinstance(error, KafkaError) and not is_of_signal_handler(error)


def raise_of_signal_handler(error: BaseException) -> None:
    """Raise what a signal handler raised, where whatever else is raised is contained.

    Python's `TimeoutError`, a handler's favourite, is an `OSError`.
    """
    if is_of_signal_handler(error):
        raise error


def is_of_signal_handler(error: BaseException) -> bool:
    """Return whether an error that is being handled came out of a signal handler.

    Python calls a handler with the signal's number and the frame that it interrupts, and no other
    function has that frame as its argument. A handler that deletes it is known while it is set. One
    without a frame of its own, in C, is not recognised.
    """
    traceback = error.__traceback__
    if traceback is None or traceback.tb_next is None:
        return False  # raised in the very function that handles it, or in C code that it calls
    frames = [frame for frame, _ in walk_tb(traceback)]
    codes = _handler_codes()
    return any(
        called.f_code in codes or _has_argument(called, interrupted)
        for interrupted, called in pairwise(frames)
    )


def _handler_codes() -> set[CodeType]:
    handlers = map(signal.getsignal, signal.valid_signals())
    return {code for handler in handlers if (code := _code_of(handler)) is not None}


def _has_argument(called: FrameType, value: object) -> bool:
    code = called.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    positional = called.f_locals
    arguments = [positional.get(name) for name in code.co_varnames[:count]]
    if code.co_flags & CO_VARARGS:
        more = positional.get(code.co_varnames[count])
        arguments.extend(more if isinstance(more, tuple) else ())
    return any(argument is value for argument in arguments)


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
