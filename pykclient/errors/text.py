"""What a broker says, as errors and logs may show it.

Owner: no state.
"""

from __future__ import annotations

from typing import Final

TEXT_LENGTH_MAX: Final = 2_000
"""Of a text by a broker: the rest is left out. Kafka's own reasons have a few hundred characters,
and a response has room for a hundred million."""

MESSAGE_LENGTH_MAX: Final = 3_000
"""Characters of an error about bytes that cannot be read, which may have such a text in it."""


def printable(text: str, length_max: int = TEXT_LENGTH_MAX) -> str:
    """Return the text cut, and on one line: what it has of control characters is escaped.

    With them a broker could forge lines of a log, or command the terminal that shows it. An escape
    is longer than its character, so the text is cut after it too.
    """
    shown = text[:length_max]
    if not shown.isprintable():
        shown = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in shown)
    is_whole = len(text) <= length_max and len(shown) <= length_max
    return shown if is_whole else f"{shown[:length_max]}..."
