"""public_call: what every public method of a consumer does before and after its own work.

It *enters* the thread guard, *makes good* what a call that did not end has left behind, marks the
state as torn, makes the call, and marks it as whole. What a call has taken for the application
counts as handed out when the call returns, not before.

CPython looks for signals at the start of a function, at a jump back and after a call into C. So
plain stores that follow each other, and a `return` after them, are one: a handler runs before all
of them or after.

Owner: the thread that calls.
Source: ours, see `network.interrupts`.
"""

from __future__ import annotations

from functools import wraps
from threading import get_ident
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from pykclient.consumer.fetch.buffer import NOT_BEGUN
from pykclient.errors import ClosedError
from pykclient.network.interrupts import leaves_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.consumer.core import ConsumerCore

__all__ = ["CLOSED_BY_HANDLER", "public_call"]

CLOSED_BY_HANDLER: Final = (
    "this consumer was closed by a signal handler, or the like, during this call; what the call "
    "was about to return is read again by the next consumer"
)

ConsumerT = TypeVar("ConsumerT", bound="ConsumerCore")
P = ParamSpec("P")
T = TypeVar("T")


def public_call(
    method: Callable[Concatenate[ConsumerT, P], T],
) -> Callable[Concatenate[ConsumerT, P], T]:
    """Make a method one that may be interrupted anywhere, and refuses to be called on top."""

    @wraps(method)
    def call(consumer: ConsumerT, /, *args: P.args, **keywords: P.kwargs) -> T:
        guard, buffer = consumer._guard, consumer._buffer  # noqa: SLF001
        me = get_ident()
        if guard.inside == me:
            raise guard.refused(f"{method.__name__}()")
        is_inside = False
        try:
            with guard:
                guard.inside = me
                is_inside = True
                try:
                    if guard.is_torn or buffer.begun or consumer._close_request:  # noqa: SLF001
                        consumer._make_good()  # noqa: SLF001
                    guard.is_torn = True
                    result = method(consumer, *args, **keywords)
                    guard.is_torn = False
                except BaseException as error:
                    if leaves_whole(error):
                        guard.is_torn = False
                    raise
            if consumer._close_request:  # noqa: SLF001
                raise ClosedError(CLOSED_BY_HANDLER)
        except BaseException as error:
            if is_inside:
                guard.inside = None
                if consumer._close_request and isinstance(error, Exception):  # noqa: SLF001
                    consumer._close_as_requested()  # noqa: SLF001
            raise
        buffer.begun = NOT_BEGUN
        guard.inside = None
        return result

    return call
