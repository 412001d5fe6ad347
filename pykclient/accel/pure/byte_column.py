"""ByteColumn: one field of many records, bytes or null for each.

It is built in one step from objects or from the buffers of an Arrow array, and never changes.

Owner: none.
Source: the Arrow columnar format, "Variable-size Binary Layout"; KIP-82 (headers).
"""

from __future__ import annotations

import struct
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, Literal

from pykclient.accel.pure.appender import HEADER_COUNT_MAX, encode_headers, too_many_headers
from pykclient.accel.pure.varint import varint
from pykclient.errors.base import SerializationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from _typeshed import ReadableBuffer

    from pykclient.accel.abc import HeadersInput

BYTES_OR_NULL: Final = {bytes, type(None)}
OFFSET_FORMATS: Final[dict[int, Literal["i", "q"]]] = {4: "i", 8: "q"}
VIEW: Final = struct.Struct("=i4xii")
"""An item of Arrow's view layout: size, first bytes, buffer number and position. An item of up to
`INLINE_SIZE_BYTES_MAX` bytes is stored in place of the last three."""
INLINE_SIZE_BYTES_MAX: Final = 12
BAD_OFFSETS: Final = "the offsets of an Arrow array do not fit its buffers"
BAD_COUNTS: Final = "the numbers of headers of all records are not those of the headers that came"
NO_NAME: Final = "a header has no name; only its value may be null"


