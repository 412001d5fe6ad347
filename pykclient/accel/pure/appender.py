"""The records of one open batch, encoded as they come.

Open until sealed; a sealed appender never opens again. It knows no batch header and no codec.

Owner: the lock it was given.
Source: Kafka protocol guide, "Record Batch"; KIP-82 (headers); Java class ``DefaultRecord``.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from pykclient.accel.pure.delivery import Delivery
from pykclient.accel.pure.varint import SMALL, SMALL_COUNT, encode_varint, varint
from pykclient.errors.base import EncodeError, SerializationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pykclient.accel.abc import DeliveryBatch, HeadersInput, Lock, OnDelivery

__all__ = ["RecordAppender", "as_bytes", "encode_headers", "timestamp_error"]

INT64_MAX: Final = 2**63 - 1

T = TypeVar("T")


class RecordAppender(Generic[T]):
    """The records of one open batch, encoded as they come, until it is full or sealed.

    `callbacks` and, in parallel, `first_indexes` and `timestamps_ms` are read once it is sealed:
    each run of records with one timestamp has there its first record's index and the timestamp.

    Owner: `lock`, which only `append`, `grow` and `seal` take, and nothing while they hold it.
    """

    __slots__ = (
        "_batch",
        "_buffer",
        "_is_sealed",
        "_last_timestamp_ms",
        "_lock",
        "_timestamp_part",
        "base_timestamp_ms",
        "callbacks",
        "capacity_bytes",
        "count",
        "first_indexes",
        "max_timestamp_ms",
        "timestamps_ms",
    )

    def __init__(self, capacity_bytes: int, batch: DeliveryBatch[T] | None, lock: Lock) -> None:
        self.capacity_bytes = capacity_bytes
        self.count = 0
        self.base_timestamp_ms = -1
        self.max_timestamp_ms = -1
        self.callbacks: list[tuple[int, OnDelivery[T]]] = []
        self.first_indexes = array("q")
        self.timestamps_ms = array("q")
        self._batch = batch
        self._buffer = bytearray()
        self._is_sealed = False
        self._last_timestamp_ms: int | None = None
        self._timestamp_part = b""
        self._lock = lock

    @property
    def size_bytes(self) -> int:
        """How many bytes of records it holds; no batch header, no compression."""
        return len(self._buffer)

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeadersInput | None = None,
        on_delivery: OnDelivery[T] | None = None,
    ) -> Delivery[T] | None:
        """Encode one record; return its delivery, or None when it does not fit or all is sealed.

        Costs one lock, one join and one copy; lengths and indexes up to 8191 come from a table.

        Raises:
            SerializationError: the key, the value or a header is not bytes.
            EncodeError: the timestamp is negative or beyond 64 bits.
        """
        # What may run the caller's own code (odd buffers, lazy headers) comes before the lock.
        if key is None:
            key_length, key, body_size = b"\x01", b"", 1
        else:
            if key.__class__ is not bytes:
                key = as_bytes(key, "key")
            size = len(key)
            key_length = SMALL[size] if size < SMALL_COUNT else encode_varint(size)
            body_size = len(key_length) + size
        if value is None:
            value_length, value = b"\x01", b""
            body_size += 1
        else:
            if value.__class__ is not bytes:
                value = as_bytes(value, "value")
            size = len(value)
            value_length = SMALL[size] if size < SMALL_COUNT else encode_varint(size)
            body_size += len(value_length) + size
        header_part = encode_headers(headers) if headers else b"\x00"
        # `with`, though two calls are cheaper: an interrupt (Ctrl-C) right after acquire() would
        # leave the lock taken for ever.
        with self._lock:
            index = self.count
            if timestamp_ms == self._last_timestamp_ms:
                timestamp_part = self._timestamp_part
            else:
                timestamp_part = self._encode_timestamp(timestamp_ms)
            offset_part = SMALL[index] if index < SMALL_COUNT else encode_varint(index)
            size = body_size + len(timestamp_part) + len(offset_part) + len(header_part)
            record = b"".join(
                (
                    SMALL[size] if size < SMALL_COUNT else encode_varint(size),
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
            if len(buffer) + len(record) > self.capacity_bytes and (index or self._is_sealed):
                return None
            if timestamp_ms != self._last_timestamp_ms:
                self._note_timestamp(index, timestamp_ms, timestamp_part)
            # Both or none: an interrupt comes in only where something is called.
            buffer += record
            self.count = index + 1
            if on_delivery is not None:
                self.callbacks.append((index, on_delivery))
        return Delivery(self._batch, index)

    def append_rows(
        self,
        timestamps_ms: Sequence[int],
        keys: Iterable[bytes | None],
        values: Iterable[bytes | None],
        headers: Iterable[bytes | None],
    ) -> tuple[int, int]:
        """Encode records until one does not fit; return the first one's index, and how many.

        Everything has been checked, and the headers are encoded. Nobody has deliveries of these
        records, so that their timestamps are not kept: the first one stands for all.
        """
        with self._lock:
            first = index = self.count
            free_bytes = self.capacity_bytes - len(self._buffer)
            base_ms = self.base_timestamp_ms
            last_ms = self._last_timestamp_ms
            timestamp_part = self._timestamp_part
            parts: list[bytes] = []
            for timestamp_ms, key, value, header_part in zip(
                timestamps_ms, keys, values, headers, strict=True
            ):
                if timestamp_ms != last_ms:
                    if not index:
                        base_ms = timestamp_ms
                    timestamp_part = b"\x00" + varint(timestamp_ms - base_ms)
                    last_ms = timestamp_ms
                if key is None:
                    key_length, key = b"\x01", b""
                else:
                    size = len(key)
                    key_length = SMALL[size] if size < SMALL_COUNT else encode_varint(size)
                if value is None:
                    value_length, value = b"\x01", b""
                else:
                    size = len(value)
                    value_length = SMALL[size] if size < SMALL_COUNT else encode_varint(size)
                header_part = header_part or b"\x00"
                offset_part = SMALL[index] if index < SMALL_COUNT else encode_varint(index)
                size = (
                    len(timestamp_part)
                    + len(offset_part)
                    + len(key_length)
                    + len(key)
                    + len(value_length)
                    + len(value)
                    + len(header_part)
                )
                length = SMALL[size] if size < SMALL_COUNT else encode_varint(size)
                free_bytes -= len(length) + size
                if free_bytes < 0 and (index or self._is_sealed):
                    break
                parts += (
                    length,
                    timestamp_part,
                    offset_part,
                    key_length,
                    key,
                    value_length,
                    value,
                    header_part,
                )
                index += 1
            if index > first:
                encoded = b"".join(parts)
                first_ms = timestamps_ms[0]
                if first_ms != self._last_timestamp_ms:
                    self._note_timestamp(first, first_ms, self._encode_timestamp(first_ms))
                latest_ms = max(timestamps_ms[: index - first])
                self.max_timestamp_ms = max(self.max_timestamp_ms, latest_ms)
                # Both or none: an interrupt comes in only where something is called.
                self._buffer += encoded
                self.count = index
        return first, index - first

    def grow(self, capacity_bytes: int) -> None:
        """Raise the capacity; without effect once sealed."""
        with self._lock:
            if not self._is_sealed:
                self.capacity_bytes = max(self.capacity_bytes, capacity_bytes)

    def seal(self) -> None:
        """Take no more records. An append either came before, whole, or answers None."""
        with self._lock:
            self._is_sealed = True
            self.capacity_bytes = -1

    def view(self) -> memoryview:
        """The encoded records. Seal first, and release the view before the appender goes."""
        assert self._is_sealed
        return memoryview(self._buffer)

    def frame(self, head_bytes: int) -> memoryview:
        """The encoded records with `head_bytes` in front to be written, and all of it writable.

        No frame shares them with an earlier one. Seal first.
        """
        assert self._is_sealed
        assert head_bytes >= 0
        framed = bytearray(head_bytes)
        framed += self._buffer
        return memoryview(framed)

    def _encode_timestamp(self, timestamp_ms: int) -> bytes:
        if not 0 <= timestamp_ms <= INT64_MAX:
            raise timestamp_error(timestamp_ms)
        # The record's attributes, always 0 in version 2, stand right before the delta.
        delta_ms = timestamp_ms - self.base_timestamp_ms if self.count else 0
        return b"\x00" + varint(delta_ms)

    def _note_timestamp(self, index: int, timestamp_ms: int, timestamp_part: bytes) -> None:
        if not index:
            self.base_timestamp_ms = timestamp_ms
        self.max_timestamp_ms = max(self.max_timestamp_ms, timestamp_ms)
        self.first_indexes.append(index)
        self.timestamps_ms.append(timestamp_ms)
        self._last_timestamp_ms = timestamp_ms
        self._timestamp_part = timestamp_part


def timestamp_error(timestamp_ms: int) -> EncodeError:
    """Return the error that says what a timestamp may be."""
    return EncodeError(
        f"timestamp_ms is {timestamp_ms}: give milliseconds since 1970 from 0 to {INT64_MAX}, "
        f"or None for now"
    )


def as_bytes(value: object, what: str) -> bytes:
    """Return a key or value as bytes, whatever buffer of bytes it is.

    Raises:
        SerializationError: it is something else; `what` names it.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise SerializationError(
        f"the record's {what} is of type {type(value).__name__}, not bytes; pass bytes, "
        f"or set {what}_serializer"
    )


def encode_headers(headers: HeadersInput) -> bytes:
    """Return headers as they stand in a record, their count first.

    Raises:
        SerializationError: they are not pairs of a name and bytes or None.
    """
    parts = [b""]
    count = 0
    try:
        for name, value in headers:
            encoded = name.encode()
            size = len(encoded)
            parts.append(SMALL[size] if size < SMALL_COUNT else encode_varint(size))
            parts.append(encoded)
            if value is None:
                parts.append(b"\x01")
            else:
                data = value if value.__class__ is bytes else bytes(memoryview(value))
                size = len(data)
                parts.append(SMALL[size] if size < SMALL_COUNT else encode_varint(size))
                parts.append(data)
            count += 1
    except (AttributeError, TypeError, ValueError) as error:
        raise SerializationError(
            f"header {count} of {headers!r:.100} is wrong ({error}); "
            f"pass pairs of a str and bytes or None"
        ) from error
    parts[0] = varint(count)
    return b"".join(parts)
