"""A segment in a file: read in pieces, searched by index, and recovered if damaged.

Entries of an index are found by bisection; a file that cannot be one is refused.
"""

from __future__ import annotations

import struct
from itertools import islice
from typing import TYPE_CHECKING, TypedDict, Unpack

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pykclient.errors.base import CorruptRecordError, DecodeError
from pykclient.records import segment as segment_module
from pykclient.records.compression import Codec
from pykclient.records.index import (
    CorruptIndexError,
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
)
from pykclient.records.segment import LogSegment, Start
from pykclient.types import TopicPartition
from tests.records.batches import Row, build, header_changed

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITION = TopicPartition("flights", 3)
BASE_OFFSET = 1000
FIRST_MS = 50_000
BATCH_COUNT = 12
BATCH_RECORDS = 3
LAST_OFFSET_DELTA_AT = 23


def batch_at(number: int) -> bytes:
    """Build the batch at offset 1000 + 3 * number; each offset has its own millisecond."""
    offset = BASE_OFFSET + number * BATCH_RECORDS
    rows: list[Row] = [
        (FIRST_MS + offset - BASE_OFFSET + index, b"k", b"v" * 50, ())
        for index in range(BATCH_RECORDS)
    ]
    return build(rows, tuple(Codec)[number % len(Codec)], offset)


BATCHES = tuple(map(batch_at, range(BATCH_COUNT)))
LOG = b"".join(BATCHES)
POSITIONS = tuple(sum(map(len, BATCHES[:number])) for number in range(BATCH_COUNT))
END_OFFSET = BASE_OFFSET + BATCH_COUNT * BATCH_RECORDS

# As a broker makes them: of some batches the last offset, with the position and the latest time.
INDEXED = (3, 6, 9)
LAST_DELTAS = {n: (n + 1) * BATCH_RECORDS - 1 for n in INDEXED}
OFFSET_ENTRIES = [(LAST_DELTAS[n], POSITIONS[n]) for n in INDEXED]
TIME_ENTRIES = [(FIRST_MS + LAST_DELTAS[n], LAST_DELTAS[n]) for n in INDEXED]


def reader(data: bytes) -> Callable[[int, int], bytes]:
    return lambda position, size_bytes: data[position : position + size_bytes]


def offset_index(entries: list[tuple[int, int]], blank_count: int = 0) -> OffsetIndex:
    data = b"".join(struct.pack(">ii", *entry) for entry in entries) + bytes(8 * blank_count)
    return OffsetIndex(reader(data), len(data), base_offset=BASE_OFFSET)


def time_index(entries: list[tuple[int, int]], blank_count: int = 0) -> TimeIndex:
    data = b"".join(struct.pack(">qi", *entry) for entry in entries) + bytes(12 * blank_count)
    return TimeIndex(reader(data), len(data), base_offset=BASE_OFFSET)


class Indexes(TypedDict, total=False):
    offset_index: OffsetIndex
    time_index: TimeIndex


def segment(
    data: bytes = LOG,
    *,
    batch_size_bytes_max: int = segment_module.BATCH_SIZE_BYTES_MAX,
    **indexes: Unpack[Indexes],
) -> LogSegment:
    return LogSegment(
        reader(data),
        len(data),
        partition=PARTITION,
        batch_size_bytes_max=batch_size_bytes_max,
        **indexes,
    )


def read_all(data: bytes) -> tuple[list[int], CorruptRecordError | None]:
    """Return the positions of the good batches, and the error that ended them."""
    positions: list[int] = []
    try:
        for placed in segment(data).batches():
            placed.batch.records()
            positions.append(placed.position)
    except CorruptRecordError as error:
        return positions, error
    return positions, None


def test_all_batches_come_with_their_positions() -> None:
    assert read_all(LOG) == (list(POSITIONS), None)


def test_batches_larger_than_a_window_and_across_its_end_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for window_bytes in (61, 100, 333):
        monkeypatch.setattr(segment_module, "WINDOW_BYTES", window_bytes)
        assert read_all(LOG) == (list(POSITIONS), None)


def test_no_more_than_a_window_is_read_at_once() -> None:
    read_sizes: list[int] = []

    def read_at(position: int, size_bytes: int) -> bytes:
        read_sizes.append(size_bytes)
        return LOG[position : position + size_bytes]

    large = LogSegment(read_at, 10 * segment_module.WINDOW_BYTES, partition=PARTITION)
    assert len(list(islice(large.batches(), BATCH_COUNT))) == BATCH_COUNT
    assert max(read_sizes) <= segment_module.WINDOW_BYTES


