"""Reader: reads the wire types of Kafka's protocol from a memoryview.

Its only state is the position, which never passes the end and never moves back. It trusts nothing:
a length, count or tag size beyond the remaining bytes is refused before memory is allocated, as is
a message with too many array elements, and all malformed bytes raise `DecodeError`. Strings and
`bytes` values are copies; only `records` values are slices of the data.

Owner: whoever made the reader; nothing here is shared.
Source: the Kafka protocol guide, section "Protocol Primitive Types"; KIP-482 (compact types, tags).
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Any

from pykclient.errors.base import DecodeError
from pykclient.protocol.primitives import (
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT16,
    UINT32_MAX,
    numbers_layout,
)

if TYPE_CHECKING:
    import builtins

Values = tuple[Any, ...]
"""Values of a ``struct`` layout, whose types are in a format string that no checker reads."""

ELEMENTS_MAX = 100_000
"""Default maximum of structures and strings in all arrays of one message. Some take 3 bytes on the
wire, but 300 bytes as an object and 5 microseconds of processing, so a frame's size alone limits
neither memory nor CPU time. The metadata of a cluster with 80,000 partitions in 20,000 topics reach
this number."""

NUMBERS_PER_ELEMENT_MAX = 8
"""Maximum numbers in all arrays of one message, per allowed element; each takes some 40 bytes. A
partition with 4 replicas, listed twice (all, in sync), has as many."""

# A response may have a hundred thousand of each: caching them saves a third of the reading time.
_unpack_int16 = INT16.unpack_from
_unpack_int32 = INT32.unpack_from
_unpack_int64 = INT64.unpack_from

_VARINT_SHIFT_MAX = 28  # the fifth and last byte of a 32-bit varint


class Reader:
    """Reads wire types from `data`, with methods named like the writers in `primitives`.

    Arrays have at most `elements_max` structures and strings, together. Null is -1 as a count, and
    None as any other value; where it is not allowed, it is an error.

    Raises:
        DecodeError: from every method, for malformed bytes. The position is then undefined and the
            reader must not be used further.
    """

    __slots__ = ("_data", "_elements_left", "_elements_max", "_end", "_numbers_left", "position")

    def __init__(
        self, data: bytes | bytearray | memoryview, elements_max: int = ELEMENTS_MAX
    ) -> None:
        self._data = memoryview(data)
        self._end = len(self._data)
        self._elements_max = self._elements_left = elements_max
        self._numbers_left = elements_max * NUMBERS_PER_ELEMENT_MAX
        self.position = 0

    @property
    def remaining(self) -> int:
        """Number of unread bytes."""
        return self._end - self.position

    # Fixed sizes

    def unpack(self, layout: Struct) -> Values:
        """Read the values of `layout`: several fixed-size fields in one call."""
        position = self.position
        try:
            values = layout.unpack_from(self._data, position)
        except struct_error:
            raise self._too_short(layout.size) from None
        self.position = position + layout.size
        return values

    def boolean(self) -> bool:
        """Read one byte; everything but 0 is true."""
        position = self.position
        if position >= self._end:
            raise self._too_short(1)
        self.position = position + 1
        return self._data[position] != 0

    def int8(self) -> int:
        value: int = self.unpack(INT8)[0]
        return value

    def int16(self) -> int:
        position = self.position
        try:
            value: int = _unpack_int16(self._data, position)[0]
        except struct_error:
            raise self._too_short(2) from None
        self.position = position + 2
        return value

    def uint16(self) -> int:
        value: int = self.unpack(UINT16)[0]
        return value

    def int32(self) -> int:
        position = self.position
        try:
            value: int = _unpack_int32(self._data, position)[0]
        except struct_error:
            raise self._too_short(4) from None
        self.position = position + 4
        return value

    def int64(self) -> int:
        position = self.position
        try:
            value: int = _unpack_int64(self._data, position)[0]
        except struct_error:
            raise self._too_short(8) from None
        self.position = position + 8
        return value

    def float64(self) -> float:
        value: float = self.unpack(FLOAT64)[0]
        return value

    def uuid(self) -> builtins.bytes:
        """Read sixteen bytes; `ZERO_UUID` stands for none."""
        return bytes(self._take(16))

    def numbers(self, code: str, count: int) -> list[int]:
        """Read `count` numbers of one `struct` format code (``b h i q``).

        `count` was read just before. It is not counted as elements, since numbers have their own
        limit.
        """
        if count == 0:  # often, such as for offline replicas
            return []
        self._elements_left += count
        self._numbers_left -= count
        if self._numbers_left < 0:
            raise self._too_many("numbers", self._elements_max * NUMBERS_PER_ELEMENT_MAX)
        layout = numbers_layout(code, count)
        position = self.position
        try:
            values = layout.unpack_from(self._data, position)
        except struct_error:
            raise self._too_short(layout.size) from None
        self.position = position + layout.size
        return list(values)

    # Variable sizes: strings and bytes are copies, records are slices of the data.

    def unsigned_varint(self) -> int:
        """Read a number below 2**32 in one to five bytes."""
        data = self._data
        position = self.position
        value = shift = 0
        try:
            byte = data[position]
            if byte <= 0x7F:  # the usual case: lengths, counts and tags are small
                self.position = position + 1
                return byte
            while (byte := data[position]) > 0x7F:
                if shift == _VARINT_SHIFT_MAX:
                    raise DecodeError(f"varint of more than 5 bytes at byte {self.position}")
                value |= (byte & 0x7F) << shift
                shift += 7
                position += 1
        except IndexError:
            raise self._too_short(position + 1 - self.position) from None
        value |= byte << shift
        if value > UINT32_MAX:
            raise DecodeError(f"varint {value} at byte {self.position} exceeds 32 bits")
        self.position = position + 1
        return value

    def string(self) -> str:
        return self._text(self._present(self.int16()))

    def nullable_string(self) -> str | None:
        size = self._size(self.int16())
        return None if size < 0 else self._text(size)

    def compact_string(self) -> str:
        size = self.unsigned_varint() - 1
        return self._text(size if size >= 0 else self._present(size))

    def compact_nullable_string(self) -> str | None:
        size = self.unsigned_varint() - 1
        return None if size < 0 else self._text(size)

    def bytes(self) -> builtins.bytes:
        return bytes(self._take(self._present(self.int32())))

    def nullable_bytes(self) -> builtins.bytes | None:
        size = self._size(self.int32())
        return None if size < 0 else bytes(self._take(size))

    def compact_bytes(self) -> builtins.bytes:
        return bytes(self._take(self._present(self.unsigned_varint() - 1)))

    def compact_nullable_bytes(self) -> builtins.bytes | None:
        size = self.unsigned_varint() - 1
        return None if size < 0 else bytes(self._take(size))

    def records(self) -> memoryview:
        return self._take(self._present(self.int32()))

    def nullable_records(self) -> memoryview | None:
        size = self._size(self.int32())
        return None if size < 0 else self._take(size)

    def compact_records(self) -> memoryview:
        return self._take(self._present(self.unsigned_varint() - 1))

    def compact_nullable_records(self) -> memoryview | None:
        size = self.unsigned_varint() - 1
        return None if size < 0 else self._take(size)

    # Arrays: a count, then the elements. `size_min` is the minimum size of an element, so that a
    # forged count is refused before a list of that length is built.

    def count(self, size_min: int) -> int:
        return self._checked(self._present(self.int32()), size_min)

    def nullable_count(self, size_min: int) -> int:
        return self._checked(self._size(self.int32()), size_min)

    def compact_count(self, size_min: int) -> int:
        count = self.unsigned_varint() - 1
        return self._checked(count if count >= 0 else self._present(count), size_min)

    def compact_nullable_count(self, size_min: int) -> int:
        return self._checked(self.unsigned_varint() - 1, size_min)

    # Tags (KIP-482)

    def tag_count(self) -> int:
        """Read the number of tagged fields, each of which counts as an element.

        Each field takes at least two bytes.
        """
        return self._checked(self.unsigned_varint(), 2)

    def tag(self) -> tuple[int, int]:
        """Read the next tag; return it with the position at which its value must end."""
        tag = self.unsigned_varint()
        size = self.unsigned_varint()
        if size > self._end - self.position:
            raise self._too_short(size)
        return tag, self.position + size

    def end_tag(self, tag: int, end: int) -> None:
        """Check that the value of `tag` was read exactly up to `end`."""
        if self.position != end:
            raise DecodeError(f"tag {tag} ends at byte {self.position} instead of {end}")

    def skip_tags(self) -> None:
        """Skip a section of tagged fields, all of which are unknown."""
        position = self.position
        if position < self._end and self._data[position] == 0:  # the usual case: no tags
            self.position = position + 1
            return
        for _ in range(self.tag_count()):
            self.position = self.tag()[1]

    def end(self) -> None:
        """Check that nothing remains."""
        if self.position != self._end:
            raise DecodeError(f"{self.remaining} bytes remain after the message's last field")

    # Helpers of the methods above.

    def _take(self, size: int) -> memoryview:
        start = self.position
        end = start + size
        if end > self._end:
            raise self._too_short(size)
        self.position = end
        return self._data[start:end]

    def _text(self, size: int) -> str:
        start = self.position
        end = start + size
        if end > self._end:
            raise self._too_short(size)
        self.position = end
        try:
            return str(self._data[start:end], "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError(f"string before byte {self.position} is not UTF-8: {error}") from None

    def _present(self, size: int) -> int:
        if size < 0:
            raise DecodeError(f"length {size} at byte {self.position}, where null is not allowed")
        return size

    def _size(self, size: int) -> int:
        if size < -1:
            raise DecodeError(f"length {size} at byte {self.position}")
        return size

    def _checked(self, count: int, size_min: int) -> int:
        if count * size_min > self._end - self.position:
            raise DecodeError(
                f"{count} elements of at least {size_min} bytes announced at byte {self.position},"
                f" but only {self.remaining} bytes remain"
            )
        self._elements_left -= count
        if self._elements_left < 0:
            raise self._too_many("array elements", self._elements_max)
        return count

    def _too_many(self, what: str, limit: int) -> DecodeError:
        return DecodeError(
            f"more than {limit} {what} in one message announced at byte {self.position}; if the"
            f" cluster has so many, raise receive_max_bytes in proportion"
        )

    def _too_short(self, size: int) -> DecodeError:
        return DecodeError(
            f"{size} bytes expected at byte {self.position}, but only {self.remaining} remain"
        )
