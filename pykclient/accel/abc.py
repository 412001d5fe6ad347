"""What an implementation of the hot loops offers: the contract of the pure and the compiled core.

Everything that runs once per record stands behind these names, and nothing else does. An
implementation is a module with the functions of `Accelerator` and a class `RecordAppender`; both
implementations give the same results and the same errors for the same input.

Owner: no state, except in a `RecordAppender`, which belongs to the batch that made it.
Source: Kafka protocol guide, "Record Batch"; Java classes ``DefaultRecord``, ``ByteUtils``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from pykclient.types import Headers

__all__ = ["Accelerator", "Appender", "HeadersInput", "RecordColumns"]

HeadersInput = Iterable[tuple[str, bytes | None]]
"""What a caller may pass as headers: pairs of a name and a value, None = null."""


class RecordColumns(NamedTuple):
    """The records of one batch, one sequence per field, all of the same length."""

    offsets: Sequence[int]
    timestamps_ms: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]

    @property
    def count(self) -> int:
        """How many records there are (`len` is that of the tuple, five)."""
        return len(self.offsets)

    def rows(self, start: int, stop: int | None = None) -> RecordColumns:
        """Return the records from index `start` up to `stop`, not included."""
        return RecordColumns(
            self.offsets[start:stop],
            self.timestamps_ms[start:stop],
            self.keys[start:stop],
            self.values[start:stop],
            self.headers[start:stop],
        )


class Appender(Protocol):
    """The records of one open batch, encoded as they come.

    `capacity_bytes` is how many bytes of records it takes; the owner may raise it. The first
    record is taken whatever its size.
    """

    capacity_bytes: int
    count: int
    base_timestamp_ms: int
    max_timestamp_ms: int

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
        ...

    def size_bytes(self) -> int:
        """How many bytes of records have been written."""
        ...

    def view(self) -> memoryview:
        """The bytes written so far; release it before the next append."""
        ...


class Accelerator(Protocol):
    """The module-level functions of an implementation."""

    def crc32c(self, data: bytes | bytearray | memoryview, crc: int = 0) -> int:
        """Return the CRC32-C of `data`, continuing from `crc`."""
        ...

    def murmur2(self, data: bytes) -> int:
        """Return Kafka's murmur2 of a key as a signed 32-bit number."""
        ...

    def decode_records(
        self,
        data: bytes,
        count: int,
        base_offset: int,
        base_timestamp_ms: int,
    ) -> RecordColumns:
        """Decode `count` records, which fill `data` exactly.

        Raises:
            DecodeError: `data` holds anything else.
        """
        ...