def test_an_empty_segment_has_no_batches() -> None:
    assert read_all(b"") == ([], None)


@pytest.mark.parametrize("cut", [1, 11, 12, 16, 17, 60, 61, 62, len(BATCHES[1]) - 1])
def test_a_cut_batch_ends_it(cut: int) -> None:
    positions, error = read_all(BATCHES[0] + BATCHES[1][:cut])
    assert positions == [0]
    assert error is not None
    assert error.offset == BASE_OFFSET + BATCH_RECORDS
    assert f"at byte {len(BATCHES[0])} of {len(BATCHES[0]) + cut}" in str(error)
    assert "are left" in str(error)


@pytest.mark.parametrize("size_bytes", [1, 12, 100, 3_000_000])
def test_zeros_at_the_end_are_called_so(size_bytes: int) -> None:
    positions, error = read_all(LOG + bytes(size_bytes))
    assert positions == list(POSITIONS)
    assert error is not None
    assert f"at byte {len(LOG)} of" in str(error)
    assert ("zeros" if size_bytes >= 12 else "too few") in str(error)


def test_a_file_of_something_else_is_no_segment() -> None:
    positions, error = read_all(b"this is a text, and a text is no segment of a log" * 3)
    assert positions == []
    assert "this may be no segment, it begins with b'this is a text, '" in str(error)


def test_a_flipped_bit_ends_it_with_both_checksums() -> None:
    data = bytearray(LOG)
    data[POSITIONS[5] + 70] ^= 4
    positions, error = read_all(bytes(data))
    assert positions == list(POSITIONS[:5])
    assert "its checksum is" in str(error)
    assert "flights-3" in str(error)


def test_offsets_that_go_back_end_it_also_between_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_module, "WINDOW_BYTES", len(BATCHES[1]))
    positions, error = read_all(BATCHES[1] + BATCHES[0])
    assert positions == [0]
    assert "the batch before it ends at offset 1005" in str(error)


def test_a_batch_above_the_limit_is_refused_before_it_is_read() -> None:
    limited = segment(batch_size_bytes_max=len(BATCHES[0]) - 1)
    with pytest.raises(CorruptRecordError, match="more than the limit"):
        next(limited.batches())


def test_a_file_that_becomes_shorter_meanwhile_is_an_error() -> None:
    shrunk = LogSegment(reader(LOG[:-1]), len(LOG), partition=PARTITION)
    with pytest.raises(CorruptRecordError, match="became shorter while it was read"):
        list(shrunk.batches())


@pytest.mark.parametrize(
    "indexes",
    [
        {},
        {"offset_index": offset_index(OFFSET_ENTRIES)},
        {"offset_index": offset_index(OFFSET_ENTRIES, blank_count=1000)},
        {"offset_index": offset_index([], blank_count=1000)},
        {"offset_index": offset_index(OFFSET_ENTRIES), "time_index": time_index(TIME_ENTRIES)},
        {
            "offset_index": offset_index(OFFSET_ENTRIES, 9),
            "time_index": time_index(TIME_ENTRIES, 9),
        },
        {"time_index": time_index(TIME_ENTRIES)},
    ],
)
def test_every_offset_and_time_is_found(indexes: Indexes) -> None:
    indexed = segment(**indexes)
    for offset in range(BASE_OFFSET, END_OFFSET):
        start = Start(POSITIONS[(offset - BASE_OFFSET) // BATCH_RECORDS], offset)
        assert indexed.find_offset(offset) == start
        assert indexed.find_time(FIRST_MS + offset - BASE_OFFSET) == start
    assert indexed.find_offset(0) == Start(0, 0)
    assert indexed.find_time(0) == Start(0, BASE_OFFSET)
    assert indexed.find_offset(END_OFFSET) is None
    assert indexed.find_time(FIRST_MS + END_OFFSET) is None


def test_with_an_index_what_is_before_the_entry_is_not_read() -> None:
    """The only sign is that damage there goes unseen."""
    damaged = bytearray(LOG)
    damaged[POSITIONS[4] + 70] ^= 1
    indexed = segment(bytes(damaged), offset_index=offset_index(OFFSET_ENTRIES))
    offset = BASE_OFFSET + 8 * BATCH_RECORDS
    assert indexed.find_offset(offset) == Start(POSITIONS[8], offset)
    with pytest.raises(CorruptRecordError):
        segment(bytes(damaged)).find_offset(offset)


def test_an_offset_that_was_compacted_away_is_found_at_the_next() -> None:
    data = BATCHES[0] + BATCHES[5]
    assert segment(data).find_offset(BASE_OFFSET + 7) == Start(len(BATCHES[0]), BASE_OFFSET + 7)


def test_a_record_that_compaction_took_the_latest_time_of_is_passed_over() -> None:
    """A batch keeps its latest time when the record that had it is gone."""
    data = header_changed(BATCHES[0], 35, FIRST_MS + 500, 8) + BATCHES[1]
    assert segment(data).find_time(FIRST_MS + 3) == Start(len(BATCHES[0]), BASE_OFFSET + 3)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ((11, len(LOG)), "and the segment has"),
        ((11, -5), "and the segment has"),
        ((11, POSITIONS[3] + 1), "where no good batch begins"),
        ((5, POSITIONS[3]), "where offset 1009 is"),
    ],
)
def test_an_index_that_points_elsewhere_is_reported(entry: tuple[int, int], reason: str) -> None:
    wrong = segment(offset_index=offset_index([entry]))
    with pytest.raises(CorruptIndexError, match=reason) as caught:
        wrong.find_offset(BASE_OFFSET + 30)
    assert "search without the index" in str(caught.value)


