"""Durations as Java writes them, in the form of ISO 8601: ``PT15M``, ``P1DT12H``, ``PT0.5S``.

Owner: no state.
Source: Java's ``Duration.parse``; KIP-1106 and Kafka's tools take such durations.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["duration_ms"]

DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000
SECOND_MS: Final = 1_000

_FORM: Final = re.compile(
    r"P(?:(?P<days>\d{1,12})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,12})H)?(?:(?P<minutes>\d{1,12})M)?"
    r"(?:(?P<seconds>\d{1,12})(?:[.,](?P<fraction>\d{1,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)


def duration_ms(text: str) -> int:
    """Return a duration in milliseconds; what is finer is cut off.

    Raises:
        ValueError: it is no duration, or a negative one.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None or not any(found.groups()):
        raise ValueError(
            f"{text!r} is no duration; write days as P1D, and hours, minutes and seconds as "
            f"PT1H30M or PT0.5S"
        )
    days, hours, minutes, seconds = (
        int(found[name] or 0) for name in ("days", "hours", "minutes", "seconds")
    )
    fraction_ms = int((found["fraction"] or "").ljust(3, "0")[:3])
    return days * DAY_MS + hours * HOUR_MS + minutes * MINUTE_MS + seconds * SECOND_MS + fraction_ms
