"""A list of names, as a call takes topics or groups.

Owner: no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["name_list"]


def name_list(names: Iterable[str], what: str) -> list[str]:
    """Return each name once; `what` they are is for the error.

    Raises:
        UsageError: they are no list of names.
    """
    # A single string is an iterable of strings as well, though not the one that was meant.
    found = None if isinstance(names, str) else list(dict.fromkeys(names))
    if found is None or not all(isinstance(name, str) for name in found):
        raise UsageError(f"{names!r:.100}: give a list of {what} names")
    return found
