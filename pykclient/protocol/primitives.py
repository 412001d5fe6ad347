"""The wire types of Kafka's protocol: their layouts, and writing them. `Reader` reads them.

Writers are functions that append to a bytearray; if it is a `GatherBuffer`, large `records` values
are kept by reference.

Owner: whoever made the buffer; nothing here is shared.
Source: the Kafka protocol guide, section "Protocol Primitive Types"; KIP-482 (compact types, tags).
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from pykclient.errors.base import EncodeError
from pykclient.protocol.gather import GATHER_MIN_BYTES, GatherBuffer

if TYPE_CHECKING:
    from collections.abc import Sequence, Sized

    from pykclient.protocol.gather import Records

__all__ = [
    "EMPTY",
    "FLOAT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "UINT16",
    "UINT32_MAX",
    "ZERO_UUID",
    "numbers_layout",
    "pack_boolean",
    "pack_float64",
    "pack_int8",
    "pack_int16",
    "pack_int32",
    "pack_int64",
    "pack_uint16",
    "write_bytes",
    "write_compact_bytes",
    "write_compact_count",
    "write_compact_nullable_bytes",
    "write_compact_nullable_count",
    "write_compact_nullable_records",
    "write_compact_nullable_string",
    "write_compact_records",
    "write_compact_string",
    "write_count",
    "write_nullable_bytes",
    "write_nullable_count",
    "write_nullable_records",
    "write_nullable_string",
    "write_numbers",
    "write_records",
    "write_string",
    "write_tags",
    "write_unsigned_varint",
    "write_uuid",
]

ZERO_UUID: Final = bytes(16)
"""The UUID that stands for "none": sixteen zero bytes."""

EMPTY: Final[list[Any]] = []
"""The default of list arguments: "a fresh empty list". Never stored, never changed."""

UINT32_MAX: Final = 0xFFFF_FFFF
_INT16_MAX = 0x7FFF

# Layouts of the fixed-size types, and how each is written.

INT8 = Struct(">b")
INT16 = Struct(">h")
UINT16 = Struct(">H")
INT32 = Struct(">i")
INT64 = Struct(">q")
FLOAT64 = Struct(">d")
BOOLEAN = Struct(">?")

pack_int8 = INT8.pack
pack_int16 = INT16.pack
pack_uint16 = UINT16.pack
pack_int32 = INT32.pack
pack_int64 = INT64.pack
pack_float64 = FLOAT64.pack
pack_boolean = BOOLEAN.pack


@lru_cache
def numbers_layout(code: str, count: int) -> Struct:
    """A layout of `count` numbers: the few counts that occur, such as replicas, occur often."""
    return Struct(f">{count}{code}")


def write_unsigned_varint(out: bytearray, value: int) -> None:
    """Append a number below 2**32 in one to five bytes."""
    assert 0 <= value <= UINT32_MAX, f"{value} is not an unsigned 32-bit number"
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_uuid(out: bytearray, value: bytes) -> None:
    """Append sixteen bytes."""
    if len(value) != 16:
        raise EncodeError(f"a UUID has 16 bytes, this one has {len(value)}")
    out += value


def write_numbers(out: bytearray, code: str, values: Sequence[int]) -> None:
    """Append numbers of one `struct` format code (``b h i q``), without a count."""
    out += numbers_layout(code, len(values)).pack(*values)


def write_string(out: bytearray, value: str) -> None:
    """Append a string, length in two bytes."""
    data = _utf8(value)
    out += pack_int16(len(data))
    out += data


def _utf8(value: str) -> bytes:
    data = value.encode()
    if len(data) > _INT16_MAX:
        raise EncodeError(
            f"the string {value[:20]!r}... has {len(data)} bytes; at most {_INT16_MAX} can be sent"
        )
    return data


def write_nullable_string(out: bytearray, value: str | None) -> None:
    """Append a string or null, length in two bytes."""
    if value is None:
        out += b"\xff\xff"
    else:
        write_string(out, value)


def write_compact_string(out: bytearray, value: str) -> None:
    """Append a string, length + 1 as a varint."""
    data = _utf8(value)
    write_unsigned_varint(out, len(data) + 1)
    out += data


def write_compact_nullable_string(out: bytearray, value: str | None) -> None:
    """Append a string or null, length + 1 as a varint."""
    if value is None:
        out.append(0)
    else:
        write_compact_string(out, value)


def write_bytes(out: bytearray, value: bytes) -> None:
    """Append bytes, length in four bytes."""
    out += pack_int32(len(value))
    out += value


def write_nullable_bytes(out: bytearray, value: bytes | None) -> None:
    """Append bytes or null, length in four bytes."""
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        write_bytes(out, value)


def write_compact_bytes(out: bytearray, value: bytes) -> None:
    """Append bytes, length + 1 as a varint."""
    write_unsigned_varint(out, len(value) + 1)
    out += value


def write_compact_nullable_bytes(out: bytearray, value: bytes | None) -> None:
    """Append bytes or null, length + 1 as a varint."""
    if value is None:
        out.append(0)
    else:
        write_compact_bytes(out, value)


def write_records(out: bytearray, value: Records) -> None:
    """Append record batches, length in four bytes; a `GatherBuffer` does not copy large ones."""
    out += pack_int32(len(value))
    _write_batches(out, value)


def write_nullable_records(out: bytearray, value: Records | None) -> None:
    """Append record batches or null, length in four bytes."""
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        write_records(out, value)


def write_compact_records(out: bytearray, value: Records) -> None:
    """Append record batches, length + 1 as a varint."""
    write_unsigned_varint(out, len(value) + 1)
    _write_batches(out, value)


def write_compact_nullable_records(out: bytearray, value: Records | None) -> None:
    """Append record batches or null, length + 1 as a varint."""
    if value is None:
        out.append(0)
    else:
        write_compact_records(out, value)


def _write_batches(out: bytearray, value: Records) -> None:
    if len(value) >= GATHER_MIN_BYTES and isinstance(out, GatherBuffer):
        out.refer(value)
    else:
        out += value


def write_count(out: bytearray, values: Sized) -> None:
    """Append an array's element count in four bytes."""
    out += pack_int32(len(values))


def write_nullable_count(out: bytearray, values: Sized | None) -> None:
    """Append an array's element count in four bytes; -1 for null."""
    out += pack_int32(-1 if values is None else len(values))


def write_compact_count(out: bytearray, values: Sized) -> None:
    """Append an array's element count + 1 as a varint."""
    write_unsigned_varint(out, len(values) + 1)


def write_compact_nullable_count(out: bytearray, values: Sized | None) -> None:
    """Append an array's element count + 1 as a varint; 0 for null."""
    write_unsigned_varint(out, 0 if values is None else len(values) + 1)


def write_tags(out: bytearray, tags: dict[int, bytearray]) -> None:
    """Append a section of tagged fields, given in ascending order of their tags."""
    write_unsigned_varint(out, len(tags))
    for tag, value in tags.items():
        write_unsigned_varint(out, tag)
        write_unsigned_varint(out, len(value))
        out += value
