"""CompletedFetch: which records of a response are returned, skipped or rejected."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykclient import accel
from pykclient.accel.batch_layout import ATTRIBUTE_LOG_APPEND_TIME, HEADER_SIZE_BYTES
from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.fetch.completed_fetch import CompletedFetch, FetchedResponse
from pykclient.errors import CorruptRecordError
from pykclient.records.batch import iterate_spans
from pykclient.records.compression import Codec
from pykclient.records.control import AbortedTransactions
from pykclient.types import TimestampType, TopicPartition
from tests.consumer.fetched_records import (
    ATTRIBUTES_AT,
    COMMIT_KEY,
    CONFIG,
    LEADER_EPOCH_AT,
    aborted_batch,
    batch,
    compacted,
    empty_batch,
    marker,
    thinned,
    value_at,
)
from tests.records.batches import build, header_changed, resealed
from tests.records.test_legacy import message

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTITION = TopicPartition("t", 3)
ALL = 10_000
UNCHECKED = ConsumerConfig.from_settings(bootstrap_servers="boot:9092", check_crcs=False)


def fetched(
    data: bytes,
    fetch_offset: int = 0,
    *,
    high_watermark: int | None = None,
    aborted: Sequence[tuple[int, int]] | None = None,
    config: ConsumerConfig = CONFIG,
) -> CompletedFetch:
    return CompletedFetch(
        PARTITION,
        fetch_offset,
        data,
        config,
        response=FetchedResponse(1, len(data)),
        high_watermark=high_watermark,
        aborted=None if aborted is None else AbortedTransactions(aborted),
    )


def read_all_before_an_error(partition: CompletedFetch) -> list[int]:
    """Take the good records; return their offsets."""
    offsets: list[int] = []
    position = partition.fetch_offset
    while True:
        try:
            rows = partition.peek(position, ALL)
        except CorruptRecordError:
            return offsets
        assert rows is not None
        offsets += rows.columns.offsets
        position = partition.settle(offsets[-1] + 1)


def read_all(
    partition: CompletedFetch, position: int = 0, count_max: int = ALL
) -> tuple[list[int], int]:
    """Take all records as the buffer does; return their offsets, and the next position."""
    offsets: list[int] = []
    while not partition.is_exhausted:
        rows = partition.peek(position, count_max)
        if rows is not None:
            assert len(rows.columns) <= count_max
            offsets += rows.columns.offsets
            assert list(rows.columns.values) == [value_at(o) for o in rows.columns.offsets]
            position = rows.columns.offsets[-1] + 1
        position = partition.settle(position)
    return offsets, position


def test_records_come_in_order_with_what_belongs_to_them() -> None:
    partition = fetched(batch(range(5, 8)), 5)
    rows = partition.peek(5, ALL)
    assert rows is not None
    assert list(rows.columns.offsets) == [5, 6, 7]
    assert rows.timestamp_type is TimestampType.CREATE_TIME
    assert rows.leader_epoch is None
    assert (partition.fetch_offset, partition.end_offset) == (5, 8)


def test_one_take_stays_where_times_and_epoch_are_the_same() -> None:
    other_epoch = header_changed(batch(range(2, 4)), LEADER_EPOCH_AT, 5, 4)
    other_times = header_changed(batch(range(4, 6)), ATTRIBUTES_AT, ATTRIBUTE_LOG_APPEND_TIME, 2)
    partition = fetched(batch(range(2)) + other_epoch + other_times)
    taken = []
    position = 0
    while (rows := partition.peek(position, ALL)) is not None:
        taken.append((list(rows.columns.offsets), rows.leader_epoch, rows.timestamp_type))
        position = partition.settle(rows.columns.last_offset + 1)
    assert taken == [
        ([0, 1], None, TimestampType.CREATE_TIME),
        ([2, 3], 5, TimestampType.CREATE_TIME),
        ([4, 5], None, TimestampType.LOG_APPEND_TIME),
    ]


def test_two_calls_return_the_same() -> None:
    partition = fetched(batch(range(4)))
    first, second = partition.peek(1, 2), partition.peek(1, 2)
    assert first is not None
    assert second is not None
    assert list(first.columns) == list(second.columns)
    assert first._replace(columns=second.columns) == second


def test_a_position_may_go_ahead_over_batches() -> None:
    partition = fetched(batch(range(3)) + batch(range(3, 6)) + batch(range(6, 9)))
    assert partition.peek(0, 1) is not None
    assert read_all(partition, 7) == ([7, 8], 9)


def test_a_limit_is_not_passed() -> None:
    partition = fetched(batch(range(6)))
    rows = partition.peek(0, ALL, 4)
    assert rows is not None
    assert list(rows.columns.offsets) == [0, 1, 2, 3]
    assert partition.peek(4, ALL, 4) is None
    assert not partition.is_exhausted
    assert read_all(partition, 4) == ([4, 5], 6)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_records_take_as_many_bytes_as_are_allowed_but_one_always_comes(codec: Codec) -> None:
    partition = fetched(batch(range(3), codec=codec) + batch(range(3, 9), codec=codec))
    taken = []
    position = 0
    while (rows := partition.peek(position, ALL, size_bytes_max=40)) is not None:
        assert rows.columns.size_bytes <= 40
        taken.append(list(rows.columns.offsets))
        position = partition.settle(rows.columns.last_offset + 1)
    assert [*chain(*taken)] == list(range(9))
    assert max(map(len, taken)) == 2
    one = fetched(batch(range(3))).peek(0, ALL, size_bytes_max=1)
    assert one is not None
    assert list(one.columns.offsets) == [0]


def test_batches_behind_a_hole_may_go_beyond_the_high_watermark() -> None:
    data = batch(range(2)) + batch(range(7, 9)) + batch(range(9, 11))
    assert read_all(fetched(data, high_watermark=9)) == ([0, 1, 7, 8, 9, 10], 11)


def test_the_position_goes_past_markers_right_after_the_last_record() -> None:
    partition = fetched(batch(range(2)) + marker(2, 7))
    partition.peek(0, ALL)
    assert partition.settle(2) == 3
    assert partition.is_exhausted


def test_settling_decodes_nothing_ahead() -> None:
    damaged = batch(range(2, 4), codec=Codec.GZIP)
    damaged = damaged[:61] + bytes(len(damaged) - 61)
    partition = fetched(batch(range(2)) + damaged, config=UNCHECKED)
    partition.peek(0, ALL)
    assert partition.settle(2) == 2
    assert not partition.is_damaged
    with pytest.raises(CorruptRecordError):
        partition.peek(2, ALL)


def test_aborted_records_are_left_out_for_a_reader_of_committed_ones() -> None:
    data = (
        aborted_batch([0], 7)
        + batch([1])
        + aborted_batch([2], 8)
        + marker(3, 7)
        + aborted_batch([4], 7)
        + marker(5, 8, key=COMMIT_KEY)
    )
    assert read_all(fetched(data, aborted=[(7, 0)])) == ([1, 2, 4], 6)
    assert read_all(fetched(data)) == ([0, 1, 2, 4], 6)


def test_a_batch_cut_off_at_the_end_waits_for_the_next_fetch() -> None:
    whole = batch(range(3))
    for length in range(len(batch(range(3, 6)))):
        partition = fetched(whole + batch(range(3, 6))[:length])
        assert partition.end_offset == 3
        assert read_all(partition) == ([0, 1, 2], 3)


def test_a_first_batch_that_is_cut_off_is_an_error_that_names_its_size() -> None:
    data = batch(range(3))
    for length in range(1, len(data)):
        partition = fetched(data[:length])
        with pytest.raises(CorruptRecordError) as raised:
            partition.peek(0, ALL)
        error = raised.value
        assert (error.topic, error.partition, error.offset) == ("t", 3, 0)
        assert str(length) in str(error)
        if length >= 12:
            assert str(len(data)) in str(error)


def test_a_compressed_batch_with_a_wrong_checksum_is_known_at_once() -> None:
    data = bytearray(batch(range(3)) + batch(range(3, 6), codec=Codec.GZIP))
    data[-1] ^= 1
    partition = fetched(bytes(data))
    assert partition.is_damaged
    assert partition.end_offset == 3
    assert read_all_before_an_error(partition) == [0, 1, 2]


@pytest.mark.parametrize("at", range(3))
def test_of_a_span_all_before_the_damaged_batch_is_returned(at: int) -> None:
    batches = [bytearray(batch(range(first, first + 2))) for first in (0, 2, 4)]
    batches[at][-1] ^= 1
    partition = fetched(b"".join(batches))
    assert not partition.is_damaged, "it was not reached yet"
    assert read_all_before_an_error(partition) == list(range(2 * at))
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="checksum") as raised:
            partition.peek(2 * at, ALL)
        assert (raised.value.offset, raised.value.next_offset) == (2 * at, 2 * at + 2)
        assert raised.value.raw == bytes(batches[at])
        assert f"seek() to {2 * at + 2}" in str(raised.value)
        assert partition.is_damaged


def test_records_that_do_not_fit_their_header_are_found_in_a_span() -> None:
    broken = bytearray(batch(range(2, 4)))
    broken[HEADER_SIZE_BYTES] += 2  # the first record claims a byte more than it has
    partition = fetched(batch(range(2)) + resealed(broken) + batch(range(4, 6)))
    assert read_all_before_an_error(partition) == [0, 1]
    with pytest.raises(CorruptRecordError) as raised:
        partition.peek(2, ALL)
    assert (raised.value.offset, raised.value.next_offset) == (2, 4)


def test_of_a_damaged_header_it_is_not_known_where_the_batch_ends() -> None:
    data = bytearray(batch(range(3)))
    data[16] = 9  # the format's version
    with pytest.raises(CorruptRecordError, match=r"seek\(\) past it"):
        fetched(bytes(data)).peek(0, ALL)


@pytest.mark.promise(
    "read_committed consumers see no other records; checksums are verified unless disabled"
)
def test_checksums_are_checked_only_when_requested() -> None:
    data = bytearray(batch([0]))
    data[17] ^= 1
    assert read_all(fetched(bytes(data), config=UNCHECKED)) == ([0], 1)


def test_a_batch_that_decompresses_to_too_much_is_an_error() -> None:
    bomb = build([(1, None, bytes(100_000), ())], Codec.GZIP)
    small = ConsumerConfig.from_settings(
        bootstrap_servers="boot:9092", decompressed_max_bytes=10_000
    )
    with pytest.raises(CorruptRecordError) as caught:
        fetched(bomb, config=small).peek(0, ALL)
    assert re.search(
        r"its gzip records decompress to more than the limit of 10000 bytes, and claim 1000\d\d "
        r"bytes\. To read it raise decompressed_max_bytes, which is 10000; to go on without it set "
        r"on_record_error to skip, or seek\(\) to 1, the offset after it$",
        str(caught.value),
    )
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 3, 0)
    # Frames of the decompression would keep what it has made so far.
    cause = caught.value.__cause__
    while cause is not None:
        assert cause.__traceback__ is None
        cause = cause.__cause__


@pytest.mark.parametrize("aborted", [None, []], ids=["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(
    "data",
    [aborted_batch(range(99), 7), thinned(range(99), kept=range(1, 99)), batch(range(ALL + 1))],
    ids=["transactional", "compacted", "many records"],
)
def test_a_batch_that_is_not_compressed_has_no_limit(
    data: bytes, aborted: Sequence[tuple[int, int]] | None
) -> None:
    """It is as large as the fetched bytes, whether it is read in a span or by itself."""
    small = ConsumerConfig.from_settings(
        bootstrap_servers="boot:9092", decompressed_max_bytes=1_024
    )
    assert len(data) > small.decompressed_max_bytes
    assert read_all(fetched(data, aborted=aborted, config=small))[0][-1] >= 98


@pytest.mark.parametrize(
    "data",
    [
        b"".join(message(offset, None, b"v", magic=0) for offset in range(1_000)),
        b"".join(message(offset, None, b"v", magic=1) for offset in range(0, 3_000, 3)),
        b"".join(batch([offset]) for offset in range(0, 3_000, 3)),
        b"".join(thinned(range(at, at + 9), kept=[at + 2]) for at in range(0, 9_000, 9)),
    ],
    ids=["magic 0", "magic 1, gaps between", "gaps between batches", "gaps in batches"],
)
def test_tiny_batches_are_no_work_of_their_own(data: bytes) -> None:
    spans = list(iterate_spans(memoryview(data), topic="t", partition=3))
    assert len(spans) == 1
    partition = fetched(data)
    position = count = take_count = 0
    while (rows := partition.peek(position, ALL)) is not None:
        count += len(rows.columns)
        take_count += 1
        position = partition.settle(rows.columns.last_offset + 1)
    assert count == 1_000
    assert take_count == 1 or accel.implementation == "pure"


def test_only_records_before_the_fetch_offset_are_an_error_not_an_endless_loop() -> None:
    with pytest.raises(CorruptRecordError):
        fetched(batch(range(3)), 10).peek(10, ALL)


@pytest.mark.parametrize(("high_watermark", "is_readable"), [(8, True), (7, False)])
def test_a_hole_counts_as_compaction_only_below_the_high_watermark(
    high_watermark: int, is_readable: bool
) -> None:
    partition = fetched(batch([0]) + batch(range(5, 8)), high_watermark=high_watermark)
    assert partition.is_damaged is not is_readable
    assert list(partition.peek(0, 1).columns.offsets) == [0]  # type: ignore[union-attr]
    if not is_readable:
        with pytest.raises(CorruptRecordError, match="offset 1 is expected"):
            partition.peek(1, ALL)


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[int], int]:
    """Return a piece of log with gaps, markers and empty batches; its offsets, and its end."""
    data, end = b"", 0
    offsets: list[int] = []
    for kind in draw(st.lists(st.sampled_from("bbbmeh"), min_size=1, max_size=8)):
        size = draw(st.integers(1, 5))
        if kind == "b":
            data += batch(range(end, end + size), codec=draw(st.sampled_from(list(Codec))))
            offsets += range(end, end + size)
        elif kind == "m":
            size = 1
            data += marker(end, 7)
        elif kind == "e":
            data += empty_batch(end, end + size - 1)
        else:
            data += compacted(batch([end]), last_offset_delta=size)
            offsets.append(end)
            size += 1
        end += size
    return data, offsets, end


@settings(max_examples=50)
@given(logs(), st.integers(1, 7), st.data())
def test_every_record_comes_once_in_order_whatever_the_steps(
    log: tuple[bytes, list[int], int], count_max: int, data: st.DataObject
) -> None:
    raw, offsets, end = log
    start = data.draw(st.integers(0, end - 1))
    read, position = read_all(fetched(raw, start), start, count_max)
    assert read == [offset for offset in offsets if offset >= start]
    assert position == end


@settings(max_examples=100)
@given(logs(), st.data())
def test_whatever_is_damaged_gives_records_or_our_error_and_ends(
    log: tuple[bytes, list[int], int], data: st.DataObject
) -> None:
    raw = bytearray(log[0])
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(1, len(raw)))]
    partition = fetched(bytes(raw), high_watermark=log[2])
    position = 0
    while not partition.is_exhausted:
        try:
            rows = partition.peek(position, 3)
        except CorruptRecordError as error:
            place = (error.topic, error.partition)
            assert place == PARTITION
            return
        if rows is not None:
            # A flipped bit may go undetected in an offset, never in data that a checksum covers.
            assert all(value.startswith(b"value ") for value in rows.columns.values if value)
            position = rows.columns.offsets[-1] + 1
        moved = partition.settle(position)
        assert moved >= position
        position = moved


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_what_is_folded_goes_on_where_it_was(codec: Codec) -> None:
    data = (
        batch(range(5), codec=codec)
        + aborted_batch([5, 6], 7)
        + marker(7, 7)
        + batch(range(8, 12), codec=codec)
    )
    partition = fetched(data, aborted=[(7, 5)])
    partition.fold()
    offsets: list[int] = []
    position = 0
    while not partition.is_exhausted:
        rows = partition.peek(position, 2)
        partition.fold()
        if rows is not None:
            offsets += rows.columns.offsets
            position = rows.columns.last_offset + 1
        position = partition.settle(position)
        partition.fold()
    assert offsets == [*range(5), *range(8, 12)]
    assert position == 12
