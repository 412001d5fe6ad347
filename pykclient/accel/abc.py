"""The contract of the per-record core, which exists twice: pure and compiled.

Everything that runs once per record stands behind these names, and nothing else does: `send` as a
whole, the delivery it returns, the open batch it appends to, and the way back from a batch's bytes
to record objects. What runs once per batch (choosing a sticky partition, memory, headers of
batches, compression) is above, in Python, and reaches the core through these objects.

Both implementations give the same results and the same errors for the same input. The measurement
that put the boundary here is in `docs/decisions/0001-per-record-boundary.md`.

Owner: see each class.
Source: Kafka protocol guide, "Record Batch"; KIP-480, KIP-794 (sticky partitions).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from pykclient.accel.arrow_buffers import ArrowBuffers, BinaryBuffers
    from pykclient.accel.pure import ConsumerRecord, ContiguousBatches, Delivery
    from pykclient.types import Headers, TimestampType

__all__ = [
    "Accelerator",
    "Appender",
    "DeliveryBatch",
    "HeadersInput",
    "Lock",
    "OnDelivery",
    "RecordColumns",
    "SendSlowly",
]

HeadersInput = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]
"""What a caller may pass as headers: pairs of a name and a value, None = null, or a mapping."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

OnDelivery = Callable[[T, Exception | None], object]
"""A delivery callback: where the record stands, and why it failed, if it did."""


Lock = AbstractContextManager[object]
"""What an appender needs of a lock; the pure core takes it, the compiled one has the GIL."""


class DeliveryBatch(Protocol[T_co]):
    """The result of a batch, which the deliveries of its records share."""

    def is_done(self, index: int) -> bool:
        """Whether the result of the record at `index` is known."""
        ...

    def result(self, index: int, timeout: float | None) -> T_co:
        """Wait at most `timeout` seconds (None: for ever) and return the record's metadata."""
        ...

    def exception(self, index: int, timeout: float | None) -> Exception | None:
        """Wait likewise and return why the record failed, or None when it did not."""
        ...

    def add_done_callback(self, index: int, function: Callable[[], object]) -> None:
        """Call `function` once the record's result is known, at once if it is."""
        ...

    def describe(self, index: int) -> str:
        """Return what is known of the record, for `repr`; nothing that it holds."""
        ...


class RecordColumns(Protocol):
    """Records of one batch, checked and ready to be read; any field of all of them, on demand.

    The pure core has them as lists. The compiled one has the bytes that they were decoded from and
    where the fields stand in them, so each of the sequences is made anew by each look at it.

    Owner: none, they never change.
    """

    def __len__(self) -> int:
        """How many records there are."""
        ...

    def __iter__(self) -> Iterator[tuple[int, int, bytes | None, bytes | None, Headers]]:
        """Yield offset, timestamp, key, value and headers of each record."""
        ...

    @property
    def offsets(self) -> Sequence[int]:
        """Offsets, which ascend."""
        ...

    @property
    def timestamps_ms(self) -> Sequence[int]:
        """Timestamps."""
        ...

    @property
    def keys(self) -> Sequence[bytes | None]:
        """Keys."""
        ...

    @property
    def values(self) -> Sequence[bytes | None]:
        """Values."""
        ...

    @property
    def headers(self) -> Sequence[Headers]:
        """Headers; an empty tuple where there are none."""
        ...

    @property
    def size_bytes(self) -> int:
        """An upper bound of what keys, values and headers take together."""
        ...

    @property
    def first_offset(self) -> int:
        """The offset of the first record; there must be one."""
        ...

    @property
    def last_offset(self) -> int:
        """The offset of the last record; there must be one."""
        ...

    def find(self, offset: int) -> int:
        """Return the index of the first record at `offset` or after it, the length if none is."""
        ...

    def rows(self, start: int, stop: int | None = None) -> RecordColumns:
        """Return the records from index `start` up to `stop`, which is not included."""
        ...


