"""The wire types of Kafka's protocol: their layouts, and functions to write them.

`Reader` reads them. A name tells the format. Lengths and array counts come first: two bytes for
strings, four for everything else. Nullable types use -1 for null. Compact types (KIP-482) have the
length + 1 as a varint, and 0 for null.

Writers append to a bytearray; a `GatherBuffer` keeps large `records` values by reference.

Owner: whoever made the buffer; nothing here is shared.
Source: the Kafka protocol guide, section "Protocol Primitive Types"; KIP-482 (compact types, tags);
Java class ``SendBuilder``, which does as `GatherBuffer` does for its zero-copy fields.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from pykclient.errors.base import EncodeError

if TYPE_CHECKING:
    from collections.abc import Sequence, Sized

ZERO_UUID: Final = bytes(16)
"""The UUID that stands for "none"."""

EMPTY: Final[list[Any]] = []
"""Default of list arguments, which stands for a new empty list. It is never stored or changed."""

UINT32_MAX: Final = 0xFFFF_FFFF
STRING_BYTES_MAX: Final = 0x7FFF
"""The longest string that can be sent. A response may have longer ones in compact form."""

Records = bytes | bytearray | memoryview
"""One or more encoded record batches."""

GATHER_MIN_BYTES: Final = 8192
"""Minimum size of a value that is kept by reference; copying a smaller one takes less time."""

# Layouts of the fixed-size types, and functions to write them.

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


class GatherBuffer(bytearray):
    """A bytearray that references large `records` values instead of copying them.

    `parts` returns everything in order, for one ``sendmsg``.
    """

    __slots__ = ("references",)

    def __init__(self) -> None:
        super().__init__()
        self.references: list[tuple[int, Records]] = []

    def refer(self, value: Records) -> None:
        """Add `value` at the current end. It must not change until the parts were written."""
        self.references.append((len(self), value))

    @property
    def size(self) -> int:
        """The length in bytes, including referenced values."""
        return len(self) + sum(len(value) for _, value in self.references)

    def parts(self) -> list[bytes | bytearray | memoryview]:
        """Return all bytes in order. The buffer must not grow afterwards."""
        view = memoryview(self)
        parts: list[bytes | bytearray | memoryview] = []
        start = 0
        for position, value in self.references:
            parts += view[start:position], value
            start = position
        if start < len(view):
            parts.append(view[start:])
        return parts


@lru_cache
def numbers_layout(code: str, count: int) -> Struct:
    """Return a layout of `count` numbers, cached since few counts occur, such as of replicas."""
    return Struct(f">{count}{code}")


def write_unsigned_varint(out: bytearray, value: int) -> None:
    """Append a number below 2**32 in one to five bytes."""
    assert 0 <= value <= UINT32_MAX, f"{value} is not an unsigned 32-bit number"
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_uuid(out: bytearray, value: bytes) -> None:
    if len(value) != 16:
        raise EncodeError(f"a UUID has 16 bytes, this one has {len(value)}")
    out += value


def write_numbers(out: bytearray, code: str, values: Sequence[int]) -> None:
    """Append numbers of one `struct` format code (``b h i q``), without a count."""
    out += numbers_layout(code, len(values)).pack(*values)


def write_string(out: bytearray, value: str) -> None:
    data = _utf8(value)
    out += pack_int16(len(data))
    out += data


def _utf8(value: str) -> bytes:
    data = value.encode()
    if len(data) > STRING_BYTES_MAX:
        raise EncodeError(
            f"the string {value[:20]!r}... has {len(data)} bytes; at most {STRING_BYTES_MAX} can "
            f"be sent"
        )
    return data


def write_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
    else:
        write_string(out, value)


def write_compact_string(out: bytearray, value: str) -> None:
    data = _utf8(value)
    write_unsigned_varint(out, len(data) + 1)
    out += data


def write_compact_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
    else:
        write_compact_string(out, value)


def write_bytes(out: bytearray, value: bytes) -> None:
    out += pack_int32(len(value))
    out += value


def write_nullable_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        write_bytes(out, value)


def write_compact_bytes(out: bytearray, value: bytes) -> None:
    write_unsigned_varint(out, len(value) + 1)
    out += value


def write_compact_nullable_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(0)
    else:
        write_compact_bytes(out, value)


def write_records(out: bytearray, value: Records) -> None:
    out += pack_int32(len(value))
    _write_batches(out, value)


def write_nullable_records(out: bytearray, value: Records | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        write_records(out, value)


def write_compact_records(out: bytearray, value: Records) -> None:
    write_unsigned_varint(out, len(value) + 1)
    _write_batches(out, value)


def write_compact_nullable_records(out: bytearray, value: Records | None) -> None:
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
    out += pack_int32(len(values))


def write_nullable_count(out: bytearray, values: Sized | None) -> None:
    out += pack_int32(-1 if values is None else len(values))


def write_compact_count(out: bytearray, values: Sized) -> None:
    write_unsigned_varint(out, len(values) + 1)


def write_compact_nullable_count(out: bytearray, values: Sized | None) -> None:
    write_unsigned_varint(out, 0 if values is None else len(values) + 1)


def write_tags(out: bytearray, tags: dict[int, bytearray]) -> None:
    """Append a section of tagged fields, given in ascending order of their tags."""
    write_unsigned_varint(out, len(tags))
    for tag, value in tags.items():
        write_unsigned_varint(out, tag)
        write_unsigned_varint(out, len(value))
        out += value
