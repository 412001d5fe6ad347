"""Both cores get the same bytes, good, cut, damaged or made up: same records, same errors.

The fuzz target: a bounded number of cases in `make test`, more in `make fuzz` (CONTRIBUTING.md).
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.accel import pure
from pykclient.accel.pure.varint import encode_varint
from pykclient.errors.base import DecodeError
from tests.accel.fuzzing import fuzz
from tests.accel.records import encoded, iterated

if TYPE_CHECKING:
    from types import ModuleType

    from pykclient.accel.abc import RecordColumns
    from pykclient.types import Headers

OTHER_CORES: list[ModuleType] = []
with suppress(ModuleNotFoundError):  # not built
    OTHER_CORES.append(import_module("pykclient.accel.compiled"))

BASE_TIMESTAMP_MS = 1_700_000_000_000
# Among them many that one more or one less takes out of 64 bits.
INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(
    [2**63 - 1, 2**63 - 2, 2**63 - 80, -(2**63), -(2**63) + 1, -(2**63) + 80]
)
OFFSETS = INT64.filter(lambda number: number >= 0)
ODD_NUMBERS = st.sampled_from(
    [0, 1, -1, -2, 63, 64, -64, -65, 8191, 8192, 2**31 - 1, 2**31, 2**62, 2**63 - 1, -(2**63)]
)
# Of one byte too many, beyond 64 bits, longer than any number, without end.
ODD_VARINTS = st.sampled_from(
    [b"\x80\x00", b"\xff" * 9 + b"\x01", b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\0", b"\xff" * 30]
)
TEXT = st.text(max_size=5).map(lambda text: text.encode("utf-8", "surrogatepass"))
FIELD = st.none() | st.binary(max_size=20) | st.sampled_from([b"x" * 64, b"y" * 9000])

same_in_both = pytest.mark.promise(
    "both cores return the same records and errors for valid, truncated, damaged and random bytes"
)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """One record: mostly right, its numbers sometimes anything."""

    def number(right: int) -> bytes:
        chance = draw(st.integers(0, 60))
        if chance == 1:
            return draw(ODD_VARINTS)
        return encode_varint(draw(ODD_NUMBERS) if chance == 0 else right)

    def field(data: bytes | None) -> bytes:
        return number(-1) if data is None else number(len(data)) + data

    headers = draw(st.lists(st.tuples(TEXT, FIELD), max_size=3)) if draw(st.booleans()) else []
    body = b"\0" + number(draw(st.integers(-5, 200))) + b"OFFSET"
    body += field(draw(FIELD)) + field(draw(FIELD)) + number(len(headers))
    body += b"".join(field(name) + field(value) for name, value in headers)
    return body


@st.composite
def batches(draw: st.DrawFn) -> tuple[bytes, int]:
    """Return the bytes of some records, and how many they are."""
    data = bytearray()
    delta = 0
    bodies = draw(st.lists(records(), min_size=1, max_size=8))
    for body in bodies:
        delta += draw(st.sampled_from([0, 0, 0, 0, 0, 0, 1, 70, -1]))
        whole = body.replace(b"OFFSET", encode_varint(delta), 1)
        delta += 1
        size = draw(ODD_NUMBERS) if draw(st.integers(0, 60)) == 0 else len(whole)
        data += encode_varint(size) + whole
    return bytes(data), len(bodies)


def all_of(core: ModuleType, columns: RecordColumns) -> object:
    """Everything that a core returns about records, in terms that can be compared."""
    filled = core.arrow_buffers([columns], wanted=("key", "value", "headers"))
    assert filled.headers is not None
    return (
        list(columns),
        [repr(record) for record in iterated(core, columns)],
        (columns.first_offset, columns.last_offset, columns.find(columns.first_offset + 1)),
        bytes(filled.offsets),
        bytes(filled.timestamps_us),
        [as_bytes(part) for part in (*filled.keys, *filled.values)],
        [as_bytes(part) for part in (*filled.headers.names, *filled.headers.values)],
        as_bytes(filled.headers.offsets),
        as_bytes(filled.timestamp_validity),
        filled.timestamp_null_count,
    )


def as_bytes(part: object) -> object:
    """Return a buffer as bytes, anything else as it is."""
    return part if part is None or isinstance(part, int) else bytes(part)  # type: ignore[call-overload]


def result(core: ModuleType, data: bytes, *arguments: int | None) -> object:
    """Decode `data` with a core; return all values, or the error."""
    try:
        columns, end = core.decode_records(
            core.record_bytes(memoryview(bytearray(data))), *arguments
        )
    except DecodeError as error:
        return type(error), str(error)
    return all_of(core, columns), end


def assert_same(data: bytes, *arguments: int | None) -> None:
    """Each core that is built makes the same of it: records or a `DecodeError`, nothing else."""
    expected = result(pure, data, *arguments)
    assert all(result(core, data, *arguments) == expected for core in OTHER_CORES)


@same_in_both
@fuzz
@given(batches(), st.integers(0, 3), OFFSETS, INT64)
def test_records_of_any_kind(
    batch: tuple[bytes, int], more: int, base_offset: int, base_timestamp_ms: int
) -> None:
    data, count = batch
    assert_same(data, 0, 0, count, 0, BASE_TIMESTAMP_MS)
    assert_same(data, 0, 0, count + more, base_offset, base_timestamp_ms, 5)


@same_in_both
@fuzz
@given(batches(), st.data())
def test_records_cut_off(batch: tuple[bytes, int], draw: st.DataObject) -> None:
    data, count = batch
    assert_same(data[: draw.draw(st.integers(0, len(data)))], 0, 0, count, 7, BASE_TIMESTAMP_MS)


@same_in_both
@fuzz
@given(batches(), st.data())
def test_damaged_records(batch: tuple[bytes, int], draw: st.DataObject) -> None:
    damaged, count = bytearray(batch[0]), batch[1]
    for _ in range(draw.draw(st.integers(1, 4))):
        damaged[draw.draw(st.integers(0, len(damaged) - 1))] = draw.draw(st.integers(0, 255))
    assert_same(bytes(damaged), 0, 0, count, 7, BASE_TIMESTAMP_MS)


@same_in_both
@fuzz
@given(
    st.binary(max_size=300),
    st.integers(0, 300),
    st.integers(1, 40),
    st.integers(0, 5) | st.just(2**31 - 1),
    OFFSETS,
    INT64,
)
def test_any_bytes(
    data: bytes, position: int, count: int, first: int, base_offset: int, base_ms: int
) -> None:
    assert_same(data, min(position, len(data)), first, count, base_offset, base_ms)


def test_bytes_that_are_long_enough_for_other_threads_to_run() -> None:
    headers: list[Headers] = [(), (("name", b"value"),), (("ü", None),)]
    data = encoded(
        pure,
        [(BASE_TIMESTAMP_MS + row, None, b"v" * 60, headers[row % 3]) for row in range(2000)],
    )
    assert_same(data, 0, 0, 2000, 0, BASE_TIMESTAMP_MS)
    assert_same(data[:-1], 0, 0, 2000, 0, BASE_TIMESTAMP_MS)
    assert_same(data.replace("ü".encode(), b"\xff\xff"), 0, 0, 2000, 0, BASE_TIMESTAMP_MS)
