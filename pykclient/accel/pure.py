"""The hot loops in plain Python: checksum, key hash, record encoding and decoding.

Always works and needs no compiler. It reads and writes only the records of a batch; the batch's
header, its compression and its checksum are `pykclient.records`.

Owner: no state, except in a `RecordAppender`, which belongs to the batch that made it.
Source: Kafka protocol guide, "Record Batch"; KIP-82 (headers); Java classes ``DefaultRecord``,
``ByteUtils``, ``Utils.murmur2``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from crc32c import crc32c as _crc32c

from pykclient.accel.abc import RecordColumns
from pykclient.errors.base import DecodeError, EncodeError, SerializationError

if TYPE_CHECKING:

    from pykclient.accel.abc import HeadersInput
    from pykclient.types import Headers

__all__ = [
    "RecordAppender",
    "crc32c",
    "decode_records",
    "encode_varint",
    "murmur2",
    "to_positive",
]

INT64_MAX: Final = 2**63 - 1
RECORD_SIZE_BYTES_MIN: Final = 7
"""The smallest record: length, attributes, two deltas, two null lengths, no headers."""


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """Return the CRC32-C of `data`, continuing from `crc`."""
    return int(_crc32c(data, crc))


def murmur2(data: bytes) -> int:
    """Return Kafka's murmur2 of a key as a signed 32-bit number, as Java's partitioner has it."""
    length = len(data)
    hashed = 0x9747B28C ^ length
    whole = length & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = word * 0x5BD1E995 & 0xFFFFFFFF
        word ^= word >> 24
        hashed = hashed * 0x5BD1E995 & 0xFFFFFFFF ^ word * 0x5BD1E995 & 0xFFFFFFFF
    if whole != length:
        hashed ^= int.from_bytes(data[whole:], "little")
        hashed = hashed * 0x5BD1E995 & 0xFFFFFFFF
    hashed ^= hashed >> 13
    hashed = hashed * 0x5BD1E995 & 0xFFFFFFFF
    hashed ^= hashed >> 15
    return hashed - 0x100000000 if hashed & 0x80000000 else hashed


def to_positive(number: int) -> int:
    """Clear the sign bit, as Java's ``Utils.toPositive`` does before it takes the remainder."""
    return number & 0x7FFFFFFF


def encode_varint(number: int) -> bytes:
    """Return a signed number of up to 64 bits as a zigzag varint of 1 to 10 bytes."""
    rest = number << 1 ^ number >> 63
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_SMALL_COUNT: Final = 8192
_SMALL: Final = tuple(encode_varint(number) for number in range(_SMALL_COUNT))
"""The varints of one and two bytes that lengths and offset deltas nearly always have."""


def _varint(number: int) -> bytes:
    return _SMALL[number] if 0 <= number < _SMALL_COUNT else encode_varint(number)


class RecordAppender:
    """The records of one open batch, encoded as they come.

    `capacity_bytes` is how many bytes of records it takes; the owner may raise it. The first
    record is taken whatever its size.
    """

    __slots__ = (
        "_buffer",
        "_last_timestamp_ms",
        "_timestamp_part",
        "base_timestamp_ms",
        "capacity_bytes",
        "count",
        "max_timestamp_ms",
    )

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.count = 0
        self.base_timestamp_ms = -1
        self.max_timestamp_ms = -1
        self._buffer = bytearray()
        self._last_timestamp_ms = -1
        self._timestamp_part = b""

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeadersInput | None = None,
    ) -> int | None:
        """Encode one record; return its index in the batch, or None when it does not fit.

        Raises:
            SerializationError: the key, the value or a header is not bytes.
            EncodeError: the timestamp is negative or beyond 64 bits.
        """
        index = self.count
        if timestamp_ms != self._last_timestamp_ms:
            self._on_new_timestamp(timestamp_ms)
        timestamp_part = self._timestamp_part
        offset_part = _SMALL[index] if index < _SMALL_COUNT else encode_varint(index)
        if key is None:
            key_length, key, key_size = b"\x01", b"", 1
        else:
            if key.__class__ is not bytes:
                key = _as_bytes(key, "key")
            size = len(key)
            key_length = _SMALL[size] if size < _SMALL_COUNT else encode_varint(size)
            key_size = len(key_length) + size
        if value is None:
            value_length, value, value_size = b"\x01", b"", 1
        else:
            if value.__class__ is not bytes:
                value = _as_bytes(value, "value")
            size = len(value)
            value_length = _SMALL[size] if size < _SMALL_COUNT else encode_varint(size)
            value_size = len(value_length) + size
        header_part = _encode_headers(headers) if headers else b"\x00"
        size = len(timestamp_part) + len(offset_part) + key_size + value_size + len(header_part)
        record = b"".join(
            (
                _SMALL[size] if size < _SMALL_COUNT else encode_varint(size),
                timestamp_part,
                offset_part,
                key_length,
                key,
                value_length,
                value,
                header_part,
            )
        )
        buffer = self._buffer
        if len(buffer) + len(record) > self.capacity_bytes and index:
            return None
        buffer += record
        self.count = index + 1
        return index

    def size_bytes(self) -> int:
        """How many bytes of records have been written."""
        return len(self._buffer)

    def view(self) -> memoryview:
        """The bytes written so far; release it before the next append."""
        return memoryview(self._buffer)

    def _on_new_timestamp(self, timestamp_ms: int) -> None:
        if not 0 <= timestamp_ms <= INT64_MAX:
            raise EncodeError(
                f"a record's timestamp_ms is {timestamp_ms}; give milliseconds since 1970 "
                f"between 0 and {INT64_MAX}, or None for now"
            )
        if not self.count:
            self.base_timestamp_ms = self.max_timestamp_ms = timestamp_ms
        elif timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
        self._last_timestamp_ms = timestamp_ms
        # The record's attributes, always 0 in version 2, stand right before the delta.
        self._timestamp_part = b"\x00" + _varint(timestamp_ms - self.base_timestamp_ms)


