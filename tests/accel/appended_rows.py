"""Rows read back from the batches that they were appended to, and a sample of some."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from pykclient.accel import pure

if TYPE_CHECKING:
    from types import ModuleType

    from pykclient.accel.abc import RecordColumns
    from pykclient.accel.pure import RecordAppender, RowRun
    from pykclient.types import Headers

__all__ = ["ROWS", "appended", "new_appender", "records_of", "sample_columns"]

ROWS: list[tuple[int, bytes | None, bytes | None, Headers]] = [
    (1000, b"k", b"value", ()),
    (1001, None, b"", (("h", b"x"), ("h", None))),
    (999, b"", None, ()),
    (1003, b"last", b"v" * 300, (("ü", b""),)),
]
"""A few records (timestamp, key, value, headers): null and empty fields, a long value."""


def new_appender(core: ModuleType, capacity_bytes: int = 10**9) -> RecordAppender[None]:
    """Return an appender that nobody else sees."""
    appender: RecordAppender[None] = core.RecordAppender(capacity_bytes, None, nullcontext())
    return appender


def records_of(appender: RecordAppender[None]) -> RecordColumns:
    """Seal an appender and decode what it holds, by the pure decoder in any case."""
    appender.seal()
    with appender.view() as view:
        columns, end = pure.decode_records(
            bytes(view), 0, 0, appender.count, 0, appender.base_timestamp_ms
        )
        assert end == len(view)
    return columns


def appended(core: ModuleType, run: RowRun) -> RecordColumns:
    """Append a whole run to one batch and read it back."""
    appender = new_appender(core)
    count = run.fill(appender)
    assert count == len(run) == appender.count
    return records_of(appender)


def sample_columns(core: ModuleType) -> RecordColumns:
    """The rows at offsets from 50 on."""
    appender = new_appender(core)
    for row in ROWS:
        appender.append(*row)
    appender.seal()
    data = core.record_bytes(memoryview(bytearray(appender.view())))
    columns: RecordColumns = core.decode_records(data, 0, 0, len(ROWS), 50, 1000)[0]
    return columns
