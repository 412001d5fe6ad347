"""Texts from brokers, in the form that errors and logs may show.

Owner: no state.
"""

from __future__ import annotations

from typing import Final

TEXT_LENGTH_MAX: Final = 2_000
"""Maximum length of a broker's text, the rest of which is cut. Kafka's own reasons have a few
hundred characters, but a response has room for a hundred million."""

MESSAGE_LENGTH_MAX: Final = 3_000
"""Maximum length of an error about malformed bytes, which may contain such a text."""


def printable(text: str, length_max: int = TEXT_LENGTH_MAX) -> str:
    """Return a text shortened, on one line, with control characters escaped.

    With control characters a broker could forge lines of a log, or control the terminal that shows
    it. An escape is longer than its character, so the text is cut again after escaping.
    """
    shown = text[:length_max]
    if not shown.isprintable():
        shown = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in shown)
    is_whole = len(text) <= length_max and len(shown) <= length_max
    return shown if is_whole else f"{shown[:length_max]}..."
