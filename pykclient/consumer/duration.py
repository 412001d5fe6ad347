"""Durations as Kafka writes them: ISO 8601 with days, hours, minutes and seconds, as in P1DT12H.

Owner: none; it holds no state.
Source: Java method ``Duration.parse``; KIP-1106 (``by_duration``).
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["duration_ms"]

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:\.(?P<part>\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
DIGITS_MAX: Final = 12
"""More of them are no time that a log could begin at."""


def duration_ms(text: str) -> int:
    """Return a duration in milliseconds, rounded down.

    Raises:
        ValueError: the text is no duration, a negative one, or one beyond any log.
    """
    found = _DURATION.fullmatch(text)
    parts = {} if found is None else {k: v for k, v in found.groupdict().items() if v is not None}
    if not parts:
        raise ValueError(f"{text!r} is no duration; write P1D, PT12H, PT30M, PT1.5S or P1DT12H.")
    if any(len(digits) > DIGITS_MAX for digits in parts.values()):
        raise ValueError(f"{text!r} is too long a duration.")
    days, hours, minutes, seconds = (
        int(parts.get(unit, 0)) for unit in ("days", "hours", "minutes", "seconds")
    )
    whole_seconds = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return whole_seconds * 1_000 + int(parts.get("part", "").ljust(3, "0")[:3])
