"""Times as users write them: ISO 8601, or milliseconds since 1970 with at least 11 digits.

Owner: none; it holds no state.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

MS_PER_S: Final = 1_000
MS_DIGITS_MIN: Final = 11
"""Minimum digits of milliseconds: ``20260131`` is a day, ``1700000000`` are seconds."""


def moment_ms(text: str) -> int:
    """Return a time in milliseconds since 1970; UTC if the text names no zone.

    Raises:
        ValueError: the text is not a time.
    """
    if len(text) >= MS_DIGITS_MIN and text.isdecimal() and text.isascii():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is not a time; write 2026-01-31, 2026-01-31T12:00, "
            "2026-01-31T12:00:00+02:00, or milliseconds since 1970"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * MS_PER_S)
