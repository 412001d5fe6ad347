"""The wire types, read and written: golden bytes from Kafka's guide, limits, invalid input."""

from __future__ import annotations

import struct
from struct import Struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.errors.base import DecodeError, EncodeError
from pykclient.protocol import primitives
from pykclient.protocol.primitives import GATHER_MIN_BYTES, GatherBuffer
from pykclient.protocol.reader import ELEMENTS_MAX, NUMBERS_PER_ELEMENT_MAX, Reader

if TYPE_CHECKING:
    from collections.abc import Callable


NULL_16, NULL_32 = b"\xff\xff", b"\xff\xff\xff\xff"

# What a reader's method gives for which bytes; the writer of the same name gives those bytes.
GOLDEN: list[tuple[str, bytes, object]] = [
    ("uuid", bytes(range(16)), bytes(range(16))),
    ("string", b"\x00\x03a\xc3\xa9", "aé"),
    ("string", b"\x00\x00", ""),
    ("nullable_string", b"\x00\x01a", "a"),
    ("nullable_string", NULL_16, None),
    ("compact_string", b"\x04a\xc3\xa9", "aé"),
    ("compact_string", b"\x81\x01" + b"x" * 128, "x" * 128),
    ("compact_nullable_string", b"\x02a", "a"),
    ("compact_nullable_string", b"\x00", None),
    ("bytes", b"\x00\x00\x00\x02ab", b"ab"),
    ("nullable_bytes", b"\x00\x00\x00\x00", b""),
    ("nullable_bytes", NULL_32, None),
    ("compact_bytes", b"\x03ab", b"ab"),
    ("compact_nullable_bytes", b"\x01", b""),
    ("compact_nullable_bytes", b"\x00", None),
    ("records", b"\x00\x00\x00\x02ab", b"ab"),
    ("nullable_records", b"\x00\x00\x00\x02ab", b"ab"),
    ("nullable_records", NULL_32, None),
    ("compact_records", b"\x03ab", b"ab"),
    ("compact_nullable_records", b"\x03ab", b"ab"),
    ("compact_nullable_records", b"\x00", None),
    ("unsigned_varint", b"\x00", 0),
    ("unsigned_varint", b"\x7f", 127),
    ("unsigned_varint", b"\x80\x01", 128),
    ("unsigned_varint", b"\xff\xff\xff\xff\x0f", 2**32 - 1),
]

FIXED: list[tuple[str, bytes, object]] = [
    ("boolean", b"\x01", True),
    ("boolean", b"\x00", False),
    ("int8", b"\x80", -128),
    ("int16", b"\x80\x00", -(2**15)),
    ("uint16", b"\xff\xff", 2**16 - 1),
    ("int32", b"\x80\x00\x00\x00", -(2**31)),
    ("int64", b"\x7f" + b"\xff" * 7, 2**63 - 1),
    ("float64", b"\x3f\xf8" + bytes(6), 1.5),
]


def read(name: str, data: bytes) -> object:
    reader = Reader(data)
    value: object = getattr(reader, name)()
    reader.end()
    return value


@pytest.mark.parametrize(("name", "data", "value"), GOLDEN + FIXED)
def test_reader_gives_the_value(name: str, data: bytes, value: object) -> None:
    assert read(name, data) == value


@pytest.mark.parametrize(("name", "data", "_value"), GOLDEN + FIXED)
def test_every_truncation_is_a_decode_error(name: str, data: bytes, _value: object) -> None:
    for size in range(len(data)):
        with pytest.raises(DecodeError):
            read(name, data[:size])


def test_every_byte_but_zero_is_true() -> None:
    assert read("boolean", b"\x02") is True


def test_records_are_a_slice_of_the_data_and_bytes_are_a_copy() -> None:
    data = bytearray(b"\x03ab\x03cd")
    reader = Reader(data)
    records, octets = reader.compact_records(), reader.compact_bytes()
    data[1:3], data[4:6] = b"AB", b"CD"
    assert bytes(records) == b"AB"
    assert octets == b"cd"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("string", NULL_16),
        ("compact_string", b"\x00"),
        ("bytes", NULL_32),
        ("compact_bytes", b"\x00"),
        ("records", NULL_32),
        ("compact_records", b"\x00"),
    ],
)
def test_null_where_it_is_not_allowed_is_a_decode_error(name: str, data: bytes) -> None:
    with pytest.raises(DecodeError, match="null is not allowed"):
        read(name, data)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("nullable_string", b"\xff\xfe"),
        ("nullable_bytes", b"\xff\xff\xff\xfe"),
        ("nullable_records", b"\x80\x00\x00\x00"),
    ],
)
def test_length_below_minus_one_is_a_decode_error(name: str, data: bytes) -> None:
    with pytest.raises(DecodeError, match="length -"):
        read(name, data)


