"""Records that clients disagree about when one of them is wrong.

Null and empty keys and values, headers with all of these, any bytes at all, what looks like the
tools' own separators, timestamps, one byte, and 900 kB that do and do not compress.
"""

from __future__ import annotations

import random
from typing import Final

from tests.integration.java_tools import Record

__all__ = ["SAMPLE_RECORDS"]

SEED = 20_130_101
TIMESTAMP_MS = 1_600_000_000_123
LARGE_BYTES = 900_000

EVERY_BYTE = bytes(range(256))
SAMPLE_RECORDS: Final = (
    Record(None),
    Record(b""),
    Record(b"v"),
    Record(None, b"k"),
    Record(b"", b""),
    Record(EVERY_BYTE, EVERY_BYTE),
    Record(b"key:value\nline\ttab,comma", b"NO_HEADERS", (("a", b"NO_HEADERS"),)),
    Record(b"v", b"k", (("name", b"x"), ("name", None), ("empty", b""), ("café", EVERY_BYTE))),
    Record(b"v", timestamp_ms=TIMESTAMP_MS),
    Record(random.Random(SEED).randbytes(LARGE_BYTES)),
    Record(b"compressible " * (LARGE_BYTES // 13)),
    Record(b"after the large ones"),
)