def test_entries_count_offsets_from_the_segments_first() -> None:
    offsets, times = offset_index([(5, 4200), (9, 8400)]), time_index([(70_000, 0), (80_000, 9)])
    assert [offsets.entry(number) for number in range(len(offsets))] == [
        OffsetPosition(BASE_OFFSET + 5, 4200),
        OffsetPosition(BASE_OFFSET + 9, 8400),
    ]
    assert [times.entry(number) for number in range(len(times))] == [
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
    """Zeros at the end are no entries, and where there are no others nothing is found."""
    index = offset_index([(delta, 10) for delta in deltas], blank_count)
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


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        (OffsetIndex, bytes(9), "9 bytes are no multiple of 8"),
        (TimeIndex, bytes(13), "13 bytes are no multiple of 12"),
        (OffsetIndex, struct.pack(">ii", -1, 5), "the segment begins at 1000"),
        (TimeIndex, struct.pack(">qi", 5, -1), "the segment begins at 1000"),
        (TimeIndex, struct.pack(">qiqi", 5, 1, 4, 2), "its last time is 4, before its first, 5"),
    ],
)
def test_a_file_that_can_be_no_index_is_refused(
    kind: type[OffsetIndex | TimeIndex], data: bytes, reason: str
) -> None:
    with pytest.raises(CorruptIndexError, match=reason):
        kind(reader(data), len(data), base_offset=BASE_OFFSET)


def test_an_index_that_is_cut_while_it_is_read_is_an_error() -> None:
    data = bytearray(struct.pack(">iiii", 5, 4200, 9, 8400))
    index = OffsetIndex(
        lambda at, size: bytes(data[at : at + size]), len(data), base_offset=BASE_OFFSET
    )
    del data[8:]
    with pytest.raises(CorruptIndexError, match="ended before entry 1"):
        index.lookup(BASE_OFFSET + 20)


@given(st.data())
def test_whatever_is_damaged_only_our_errors_come_and_it_ends(data: st.DataObject) -> None:
    damaged = bytearray(LOG)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(LOG) - 1))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(LOG)))
    positions, error = read_all(bytes(damaged[:cut]) + data.draw(st.binary(max_size=80)))
    assert positions == list(POSITIONS[: len(positions)]) or error is None
    offset = data.draw(st.integers(BASE_OFFSET, END_OFFSET))
    found = segment(bytes(damaged), offset_index=offset_index(OFFSET_ENTRIES))
    try:
        start = found.find_offset(offset)
    except (CorruptRecordError, CorruptIndexError):
        return
    assert start is None or start.offset == offset


_INTS = st.integers(-(2**31), 2**31 - 1)


@given(
    st.lists(st.tuples(_INTS, _INTS), max_size=6),
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), _INTS), max_size=6),
    st.integers(-5, END_OFFSET + 5),
)
def test_whatever_the_indexes_hold_only_our_errors_come(
    offsets: list[tuple[int, int]], times: list[tuple[int, int]], sought: int
) -> None:
    for find in ("find_offset", "find_time"):
        try:
            misled = segment(offset_index=offset_index(offsets), time_index=time_index(times))
            start = getattr(misled, find)(sought)
        except DecodeError:
            continue
        assert start is None or start.position in POSITIONS
