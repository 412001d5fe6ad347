"""Decodes the bytes of a batch's records to columns, as lists: `accel.abc.RecordColumns`.

Header names that are not UTF-8 get replacement characters, as in Java's consumer: brokers do not
check names, and other clients may write any bytes.

Owner: no state; columns never change.
Source: Kafka protocol guide, "Record Batch"; KIP-82 (headers); Java class ``DefaultRecord``.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final

from pykclient.accel.pure.appender import HEADER_COUNT_MAX
from pykclient.accel.pure.varint import read_long, read_varint
from pykclient.errors.base import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pykclient.types import Headers

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
RECORD_SIZE_BYTES_MIN: Final = 7
"""Minimum size of a record: length, attributes, two deltas, two null lengths, no headers."""


class ListColumns:
    """Records of one batch, with one sequence of equal length per field.

    `size_bytes` is an upper bound of keys, values and headers together; None means to add it up on
    demand.
    """

    __slots__ = ("_size_bytes", "headers", "keys", "offsets", "timestamps_ms", "values")

    def __init__(
        self,
        offsets: Sequence[int],
        timestamps_ms: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[Headers],
        *,
        size_bytes: int | None,
    ) -> None:
        self.offsets = offsets
        self.timestamps_ms = timestamps_ms
        self.keys = keys
        self.values = values
        self.headers = headers
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[tuple[int, int, bytes | None, bytes | None, Headers]]:
        return zip(
            self.offsets, self.timestamps_ms, self.keys, self.values, self.headers, strict=True
        )

    @property
    def size_bytes(self) -> int:
        if self._size_bytes is None:
            pairs = chain(*self.headers)
            names_bytes, fields = 0, [*self.keys, *self.values]
            for name, value in pairs:
                names_bytes += len(name.encode())
                fields.append(value)
            fields_bytes = names_bytes + sum(len(field) for field in fields if field)
            # As in the compiled core, it includes the bytes between them in the batch.
            between_bytes = RECORD_SIZE_BYTES_MIN * max(0, len(self) - 1)
            self._size_bytes = fields_bytes + between_bytes
        return self._size_bytes

    @property
    def first_offset(self) -> int:
        return self.offsets[0]

    @property
    def last_offset(self) -> int:
        return self.offsets[-1]

    def find(self, offset: int) -> int:
        return bisect_left(self.offsets, offset)

    def rows(self, start: int, stop: int | None = None) -> ListColumns:
        return ListColumns(
            self.offsets[start:stop],
            self.timestamps_ms[start:stop],
            self.keys[start:stop],
            self.values[start:stop],
            self.headers[start:stop],
            size_bytes=None,
        )


class _HeadersFullError(DecodeError):
    """A record exceeds the number of headers that may be decoded together."""

    fitting_count = 0
    """Number of records before it."""


def record_bytes(data: bytes | bytearray | memoryview) -> bytes:
    """Return `data` in the form that `decode_records` reads: bytes, as are their slices."""
    return bytes(data)


def decode_records(
    data: bytes,
    position: int,
    first: int,
    count: int,
    base_offset: int,
    base_timestamp_ms: int,
    append_timestamp_ms: int | None = None,
) -> tuple[ListColumns, int]:
    """Decode up to `count` records from `position` on; return them and the position after them.

    Decode fewer, but at least one, if all together have more than `HEADER_COUNT_MAX` headers.
    `first` is the index of the first one in its batch, and `count` is at least 1.
    `append_timestamp_ms`, if given, is the time of every record.

    Raises:
        DecodeError: the records are malformed.
    """
    rest = (base_offset, base_timestamp_ms, append_timestamp_ms)
    try:
        return _decode(data, position, first, count, *rest)
    except _HeadersFullError as error:
        if not error.fitting_count:
            raise
        return _decode(data, position, first, error.fitting_count, *rest)


def _decode(  # noqa: C901 - straight-line on purpose: a call per field doubles the time
    data: bytes,
    position: int,
    first: int,
    count: int,
    base_offset: int,
    base_timestamp_ms: int,
    append_timestamp_ms: int | None,
) -> tuple[ListColumns, int]:
    """Decode `count` records.

    The only calls per record are three `list.append`; varints of one and two bytes are read inline.
    """
    if count * RECORD_SIZE_BYTES_MIN > len(data) - position:
        raise DecodeError(f"{count} records cannot stand in {len(data) - position} bytes")
    timestamps_ms: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[Headers] = [()] * count
    gaps: list[tuple[int, int]] = []
    add_timestamp, add_key, add_value = timestamps_ms.append, keys.append, values.append
    begin, lengths, header_room = position, 0, HEADER_COUNT_MAX
    try:
        # Numbers stay in zigzag form, twice their value when not negative, while that saves work.
        for expected in range(2 * first, 2 * (first + count), 2):
            size = data[position]
            position += 1
            if size >= 0x80:
                byte = data[position]
                position += 1
                size += (byte << 7) - 0x80
                if byte >= 0x80:
                    size, position = read_long(data, size, position)
            start = position
            position += 1
            number = data[position]
            position += 1
            if number >= 0x80:
                byte = data[position]
                position += 1
                number += (byte << 7) - 0x80
                if byte >= 0x80:
                    number, position = read_long(data, number, position)
            add_timestamp(base_timestamp_ms + (number >> 1 ^ -(number & 1)))
            number = data[position]
            position += 1
            if number >= 0x80:
                byte = data[position]
                position += 1
                number += (byte << 7) - 0x80
                if byte >= 0x80:
                    number, position = read_long(data, number, position)
            if number != expected:
                gaps.append(((expected >> 1) - first, number))
            number = data[position]
            position += 1
            if number == 1:
                add_key(None)
            else:
                if number >= 0x80:
                    byte = data[position]
                    position += 1
                    number += (byte << 7) - 0x80
                    if byte >= 0x80:
                        number, position = read_long(data, number, position)
                lengths |= number
                end = position + (number >> 1)
                add_key(data[position:end])
                position = end
            number = data[position]
            position += 1
            if number == 1:
                add_value(None)
            else:
                if number >= 0x80:
                    byte = data[position]
                    position += 1
                    number += (byte << 7) - 0x80
                    if byte >= 0x80:
                        number, position = read_long(data, number, position)
                lengths |= number
                end = position + (number >> 1)
                add_value(data[position:end])
                position = end
            if data[position]:
                found, position = _read_headers(data, position, header_room)
                headers[(expected >> 1) - first] = found
                header_room -= len(found)
            else:
                position += 1
            if (position - start) << 1 != size:
                raise DecodeError(
                    f"record {expected >> 1} does not have the size that it claims, "
                    f"{size >> 1 ^ -(size & 1)} bytes"
                )
    except IndexError:
        raise DecodeError(f"the records pass the end at {len(data)} bytes") from None
    except _HeadersFullError as error:
        error.fitting_count = len(values) - 1
        raise
    if lengths & 1:
        raise DecodeError("the length of a key or a value is below -1, which is null")
    if not INT64_MIN <= min(timestamps_ms) <= max(timestamps_ms) <= INT64_MAX:
        raise DecodeError("a timestamp is beyond 64 bits")
    if append_timestamp_ms is not None:
        timestamps_ms = [append_timestamp_ms] * count
    offsets = _offsets(range(base_offset + first, base_offset + first + count), gaps, base_offset)
    size_bytes = position - begin
    columns = ListColumns(offsets, timestamps_ms, keys, values, headers, size_bytes=size_bytes)
    return columns, position


def _read_headers(data: bytes, position: int, room_count: int) -> tuple[Headers, int]:
    count, position = read_varint(data, position)
    # A header takes two bytes at least.
    if not 0 <= count * 2 <= len(data) - position:
        raise DecodeError(
            f"a record claims {count} headers, with {len(data) - position} bytes left"
        )
    if count > room_count:
        raise _HeadersFullError(
            f"a record claims {count} headers, which is over the limit of {HEADER_COUNT_MAX} "
            f"headers of records that are decoded at once"
        )
    headers: list[tuple[str, bytes | None]] = []
    name: bytes | None
    value: bytes | None
    for _ in range(count):
        number = data[position]
        # One byte, and not negative: the usual case for a length.
        if number & 0x81 == 0:
            end = position + 1 + (number >> 1)
            name = data[position + 1 : end]
            position = end
        else:
            name, position = _read_field(data, position)
            if name is None:
                raise DecodeError("the name of a header is null")
        number = data[position]
        if number & 0x81 == 0:
            end = position + 1 + (number >> 1)
            value = data[position + 1 : end]
            position = end
        else:
            value, position = _read_field(data, position)
        headers.append((name.decode("utf-8", "replace"), value))
    if position > len(data):
        raise DecodeError(f"the headers of a record pass the end at {len(data)} bytes")
    return tuple(headers), position


def _read_field(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length == -1:
        return None, position
    end = position + length
    if not position <= end <= len(data):
        raise DecodeError(f"a header claims {length} bytes, with {len(data) - position} left")
    return data[position:end], end


def _offsets(dense: range, gaps: list[tuple[int, int]], base_offset: int) -> Sequence[int]:
    offsets = _with_gaps(dense, gaps, base_offset) if gaps else dense
    if offsets[-1] > INT64_MAX:
        raise DecodeError("an offset is beyond 64 bits")
    return offsets


def _with_gaps(dense: range, gaps: list[tuple[int, int]], base_offset: int) -> list[int]:
    """Return the offsets of a compacted batch; `gaps` has (place in `dense`, zigzag delta)."""
    offsets = list(dense)
    for index, delta in gaps:
        if delta & 1:
            raise DecodeError("a record has a negative offset delta")
        offsets[index] = base_offset + (delta >> 1)
    if any(left >= right for left, right in pairwise(offsets)):
        raise DecodeError("the offsets of the records do not ascend")
    return offsets
