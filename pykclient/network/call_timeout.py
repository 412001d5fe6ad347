"""From a caller's `timeout` in seconds to the milliseconds that drivers count in.

Owner: no state.
Source: none, it is ours.
"""

from __future__ import annotations

from typing import Final

from pykclient.arguments import shown_argument
from pykclient.errors import UsageError

__all__ = ["FOREVER_MS", "timeout_ms"]

FOREVER_MS: Final = 2**53
"""What an infinite timeout amounts to; added to a clock it stays below `NEVER_MS`."""


def timeout_ms(timeout: float | None, default_ms: int) -> int:
    """Return a timeout in milliseconds; None stands for the default.

    Raises:
        UsageError: it is negative, or not a number.
    """
    if timeout is None:
        return default_ms
    try:
        if timeout >= 0:  # which NaN is not
            return round(min(timeout * 1000, FOREVER_MS))
    except (TypeError, ValueError, ArithmeticError):  # text, a timedelta, an array ...
        pass  # refused below, with the others
    raise UsageError(
        f"timeout={shown_argument(timeout)}: give seconds, from 0, or None for the default"
    )
