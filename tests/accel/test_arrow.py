"""Buffers in Arrow's layout, read back by pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pykclient.accel import ListColumns
from pykclient.accel.pure.varint import encode_varint
from tests.accel.records import ROWS, decoded, encoded, simple

if TYPE_CHECKING:
    from types import ModuleType

    from pykclient.accel.abc import RecordColumns
    from pykclient.accel.arrow_buffers import BinaryBuffers

INT64_MAX = 2**63 - 1


def binary(buffers: BinaryBuffers, count: int) -> list[bytes | None]:
    """Check the array and return its items."""
    parts = [buffers.validity, buffers.offsets, buffers.data]
    array = pa.Array.from_buffers(
        pa.binary(),
        count,
        [None if part is None else pa.py_buffer(part) for part in parts],
        buffers.null_count,
    )
    array.validate(full=True)
    items: list[bytes | None] = array.to_pylist()
    return items


def numbers(data: object) -> list[int]:
    """Return the 64-bit numbers in a buffer."""
    return memoryview(data).cast("B").cast("q").tolist()  # type: ignore[arg-type]


@pytest.mark.promise("`poll_arrow` returns keys, values, headers, nulls and timestamps as written")
def test_every_field_stands_in_its_buffer(core: ModuleType, columns: RecordColumns) -> None:
    filled = core.arrow_buffers([columns], wanted=("key", "value"))
    assert filled.record_count == 4
    assert binary(filled.keys, 4) == [row[1] for row in ROWS]
    assert binary(filled.values, 4) == [row[2] for row in ROWS]
    assert numbers(filled.offsets) == [50, 51, 52, 53]
    assert numbers(filled.timestamps_us) == [row[0] * 1000 for row in ROWS]
    assert (filled.timestamp_null_count, filled.timestamp_validity) == (0, None)
    assert filled.headers is None


@pytest.mark.promise("`poll_arrow` returns keys, values, headers, nulls and timestamps as written")
def test_headers_stand_in_lists(core: ModuleType, columns: RecordColumns) -> None:
    headers = core.arrow_buffers([columns], wanted=("key", "value", "headers")).headers
    assert headers.header_count == 3
    assert memoryview(headers.offsets).cast("B").cast("i").tolist() == [0, 0, 2, 2, 3]
    assert binary(headers.names, 3) == [b"h", b"h", "ü".encode()]
    assert binary(headers.values, 3) == [b"x", None, b""]


def test_names_of_headers_are_text_each_by_itself(core: ModuleType) -> None:
    """Goal: two halves of a character are no text, though they would be if they stood together."""
    names = [b"\xc3", b"\xbc", "ü".encode()]
    headers = b"\x06" + b"".join(encode_varint(len(name)) + name + b"\x01" for name in names)
    body = b"\0\0\0\x01\x01" + headers
    columns = decoded(core, encode_varint(len(body)) + body)
    filled = core.arrow_buffers([columns], wanted=("key", "value", "headers")).headers
    assert binary(filled.names, 3) == ["\ufffd".encode(), "\ufffd".encode(), "ü".encode()]


def test_runs_follow_one_another(core: ModuleType, columns: RecordColumns) -> None:
    parts = [columns.rows(2), columns.rows(0, 0), columns.rows(1, 2), columns]
    filled = core.arrow_buffers(parts, wanted=("key", "value", "headers"))
    assert numbers(filled.offsets) == [52, 53, 51, 50, 51, 52, 53]
    assert binary(filled.values, 7) == [value for part in parts for value in part.values]
    assert memoryview(filled.headers.offsets).cast("B").cast("i").tolist() == [
        *(0, 0, 1),
        *(3,),
        *(3, 5, 5, 6),
    ]


@pytest.mark.parametrize("wanted", ["key", "value", "headers"])
def test_only_what_is_wanted_is_copied(
    core: ModuleType, columns: RecordColumns, wanted: str
) -> None:
    rows = ListColumns([7], [8], [b"k"], [None], [(("a", b"b"),)], size_bytes=3)
    for parts in ([columns], [columns, rows]):
        whole = core.arrow_buffers(parts, wanted=("key", "value", "headers"))
        alone = core.arrow_buffers(parts, wanted={wanted})
        field = {"key": "keys", "value": "values", "headers": "headers"}[wanted]
        assert alone._fields == whole._fields
        for name in ("keys", "values", "headers"):
            expected = getattr(whole, name) if name == field else None
            found = getattr(alone, name)
            assert (found is None) == (expected is None)
        assert numbers(alone.offsets) == numbers(whole.offsets)
        count = whole.record_count
        if field != "headers":
            assert binary(getattr(alone, field), count) == binary(getattr(whole, field), count)


def test_no_records_make_empty_buffers(core: ModuleType) -> None:
    filled = core.arrow_buffers([], wanted=("key", "value", "headers"))
    assert filled.record_count == 0
    assert binary(filled.keys, 0) == []
    assert binary(filled.headers.names, 0) == []


def test_a_column_without_nulls_has_no_bitmap(core: ModuleType, columns: RecordColumns) -> None:
    filled = core.arrow_buffers([columns.rows(0, 2)], wanted=("key", "value"))
    assert (filled.values.null_count, filled.values.validity) == (0, None)
    assert filled.keys.null_count == 1


@pytest.mark.promise("`poll_arrow` returns keys, values, headers, nulls and timestamps as written")
@pytest.mark.parametrize("time_ms", [INT64_MAX, -INT64_MAX, INT64_MAX // 1000 + 1])
def test_a_time_beyond_microseconds_is_null(core: ModuleType, time_ms: int) -> None:
    rows = ListColumns([1, 2], [time_ms, 7], [None] * 2, [None] * 2, [()] * 2, size_bytes=0)
    filled = core.arrow_buffers([rows], wanted=("key", "value"))
    assert filled.timestamp_null_count == 1
    assert bytes(filled.timestamp_validity) == b"\2"
    assert numbers(filled.timestamps_us) == [0, 7000]


@pytest.mark.parametrize("sign", [1, -1])
def test_the_last_time_that_microseconds_can_hold_is_kept(core: ModuleType, sign: int) -> None:
    time_ms = sign * (INT64_MAX // 1000)
    data = core.record_bytes(simple(0))
    parts = [decoded(core, data, append_ms=each_ms) for each_ms in (time_ms, INT64_MAX)]
    filled = core.arrow_buffers(parts, wanted=("key", "value"))
    assert bytes(filled.timestamp_validity) == b"\1"
    assert numbers(filled.timestamps_us) == [time_ms * 1000, 0]


def test_lists_and_frames_may_be_mixed(core: ModuleType, columns: RecordColumns) -> None:
    rows = ListColumns([7], [8], [b"k"], [None], [(("a", b"b"),)], size_bytes=3)
    filled = core.arrow_buffers([columns, rows], wanted=("key", "value", "headers"))
    assert numbers(filled.offsets) == [50, 51, 52, 53, 7]
    assert binary(filled.keys, 5) == [*columns.keys, b"k"]
    assert binary(filled.headers.names, 4) == [b"h", b"h", "ü".encode(), b"a"]


def test_a_column_beyond_two_gibibytes_is_refused_before_it_is_made(core: ModuleType) -> None:
    value = bytes(2**20)
    columns = decoded(core, core.record_bytes(encoded(core, [(0, None, value, ())])))
    with pytest.raises(OverflowError, match="2147483648 bytes do not fit"):
        core.arrow_buffers([columns] * 2048, wanted=("key", "value"))


def test_items_are_repeated(core: ModuleType) -> None:
    filled = core.repeated([(b"ab", 2), (b"", 1), (b"none", 0), (b"c", 3)])
    assert binary(filled, 6) == [b"ab", b"ab", b"", b"c", b"c", b"c"]
    assert binary(core.repeated([]), 0) == []


def test_repeated_items_beyond_two_gibibytes_are_refused(core: ModuleType) -> None:
    with pytest.raises(OverflowError, match="2147483648 bytes do not fit"):
        core.repeated([(bytes(2**20), 2048)])