class Appender(Protocol[T]):
    """The records of one open batch, encoded as they come, until it is full or sealed.

    Owner: any thread may append; whoever made it seals it.
    """

    @property
    def count(self) -> int:
        """How many records it holds."""
        ...

    @property
    def size_bytes(self) -> int:
        """How many bytes of records it holds; no batch header, no compression."""
        ...

    @property
    def capacity_bytes(self) -> int:
        """How many bytes of records it takes; the first record is taken whatever its size."""
        ...

    @property
    def base_timestamp_ms(self) -> int:
        """The first record's timestamp, -1 when there is none."""
        ...

    @property
    def max_timestamp_ms(self) -> int:
        """The latest timestamp, -1 when there is no record."""
        ...

    @property
    def callbacks(self) -> Collection[tuple[int, OnDelivery[T]]]:
        """The delivery callbacks in order, with their records' indexes; read it once sealed."""
        ...

    @property
    def first_indexes(self) -> Sequence[int]:
        """For each run of records with the same timestamp, the index of its first record."""
        ...

    @property
    def timestamps_ms(self) -> Sequence[int]:
        """The timestamps of these runs, in parallel; read both once sealed."""
        ...

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeadersInput | None = None,
        on_delivery: OnDelivery[T] | None = None,
    ) -> Delivery[T] | None:
        """Encode one record; return its delivery, or None when it does not fit or all is sealed.

        Raises:
            SerializationError: the key, the value or a header is not bytes.
            EncodeError: the timestamp is negative or beyond 64 bits.
        """
        ...

    def grow(self, capacity_bytes: int) -> None:
        """Raise the capacity; without effect once sealed."""
        ...

    def seal(self) -> None:
        """Take no more records. An append either came before, whole, or answers None."""
        ...

    def view(self) -> memoryview:
        """The encoded records. Seal first, and release the view before the appender goes."""
        ...

    def frame(self, head_bytes: int) -> memoryview:
        """The encoded records with `head_bytes` in front to be written, and all of it writable.

        No frame shares them with an earlier one. Seal first.
        """
        ...


class SendSlowly(Protocol[T]):
    """What `send` calls when the core alone cannot append a record: about once per batch."""

    def __call__(
        self,
        topic: object,
        value: object,
        key: object,
        partition: int | None,
        timestamp_ms: int | None,
        headers: HeadersInput | None,
        on_delivery: OnDelivery[T] | None,
    ) -> Delivery[T]:
        """Append the record, waiting for metadata or memory if need be, or raise."""
        ...


class Accelerator(Protocol):
    """The module-level functions of an implementation."""

    def crc32c(self, data: bytes | bytearray | memoryview, crc: int = 0) -> int:
        """Return the CRC32-C of `data`, continuing from `crc`."""
        ...

    def partition_of_key(self, key: bytes, partition_count: int) -> int:
        """Return the partition of a key, as Java's producer chooses it."""
        ...

    def record_bytes(self, data: bytes | bytearray | memoryview) -> bytes | memoryview:
        """Return `data` in the form that `decode_records` reads: itself, or a copy.

        Nothing may change `data` as long as records of it live.
        """
        ...

    def decode_records(
        self,
        data: bytes,
        position: int,
        first: int,
        count: int,
        base_offset: int,
        base_timestamp_ms: int,
        append_timestamp_ms: int | None = None,
    ) -> tuple[RecordColumns, int]:
        """Decode up to `count` records from `position` on; return them and where they end.

        They are fewer, but at least one, if all would have more headers than are decoded at once.
        `first` is the index that the first of them has in its batch, and `count` is at least 1.
        `data` is as `record_bytes` gave it. With `append_timestamp_ms` that is the time of every
        record, whatever the records say.

        Raises:
            DecodeError: there are no such records.
        """
        ...

    def find_contiguous(
        self, data: bytes | bytearray | memoryview, position: int, special: int
    ) -> ContiguousBatches | None:
        """Return what stands from `position` on, as far as it is plain; None if nothing is.

        `special` are attributes that a plain batch does not have, beside those that none has. Both
        find the same; the pure one decodes a batch at a time all the same.
        """
        ...

    def decode_contiguous(
        self, data: bytes | bytearray | memoryview, position: int, end: int, check_crcs: bool
    ) -> tuple[RecordColumns | None, int]:
        """Decode one or more whole contiguous batches, which end at `end`.

        Return their columns, and where the next batch stands. Columns are None where the first
        batch is not what it should be: nothing of it was decoded, and somebody else has to say why.
        """
        ...

    def iterate_records(
        self,
        columns: RecordColumns,
        *,
        topic: str,
        partition: int,
        timestamp_type: TimestampType,
        leader_epoch: int | None,
        keys: Sequence[object] | None = None,
        values: Sequence[object] | None = None,
    ) -> Iterator[ConsumerRecord]:
        """Yield the records of `columns` as objects, each made when it is asked for.

        `keys` and `values` stand for the raw ones where a deserializer has made them into something
        else; the sizes are those of the raw ones.
        """
        ...

    def arrow_buffers(
        self, columns: Sequence[RecordColumns], *, include_headers: bool
    ) -> ArrowBuffers:
        """Return the records of all `columns`, in that order, in the layout of Arrow.

        Raises:
            OverflowError: keys, values or headers take more than 32-bit offsets can say.
        """
        ...

    def repeated(self, items: Sequence[tuple[bytes, int]]) -> BinaryBuffers:
        """Return each item as often as the number beside it says, in the layout of Arrow.

        Raises:
            OverflowError: together they take more than 32-bit offsets can say.
        """
        ...
