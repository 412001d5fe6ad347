"""The two indexes: entries found by bisection, zeros at the end, and files that cannot be one."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pykclient.cli.log.index import (
    CorruptIndexError,
    OffsetIndex,
    OffsetPosition,
    SparseIndex,
    TimeIndex,
    TimestampOffset,
)

BASE_OFFSET = 1_000_000


def offset_index(data: bytes) -> OffsetIndex:
    return OffsetIndex(lambda at, size: data[at : at + size], len(data), base_offset=BASE_OFFSET)


def time_index(data: bytes) -> TimeIndex:
    return TimeIndex(lambda at, size: data[at : at + size], len(data), base_offset=BASE_OFFSET)


def entries_of(index: SparseIndex[OffsetPosition] | SparseIndex[TimestampOffset]) -> list[object]:
    return [index.entry(number) for number in range(len(index))]


def test_entries_count_offsets_from_the_segments_first() -> None:
    assert entries_of(offset_index(struct.pack(">iiii", 5, 4200, 9, 8400))) == [
        OffsetPosition(BASE_OFFSET + 5, 4200),
        OffsetPosition(BASE_OFFSET + 9, 8400),
    ]
    assert entries_of(time_index(struct.pack(">qiqi", 70_000, 0, 80_000, 9))) == [
        TimestampOffset(70_000, BASE_OFFSET),
        TimestampOffset(80_000, BASE_OFFSET + 9),
    ]


@given(
    st.lists(st.integers(1, 2**31 - 1), unique=True, max_size=50).map(sorted),
    st.integers(0, 500),
    st.integers(0, 2**31),
)
@example([5, 9], 0, 9)
def test_the_last_entry_up_to_the_sought_one_is_found(
    deltas: list[int], blank_count: int, sought: int
) -> None:
    data = b"".join(struct.pack(">ii", delta, 10) for delta in deltas) + bytes(8 * blank_count)
    index = offset_index(data)
    assert len(index) == len(deltas)
    expected = max((delta for delta in deltas if delta <= sought), default=None)
    found = index.lookup(BASE_OFFSET + sought)
    assert found == (None if expected is None else OffsetPosition(BASE_OFFSET + expected, 10))


def test_a_search_reads_few_entries() -> None:
    entry_count = 100_000
    data = b"".join(struct.pack(">qi", delta, delta) for delta in range(1, entry_count + 1))
    read_count = 0

    def read_at(position: int, size_bytes: int) -> bytes:
        nonlocal read_count
        read_count += 1
        return data[position : position + size_bytes]

    index = TimeIndex(read_at, len(data), base_offset=BASE_OFFSET)
    assert index.lookup(77_777) == TimestampOffset(77_777, BASE_OFFSET + 77_777)
    assert read_count < 3 * entry_count.bit_length()


def test_an_empty_file_and_one_of_zeros_have_no_entries() -> None:
    for data in (b"", bytes(24 * 100)):
        for index in (offset_index(data), time_index(data)):
            assert len(index) == 0
            assert index.lookup(BASE_OFFSET) is None


def test_a_file_that_ends_within_an_entry_is_refused() -> None:
    with pytest.raises(CorruptIndexError, match="9 bytes are no multiple of 8"):
        offset_index(bytes(9))
    with pytest.raises(CorruptIndexError, match="13 bytes are no multiple of 12"):
        time_index(bytes(13))


def test_a_last_entry_before_the_segment_or_the_first_entry_is_refused() -> None:
    with pytest.raises(CorruptIndexError, match="the segment begins at 1000000"):
        offset_index(struct.pack(">ii", -1, 5))
    with pytest.raises(CorruptIndexError, match="the segment begins at 1000000"):
        time_index(struct.pack(">qi", 5, -1))
    with pytest.raises(CorruptIndexError, match="its last time is 4, before its first, 5"):
        time_index(struct.pack(">qiqi", 5, 1, 4, 2))


def test_a_file_that_is_cut_while_it_is_read_is_an_error() -> None:
    data = bytearray(struct.pack(">iiii", 5, 4200, 9, 8400))
    index = OffsetIndex(
        lambda at, size: bytes(data[at : at + size]), len(data), base_offset=BASE_OFFSET
    )
    del data[8:]
    with pytest.raises(CorruptIndexError, match="ended before entry 1"):
        index.lookup(BASE_OFFSET + 20)
