"""Plain batches read as one: what is plain, what is checked, and that both cores see the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.accel import pure
from pykclient.accel.batch_layout import CHUNK_RECORD_COUNT_MAX
from pykclient.accel.pure import ContiguousBatches
from pykclient.records.compression import Codec
from tests.accel.fuzzing import fuzz
from tests.records.batches import ROWS, Row, build, header_changed

if TYPE_CHECKING:
    from types import ModuleType

EPOCH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT, LAST_DELTA_AT, COUNT_AT = 12, 16, 17, 21, 23, 57
APPEND_TIME, TRANSACTIONAL, CONTROL, HORIZON = 0x08, 0x10, 0x20, 0x40
TIME_MS = 1_700_000_000_000
ROW: Row = (TIME_MS, b"key", b"value", ())


read_as_one = pytest.mark.promise(
    "contiguous batches are read as one, each is checked first, and any difference ends them"
)


def plain(first: int, count: int = 2) -> bytes:
    """A batch without anything special."""
    return build([ROW] * count, base_offset=first)


def decoded(core: ModuleType, data: bytes, *, check_crcs: bool = True) -> tuple[list[object], int]:
    """All records of what `data` begins with, up to what is odd; and where that is."""
    found = core.find_contiguous(data, 0, 0)
    records: list[object] = []
    position = 0
    while found is not None and position < found.size_bytes:
        columns, position = core.decode_contiguous(data, position, found.size_bytes, check_crcs)
        if columns is None:
            break
        records += columns
    return records, position


def test_batches_that_follow_one_another_are_contiguous(core: ModuleType) -> None:
    data = plain(5) + plain(7, 3) + plain(10, 1)
    assert core.find_contiguous(data, 0, 0) == ContiguousBatches(len(data), 5, 6, 10, -1, False)
    rest = data[len(plain(5)) :]
    assert core.find_contiguous(data, len(plain(5)), 0) == ContiguousBatches(
        len(rest), 7, 9, 10, -1, False
    )
    records, position = decoded(core, data)
    assert records == [(offset, TIME_MS, b"key", b"value", ()) for offset in range(5, 11)]
    assert position == len(data)


@read_as_one
@pytest.mark.parametrize(
    "other",
    [
        plain(3),
        plain(1),
        header_changed(plain(2), EPOCH_AT, 4, 4),
        header_changed(plain(2), ATTRIBUTES_AT, APPEND_TIME, 2),
        header_changed(plain(2), ATTRIBUTES_AT, CONTROL, 2),
        header_changed(plain(2), ATTRIBUTES_AT, HORIZON, 2),
        header_changed(plain(2), LAST_DELTA_AT, 2, 4),
        header_changed(plain(2), COUNT_AT, 0, 4),
        header_changed(plain(2), MAGIC_AT, 1, 1),
        build([ROW], Codec.GZIP, base_offset=2),
        plain(2)[:-1],
        plain(2)[:60],
        b"",
    ],
)
def test_contiguous_batches_end_before_what_is_different(core: ModuleType, other: bytes) -> None:
    assert core.find_contiguous(plain(0) + other, 0, 0) == ContiguousBatches(
        len(plain(0)), 0, 1, 1, -1, False
    )


def test_contiguous_batches_may_end_with_the_last_offset_of_all(core: ModuleType) -> None:
    data = plain(2**63 - 4) + plain(2**63 - 2)
    assert core.find_contiguous(data + plain(0), 0, 0) == ContiguousBatches(
        len(data), 2**63 - 4, 2**63 - 3, 2**63 - 1, -1, False
    )
    beyond = header_changed(header_changed(plain(2**63 - 2), COUNT_AT, 3, 4), LAST_DELTA_AT, 2, 4)
    assert core.find_contiguous(beyond, 0, 0) is None


@pytest.mark.parametrize("attribute", [TRANSACTIONAL, APPEND_TIME])
def test_the_caller_chooses_the_special_attributes(core: ModuleType, attribute: int) -> None:
    data = header_changed(plain(0), ATTRIBUTES_AT, attribute, 2)
    assert core.find_contiguous(data, 0, 0) is not None
    assert core.find_contiguous(data, 0, attribute) is None


def test_a_batch_of_more_records_than_are_decoded_at_once_is_not_plain(core: ModuleType) -> None:
    assert core.find_contiguous(plain(0, CHUNK_RECORD_COUNT_MAX), 0, 0) is not None
    assert core.find_contiguous(plain(0, CHUNK_RECORD_COUNT_MAX + 1), 0, 0) is None


def test_no_more_records_are_decoded_at_once_than_the_limit(core: ModuleType) -> None:
    data = b"".join(plain(first, 4_000) for first in range(0, 20_000, 4_000))
    position = count = 0
    while position < len(data):
        columns, position = core.decode_contiguous(data, position, len(data), True)
        assert 0 < len(columns) <= CHUNK_RECORD_COUNT_MAX
        count += len(columns)
    assert count == 20_000


def test_batches_with_many_headers_together_are_decoded_in_turn(core: ModuleType) -> None:
    rows: list[Row] = [(TIME_MS, None, None, (("", None),) * 400_000)]
    data = b"".join(build(rows, base_offset=offset) for offset in range(4))
    position = 0
    offsets: list[int] = []
    while position < len(data):
        columns, position = core.decode_contiguous(data, position, len(data), True)
        assert 0 < len(columns) <= 2
        offsets += columns.offsets
    assert offsets == [0, 1, 2, 3]


def test_a_batch_with_more_headers_than_are_decoded_at_once_is_not_plain(core: ModuleType) -> None:
    rows: list[Row] = [(TIME_MS, None, None, (("", None),) * 400_000)] * 3
    data = build(rows)
    assert core.decode_contiguous(data, 0, len(data), True) == (None, 0)


def test_the_time_of_appending_is_that_of_every_record(core: ModuleType) -> None:
    rows: list[Row] = [(TIME_MS + number, None, None, ()) for number in range(3)]
    data = header_changed(build(rows), ATTRIBUTES_AT, APPEND_TIME, 2)
    found = core.find_contiguous(data, 0, 0)
    assert found is not None
    assert found.has_append_time
    assert {record[1] for record in decoded(core, data)[0]} == {TIME_MS + 2}  # type: ignore[index]


# The checksum's package takes long ones in several streams at once, and eight bytes at a time.
@read_as_one
@pytest.mark.parametrize("lane", [0, 512, 1_536, 3_072, 4_608, 70_000])
def test_a_checksum_of_any_length_is_right(core: ModuleType, lane: int) -> None:
    for more in range(40):
        data = build([(TIME_MS, None, b"\x9c" * (lane + more), ())])
        assert decoded(core, data)[1] == len(data)


@read_as_one
@pytest.mark.parametrize("size", [10, 600, 1_536, 5_000])
def test_a_flipped_bit_is_found_wherever_it_is(core: ModuleType, size: int) -> None:
    good = plain(0, 1)
    data = build([(TIME_MS, None, bytes(size), ())], base_offset=1)
    for at in [*range(CRC_AT, 61), *range(61, len(data), 97), len(data) - 1]:
        flipped = bytearray(good + data)
        flipped[len(good) + at] ^= 0x10
        records, position = decoded(core, bytes(flipped))
        assert (len(records), position) == (1, len(good))


def test_without_checks_a_wrong_checksum_is_passed(core: ModuleType) -> None:
    data = bytearray(plain(0))
    data[CRC_AT] ^= 1
    assert decoded(core, bytes(data)) == ([], 0)
    assert decoded(core, bytes(data), check_crcs=False)[1] == len(data)


@pytest.mark.parametrize(("position", "end"), [(-1, 10), (0, 10**6), (50, 10)])
def test_nothing_outside_the_data_is_read(core: ModuleType, position: int, end: int) -> None:
    with pytest.raises(IndexError):
        core.decode_contiguous(plain(0), position, end, True)
    assert core.find_contiguous(plain(0), 10**6, 0) is None
    assert core.find_contiguous(plain(0), -1, 0) is None


@read_as_one
@fuzz
@given(st.lists(ROWS, min_size=1, max_size=4), st.data())
def test_both_cores_read_the_same(lists: list[list[Row]], draw: st.DataObject) -> None:
    compiled = pytest.importorskip("pykclient.accel.compiled", reason="not built")
    data = bytearray()
    first = 0
    for rows in lists:
        data += build(rows, base_offset=first)
        first += len(rows) + draw.draw(st.sampled_from([0, 0, 0, 1]))
    for _ in range(draw.draw(st.integers(0, 2))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    cut = bytes(data[: draw.draw(st.integers(1, len(data)) | st.just(len(data)))])
    assert compiled.find_contiguous(cut, 0, 0) == pure.find_contiguous(cut, 0, 0)
    for check_crcs in (True, False):
        assert decoded(compiled, cut, check_crcs=check_crcs) == decoded(
            pure, cut, check_crcs=check_crcs
        )
