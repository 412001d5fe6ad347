"""The decoder: round trips, only DecodeError for other bytes, and records as columns."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykclient.accel.pure.appender import HEADER_COUNT_MAX
from pykclient.accel.pure.varint import encode_varint
from pykclient.errors.base import DecodeError
from tests.accel.records import ROWS as SAMPLE
from tests.accel.records import decoded, encoded, iterated, record, simple, with_headers

if TYPE_CHECKING:
    from types import ModuleType

    from pykclient.accel.abc import RecordColumns

if TYPE_CHECKING:
    from types import ModuleType

    from pykclient.accel.abc import RecordColumns
    from tests.records.batches import Row

same_core = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

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


def test_an_impossible_count_of_headers_is_refused_before_they_are_made(core: ModuleType) -> None:
    """Goal: kilobytes of a compressed batch cannot become gigabytes of headers."""
    count = HEADER_COUNT_MAX + 1
    with pytest.raises(DecodeError, match=f"a record claims {count} headers, .*limit"):
        core.decode_records(with_headers(0, count), 0, 0, 1, 0, 0)
    columns = decoded(core, with_headers(0, HEADER_COUNT_MAX))
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
    """Goal: a name that another client wrote in another encoding does not cost the batch."""
    body = b"\x01\x01\x02" + encode_varint(len(name)) + name + b"\x02v"
    data = simple(0) + record(3 + len(body), 0, 1, body=body) + simple(2)
    columns = decoded(core, data, 3)
    assert list(columns.headers) == [(), ((text, b"v"),), ()]
    assert [made.headers for made in iterated(core, columns)] == [(), ((text, b"v"),), ()]
    names = core.arrow_buffers([columns], wanted=("key", "value", "headers")).headers.names
    assert bytes(names.data) == text.encode()
    assert list(memoryview(names.offsets).cast("B").cast("i")) == [0, len(text.encode())]


@same_core
@given(ROWS, st.integers(0, 2**40))
def test_what_was_appended_comes_back(core: ModuleType, rows: list[Row], base_offset: int) -> None:
    data = encoded(core, rows)
    columns = decoded(core, data, len(rows), base_offset, rows[0][0])
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
    assert list(decoded(core, data, 4, 100).offsets) == [100, 103, 104, 10_100]


def test_gaps_are_found_from_any_piece_on(core: ModuleType) -> None:
    data = simple(2) + simple(3)
    columns, position = core.decode_records(data, 0, 0, 1, 100, 0)
    assert list(columns.offsets) == [102]
    columns, _ = core.decode_records(data, position, 1, 1, 100, 0)
    assert list(columns.offsets) == [103]


def test_timestamps_may_go_back_before_the_base(core: ModuleType) -> None:
    data = simple(0) + simple(1, timestamp=-50) + simple(2, timestamp=-100_000)
    assert list(decoded(core, data, 3, base_ms=1_000_000).timestamps_ms) == [
        1_000_000,
        999_950,
        900_000,
    ]


INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


@pytest.mark.parametrize(
    ("data", "base_offset", "offset"),
    [(simple(0), INT64_MAX, INT64_MAX), (simple(5), INT64_MAX - 5, INT64_MAX)],
)
def test_the_last_offset_of_all_is_read_and_found(
    core: ModuleType, data: bytes, base_offset: int, offset: int
) -> None:
    columns = decoded(core, data, base_offset=base_offset)
    assert list(columns.offsets) == [columns.first_offset] == [columns.last_offset] == [offset]
    sought = (INT64_MIN - 1, -1, offset - 1, offset, offset + 1)
    assert [columns.find(each) for each in sought] == [0, 0, 0, 0, 1]
    filled = core.arrow_buffers([columns], wanted=("key", "value"))
    assert bytes(filled.offsets) == offset.to_bytes(8, sys.byteorder)


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


@pytest.mark.parametrize(
    ("base_ms", "delta_ms"),
    [(INT64_MAX, 0), (INT64_MIN, 0), (0, INT64_MAX), (0, INT64_MIN), (INT64_MAX, INT64_MIN)],
)
def test_the_first_and_last_times_of_all_are_read(
    core: ModuleType, base_ms: int, delta_ms: int
) -> None:
    columns = decoded(core, simple(0, timestamp=delta_ms), base_ms=base_ms)
    assert list(columns.timestamps_ms) == [base_ms + delta_ms]


@pytest.mark.parametrize(
    ("base_ms", "delta_ms"),
    [(INT64_MAX, 1), (INT64_MIN, -1), (INT64_MIN, INT64_MIN), (INT64_MAX, INT64_MAX)],
)
def test_a_time_beyond_64_bits_is_a_decode_error(
    core: ModuleType, base_ms: int, delta_ms: int
) -> None:
    with pytest.raises(DecodeError, match="a timestamp is beyond 64 bits"):
        core.decode_records(simple(0, timestamp=delta_ms), 0, 0, 1, 0, base_ms)


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


def test_each_field_of_all_records(columns: RecordColumns) -> None:
    assert len(columns) == 4
    assert list(columns.offsets) == [50, 51, 52, 53]
    assert list(columns.timestamps_ms) == [row[0] for row in SAMPLE]
    assert list(columns.keys) == [row[1] for row in SAMPLE]
    assert list(columns.values) == [row[2] for row in SAMPLE]
    assert list(columns.headers) == [row[3] for row in SAMPLE]
    assert (columns.first_offset, columns.last_offset) == (50, 53)


def test_each_record_with_all_its_fields(columns: RecordColumns) -> None:
    assert [row[1:] for row in columns] == SAMPLE
    assert [row[0] for row in columns] == [50, 51, 52, 53]


@pytest.mark.parametrize("start", range(5))
@pytest.mark.parametrize("stop", [0, 1, 3, 4, 9, None])
def test_rows_are_neighbours_among_them(
    columns: RecordColumns, start: int, stop: int | None
) -> None:
    rows = columns.rows(start, stop)
    assert list(rows) == list(columns)[start:stop]
    assert len(rows) == len(list(rows))


def test_rows_of_rows_count_from_their_own_start(columns: RecordColumns) -> None:
    rows = columns.rows(1).rows(1, 2)
    assert list(rows.offsets) == [52]
    assert (rows.first_offset, rows.last_offset) == (52, 52)


def test_the_size_bounds_what_keys_values_and_headers_take(columns: RecordColumns) -> None:
    for rows in (columns, columns.rows(1), columns.rows(0, 1), columns.rows(1, 1)):
        taken_bytes = sum(
            len(key or b"")
            + len(value or b"")
            + sum(len(n.encode()) + len(v or b"") for n, v in headers)
            for _, _, key, value, headers in rows
        )
        assert taken_bytes <= rows.size_bytes <= 2 * taken_bytes


def test_a_record_is_found_by_its_offset_or_the_next_one_is(core: ModuleType) -> None:
    data = core.record_bytes(simple(0) + simple(3) + simple(4) + simple(9))
    columns = decoded(core, data, 4, 100)
    found = [columns.find(offset) for offset in range(98, 112)]
    assert found == [0, 0, 0, 1, 1, 1, 2, 3, 3, 3, 3, 3, 4, 4]
    assert columns.rows(1, 3).find(104) == 1


def test_with_a_time_of_appending_every_record_has_it(core: ModuleType) -> None:
    data = core.record_bytes(simple(0) + simple(1, timestamp=5))
    assert list(decoded(core, data, 2, append_ms=77).timestamps_ms) == [77, 77]


def test_records_outlive_whoever_received_their_bytes(core: ModuleType) -> None:
    received = bytearray(simple(0) + simple(1))
    columns = decoded(core, core.record_bytes(memoryview(received)), 2)
    del received
    assert list(columns.rows(1).offsets) == [1]
