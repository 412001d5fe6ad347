"""RecordAppender: the records of one open batch, encoded on arrival.

It is open until sealed, and a sealed appender never reopens. It knows no batch header and no codec.

Owner: the lock it was given.
Source: Kafka protocol guide, "Record Batch"; KIP-82 (headers); Java class ``DefaultRecord``.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from pykclient.accel.pure.delivery import Delivery
from pykclient.accel.pure.varint import SMALL, SMALL_COUNT, encode_varint, varint
from pykclient.arguments import shown_argument
from pykclient.errors.base import EncodeError, SerializationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pykclient.accel.abc import DeliveryBatch, HeadersInput, Lock, OnDelivery

INT64_MAX: Final = 2**63 - 1
HEADER_COUNT_MAX: Final = 1_000_000
"""Maximum headers of one record, and of all records that a consumer decodes at once. A header takes
two bytes in a batch and seventy when decoded, so without a limit the 64 MiB of a decompressed batch
could become more than two gigabytes."""

T = TypeVar("T")


class RecordAppender(Generic[T]):
    """The records of one open batch, encoded on arrival, until it is full or sealed.

    `callbacks` and, in parallel, `first_indexes` and `timestamps_ms` are read once it is sealed:
    each run of records with one timestamp has an entry with its first record's index and the
    timestamp.

    Owner: `lock`, which only `append`, `append_rows`, `grow` and `seal` take. No code of others
    runs under it, so no interrupt (Ctrl-C), signal handler or destructor can, and a thread that
    waits for the lock never waits for them. A record is encoded before the lock is taken, for the
    next index, and again if another thread was faster.
    """

    __slots__ = (
        "_batch",
        "_buffer",
        "_is_sealed",
        "_last_timestamp",
        "_lock",
        "base_timestamp_ms",
        "callbacks",
        "capacity_bytes",
        "count",
        "first_indexes",
        "max_timestamp_ms",
        "size_bytes",
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
        self._last_timestamp: tuple[int | None, bytes] = (None, b"")
        """The last record's timestamp, and its encoding."""
        self._lock = lock
        self.size_bytes = 0
        """Size of the records in bytes, without batch header and compression."""

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeadersInput | None = None,
        on_delivery: OnDelivery[T] | None = None,
    ) -> Delivery[T] | None:
        """Encode one record; return its delivery, or None if it does not fit or all is sealed.

        It costs one lock, one join and one copy; lengths and indexes up to 8191 come from a table.

        Raises:
            SerializationError: the key, the value or a header is not bytes.
            EncodeError: the timestamp is negative or beyond 64 bits.
        """
        # Code of the caller may run here (unusual buffers, lazy headers), so it comes before the
        # lock.
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
        while True:
            index = self.count
            last_ms, timestamp_part = self._last_timestamp
            is_new_time = timestamp_ms != last_ms
            if is_new_time:
                timestamp_part = self._encode_timestamp(index, timestamp_ms)
                base_ms = self.base_timestamp_ms if index else timestamp_ms
                latest_ms = max(self.max_timestamp_ms, timestamp_ms)
                first_index, run_ms = array("q", (index,)), array("q", (timestamp_ms,))
                timestamp = (timestamp_ms, timestamp_part)
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
            end = self.size_bytes + len(record)
            callbacks = () if on_delivery is None else ((index, on_delivery),)
            buffer = self._buffer
            # `with`: an interrupt right after acquire() would leave the lock taken forever.
            with self._lock:
                if self.count == index:
                    if end > self.capacity_bytes and (index or self._is_sealed):
                        return None
                    if is_new_time:
                        self.base_timestamp_ms = base_ms
                        self.max_timestamp_ms = latest_ms
                        self.first_indexes += first_index
                        self.timestamps_ms += run_ms
                        self._last_timestamp = timestamp
                    self.callbacks += callbacks
                    buffer += record
                    self.size_bytes = end
                    self.count = index + 1
                    break
        return Delivery(self._batch, index)

    def append_rows(
        self,
        timestamps_ms: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[bytes | None],
    ) -> tuple[int, int]:
        """Encode records until one does not fit; return the first index and the number of records.

        Everything has been checked, and headers are encoded. These records have no deliveries, so
        their timestamps are not kept: the first one stands for all.
        """
        while True:
            first = self.count
            free_bytes = self.capacity_bytes - self.size_bytes
            if self._is_sealed:
                return first, 0
            parts, count = self._encode_rows(
                first, free_bytes, timestamps_ms, keys, values, headers
            )
            if not count:
                return first, 0
            encoded = b"".join(parts)
            first_ms, latest_ms = timestamps_ms[0], max(timestamps_ms[:count])
            latest_ms = max(self.max_timestamp_ms, latest_ms)
            timestamp = self._last_timestamp
            is_new_time = first_ms != timestamp[0]
            if is_new_time:
                timestamp = (first_ms, self._encode_timestamp(first, first_ms))
            first_index, run_ms = array("q", (first,)), array("q", (first_ms,))
            end = self.size_bytes + len(encoded)
            buffer = self._buffer
            with self._lock:
                if self.count == first and not self._is_sealed:
                    if is_new_time:
                        if not first:
                            self.base_timestamp_ms = first_ms
                        self.first_indexes += first_index
                        self.timestamps_ms += run_ms
                        self._last_timestamp = timestamp
                    self.max_timestamp_ms = latest_ms
                    buffer += encoded
                    self.size_bytes = end
                    self.count = first + count
                    break
        return first, count

    def _encode_rows(
        self,
        first: int,
        free_bytes: int,
        timestamps_ms: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[bytes | None],
    ) -> tuple[list[bytes], int]:
        """Return the encoded rows from index `first` on, and how many of them fit."""
        index = first
        base_ms = self.base_timestamp_ms
        last_ms: int | None = None
        timestamp_part = b""
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
            if free_bytes < 0 and index:
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
        return parts, index - first

    def grow(self, capacity_bytes: int) -> None:
        """Increase the capacity; no effect once sealed."""
        with self._lock:
            if not self._is_sealed and capacity_bytes > self.capacity_bytes:
                self.capacity_bytes = capacity_bytes

    def seal(self) -> None:
        """Seal the appender. An append either came before, completely, or returns None."""
        with self._lock:
            self._is_sealed = True
            self.capacity_bytes = -1

    def view(self) -> memoryview:
        """Return the encoded records. Seal first; release the view before dropping the appender."""
        if not self._is_sealed:
            raise BufferError("only a sealed appender has a view")
        return memoryview(self._buffer)

    def frame(self, head_bytes: int) -> memoryview:
        """Return the encoded records after `head_bytes` bytes of space, all writable.

        No two frames share memory. Seal first.
        """
        if not self._is_sealed or head_bytes < 0:
            raise BufferError("only of a sealed appender, and behind a head of 0 bytes or more")
        framed = bytearray(head_bytes)
        framed += self._buffer
        return memoryview(framed)

    def _encode_timestamp(self, index: int, timestamp_ms: int) -> bytes:
        if not 0 <= timestamp_ms <= INT64_MAX:
            raise timestamp_error(timestamp_ms)
        # The record's attributes, always 0 in version 2, stand right before the delta.
        delta_ms = timestamp_ms - self.base_timestamp_ms if index else 0
        return b"\x00" + varint(delta_ms)


