"""The cause of an error of ours, as its message tells it: what the application's code raised.

Never by `repr`: that of a UnicodeError has the whole value in it, and messages end up in logs.

Owner: none.
Source: ours.
"""

from __future__ import annotations

from typing import Final

__all__ = ["describe_cause"]

LENGTH_MAX: Final = 200
"""How many characters are told of what an exception says."""


def describe_cause(cause: BaseException) -> str:
    """Return its type and the beginning of what it says."""
    said = str(cause)[:LENGTH_MAX]
    name = type(cause).__name__
    return f"{name}: {said}" if said else name
