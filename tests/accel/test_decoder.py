"""The decoder: round trips, and only DecodeError for whatever else the bytes are."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykclient.accel.pure.appender import HEADER_COUNT_MAX
from pykclient.accel.pure.varint import encode_varint
from pykclient.errors.base import DecodeError
from pykclient.types import TimestampType

if TYPE_CHECKING:
    from types import ModuleType

    from pykclient.types import Headers

same_core = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

Row = tuple[int, bytes | None, bytes | None, "Headers"]

TEXT = st.text(st.characters(codec="utf-8"), max_size=10)
ROWS = st.lists(
    st.tuples(
        st.integers(0, 2**62),
        st.none() | st.binary(max_size=100),
        st.none() | st.binary(max_size=20_000),
        st.lists(st.tuples(TEXT, st.none() | st.binary(max_size=10)), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


def encoded(core: ModuleType, rows: list[Row]) -> bytes:
    appender = core.RecordAppender(10**9, None, nullcontext())
    for row in rows:
        appender.append(*row)
    appender.seal()
    return bytes(appender.view())


def record(*numbers: int, body: bytes = b"") -> bytes:
    """One record of raw parts: length, timestamp delta, offset delta, then `body`."""
    length, timestamp, offset = numbers
    return encode_varint(length) + b"\x00" + encode_varint(timestamp) + encode_varint(offset) + body


def simple(offset: int, timestamp: int = 0) -> bytes:
    """A record with null key and value."""
    body = b"\x00" + encode_varint(timestamp) + encode_varint(offset) + b"\x01\x01\x00"
    return encode_varint(len(body)) + body


def with_headers(offset: int, count: int) -> bytes:
    """A record with the smallest headers: of empty names and null values."""
    body = b"\x00\x00" + encode_varint(offset) + b"\x01\x01" + encode_varint(count)
    body += b"\x00\x01" * count
    return encode_varint(len(body)) + body


@pytest.mark.promise("more than a million headers at once are refused before they are made")
def test_more_headers_than_anybody_has_are_refused_before_they_are_made(core: ModuleType) -> None:
    """Goal: kilobytes of a compressed batch cannot become gigabytes of headers."""
    count = HEADER_COUNT_MAX + 1
    with pytest.raises(DecodeError, match=f"a record claims {count} headers, .*limit"):
        core.decode_records(with_headers(0, count), 0, 0, 1, 0, 0)
    columns, _ = core.decode_records(with_headers(0, HEADER_COUNT_MAX), 0, 0, 1, 0, 0)
    assert len(columns.headers[0]) == HEADER_COUNT_MAX


def test_records_with_too_many_headers_together_are_decoded_in_turn(core: ModuleType) -> None:
    first = with_headers(0, 1) + with_headers(1, 2)
    data = first + with_headers(2, HEADER_COUNT_MAX - 2) + simple(3)
    columns, end = core.decode_records(data, 0, 0, 4, 7, 0)
    assert list(columns) == [
        (7, 0, None, None, (("", None),)),
        (8, 0, None, None, (("", None),) * 2),
    ]
    assert end == len(first)
    columns, end = core.decode_records(data, end, 2, 2, 7, 0)
    assert list(columns.offsets) == [9, 10]
    assert end == len(data)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"caf\xe9", "caf\ufffd"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"\xe2\x82", "\ufffd"),
        ("ü".encode(), "ü"),
        (b"a\0b", "a\0b"),
    ],
)
def test_what_is_not_utf8_in_the_name_of_a_header_is_replaced(
    core: ModuleType, name: bytes, text: str
) -> None:
    """Goal: a name that another client wrote in another encoding costs nobody the batch."""
    body = b"\x01\x01\x02" + encode_varint(len(name)) + name + b"\x02v"
    data = simple(0) + record(3 + len(body), 0, 1, body=body) + simple(2)
    columns, end = core.decode_records(data, 0, 0, 3, 0, 0)
    assert end == len(data)
    assert list(columns.headers) == [(), ((text, b"v"),), ()]
    records = core.iterate_records(
        columns, topic="t", partition=0, timestamp_type=TimestampType.CREATE_TIME, leader_epoch=None
    )
    assert [made.headers for made in records] == [(), ((text, b"v"),), ()]
    names = core.arrow_buffers([columns], include_headers=True).headers.names
    assert bytes(names.data) == text.encode()
    assert list(memoryview(names.offsets).cast("B").cast("i")) == [0, len(text.encode())]


@same_core
@given(ROWS, st.integers(0, 2**40))
def test_what_was_appended_comes_back(core: ModuleType, rows: list[Row], base_offset: int) -> None:
    data = encoded(core, rows)
    columns, end = core.decode_records(data, 0, 0, len(rows), base_offset, rows[0][0])
    assert end == len(data)
    assert list(columns.offsets) == list(range(base_offset, base_offset + len(rows)))
    assert [row[1:] for row in columns] == rows


@same_core
@given(ROWS, st.data())
def test_decoding_in_pieces_gives_the_same_as_at_once(
    core: ModuleType, rows: list[Row], data: st.DataObject
) -> None:
    encoded_rows = encoded(core, rows)
    middle = data.draw(st.integers(0, len(rows)))
    pieces = []
    position = 0
    for first, stop in ((0, middle), (middle, len(rows))):
        if first < stop:
            piece, position = core.decode_records(
                encoded_rows, position, first, stop - first, 7, rows[0][0]
            )
            pieces.append(piece)
    whole, end = core.decode_records(encoded_rows, 0, 0, len(rows), 7, rows[0][0])
    assert position == end
    assert [row for piece in pieces for row in piece] == list(whole)


def test_offsets_may_have_gaps_where_compaction_took_records_away(core: ModuleType) -> None:
    data = simple(0) + simple(3) + simple(4) + simple(10_000)
    columns, _ = core.decode_records(data, 0, 0, 4, 100, 0)
    assert list(columns.offsets) == [100, 103, 104, 10_100]


def test_gaps_are_found_from_any_piece_on(core: ModuleType) -> None:
    data = simple(2) + simple(3)
    columns, position = core.decode_records(data, 0, 0, 1, 100, 0)
    assert list(columns.offsets) == [102]
    columns, _ = core.decode_records(data, position, 1, 1, 100, 0)
    assert list(columns.offsets) == [103]


def test_timestamps_may_go_back_before_the_base(core: ModuleType) -> None:
    data = simple(0) + simple(1, timestamp=-50) + simple(2, timestamp=-100_000)
    columns, _ = core.decode_records(data, 0, 0, 3, 0, 1_000_000)
    assert list(columns.timestamps_ms) == [1_000_000, 999_950, 900_000]


INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


@pytest.mark.promise("offsets and times are right up to the ends of 64 bits, and refused beyond")
@pytest.mark.parametrize(
    ("data", "base_offset", "offset"),
    [(simple(0), INT64_MAX, INT64_MAX), (simple(5), INT64_MAX - 5, INT64_MAX)],
)
def test_the_last_offset_of_all_is_read_and_found(
    core: ModuleType, data: bytes, base_offset: int, offset: int
) -> None:
    columns, _ = core.decode_records(data, 0, 0, 1, base_offset, 0)
    assert list(columns.offsets) == [columns.first_offset] == [columns.last_offset] == [offset]
    sought = (INT64_MIN - 1, -1, offset - 1, offset, offset + 1)
    assert [columns.find(each) for each in sought] == [0, 0, 0, 0, 1]
    filled = core.arrow_buffers([columns], include_headers=False)
    assert bytes(filled.offsets) == offset.to_bytes(8, sys.byteorder)


@pytest.mark.promise("offsets and times are right up to the ends of 64 bits, and refused beyond")
@pytest.mark.parametrize(
    ("data", "count", "base_offset"),
    [
        (simple(1), 1, INT64_MAX),
        (simple(0) + simple(1), 2, INT64_MAX),
        (simple(0) + simple(2), 2, INT64_MAX - 1),
        (simple(INT64_MAX), 1, 1),
    ],
)
def test_an_offset_beyond_64_bits_is_a_decode_error(
    core: ModuleType, data: bytes, count: int, base_offset: int
) -> None:
    with pytest.raises(DecodeError, match="an offset is beyond 64 bits"):
        core.decode_records(data, 0, 0, count, base_offset, 0)


@pytest.mark.promise("offsets and times are right up to the ends of 64 bits, and refused beyond")
@pytest.mark.parametrize(
    ("base_ms", "delta_ms"),
    [(INT64_MAX, 0), (INT64_MIN, 0), (0, INT64_MAX), (0, INT64_MIN), (INT64_MAX, INT64_MIN)],
)
def test_the_first_and_last_times_of_all_are_read(
    core: ModuleType, base_ms: int, delta_ms: int
) -> None:
    columns, _ = core.decode_records(simple(0, timestamp=delta_ms), 0, 0, 1, 0, base_ms)
    assert list(columns.timestamps_ms) == [base_ms + delta_ms]


@pytest.mark.promise("offsets and times are right up to the ends of 64 bits, and refused beyond")
@pytest.mark.parametrize(
    ("base_ms", "delta_ms"),
    [(INT64_MAX, 1), (INT64_MIN, -1), (INT64_MIN, INT64_MIN), (INT64_MAX, INT64_MAX)],
)
def test_a_time_beyond_64_bits_is_a_decode_error(
    core: ModuleType, base_ms: int, delta_ms: int
) -> None:
    with pytest.raises(DecodeError, match="a timestamp is beyond 64 bits"):
        core.decode_records(simple(0, timestamp=delta_ms), 0, 0, 1, 0, base_ms)


@pytest.mark.promise("a malformed batch is an error before any of its records is returned")
@pytest.mark.parametrize(
    ("data", "count", "reason"),
    [
        (b"", 1, "1 records cannot stand in 0 bytes"),
        (simple(0), 10**9, "cannot stand in"),
        (record(5, 0, 0, body=b"\x01\x01\x00"), 1, "does not have the size that it claims, 5"),
        (record(7, 0, 0, body=b"\x01\x01\x00"), 1, "does not have the size that it claims, 7"),
        (record(-1, 0, 0, body=b"\x01\x01\x00"), 1, "does not have the size that it claims, -1"),
        (record(-7, 0, 0, body=b"\x01\x01\x00"), 1, "does not have the size that it claims, -7"),
        (record(7, 0, 0, body=b"\x03\x00\x01\x00"), 1, "below -1"),
        (record(7, 0, 0, body=b"\x01\x03\x00\x00"), 1, "below -1"),
        (record(6, 0, 0, body=b"\x7e\x01\x00"), 1, "pass the end"),
        (record(6, 0, 0, body=b"\x01\x7e\x00"), 1, "pass the end"),
        (record(6, 0, 0, body=b"\x01\x01\x04"), 1, "claims 2 headers, with 0 bytes left"),
        (record(6, 0, 0, body=b"\x01\x01\x01"), 1, "claims -1 headers"),
        (record(8, 0, 0, body=b"\x01\x01\x02\x01\x00"), 1, "the name of a header is null"),
        (record(8, 0, 0, body=b"\x01\x01\x02\x05\x00"), 1, "a header claims -3 bytes"),
        (record(9, 0, 0, body=b"\x01\x01\x02\x02a\x10"), 1, "headers of a record pass the end"),
        (simple(-1), 1, "negative offset delta"),
        (simple(5) + simple(4), 2, "do not ascend"),
        (simple(5) + simple(5), 2, "do not ascend"),
        (simple(0) + simple(0), 2, "do not ascend"),
        (b"\xff" * 30, 1, "longer than 64 bits"),
        (b"\xff" * 9 + b"\x02" + bytes(20), 1, "longer than 64 bits"),
        (b"\x80" * 10 + bytes(20), 1, "longer than 64 bits"),
        (record(2**63 - 1, 0, 0, body=b"\x01\x01\x00"), 1, "does not have the size that it claims"),
        (record(-(2**63), 0, 0, body=b"\x01\x01\x00"), 1, "does not have the size that it claims"),
        (simple(0, timestamp=2**63 - 1), 1, "a timestamp is beyond 64 bits"),
    ],
)
def test_malformed_records_are_a_decode_error(
    core: ModuleType, data: bytes, count: int, reason: str
) -> None:
    with pytest.raises(DecodeError, match=reason):
        core.decode_records(data, 0, 0, count, 0, 1)


@same_core
@given(ROWS)
def test_records_cut_off_anywhere_are_a_decode_error(core: ModuleType, rows: list[Row]) -> None:
    data = encoded(core, [(row[0], row[1], (row[2] or b"")[:30], row[3]) for row in rows])
    for end in range(len(data)):
        with pytest.raises(DecodeError):
            core.decode_records(data[:end], 0, 0, len(rows), 0, rows[0][0])


@pytest.mark.promise("only our own errors leave the parsers, of either core")
@same_core
@given(ROWS, st.data())
def test_damaged_records_give_records_or_a_decode_error_and_nothing_else(
    core: ModuleType, rows: list[Row], data: st.DataObject
) -> None:
    damaged = bytearray(encoded(core, rows))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        columns, end = core.decode_records(bytes(damaged), 0, 0, len(rows), 0, rows[0][0])
    except DecodeError:
        return
    assert len(list(columns)) == len(columns) == len(rows)
    assert end <= len(damaged)


@pytest.mark.promise("only our own errors leave the parsers, of either core")
@same_core
@given(st.binary(max_size=200), st.integers(1, 30), st.integers(-(2**63), 2**63 - 1))
def test_any_bytes_give_records_or_a_decode_error_and_nothing_else(
    core: ModuleType, data: bytes, count: int, base_timestamp_ms: int
) -> None:
    try:
        columns, _ = core.decode_records(data, 0, 0, count, 0, base_timestamp_ms)
    except DecodeError:
        return
    assert all(-(2**63) <= ms < 2**63 for ms in columns.timestamps_ms)
