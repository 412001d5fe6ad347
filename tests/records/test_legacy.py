"""Messages of magic 0 and 1: Java's bytes, hand-made ones, and damage."""

from __future__ import annotations

import struct
import sys
import tracemalloc
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient import accel
from pykclient.errors.base import CorruptRecordError
from pykclient.records.compression import Codec, compress, lz4_header_checksum
from pykclient.records.legacy import LegacyBatch
from pykclient.types import TimestampType
from tests.records.batches import assert_corrupt, build, read


def message(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp_ms: int = 1000,
) -> bytes:
    """One message, as the protocol guide lays it out."""
    body = struct.pack(">bB", magic, attributes)
    if magic:
        body += struct.pack(">q", timestamp_ms)
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    body = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(body)) + body


def wrapped(offset: int, inner: bytes, codec: Codec, **header: int) -> bytes:
    """Return a message that holds others, compressed."""
    header["attributes"] = header.get("attributes", 0) | codec
    return message(offset, None, compress(codec, inner), **header)


def rows(data: bytes, start_offset: int = 0) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Offset, timestamp, key and value of every record."""
    result: list[tuple[int, int, bytes | None, bytes | None]] = []
    for batch in read(data, start_offset):
        columns = batch.records(start_offset)
        assert set(columns.headers) <= {()}
        result += zip(
            columns.offsets, columns.timestamps_ms, columns.keys, columns.values, strict=True
        )
    return result


@pytest.mark.parametrize(("magic", "timestamp_ms"), [(0, -1), (1, 1000)])
def test_a_message_is_a_batch_of_one(magic: int, timestamp_ms: int) -> None:
    data = message(5, b"k", None, magic=magic) + message(9, None, b"", magic=magic)
    assert rows(data) == [(5, timestamp_ms, b"k", None), (9, timestamp_ms, None, b"")]
    first, second = read(data)
    assert isinstance(first, LegacyBatch)
    assert (first.base_offset, first.last_offset, second.last_offset) == (5, 5, 9)
    assert (first.magic, first.record_count) == (magic, 1)
    assert first.size_bytes + second.size_bytes == len(data)
    assert (first.producer_id, first.producer_epoch, first.base_sequence) == (-1, -1, -1)
    assert (first.is_transactional, first.is_control, first.has_delete_horizon) == (False,) * 3
    assert first.partition_leader_epoch == -1


def test_before_magic_1_there_were_no_timestamps() -> None:
    (batch,) = read(message(0, None, b"v", magic=0))
    assert batch.timestamp_type is TimestampType.NO_TIMESTAMP_TYPE
    (batch,) = read(message(0, None, b"v", magic=1))
    assert batch.timestamp_type is TimestampType.CREATE_TIME


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_offsets_inside_a_compressed_message_of_magic_1_are_relative(codec: Codec) -> None:
    inner = message(0, None, b"a", timestamp_ms=1) + message(2, b"k", b"b", timestamp_ms=2)
    data = wrapped(52, inner, codec)
    assert rows(data) == [(50, 1, None, b"a"), (52, 2, b"k", b"b")]
    (batch,) = read(data)
    assert (batch.last_offset, batch.codec) == (52, codec)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY])
def test_offsets_inside_a_compressed_message_of_magic_0_are_absolute(codec: Codec) -> None:
    inner = message(50, None, b"a", magic=0) + message(52, None, b"b", magic=0)
    assert rows(wrapped(52, inner, codec, magic=0)) == [(50, -1, None, b"a"), (52, -1, None, b"b")]


@pytest.mark.parametrize(
    ("wrapper", "inner", "offsets", "times"),
    [(0, 1, [50, 52], [7, 7]), (1, 0, [50, 52], [-1, -1])],
)
def test_messages_inside_may_have_another_magic_than_their_wrapper(
    wrapper: int, inner: int, offsets: list[int], times: list[int]
) -> None:
    """As Java reads them (KAFKA-4298): the wrapper's magic says what the offsets mean."""
    first = 0 if wrapper else 50
    messages = b"".join(
        message(first + delta, None, b"v", magic=inner, timestamp_ms=7) for delta in (0, 2)
    )
    found = rows(wrapped(52, messages, Codec.GZIP, magic=wrapper))
    assert [row[0] for row in found] == offsets
    assert [row[1] for row in found] == times
    log_append = wrapped(52, messages, Codec.GZIP, magic=1, attributes=8, timestamp_ms=9)
    if wrapper:
        assert [row[1] for row in rows(log_append)] == [-1, -1]


