"""A few records, decoded: null and empty fields, headers, a record of more than a byte's length."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from pykclient.accel.abc import RecordColumns
    from pykclient.types import Headers

__all__ = ["ROWS", "sample_columns"]

ROWS: list[tuple[int, bytes | None, bytes | None, Headers]] = [
    (1000, b"k", b"value", ()),
    (1001, None, b"", (("h", b"x"), ("h", None))),
    (999, b"", None, ()),
    (1003, b"last", b"v" * 300, (("ü", b""),)),
]
"""Timestamp, key, value, headers."""


def sample_columns(core: ModuleType) -> RecordColumns:
    """The rows at offsets from 50 on."""
    appender = core.RecordAppender(10**6, None, nullcontext())
    for row in ROWS:
        appender.append(*row)
    appender.seal()
    data = core.record_bytes(memoryview(bytearray(appender.view())))
    columns: RecordColumns = core.decode_records(data, 0, 0, len(ROWS), 50, 1000)[0]
    return columns
