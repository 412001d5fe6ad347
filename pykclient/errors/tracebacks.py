"""Tracebacks of errors that are kept.

A traceback holds the frames of the call in which its error was raised, up to the application's, and
with them its iterators. A loop over records that was left would look as if it went on.

Owner: none, it holds no state.
Source: ours; ``docs/decisions/0024-left-in-the-middle-of-a-batch.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from pykclient.errors.base import AuthenticationError, remade

if TYPE_CHECKING:
    from pykclient.errors.base import KafkaError

ErrorT = TypeVar("ErrorT", bound=BaseException)

NOTE: Final = "Raised at:\n"
"""Beginning of a note that has a traceback."""

CHAIN_LENGTH_MAX: Final = 100
"""A chain of causes may lead back to its beginning."""


def without_frames(error: ErrorT) -> ErrorT:
    """Drop the tracebacks of an error and of its causes; return it, to be kept.

    The cause of an `AuthenticationError` keeps its traceback as a note: credentials come from user
    code, too, and it says where that failed.
    """
    left: list[BaseException | None] = [error]
    for _ in range(CHAIN_LENGTH_MAX):
        found = left.pop()
        if found is not None:
            if isinstance(found, AuthenticationError) and found.__cause__ is not None:
                _note_traceback(found.__cause__)
            found.__traceback__ = None
            left += (found.__context__, found.__cause__)
        if not left:
            break
    return error


def renewed(error: KafkaError) -> KafkaError:
    """Return a copy of a kept error, to be raised: the kept one gets no traceback.

    Its cause and its context keep theirs, which `without_frames` has dropped.
    """
    found = remade(type(error), error.args)
    vars(found).update(vars(error))
    found.__cause__, found.__context__ = error.__cause__, error.__context__
    found.__suppress_context__ = error.__suppress_context__
    return found


def _note_traceback(cause: BaseException) -> None:
    """Add the traceback of an exception as text, once."""
    if cause.__traceback__ is None or any(
        note.startswith(NOTE) for note in getattr(cause, "__notes__", ())
    ):
        return
    # Imported here: few programs need it.
    from traceback import format_tb

    cause.add_note(NOTE + "".join(format_tb(cause.__traceback__)).rstrip())