def timestamp_error(timestamp_ms: int) -> EncodeError:
    return EncodeError(
        f"timestamp_ms is {shown_argument(timestamp_ms)}: give milliseconds since 1970 from 0 to "
        f"{INT64_MAX}, or None for now"
    )


def as_bytes(value: object, what: str) -> bytes:
    """Return a key or value as bytes, from any buffer of bytes.

    Raises:
        SerializationError: it is anything else; `what` names it.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise SerializationError(
        f"the record's {what} is of type {type(value).__name__}, not bytes; pass bytes, "
        f"or set {what}_serializer"
    )


def encode_headers(headers: HeadersInput) -> bytes:
    """Return the encoded headers of a record, with their count first.

    Raises:
        SerializationError: they are not pairs of a name and bytes or None, or too many.
    """
    parts = [b""]
    count = 0
    try:
        if not (type(headers) is list or type(headers) is tuple):
            headers = header_pairs(headers)
        for name, value in headers:
            encoded = name.encode()
            size = len(encoded)
            name_length = SMALL[size] if size < SMALL_COUNT else encode_varint(size)
            if value is None:
                parts += (name_length, encoded, b"\x01")
            else:
                data = value if value.__class__ is bytes else _header_value(value)
                size = len(data)
                value_length = SMALL[size] if size < SMALL_COUNT else encode_varint(size)
                parts += (name_length, encoded, value_length, data)
            count += 1
    except (AttributeError, TypeError, ValueError) as error:
        raise SerializationError(
            f"headers: number {count} is wrong ({error}); pass pairs of a str and bytes or None, "
            f"or a dict of them"
        ) from error
    if count > HEADER_COUNT_MAX:
        raise SerializationError(too_many_headers(count))
    parts[0] = SMALL[count] if count < SMALL_COUNT else encode_varint(count)
    return b"".join(parts)


def _header_value(value: object) -> bytes:
    # The same types as for keys and values. Other buffers have larger items and a byte order.
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"its value is of type {type(value).__name__}")


def too_many_headers(count: int) -> str:
    return f"a record has at most {HEADER_COUNT_MAX} headers, this one has {count}"


def header_pairs(headers: HeadersInput) -> Iterable[tuple[str, bytes | None]]:
    # Check these first, since an abstract class takes long to tell that they are not mappings.
    if type(headers) is list or type(headers) is tuple:
        return headers
    if isinstance(headers, Mapping):
        pairs: Iterable[tuple[str, bytes | None]] = headers.items()
        return pairs
    return headers