def kafka_0_8_lz4(data: bytes) -> bytes:
    """LZ4 as clients before 0.10 write it: the checksum is that of magic and descriptor."""
    frame = bytearray(compress(Codec.LZ4, data))
    assert lz4_header_checksum(frame[4:6]) == frame[6], "that of the format"
    frame[6] = lz4_header_checksum(frame[:6])
    return bytes(frame)


def test_lz4_in_a_message_of_magic_0_has_another_checksum() -> None:
    """KAFKA-3160."""
    inner = message(8, None, b"a" * 100, magic=0) + message(9, None, b"b", magic=0)
    old = message(9, None, kafka_0_8_lz4(inner), magic=0, attributes=3)
    assert rows(old) == [(8, -1, None, b"a" * 100), (9, -1, None, b"b")]
    right = wrapped(9, inner, Codec.LZ4, magic=0)
    assert rows(right) == rows(old)
    newer = message(9, None, kafka_0_8_lz4(message(0, None, b"a")), magic=1, attributes=3)
    assert_corrupt(newer, "lz4 records are malformed", 9)


@pytest.mark.parametrize("size", range(12))
def test_lz4_in_a_message_of_magic_0_that_is_cut_off_is_corrupt(size: int) -> None:
    inner = message(9, None, b"b", magic=0)
    data = message(9, None, kafka_0_8_lz4(inner)[:size], magic=0, attributes=3)
    assert_corrupt(data, "lz4 records are malformed|no message inside", 9)


def test_with_log_append_time_the_wrapper_has_the_time_of_all() -> None:
    inner = message(0, None, b"a", timestamp_ms=1) + message(1, None, b"b", timestamp_ms=2)
    data = wrapped(1, inner, Codec.GZIP, attributes=8, timestamp_ms=9)
    assert [row[1] for row in rows(data)] == [9, 9]
    assert read(data)[0].timestamp_type is TimestampType.LOG_APPEND_TIME


def test_messages_before_the_start_offset_are_dropped() -> None:
    inner = b"".join(message(n, None, b"%d" % n) for n in range(4))
    data = message(6, None, b"first") + wrapped(10, inner, Codec.GZIP)
    assert [row[0] for row in rows(data, start_offset=9)] == [9, 10]


def test_what_one_message_wraps_is_decoded_piece_by_piece() -> None:
    inner = b"".join(message(n, None, b"%d" % n) for n in range(10))
    (batch,) = read(wrapped(29, inner, Codec.GZIP))
    pieces = [
        list(columns.offsets)
        for columns in batch.chunks(23, decompressed_size_bytes_max=1000, record_count_max=3)
    ]
    assert pieces == [[23, 24, 25], [26, 27, 28], [29]]


def test_memory_is_that_of_a_piece_however_many_messages_there_are() -> None:
    """Small messages take ten times as much as objects as they do packed."""
    inner = b"".join(message(n, None, b"%d" % n) for n in range(30_000))
    (batch,) = read(wrapped(29_999, inner, Codec.GZIP))
    chunks = batch.chunks(decompressed_size_bytes_max=10**7, record_count_max=100)
    first = next(chunks)  # by now it is decompressed
    tracemalloc.start()
    try:
        rest_count = sum(len(columns) for columns in chunks)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(first) + rest_count == 30_000
    assert peak_bytes < len(inner) / 2


def test_damage_behind_good_messages_is_reported_when_it_is_reached() -> None:
    bad = bytearray(message(3, None, b"v"))
    bad[-1] ^= 1
    inner = b"".join(message(n, None, b"v") for n in range(3)) + bytes(bad)
    (batch,) = read(wrapped(3, inner, Codec.GZIP))
    chunks = batch.chunks(decompressed_size_bytes_max=1000, record_count_max=2)
    assert list(next(chunks).offsets) == [0, 1]
    assert list(next(chunks).offsets) == [2]
    with pytest.raises(CorruptRecordError, match="checksum"):
        next(chunks)