def _as_bytes(value: object, what: str) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise SerializationError(
        f"the record's {what} is {type(value).__name__}, not bytes; "
        f"set {what}_serializer or pass bytes"
    )


def _encode_headers(headers: HeadersInput) -> bytes:
    pairs = list(headers)
    parts = [_varint(len(pairs))]
    for name, value in pairs:
        if not isinstance(name, str):
            raise SerializationError(f"a header's name is {type(name).__name__}, not str")
        encoded = name.encode()
        parts += (_varint(len(encoded)), encoded)
        if value is None:
            parts.append(b"\x01")
        else:
            data = _as_bytes(value, "header value")
            parts += (_varint(len(data)), data)
    return b"".join(parts)


def decode_records(
    data: bytes, count: int, base_offset: int, base_timestamp_ms: int
) -> RecordColumns:
    """Decode `count` records, which fill `data` exactly.

    Raises:
        DecodeError: `data` holds anything else.
    """
    if count < 0 or count * RECORD_SIZE_BYTES_MIN > len(data):
        raise DecodeError(f"{count} records cannot stand in {len(data)} bytes")
    offsets: list[int] = []
    timestamps: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    all_headers: list[Headers] = []
    position = 0
    try:
        for _ in range(count):
            length, position = _read_varint(data, position)
            end = position + length
            delta, position = _read_varint(data, position + 1)
            timestamps.append(base_timestamp_ms + delta)
            delta, position = _read_varint(data, position)
            offsets.append(base_offset + delta)
            key, position = _read_bytes(data, position)
            value, position = _read_bytes(data, position)
            headers, position = _read_headers(data, position)
            keys.append(key)
            values.append(value)
            all_headers.append(headers)
            if position != end:
                raise DecodeError(f"record {len(values) - 1} ends at {position}, not at {end}")
    except IndexError:
        raise DecodeError(f"the records end early, after {len(data)} bytes") from None
    if position != len(data):
        raise DecodeError(f"{count} records end at {position}, but there are {len(data)} bytes")
    return RecordColumns(offsets, timestamps, keys, values, all_headers)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    position += 1
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), position
    number = byte & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise DecodeError("a varint is longer than 10 bytes")
    return number >> 1 ^ -(number & 1), position


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(data, position)
    if length < 0:
        if length == -1:
            return None, position
        raise DecodeError(f"a field has the negative length {length}")
    end = position + length
    if end > len(data):
        raise DecodeError(f"a field of {length} bytes passes the end of the records")
    return data[position:end], end


def _read_headers(data: bytes, position: int) -> tuple[Headers, int]:
    count, position = _read_varint(data, position)
    if not count:
        return (), position
    if count < 0 or count * 2 > len(data) - position:
        raise DecodeError(f"a record claims {count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _read_bytes(data, position)
        value, position = _read_bytes(data, position)
        if name is None:
            raise DecodeError("a header has no name")
        headers.append((_text(name), value))
    return tuple(headers), position


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"a header's name is not UTF-8: {error}") from error
