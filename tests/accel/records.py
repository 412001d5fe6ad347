"""Records that a core encodes and decodes, for its tests, and records of raw bytes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from pykclient.accel import pure
from pykclient.accel.key_rule import IGNORE_KEYS
from pykclient.accel.pure.varint import encode_varint
from pykclient.producer.partitioner import KEY_RULES
from pykclient.types import TimestampType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

    from pykclient.accel.abc import Lock, RecordColumns
    from pykclient.accel.pure import ConsumerRecord, RecordAppender, RowRun
    from tests.records.batches import Row

ROWS: list[Row] = [
    (1000, b"k", b"value", ()),
    (1001, None, b"", (("h", b"x"), ("h", None))),
    (999, b"", None, ()),
    (1003, b"last", b"v" * 300, (("ü", b""),)),
]
"""A sample: null and empty fields, headers, a record of more than a byte's length."""


RULES = st.sampled_from([IGNORE_KEYS, *KEY_RULES.values()])
"""Rules for keys that divide rows: of the others each record has a partition already."""


def new_appender(
    core: ModuleType, capacity_bytes: int = 10**9, lock: Lock | None = None
) -> RecordAppender[None]:
    """Return an appender; without `lock`, one that no other thread uses."""
    appender: RecordAppender[None] = core.RecordAppender(
        capacity_bytes, None, lock or nullcontext()
    )
    return appender


def sealed_bytes(appender: RecordAppender[None]) -> bytes:
    """Seal the appender and return its bytes."""
    appender.seal()
    return bytes(appender.view())


def encoded(core: ModuleType, rows: Iterable[Row]) -> bytes:
    """Encode these records."""
    appender = new_appender(core)
    for row in rows:
        appender.append(*row)
    return sealed_bytes(appender)


def decoded(
    core: ModuleType,
    data: bytes,
    count: int = 1,
    base_offset: int = 0,
    base_ms: int = 0,
    append_ms: int | None = None,
) -> RecordColumns:
    """Return the `count` records that `data` has."""
    columns: RecordColumns
    columns, end = core.decode_records(data, 0, 0, count, base_offset, base_ms, append_ms)
    assert end == len(data)
    return columns


def records_of(appender: RecordAppender[None]) -> RecordColumns:
    """Return the records of an appender that is sealed now, by the pure decoder in any case."""
    data = sealed_bytes(appender)
    return decoded(pure, data, appender.count, base_ms=appender.base_timestamp_ms)


def appended(core: ModuleType, run: RowRun) -> RecordColumns:
    """Return the records of a whole run, appended to one batch."""
    appender = new_appender(core)
    count = run.fill(appender)
    assert count == len(run) == appender.count
    return records_of(appender)


def iterated(core: ModuleType, columns: RecordColumns) -> Iterator[ConsumerRecord]:
    """Yield the records as the application gets them."""
    records: Iterator[ConsumerRecord]
    records, _ = core.iterate_records(
        columns,
        topic="t",
        partition=3,
        timestamp_type=TimestampType.CREATE_TIME,
        leader_epoch=None,
    )
    return records


def record(*numbers: int, body: bytes = b"") -> bytes:
    """One record of raw parts: length, timestamp delta, offset delta, then `body`."""
    length, timestamp, offset = numbers
    return encode_varint(length) + b"\x00" + encode_varint(timestamp) + encode_varint(offset) + body


def simple(offset: int, timestamp: int = 0) -> bytes:
    """Return a record with null key and value."""
    body = b"\x00" + encode_varint(timestamp) + encode_varint(offset) + b"\x01\x01\x00"
    return encode_varint(len(body)) + body


def with_headers(offset: int, count: int) -> bytes:
    """Return a record with the smallest headers: of empty names and null values."""
    body = b"\x00\x00" + encode_varint(offset) + b"\x01\x01" + encode_varint(count)
    body += b"\x00\x01" * count
    return encode_varint(len(body)) + body