class ByteColumn:
    """The keys, values or encoded headers of many records; `items` belongs to this core."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[bytes | None]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    @classmethod
    def from_objects(cls, objects: Iterable[object], name: str) -> ByteColumn:
        """Build a column from bytes, objects convertible to bytes, and None; `name` is for errors.

        Raises:
            SerializationError: an item is anything else.
        """
        items = list(objects)
        if not set(map(type, items)) <= BYTES_OR_NULL:
            return cls([as_item(item, index, name) for index, item in enumerate(items)])
        return cls(items)  # type: ignore[arg-type]  # has been checked

    @classmethod
    def from_arrow(
        cls,
        count: int,
        first: int,
        *,
        validity: ReadableBuffer | None,
        offsets: ReadableBuffer | None,
        data: ReadableBuffer | None,
        offset_size: int,
    ) -> ByteColumn:
        """Build a column from `count` items of a variable-size binary array, from index `first` on.

        The buffers are Arrow's: `validity` is None if nothing is null, `data` is None if all items
        are empty; `offset_size` is 4 or 8 bytes.

        Raises:
            SerializationError: the offsets do not fit the buffers.
        """
        if not count:
            return cls(())
        if count < 0 or first < 0 or offset_size not in OFFSET_FORMATS:
            raise SerializationError(BAD_OFFSETS)
        ends = _numbers(offsets, first * offset_size, count + 1, OFFSET_FORMATS[offset_size])
        base, last = ends[0], ends[-1]
        octets = memoryview(data or b"").cast("B")
        if not 0 <= base <= last <= len(octets) or any(
            end < start for start, end in pairwise(ends)
        ):
            raise SerializationError(BAD_OFFSETS)
        # One copy, then slices of it, each of which is bytes already.
        held = bytes(octets[base:last])
        items = [held[start - base : end - base] for start, end in pairwise(ends)]
        if validity is None:
            return cls(items)
        bits = memoryview(validity).cast("B")
        if len(bits) << 3 < first + count:
            raise SerializationError(BAD_OFFSETS)
        return cls(
            [
                item if bits[index >> 3] >> (index & 7) & 1 else None
                for index, item in enumerate(items, first)
            ]
        )

    @classmethod
    def from_views(
        cls,
        count: int,
        first: int,
        *,
        validity: ReadableBuffer | None,
        views: ReadableBuffer | None,
        buffers: Iterable[ReadableBuffer | None],
    ) -> ByteColumn:
        """Build a column from `count` items, from index `first` on, of an array in view layout.

        `buffers` are those that the views refer to; the others are as for `from_arrow`.

        Raises:
            SerializationError: the views do not fit the buffers.
        """
        if not count:
            return cls(())
        bits = None if validity is None else memoryview(validity).cast("B")
        placed = memoryview(views or b"").cast("B")
        if (
            count < 0
            or first < 0
            or len(placed) < (first + count) * VIEW.size
            or (bits is not None and len(bits) << 3 < first + count)
        ):
            raise SerializationError(BAD_OFFSETS)
        octets = bytes(placed[first * VIEW.size : (first + count) * VIEW.size])
        held = [memoryview(buffer or b"").cast("B") for buffer in buffers]
        sizes = list(map(len, held))
        items: list[bytes | None] = []
        for index, (size, buffer, offset) in enumerate(VIEW.iter_unpack(octets)):
            if bits is not None and not bits[first + index >> 3] >> (first + index & 7) & 1:
                items.append(None)
            elif 0 <= size <= INLINE_SIZE_BYTES_MAX:
                start = index * VIEW.size + 4
                items.append(octets[start : start + size])
            elif size > 0 and 0 <= buffer < len(held) and 0 <= offset <= sizes[buffer] - size:
                items.append(held[buffer][offset : offset + size].tobytes())
            else:
                raise SerializationError(BAD_OFFSETS)
        return cls(items)

    @classmethod
    def from_headers(cls, headers: Iterable[HeadersInput | None], name: str) -> ByteColumn:
        """Encode the headers of each record; None for a record without headers.

        Raises:
            SerializationError: an item is not pairs of a str and bytes or None.
        """
        return cls([_encoded(entry, index, name) for index, entry in enumerate(headers)])

    @classmethod
    def from_header_columns(
        cls, counts: Sequence[int], names: ByteColumn, values: ByteColumn
    ) -> ByteColumn:
        """Encode headers given as columns: the count per record, and all names and values in a row.

        Raises:
            SerializationError: the counts do not match the headers, a record has too many, or a
                header has no name.
        """
        if not sum(counts) == len(names) == len(values) or min(counts, default=0) < 0:
            raise SerializationError(BAD_COUNTS)
        for count in counts:
            if count > HEADER_COUNT_MAX:
                raise SerializationError(too_many_headers(count))
        pairs = list(map(_encoded_pair, names.items, values.items))
        return cls(
            [
                varint(end - start) + b"".join(pairs[start:end]) if end > start else None
                for start, end in pairwise(accumulate(counts, initial=0))
            ]
        )

    @classmethod
    def repeated(cls, item: bytes | None, count: int) -> ByteColumn:
        return cls([item] * count)


def _numbers(
    buffer: ReadableBuffer | None, start: int, count: int, kind: Literal["i", "q"]
) -> Sequence[int]:
    octets = memoryview(buffer or b"").cast("B")[start:]
    size = count * struct.calcsize(kind)
    if len(octets) < size:
        raise SerializationError(BAD_OFFSETS)
    return octets[:size].cast(kind)


def as_item(item: object, index: int, name: str) -> bytes | None:
    if item is None or isinstance(item, bytes | bytearray | memoryview):
        return None if item is None else bytes(item)
    raise SerializationError(
        f"{name}[{index}] is of type {type(item).__name__}, not bytes; pass bytes or None, or set "
        f"{name.removesuffix('s')}_serializer"
    )


def _encoded(headers: HeadersInput | None, index: int, name: str) -> bytes | None:
    if not headers:
        return None
    try:
        return encode_headers(headers)
    except SerializationError as error:
        raise header_error(error, index, name) from error


def header_error(error: SerializationError, index: int, name: str) -> SerializationError:
    return SerializationError(f"{name}[{index}]: {error}")


def _encoded_pair(name: bytes | None, value: bytes | None) -> bytes:
    if name is None:
        raise SerializationError(NO_NAME)
    if value is None:
        return b"".join((varint(len(name)), name, b"\x01"))
    return b"".join((varint(len(name)), name, varint(len(value)), value))