def test_messages_inside_one_another_are_no_work_of_their_own() -> None:
    """A megabyte holds two millions of them when it is decompressed."""
    count = 30_000
    inner = b"".join(message(offset, None, b"v", magic=offset % 2) for offset in range(count))
    calls = 0

    def on_event(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    (batch,) = read(wrapped(count - 1, inner, Codec.GZIP))
    sys.setprofile(on_event)
    try:
        chunks = list(batch.chunks(decompressed_size_bytes_max=10**7))
    finally:
        sys.setprofile(None)
    assert sum(map(len, chunks)) == count
    assert calls < 300 or accel.implementation == "pure"


@pytest.mark.parametrize("start", [-1, -5])
def test_messages_inside_one_another_count_from_no_negative_offset(start: int) -> None:
    inner = b"".join(message(start + at, None, b"v") for at in range(3))
    with pytest.raises(CorruptRecordError, match="do not ascend"):
        rows(wrapped(10, inner, Codec.GZIP))


def test_old_and_new_formats_may_follow_one_another() -> None:
    data = (
        message(0, None, b"0", magic=0)
        + message(1, None, b"1")
        + build([(1000, None, b"2", ())], base_offset=2)
    )
    assert [row[3] for row in rows(data)] == [b"0", b"1", b"2"]


def changed(data: bytes, position: int, new: bytes) -> bytes:
    """Return the message with some bytes replaced and its checksum made right."""
    body = bytearray(data)
    body[position : position + len(new)] = new
    body[12:16] = struct.pack(">I", zlib.crc32(body[16:]))
    return bytes(body)


def test_a_wrong_checksum_is_corrupt_also_inside() -> None:
    data = bytearray(message(7, None, b"v"))
    data[-1] ^= 1
    assert_corrupt(bytes(data), "its checksum is 0x.*, its header says 0x", 7)
    inner = bytearray(message(0, None, b"v"))
    inner[-1] ^= 1
    assert_corrupt(wrapped(7, bytes(inner), Codec.GZIP), "its checksum is", 7)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (changed(message(0, None, b"v"), 17, b"\x04"), "magic 1 and attributes 4"),
        (changed(message(0, None, b"v"), 26, b"\xff\xff\xff\xfe"), "claims -2 of"),
        (changed(message(0, None, b"v"), 30, b"\x7f\xff\xff\xff"), "claims 2147483647 of 1 bytes"),
        (changed(message(0, None, b"vv"), 30, b"\x00\x00\x00\x01"), "its fields take others"),
        (wrapped(0, b"", Codec.GZIP), "there is no message inside it"),
        (wrapped(0, wrapped(0, b"", Codec.GZIP), Codec.GZIP), "is compressed again"),
        (
            wrapped(0, message(0, None, b"v")[:-1], Codec.GZIP),
            "a field of its message claims 1 of 0 bytes",
        ),
        (wrapped(0, message(0, None, b"v") + b"x", Codec.GZIP), "cut off"),
        (wrapped(0, message(0, None, b"") * 2, Codec.GZIP), "do not ascend"),
        (wrapped(0, message(3, None, b"") + message(9, None, b""), Codec.GZIP), "do not ascend"),
        (message(0, None, b"not gzip", attributes=1), "gzip records are malformed"),
        (message(0, None, None, attributes=1), "gzip records are malformed"),
    ],
)
def test_malformed_messages_are_corrupt(data: bytes, reason: str) -> None:
    assert_corrupt(data, reason)


def test_a_negative_offset_is_corrupt() -> None:
    assert_corrupt(message(-1, None, b"v"), "its offset is -1", -1)


@pytest.mark.promise(
    "a decompression bomb stops at the limit in every codec, and the error has its place"
)
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_bomb_is_corrupt(codec: Codec) -> None:
    (batch,) = read(wrapped(5, message(5, None, bytes(10**6)), codec))
    with pytest.raises(CorruptRecordError, match="more than the limit of 1000 bytes") as caught:
        next(batch.chunks(decompressed_size_bytes_max=1000))
    assert (caught.value.partition, caught.value.offset) == (3, 5)


@given(st.data())
def test_damage_gives_records_or_a_corrupt_record_error(data: st.DataObject) -> None:
    inner = message(0, b"key", b"value") + message(1, None, b"v" * 50)
    damaged = message(3, b"k", b"v") + wrapped(9, inner, Codec.SNAPPY)
    position = data.draw(st.integers(0, len(damaged) - 1))
    byte = bytes([data.draw(st.integers(0, 255))])
    is_sealed = data.draw(st.booleans())
    damaged = damaged[:position] + byte + damaged[position + 1 :]
    if is_sealed:
        second = len(message(3, b"k", b"v"))
        damaged = changed(damaged[:second], 12, b"") + changed(damaged[second:], 12, b"")
    with suppress(CorruptRecordError):
        rows(damaged)
