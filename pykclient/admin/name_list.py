"""A list of names, as a call takes topics or groups.

Owner: no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["check_text", "name_list"]


def name_list(names: Iterable[str], what: str) -> list[str]:
    """Return each name once; `what` they are is for the error.

    Raises:
        UsageError: they are no list of names.
    """
    # A single string is an iterable of strings as well, though not the one that was meant.
    found = None if isinstance(names, str) else list(dict.fromkeys(names))
    if found is None or not all(isinstance(name, str) for name in found):
        raise UsageError(f"{names!r:.100}: give a list of {what} names")
    for name in found:
        check_text(name, what)
    return found


def check_text(name: str, what: str) -> None:
    """Refuse a name that no request can carry.

    Raises:
        UsageError: it has half of a surrogate pair, as what is no UTF-8 on a command line has.
    """
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{name!r:.100} is no text, so no {what} has that name") from error
