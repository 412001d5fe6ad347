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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeVar

from pykclient.errors.base import KafkaError

if TYPE_CHECKING:
    from pykclient.accel.pure import Delivery
    from pykclient.types import Headers

HeadersInput = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]
"""What a caller may pass as headers: pairs of a name and a value, None = null, or a mapping."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

OnDelivery = Callable[[T, KafkaError | None], object]
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

    def exception(self, index: int, timeout: float | None) -> KafkaError | None:
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

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[tuple[int, int, bytes | None, bytes | None, Headers]]:
        """Yield offset, timestamp, key, value and headers of each record."""
        ...

    @property
    def offsets(self) -> Sequence[int]:
        """Offsets, which ascend."""
        ...

    @property
    def timestamps_ms(self) -> Sequence[int]: ...

    @property
    def keys(self) -> Sequence[bytes | None]: ...

    @property
    def values(self) -> Sequence[bytes | None]: ...

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
