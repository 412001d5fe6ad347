"""From a caller's `timeout` in seconds to the milliseconds that drivers count in.

Owner: no state.
Source: none, it is ours.
"""

from __future__ import annotations

from typing import Final

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
    if not timeout >= 0:  # so that NaN, which compares with nothing, is refused as well
        raise UsageError(f"timeout={timeout!r}: give seconds, from 0, or None for the default")
    return round(min(timeout * 1000, FOREVER_MS))
