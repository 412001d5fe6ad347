"""How an error crosses to another process: with everything that it says.

Python makes an exception anew by calling its class with `args`, and forgets its cause. Errors of
ours need more than their message to be made, so they are built without calling `__init__`. The
cause comes along; one that cannot be pickled, as an error of the application's may be, is replaced
by a `KafkaError` that says the same. Tracebacks stay behind.

Owner: none.
Source: ours; the pickle protocol (``object.__reduce__``).
"""

from __future__ import annotations

import pickle
from typing import TypeVar

from pykclient.errors.base import KafkaError
from pykclient.errors.cause import describe_cause

__all__ = ["cause_to_pickle", "remade"]

ErrorT = TypeVar("ErrorT", bound=BaseException)


def remade(kind: type[ErrorT], args: tuple[object, ...]) -> ErrorT:
    """Return an error with its arguments; pickle sets its attributes afterwards."""
    error = kind.__new__(kind, *args)
    error.args = args
    return error


def cause_to_pickle(cause: BaseException | None) -> BaseException | None:
    """Return the cause, or what stands for one that another process cannot make."""
    if cause is None or isinstance(cause, KafkaError) or _can_be_pickled(cause):
        return cause
    return KafkaError(describe_cause(cause))


def _can_be_pickled(cause: BaseException) -> bool:
    # One that can be written may still fail to be read: its class is called with `args`.
    try:
        return type(pickle.loads(pickle.dumps(cause))) is type(cause)  # noqa: S301
    except Exception:  # noqa: BLE001 - the application's class may raise anything
        return False
