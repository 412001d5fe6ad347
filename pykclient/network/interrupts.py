"""Interrupts: find out whether an exception has left a client's state half changed.

A signal handler may raise between any two instructions of the main thread, even in a `finally`.
docs/decisions/0015 says how clients recover. No recovery is needed where no state was being
changed: in a function marked with `harmless` (a wait for sockets, user code), and for our own
errors. `Consumer.wakeup` does not use signals: see `consumer/waiting.py`.

An error belongs to a signal handler only if it passed through the handler's call. The module that
raised it does not matter: a socket may be an object of any library (gevent, PySocks), and an
`OSError` from it is a network error.

Owner: none; the only state is the register of harmless functions.
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
"""Maximum number of chained exceptions examined."""

P = ParamSpec("P")
T = TypeVar("T")

_harmless_codes: set[CodeType] = set()


def harmless(function: Callable[P, T]) -> Callable[P, T]:
    """Register a function that changes no client state, neither itself nor in what it calls."""
    _harmless_codes.add(function.__code__)
    return function


@harmless
def call_harmless(function: Callable[P, T], /, *args: P.args, **keywords: P.kwargs) -> T:
    """Call user code. Whatever it raises, the client's state is unchanged."""
    return function(*args, **keywords)


def call_masked(function: Callable[[], None]) -> None:
    """Call a function with signals blocked; they are handled when it has returned.

    `Thread.start` takes Python's internal locks. If a signal handler raises inside it, a thread may
    wait for such a lock forever, or run unregistered. A thread started through this function never
    receives signals that have a Python handler. The system may still deliver a signal to one of the
    application's own threads, where it is handled at once.
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
    """Return whether an exception was raised where no state was half changed.

    If a second exception replaced the first one on its way up, the second one counts.
    """
    if any(frame.f_code in _harmless_codes for frame, _ in walk_tb(error.__traceback__)):
        return True
    return isinstance(error, KafkaError) and not is_of_signal_handler(error)


def raise_of_signal_handler(error: BaseException) -> None:
    """Re-raise an error that came from a signal handler, where all other errors are contained.

    A handler often raises Python's `TimeoutError`, which is an `OSError`.
    """
    if is_of_signal_handler(error):
        raise error


def is_of_signal_handler(error: BaseException) -> bool:
    """Return whether the error being handled came out of a signal handler.

    Python calls a handler with the signal number and the interrupted frame, and no other function
    has that frame as an argument. A handler that deletes the argument is recognised while it is
    installed. A handler in C has no frame and is not recognised.
    """
    traceback = error.__traceback__
    if traceback is None or traceback.tb_next is None:
        return False  # raised in the function that handles it, or in C code called by it
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

    A `KeyboardInterrupt` raised while another one is handled has the other as its context. One
    raised ``from`` another counts as the same interrupt.
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
