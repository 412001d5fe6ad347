"""Decoded records as columns: any field of all of them, any neighbours among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.accel.sample_columns import ROWS, sample_columns
from tests.accel.test_decoder import simple

if TYPE_CHECKING:
    from types import ModuleType

    from pykclient.accel.abc import RecordColumns


@pytest.fixture
def columns(core: ModuleType) -> RecordColumns:
    """The sample."""
    return sample_columns(core)


def test_each_field_of_all_records(columns: RecordColumns) -> None:
    assert len(columns) == 4
    assert list(columns.offsets) == [50, 51, 52, 53]
    assert list(columns.timestamps_ms) == [row[0] for row in ROWS]
    assert list(columns.keys) == [row[1] for row in ROWS]
    assert list(columns.values) == [row[2] for row in ROWS]
    assert list(columns.headers) == [row[3] for row in ROWS]
    assert (columns.first_offset, columns.last_offset) == (50, 53)


def test_each_record_with_all_its_fields(columns: RecordColumns) -> None:
    assert [row[1:] for row in columns] == ROWS
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
    taken_bytes = sum(
        len(key or b"")
        + len(value or b"")
        + sum(len(n.encode()) + len(v or b"") for n, v in headers)
        for _, _, key, value, headers in columns
    )
    assert taken_bytes <= columns.size_bytes <= 2 * taken_bytes


def test_a_record_is_found_by_its_offset_or_the_next_one_is(core: ModuleType) -> None:
    data = core.record_bytes(simple(0) + simple(3) + simple(4) + simple(9))
    columns = core.decode_records(data, 0, 0, 4, 100, 0)[0]
    found = [columns.find(offset) for offset in range(98, 112)]
    assert found == [0, 0, 0, 1, 1, 1, 2, 3, 3, 3, 3, 3, 4, 4]
    assert columns.rows(1, 3).find(104) == 1


def test_with_a_time_of_appending_every_record_has_it(core: ModuleType) -> None:
    data = core.record_bytes(simple(0) + simple(1, timestamp=5))
    columns = core.decode_records(data, 0, 0, 2, 0, 1000, 77)[0]
    assert list(columns.timestamps_ms) == [77, 77]


def test_records_outlive_whoever_received_their_bytes(core: ModuleType) -> None:
    received = bytearray(simple(0) + simple(1))
    columns = core.decode_records(core.record_bytes(memoryview(received)), 0, 0, 2, 0, 0)[0]
    del received
    assert list(columns.rows(1).offsets) == [1]
