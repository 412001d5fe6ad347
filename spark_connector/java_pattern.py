r"""Patterns of Java, which the official source takes, in the dialect of Python's `re`.

Most of both dialects is the same. What differs and what a pattern of topic names may well have are
named groups, and classes such as ``\p{Alpha}``; the names are ASCII, so the classes are too.

Source: the documentation of Java's ``java.util.regex.Pattern``; Kafka's rule for topic names.
"""

from __future__ import annotations

import re
from typing import Final

_CLASSES: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": r"\s",
    "L": "a-zA-Z",
    "Lu": "A-Z",
    "Ll": "a-z",
    "N": "0-9",
    "Nd": "0-9",
    "P": r"._\-",
    "IsAlphabetic": "a-zA-Z",
    "IsDigit": "0-9",
    "IsLetter": "a-zA-Z",
}

_TOKEN: Final = re.compile(
    r"""\\Q(?P<quoted>.*?)(?:\\E|$)
    |   \\(?P<sign>[pP])(?:\{(?P<name>[A-Za-z]+)\}|(?P<letter>[A-Za-z]))
    |   \\k<(?P<reference>\w+)>
    |   (?P<escaped>\\.)
    |   \(\?<(?P<group>[A-Za-z]\w*)>
    |   (?P<bracket>[\[\]])
    |   (?P<both>&&)
    """,
    re.VERBOSE | re.DOTALL,
)


def python_pattern(pattern: str) -> str:
    """Translate a Java pattern for `re`.

    Raises: `ValueError` for an unknown class, and for classes within classes, which mean something
    else to `re`.
    """
    depth = 0

    def translated(found: re.Match[str]) -> str:
        nonlocal depth
        if (bracket := found["bracket"]) is not None:
            if depth and bracket == "[":
                raise ValueError("[...] within [...] is not known here; write its characters")
            depth += 1 if bracket == "[" else -1 if depth else 0
            return bracket
        if found["both"] is not None and depth:
            raise ValueError("&& within [...] is not known here; write the characters of both")
        if found["sign"] is not None:
            return _class(
                found["name"] or found["letter"], found["sign"] == "P", in_class=depth > 0
            )
        if found["quoted"] is not None:
            return re.escape(found["quoted"])
        if found["reference"] is not None:
            return f"(?P={found['reference']})"
        if found["group"] is not None:
            return f"(?P<{found['group']}>"
        return found[0]

    return _TOKEN.sub(translated, pattern)


def _class(name: str, is_negated: bool, *, in_class: bool) -> str:
    members = _CLASSES.get(name)
    if members is None:
        raise ValueError(f"the class \\p{{{name}}} is not known here; write its characters")
    if not in_class:
        return f"[{'^' if is_negated else ''}{members}]"
    if is_negated:
        raise ValueError(f"\\P{{{name}}} within [...] is not known here; write its characters")
    return members