@pytest.mark.parametrize("name", ["string", "nullable_string"])
def test_string_that_is_not_utf8_is_a_decode_error(name: str) -> None:
    with pytest.raises(DecodeError, match="not UTF-8"):
        read(name, b"\x00\x02\xc3\x28")


def test_varint_of_six_bytes_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="more than 5 bytes"):
        read("unsigned_varint", b"\x80\x80\x80\x80\x80\x00")


def test_varint_beyond_32_bits_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="exceeds 32 bits"):
        read("unsigned_varint", b"\xff\xff\xff\xff\x10")


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varint_survives(value: int) -> None:
    out = bytearray()
    primitives.write_unsigned_varint(out, value)
    assert read("unsigned_varint", bytes(out)) == value
    assert len(out) == max(1, -(-value.bit_length() // 7))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("count", b"\x00\x00\x00\x02"),
        ("nullable_count", b"\x00\x00\x00\x02"),
        ("compact_count", b"\x03"),
        ("compact_nullable_count", b"\x03"),
    ],
)
def test_count_is_taken_only_if_its_elements_can_be_there(name: str, count: bytes) -> None:
    size_min = 5
    assert getattr(Reader(count + bytes(2 * size_min)), name)(size_min) == 2
    with pytest.raises(DecodeError, match="2 elements of at least 5 bytes"):
        getattr(Reader(count + bytes(2 * size_min - 1)), name)(size_min)


@pytest.mark.parametrize(
    "name", ["count", "nullable_count", "compact_count", "compact_nullable_count"]
)
def test_elements_of_all_arrays_of_a_message_together_have_a_limit(name: str) -> None:
    half = ELEMENTS_MAX // 2
    out = bytearray()
    for count in (half, half, 1):
        getattr(primitives, f"write_{name}")(out, range(count))
    reader = Reader(out + bytes(ELEMENTS_MAX))
    read_count = getattr(reader, name)
    assert [read_count(1), read_count(1)] == [half, half]
    with pytest.raises(DecodeError, match="more than 100000 array elements in one message"):
        read_count(1)


def test_tags_count_as_elements() -> None:
    out = bytearray()
    primitives.write_count(out, range(ELEMENTS_MAX))
    reader = Reader(out + b"\x01" + bytes(ELEMENTS_MAX))
    reader.count(1)
    with pytest.raises(DecodeError, match="array elements"):
        reader.tag_count()


def test_numbers_have_a_limit_of_their_own() -> None:
    size = 10
    array = size.to_bytes(4, "big") + bytes(size)
    reader = Reader(array * NUMBERS_PER_ELEMENT_MAX + b"\x00\x00\x00\x01" + bytes(5), size)
    for _ in range(NUMBERS_PER_ELEMENT_MAX):
        assert len(reader.numbers("b", reader.count(1))) == size
    count = reader.count(1)
    with pytest.raises(DecodeError, match="more than 80 numbers in one message"):
        reader.numbers("b", count)


def test_a_reader_may_take_more_elements() -> None:
    data = (ELEMENTS_MAX + 1).to_bytes(4, "big") + bytes(ELEMENTS_MAX + 1)
    with pytest.raises(DecodeError, match="raise receive_max_bytes in proportion"):
        Reader(data).count(1)
    assert Reader(data, ELEMENTS_MAX + 1).count(1) == ELEMENTS_MAX + 1


@pytest.mark.parametrize(
    ("name", "data"), [("nullable_count", NULL_32), ("compact_nullable_count", b"\x00")]
)
def test_null_array_has_the_count_minus_one(name: str, data: bytes) -> None:
    assert getattr(Reader(data), name)(1) == -1


@pytest.mark.parametrize(("name", "data"), [("count", NULL_32), ("compact_count", b"\x00")])
def test_null_array_where_it_is_not_allowed_is_a_decode_error(name: str, data: bytes) -> None:
    with pytest.raises(DecodeError, match="null is not allowed"):
        getattr(Reader(data), name)(1)


