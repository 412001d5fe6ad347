"""Rows read back from the batches that they were appended to."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from pykclient.accel import pure

if TYPE_CHECKING:
    from types import ModuleType

    from pykclient.accel.abc import RecordColumns
    from pykclient.accel.pure import RecordAppender, RowRun

__all__ = ["appended", "new_appender", "records_of"]


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
