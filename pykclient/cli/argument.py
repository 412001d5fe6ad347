"""Words of the command line as text, bytes and paths, whatever the locale is.

Python decodes them by the locale. If that is ASCII, as with LC_ALL=C and Python's UTF-8 mode off,
other bytes become halves of surrogate pairs, which no request may contain.

Owner: none; functions only.
Source: PEP 383, PEP 540.
"""

from __future__ import annotations

import os
from pathlib import Path


def as_text(word: str) -> str:
    """Return a word of the command line, decoded as UTF-8 where the locale could not decode it."""
    if word.isascii() or not any("\udc80" <= each <= "\udcff" for each in word):
        return word
    return os.fsencode(word).decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    """Return the original bytes of a word returned by `as_text`."""
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")


def as_path(text: str) -> Path:
    """Return the file system's path for a word returned by `as_text`."""
    return Path(os.fsdecode(as_bytes(text)))
