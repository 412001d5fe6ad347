"""Tracebacks of errors that are kept.

A traceback holds the frames of the call in which its error was raised, up to the application's, and
with them its iterators. A loop over records that was left would look as if it went on.

Owner: none, it holds no state.
Source: ours; ``docs/decisions/0024-left-in-the-middle-of-a-batch.md``.
"""

from __future__ import annotations

from typing import Final, TypeVar

from pykclient.errors.base import AuthenticationError

ErrorT = TypeVar("ErrorT", bound=BaseException)

CHAIN_LENGTH_MAX: Final = 100
"""A chain of causes may lead back to its beginning."""


def without_frames(error: ErrorT) -> ErrorT:
    """Drop the tracebacks of an error and of its causes; return it, to be kept.

    The causes of an `AuthenticationError` keep theirs: credentials come from user code, too.
    """
    left: list[BaseException | None] = [error]
    for _ in range(CHAIN_LENGTH_MAX):
        found = left.pop()
        if found is not None:
            found.__traceback__ = None
            if not isinstance(found, AuthenticationError):
                left += (found.__context__, found.__cause__)
        if not left:
            break
    return error
