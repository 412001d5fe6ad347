"""Fetched batches: valid and invalid ones, the place of errors, and termination."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.accel.batch_layout import HEADER_SIZE_BYTES
from pykclient.errors.base import CorruptRecordError
from pykclient.records.batch import (
    RecordBatch,
    first_batch_size_bytes,
    iterate_batches,
)
from pykclient.records.compression import Codec
from pykclient.types import TimestampType
from tests.records.batches import (
    CODECS,
    ROWS,
    Row,
    assert_corrupt,
    build,
    header_changed,
    read,
    read_all,
    resealed,
    rows_of,
)

LAST_OFFSET_DELTA_AT = 23
RECORD_COUNT_AT = 57

ROW: Row = (1000, b"k", b"v", ())
THREE: list[Row] = [(1000, None, b"a", ()), (1001, b"k", None, ()), (1002, b"", b"", (("h", b""),))]


def test_the_header_is_read_back() -> None:
    (batch,) = read(
        build(
            THREE,
            Codec.ZSTD,
            base_offset=50,
            producer_id=7,
            producer_epoch=8,
            base_sequence=9,
            is_transactional=True,
            is_control=True,
            partition_leader_epoch=6,
        )
    )
    assert (batch.topic, batch.partition, batch.magic) == ("flights", 3, 2)
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (50, 52, 3)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 8, 9)
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (1000, 1002)
    assert (batch.codec, batch.partition_leader_epoch) == (Codec.ZSTD, 6)
    assert (batch.is_transactional, batch.is_control) == (True, True)
    assert not batch.has_delete_horizon
    assert batch.timestamp_type is TimestampType.CREATE_TIME


def test_the_flag_of_a_delete_horizon_is_read() -> None:
    (batch,) = read(header_changed(build(THREE), 21, 0x40, 2))
    assert batch.has_delete_horizon


def test_a_header_name_that_is_not_utf8_does_not_make_a_batch_corrupt() -> None:
    rows: list[Row] = [(5, b"k", b"v", (("caf\u00e9", b"1"),)), (5, None, b"w", ())]
    latin = resealed(build(rows).replace("caf\u00e9".encode(), b"caf\xe9!"))
    (batch,) = read(latin)
    assert rows_of(batch) == [(5, b"k", b"v", (("caf\ufffd!", b"1"),)), rows[1]]


@given(ROWS, st.sampled_from(CODECS), st.integers(0, 2**62))
def test_records_come_back_with_every_codec(
    rows: list[Row], codec: Codec, base_offset: int
) -> None:
    (batch,) = read(build(rows, codec, base_offset))
    assert rows_of(batch) == rows
    assert list(batch.records().offsets) == list(range(base_offset, base_offset + len(rows)))


def test_with_log_append_time_every_record_has_the_time_of_the_broker() -> None:
    (batch,) = read(build(THREE, log_append_time_ms=5000))
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert list(batch.records().timestamps_ms) == [5000] * 3


@pytest.mark.parametrize("start_offset", range(9, 14))
def test_records_before_the_start_offset_are_dropped(start_offset: int) -> None:
    (batch,) = read(build(THREE, base_offset=10))
    assert list(batch.records(start_offset).offsets) == list(range(max(start_offset, 10), 13))


@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 35))
def test_chunks_are_the_records_in_pieces_and_never_empty(
    count: int, record_count_max: int, start_offset: int
) -> None:
    (batch,) = read(build([ROW] * count))
    chunks = list(
        batch.chunks(start_offset, decompressed_size_bytes_max=0, record_count_max=record_count_max)
    )
    assert all(0 < len(chunk.offsets) <= record_count_max for chunk in chunks)
    offsets = [offset for chunk in chunks for offset in chunk.offsets]
    assert offsets == list(range(start_offset, count))
    assert list(batch.records(start_offset).offsets) == offsets


def test_an_empty_batch_left_by_compaction_is_read_and_has_no_records() -> None:
    data = resealed(header_changed(build(THREE), RECORD_COUNT_AT, 0, 4)[:HEADER_SIZE_BYTES])
    (batch,) = read(data)
    assert (batch.record_count, batch.last_offset) == (0, 2)
    assert list(batch.records().offsets) == []


def test_batches_follow_one_another() -> None:
    data = build(THREE) + build(THREE, Codec.LZ4, base_offset=3) + build([ROW], base_offset=9)
    assert [(batch.base_offset, batch.last_offset) for batch in read(data)] == [
        (0, 2),
        (3, 5),
        (9, 9),
    ]


def test_batches_before_the_start_offset_are_skipped() -> None:
    data = build(THREE) + build(THREE, base_offset=3)
    assert [batch.base_offset for batch in read(data, start_offset=3)] == [3]
    assert [batch.base_offset for batch in read(data, start_offset=2)] == [0, 3]


def test_a_cut_off_last_batch_is_left_for_the_next_fetch_wherever_it_is_cut() -> None:
    whole = build(THREE)
    data = whole + build(THREE, Codec.SNAPPY, base_offset=3)
    for end in range(len(whole), len(data)):
        assert [batch.base_offset for batch in read(data[:end])] == [0]
    assert len(read(data)) == 2


def test_an_incomplete_first_batch_has_the_size_that_it_needs() -> None:
    data = build(THREE)
    for end in range(len(data)):
        assert read(data[:end]) == []
        needed = first_batch_size_bytes(memoryview(data[:end]))
        assert needed == (None if end < 12 else len(data))


@pytest.mark.promise(
    "malformed records raise `CorruptRecordError` with topic, partition and offset"
)
@pytest.mark.parametrize(
    ("position", "value", "size_bytes", "reason"),
    [
        (16, 3, 1, "its magic is 3, not 2"),
        (16, -1, 1, "its magic is 255, not 2"),
        (21, 5, 2, "its codec 5 is unknown"),
        (LAST_OFFSET_DELTA_AT, -1, 4, "3 records up to offset delta -1"),
        (LAST_OFFSET_DELTA_AT, 1, 4, "3 records up to offset delta 1"),
        (RECORD_COUNT_AT, -1, 4, "-1 records up to offset delta 2"),
        (RECORD_COUNT_AT, 2**31 - 1, 4, "2147483647 records up to offset delta 2"),
        (RECORD_COUNT_AT, 2, 4, "its 2 records end at 16 of 26 bytes"),
    ],
)
def test_a_header_that_contradicts_itself_is_corrupt(
    position: int, value: int, size_bytes: int, reason: str
) -> None:
    data = header_changed(build(THREE, base_offset=40), position, value, size_bytes)
    assert_corrupt(data, reason, 40)


def test_more_records_than_bytes_are_refused_before_anything_is_made_of_them() -> None:
    data = header_changed(build(THREE), LAST_OFFSET_DELTA_AT, 2**31 - 1, 4)
    assert_corrupt(header_changed(data, RECORD_COUNT_AT, 2**31 - 1, 4), "cannot stand in", 0)


def test_a_record_beyond_the_last_offset_is_corrupt() -> None:
    compacted = header_changed(build(THREE, base_offset=7), RECORD_COUNT_AT, 1, 4)
    first_record = compacted[:HEADER_SIZE_BYTES] + bytes.fromhex("0e0000080102 6100")
    assert_corrupt(resealed(first_record), "a record at offset 11, its header says 9", 7)


def test_no_chunk_beyond_the_last_offset_is_handed_out() -> None:
    header = header_changed(build(THREE, base_offset=7), RECORD_COUNT_AT, 2, 4)[:HEADER_SIZE_BYTES]
    far_and_farther = bytes.fromhex("0e0000080102 6100 0e00000a0102 6100")
    (batch,) = read(resealed(header + far_and_farther))
    chunks = batch.chunks(decompressed_size_bytes_max=0, record_count_max=1)
    with pytest.raises(CorruptRecordError, match="a record at offset 11, its header says 9"):
        next(chunks)


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 2])
def test_an_impossible_base_offset_is_corrupt(offset: int) -> None:
    data = bytearray(build(THREE))
    data[:8] = offset.to_bytes(8, "big", signed=True)
    assert_corrupt(bytes(data), f"its base offset is {offset}", offset)


@pytest.mark.parametrize("length", [-(2**31), -13, -12, -1, 0, 13])
def test_a_length_too_small_for_any_batch_is_corrupt(length: int) -> None:
    data = bytearray(build(THREE, base_offset=5))
    data[8:12] = length.to_bytes(4, "big", signed=True)
    assert_corrupt(bytes(data), f"it claims to have {length + 12} bytes", 5)


def test_a_length_too_small_for_a_header_is_corrupt() -> None:
    assert_corrupt(resealed(build(THREE)[:60]), "it has only 60 bytes", 0)


def test_a_wrong_checksum_is_corrupt_unless_checksums_are_not_to_be_checked() -> None:
    data = bytearray(build(THREE, base_offset=5))
    data[17] ^= 1
    assert_corrupt(bytes(data), "its checksum is 0x.*, its header says 0x", 5)
    (batch,) = iterate_batches(memoryview(data), topic="t", partition=0, check_crcs=False)
    assert rows_of(batch) == THREE


def test_a_changed_byte_anywhere_under_the_checksum_is_corrupt() -> None:
    data = build(THREE)
    for position in range(17, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptRecordError):
            read(damaged)


def test_good_batches_come_before_the_error_of_a_bad_one() -> None:
    second = bytearray(build(THREE, base_offset=3))
    second[-1] ^= 1
    batches = iterate_batches(memoryview(build(THREE) + second), topic="t", partition=0)
    assert next(batches).base_offset == 0
    with pytest.raises(CorruptRecordError) as caught:
        next(batches)
    assert caught.value.offset == 3


def test_batches_whose_offsets_do_not_ascend_are_corrupt() -> None:
    assert_corrupt(
        build(THREE) + build(THREE, base_offset=2), "batch before it ends at offset 2", 2
    )


def test_batches_that_all_end_before_the_start_offset_are_an_error_not_a_spin() -> None:
    data = build(THREE) + build(THREE, base_offset=3)
    with pytest.raises(CorruptRecordError, match="the batches that came end at 5") as caught:
        read(data, start_offset=6)
    assert caught.value.offset == 6


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_after_the_records_are_corrupt(codec: Codec) -> None:
    assert_corrupt(resealed(build(THREE, codec) + b"\x00"), "is corrupt", 0)


@pytest.mark.parametrize("codec", CODECS)
def test_records_cut_off_anywhere_are_corrupt(codec: Codec) -> None:
    data = build(THREE, codec)
    for end in range(HEADER_SIZE_BYTES, len(data)):
        with pytest.raises(CorruptRecordError):
            read(resealed(data[:end]))[0].records()


@pytest.mark.promise(
    "malformed records raise `CorruptRecordError` with topic, partition and offset"
)
@given(ROWS, st.sampled_from(CODECS), st.data())
def test_damage_under_a_right_checksum_gives_records_or_a_corrupt_record_error(
    rows: list[Row], codec: Codec, data: st.DataObject
) -> None:
    damaged = bytearray(build(rows, codec))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(21, len(damaged) - 1))
        damaged[position] = data.draw(st.integers(0, 255))
    with suppress(CorruptRecordError):
        read_all(resealed(damaged))


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_give_batches_or_a_corrupt_record_error(data: bytes, is_sealed: bool) -> None:
    if is_sealed and len(data) > 61:
        data = resealed(data[:16] + b"\x02" + data[17:])
    with suppress(CorruptRecordError):
        read_all(data)


@pytest.mark.promise(
    "a decompression bomb stops at the limit in every codec, and the error has its place"
)
@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_bomb_is_corrupt_and_names_the_limit(codec: Codec) -> None:
    (batch,) = read(build([(0, None, bytes(3_000_000), ())], codec))
    assert batch.size_bytes < 200_000
    with pytest.raises(CorruptRecordError, match="more than the limit of 1000000 bytes") as caught:
        next(batch.chunks(decompressed_size_bytes_max=1_000_000))
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("flights", 3, 0)
    assert len(batch.records().values) == 1


def test_one_batch_can_be_read_by_itself() -> None:
    batch = RecordBatch(memoryview(build(THREE)), topic="t", partition=0)
    assert batch.record_count == 3
    with pytest.raises(CorruptRecordError, match="its length is"):
        RecordBatch(memoryview(build(THREE) + b"x"), topic="t", partition=0)
