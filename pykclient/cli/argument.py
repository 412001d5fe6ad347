"""The words of the command line as text, bytes and paths, whatever the locale is.

Python decodes them by the locale. Where that is ASCII, as with LC_ALL=C and Python's UTF-8 mode
off, what is outside of it comes as halves of surrogate pairs, which no request may have.

Owner: none; functions only.
Source: PEP 383, PEP 540.
"""

from __future__ import annotations

import os
from pathlib import Path


def as_text(word: str) -> str:
    """Return a word of the command line, read as UTF-8 where the locale could not read it."""
    if word.isascii() or not any("\udc80" <= each <= "\udcff" for each in word):
        return word
    return os.fsencode(word).decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    """Return the bytes that stand on the command line for what `as_text` returned."""
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")


def as_path(text: str) -> Path:
    """Return the path that the file system has for what `as_text` returned."""
    return Path(os.fsdecode(as_bytes(text)))