@pytest.mark.parametrize(("code", "size"), [("b", 1), ("h", 2), ("i", 4), ("q", 8)])
def test_numbers_survive(code: str, size: int) -> None:
    values = [-1, 0, 127]
    out = bytearray()
    primitives.write_numbers(out, code, values)
    assert len(out) == len(values) * size
    assert Reader(out).numbers(code, len(values)) == values
    assert Reader(b"").numbers(code, 0) == []
    with pytest.raises(DecodeError):
        Reader(out[:-1]).numbers(code, len(values))


def test_several_fixed_fields_are_unpacked_at_once() -> None:
    reader = Reader(struct.pack(">ihq", 1, -2, 3) + b"x")
    assert reader.unpack(Struct(">ihq")) == (1, -2, 3)
    assert reader.remaining == 1


def test_unknown_tags_are_passed_over() -> None:
    reader = Reader(b"\x02" + b"\x00\x02ab" + b"\x07\x00" + b"rest")
    reader.skip_tags()
    assert reader.remaining == len(b"rest")


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff\x0f",  # more tags than any frame can hold
        b"\x02\x00\x00",  # the second tag is missing
        b"\x01\x00\xff\xff\xff\xff\x0f",  # a tag of 4 GB
        b"\x01\x00\x02a",
        b"\x01",
    ],
)
def test_forged_tags_are_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        Reader(data).skip_tags()


def test_tag_must_end_at_its_size() -> None:
    reader = Reader(b"\x05\x02abc")
    tag, end = reader.tag()
    reader.int8()
    with pytest.raises(DecodeError, match="tag 5 ends at byte 3 instead of 4"):
        reader.end_tag(tag, end)


@pytest.mark.parametrize(("name", "data", "value"), GOLDEN)
def test_writer_gives_the_bytes(name: str, data: bytes, value: object) -> None:
    out = bytearray()
    getattr(primitives, f"write_{name}")(out, value)
    assert out == data


@pytest.mark.parametrize(("name", "data", "value"), FIXED)
def test_pack_gives_the_bytes(name: str, data: bytes, value: object) -> None:
    assert getattr(primitives, f"pack_{name}")(value) == data


def test_counts_are_written_as_they_are_read() -> None:
    out = bytearray()
    primitives.write_count(out, [1, 2])
    primitives.write_nullable_count(out, None)
    primitives.write_compact_count(out, [1, 2])
    primitives.write_compact_nullable_count(out, None)
    assert out == b"\x00\x00\x00\x02" + NULL_32 + b"\x03" + b"\x00"


def test_tags_are_written_with_their_sizes() -> None:
    out = bytearray()
    primitives.write_tags(out, {0: bytearray(b"ab"), 3: bytearray()})
    assert out == b"\x02\x00\x02ab\x03\x00"


@pytest.mark.parametrize(
    "write", [primitives.write_string, primitives.write_compact_string], ids=["plain", "compact"]
)
def test_string_beyond_32767_bytes_is_refused(write: Callable[[bytearray, str], None]) -> None:
    out = bytearray()
    write(out, "x" * 32767)
    with pytest.raises(EncodeError, match="32768 bytes; at most 32767"):
        write(out, "é" * 16384)


@pytest.mark.parametrize("value", [b"", bytes(15), bytes(17)])
def test_uuid_of_the_wrong_length_is_refused(value: bytes) -> None:
    with pytest.raises(EncodeError, match="a UUID has 16 bytes"):
        primitives.write_uuid(bytearray(), value)


def test_large_records_are_kept_by_reference_in_their_place() -> None:
    large = bytearray(b"L" * GATHER_MIN_BYTES)
    small = b"s" * (GATHER_MIN_BYTES - 1)
    gathered, plain = GatherBuffer(), bytearray()
    for out in (gathered, plain):
        out += b"head"
        primitives.write_compact_records(out, large)
        primitives.write_nullable_records(out, small)
        primitives.write_records(out, memoryview(large))
        primitives.write_nullable_records(out, None)
    parts = gathered.parts()
    assert b"".join(parts) == plain
    assert gathered.size == len(plain)
    assert sum(part is large for part in parts) == 1
    assert all(len(part) > 0 for part in parts)


def test_gathering_nothing_gives_one_part() -> None:
    out = GatherBuffer()
    out += b"only"
    assert out.parts() == [b"only"]
