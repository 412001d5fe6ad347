"""Contiguous plain batches read as one: selection, checks, and equality of both cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.accel import pure
from pykclient.accel.batch_layout import CHUNK_RECORD_COUNT_MAX
from pykclient.accel.pure import ContiguousBatches
from pykclient.errors.base import DecodeError
from pykclient.records.compression import Codec
from pykclient.types import TimestampType
from tests.accel.fuzzing import fuzz
from tests.records.batches import ROWS, Row, build, header_changed
from tests.records.test_legacy import message

if TYPE_CHECKING:
    from types import ModuleType

EPOCH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT, LAST_DELTA_AT, COUNT_AT = 12, 16, 17, 21, 23, 57
APPEND_TIME, TRANSACTIONAL, CONTROL, HORIZON = 0x08, 0x10, 0x20, 0x40
TIME_MS = 1_700_000_000_000
ROW: Row = (TIME_MS, b"key", b"value", ())
NO_END = 2**63 - 1
CREATE = TimestampType.CREATE_TIME


def plain(first: int, count: int = 2) -> bytes:
    """Return a batch without anything special."""
    return build([ROW] * count, base_offset=first)


def decoded(core: ModuleType, data: bytes, *, check_crcs: bool = True) -> tuple[list[object], int]:
    """Return all records at the start of `data`, and the position of the first unusual batch."""
    found = core.find_contiguous(data, 0, 0, NO_END)
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
    assert core.find_contiguous(data, 0, 0, NO_END) == ContiguousBatches(
        len(data), 5, 6, 10, -1, CREATE
    )
    rest = data[len(plain(5)) :]
    assert core.find_contiguous(data, len(plain(5)), 0, NO_END) == ContiguousBatches(
        len(rest), 7, 9, 10, -1, CREATE
    )
    records, position = decoded(core, data)
    assert records == [(offset, TIME_MS, b"key", b"value", ()) for offset in range(5, 11)]
    assert position == len(data)


@pytest.mark.parametrize(
    "other",
    [
        plain(1),
        header_changed(plain(2), EPOCH_AT, 4, 4),
        header_changed(plain(2), ATTRIBUTES_AT, APPEND_TIME, 2),
        header_changed(plain(2), ATTRIBUTES_AT, CONTROL, 2),
        header_changed(plain(2), ATTRIBUTES_AT, HORIZON, 2),
        header_changed(plain(2), LAST_DELTA_AT, 0, 4),
        header_changed(plain(2), COUNT_AT, 0, 4),
        header_changed(plain(2), MAGIC_AT, 1, 1),
        build([ROW], Codec.GZIP, base_offset=2),
        message(2, b"key", b"value"),
        message(2, b"key", b"value", magic=0),
        plain(2)[:-1],
        plain(2)[:60],
        b"",
    ],
)
def test_contiguous_batches_end_before_what_is_different(core: ModuleType, other: bytes) -> None:
    assert core.find_contiguous(plain(0) + other, 0, 0, NO_END) == ContiguousBatches(
        len(plain(0)), 0, 1, 1, -1, CREATE
    )


def test_what_compaction_has_removed_ends_nothing(core: ModuleType) -> None:
    thinned = header_changed(plain(9), LAST_DELTA_AT, 5, 4)
    data = plain(5) + thinned + plain(20)
    found = ContiguousBatches(len(data), 5, 6, 21, -1, CREATE)
    assert core.find_contiguous(data, 0, 0, NO_END) == found
    records, position = decoded(core, data)
    assert [record[0] for record in records] == [5, 6, 9, 10, 20, 21]  # type: ignore[index]
    assert position == len(data)


def test_behind_a_gap_no_batch_reaches_beyond_what_is_readable(core: ModuleType) -> None:
    data = plain(5) + plain(7) + plain(20)
    for readable_end, last_offset in ((22, 21), (21, 8), (9, 8), (8, 8), (0, 8)):
        found = core.find_contiguous(data, 0, 0, readable_end)
        assert found.last_offset == last_offset


@pytest.mark.parametrize(
    ("magic", "attributes", "timestamp_type", "timestamp_ms"),
    [
        (0, 0, TimestampType.NO_TIMESTAMP_TYPE, -1),
        (0, APPEND_TIME, TimestampType.NO_TIMESTAMP_TYPE, -1),
        (1, 0, CREATE, 1000),
        (1, 0xF0, CREATE, 1000),
        (1, APPEND_TIME, TimestampType.LOG_APPEND_TIME, 1000),
    ],
)
def test_messages_of_old_versions_are_read_as_one(
    core: ModuleType,
    magic: int,
    attributes: int,
    timestamp_type: TimestampType,
    timestamp_ms: int,
) -> None:
    fields = ((5, b"key", b"value"), (6, None, b""), (9, b"", None))
    data = b"".join(message(*each, magic=magic, attributes=attributes) for each in fields)
    other = message(10, None, None, magic=1 - magic)
    found = core.find_contiguous(data + other, 0, 0, NO_END)
    assert found == ContiguousBatches(len(data), 5, 5, 9, -1, timestamp_type)
    records, position = decoded(core, data + other)
    assert records == [(at, timestamp_ms, key, value, ()) for at, key, value in fields]
    assert position == len(data)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_that_is_odd_is_not_decoded(core: ModuleType, magic: int) -> None:
    good, bad = message(0, b"k", b"v", magic=magic), message(1, b"k", b"v", magic=magic)
    value_length_at = len(bad) - 5
    for at in (12, 20, len(bad) - 1, value_length_at):
        flipped = bytearray(good + bad)
        flipped[len(good) + at] ^= 0x10
        assert len(decoded(core, bytes(flipped))[0]) == 1
    for odd in (0, 2, 2**31 - 1, 2**32 - 2):
        changed = bytearray(bad)
        changed[value_length_at : value_length_at + 4] = odd.to_bytes(4)
        records, position = decoded(core, good + bytes(changed), check_crcs=False)
        assert (len(records), position) == (1, len(good))
    for compressed in range(1, 8):
        other = message(1, b"k", b"v", magic=magic, attributes=compressed)
        assert core.find_contiguous(other, 0, 0, NO_END) is None
    assert core.find_contiguous(message(-1, b"k", b"v", magic=magic), 0, 0, NO_END) is None
    for size in range(len(bad)):
        assert core.find_contiguous(bad[:size], 0, 0, NO_END) is None


def test_no_more_messages_are_decoded_at_once_than_the_limit(core: ModuleType) -> None:
    count = CHUNK_RECORD_COUNT_MAX + 5
    data = b"".join(message(offset, None, b"v") for offset in range(count))
    columns, position = core.decode_contiguous(data, 0, len(data), True)
    assert len(columns) == CHUNK_RECORD_COUNT_MAX
    columns, position = core.decode_contiguous(data, position, len(data), True)
    assert (len(columns), position) == (5, len(data))


def test_contiguous_batches_may_end_with_the_last_offset_of_all(core: ModuleType) -> None:
    data = plain(2**63 - 4) + plain(2**63 - 2)
    assert core.find_contiguous(data + plain(0), 0, 0, NO_END) == ContiguousBatches(
        len(data), 2**63 - 4, 2**63 - 3, 2**63 - 1, -1, CREATE
    )
    beyond = header_changed(header_changed(plain(2**63 - 2), COUNT_AT, 3, 4), LAST_DELTA_AT, 2, 4)
    assert core.find_contiguous(beyond, 0, 0, NO_END) is None


@pytest.mark.parametrize("attribute", [TRANSACTIONAL, APPEND_TIME])
def test_the_caller_chooses_the_special_attributes(core: ModuleType, attribute: int) -> None:
    data = header_changed(plain(0), ATTRIBUTES_AT, attribute, 2)
    assert core.find_contiguous(data, 0, 0, NO_END) is not None
    assert core.find_contiguous(data, 0, attribute, NO_END) is None


def test_a_batch_of_more_records_than_are_decoded_at_once_is_not_plain(core: ModuleType) -> None:
    assert core.find_contiguous(plain(0, CHUNK_RECORD_COUNT_MAX), 0, 0, NO_END) is not None
    assert core.find_contiguous(plain(0, CHUNK_RECORD_COUNT_MAX + 1), 0, 0, NO_END) is None


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
    found = core.find_contiguous(data, 0, 0, NO_END)
    assert found is not None
    assert found.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record[1] for record in decoded(core, data)[0]} == {TIME_MS + 2}  # type: ignore[index]


# The checksum's package takes long ones in several streams at once, and eight bytes at a time.
@pytest.mark.parametrize("lane", [0, 512, 1_536, 3_072, 4_608, 70_000])
def test_a_checksum_of_any_length_is_right(core: ModuleType, lane: int) -> None:
    for more in range(40):
        data = build([(TIME_MS, None, b"\x9c" * (lane + more), ())])
        assert decoded(core, data)[1] == len(data)


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
    assert core.find_contiguous(plain(0), 10**6, 0, NO_END) is None
    assert core.find_contiguous(plain(0), -1, 0, NO_END) is None


@fuzz
@given(st.lists(ROWS, min_size=1, max_size=4), st.data())
def test_both_cores_read_the_same(lists: list[list[Row]], draw: st.DataObject) -> None:
    compiled = pytest.importorskip("pykclient.accel.compiled", reason="not built")
    data = bytearray()
    first = 0
    magic = draw.draw(st.sampled_from([0, 1, 2, 2]))
    for rows in lists:
        if magic == 2:
            data += build(rows, base_offset=first)
        else:
            data += b"".join(
                message(first + at, key, value, magic=magic, timestamp_ms=timestamp_ms)
                for at, (timestamp_ms, key, value, _) in enumerate(rows)
            )
        first += len(rows) + draw.draw(st.sampled_from([0, 0, 0, 1]))
    for _ in range(draw.draw(st.integers(0, 2))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    cut = bytes(data[: draw.draw(st.integers(1, len(data)) | st.just(len(data)))])
    end = draw.draw(st.integers(0, 8) | st.just(NO_END))
    assert compiled.find_contiguous(cut, 0, 0, end) == pure.find_contiguous(cut, 0, 0, end)
    for check_crcs in (True, False):
        assert decoded(compiled, cut, check_crcs=check_crcs) == decoded(
            pure, cut, check_crcs=check_crcs
        )


def inner_outcome(core: ModuleType, data: bytes, append_ms: int | None, count_max: int) -> object:
    """Return all inner messages up to an unusual one, or the error of their offsets."""
    try:
        first, last = core.message_offsets(data)
    except DecodeError as error:
        return str(error)
    if first < 0:
        return first, last
    records: list[object] = []
    position, shift = 0, 7 - last
    while position < len(data):
        columns, position = core.decode_messages(
            data, position, len(data), count_max, shift, append_ms, True
        )
        if columns is None:
            break
        assert len(columns) <= count_max
        records += columns
    return first, last, records, position


@fuzz
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.binary(max_size=4)), max_size=6),
    st.data(),
)
def test_both_cores_read_the_same_messages_inside_another(
    messages: list[tuple[int, int, bytes]], draw: st.DataObject
) -> None:
    compiled = pytest.importorskip("pykclient.accel.compiled", reason="not built")
    data = bytearray()
    offset = draw.draw(st.integers(-2, 2) | st.just(2**63 - 20))
    for gap, magic, value in messages:
        data += message(offset, None, value, magic=magic)
        offset += gap
    for _ in range(draw.draw(st.integers(0, 2))):
        if data:
            data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    cut = bytes(data[: draw.draw(st.just(len(data)) | st.integers(0, len(data)))])
    append_ms = draw.draw(st.none() | st.just(5))
    count_max = draw.draw(st.integers(1, 4))
    assert inner_outcome(compiled, cut, append_ms, count_max) == inner_outcome(
        pure, cut, append_ms, count_max
    )
