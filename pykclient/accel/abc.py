"""The interface of the per-record core, which has two implementations: pure and compiled.

Everything that runs once per record is behind these names, and nothing else: `send` as a whole, the
delivery it returns, the open batch it appends to, and decoding a batch's bytes to record objects.
Work per batch (choosing a sticky partition, memory, batch headers, compression) is above, in
Python, and reaches the core through these objects.

Both implementations give the same results and errors for the same input. The measurement behind
this boundary is in `docs/decisions/0001-per-record-boundary.md`.

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
"""Headers as a caller may pass them: pairs of a name and a value (None = null), or a mapping."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

OnDelivery = Callable[[T, KafkaError | None], object]
"""A delivery callback; its arguments are the record's metadata and its error, or None."""


Lock = AbstractContextManager[object]
"""A lock as an appender needs it; the pure core takes it, the compiled one has the GIL."""


class DeliveryBatch(Protocol[T_co]):
    """The result of a batch, which the deliveries of its records share."""

    def is_done(self, index: int) -> bool:
        """Return whether the result of the record at `index` is known."""
        ...

    def result(self, index: int, timeout: float | None) -> T_co:
        """Wait at most `timeout` seconds (None: no limit) and return the record's metadata."""
        ...

    def exception(self, index: int, timeout: float | None) -> KafkaError | None:
        """Wait likewise and return the error of the record, or None if it succeeded."""
        ...

    def add_done_callback(self, index: int, function: Callable[[], object]) -> None:
        """Call `function` when the record's result is known, or at once if it is."""
        ...

    def describe(self, index: int) -> str:
        """Describe the state of the record for `repr`, without its contents."""
        ...


class RecordColumns(Protocol):
    """Records of one batch, checked and readable as columns.

    The pure core stores lists. The compiled one stores the encoded bytes and the positions of
    fields in them, so each access builds the sequence.

    Owner: none, they never change.
    """

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[tuple[int, int, bytes | None, bytes | None, Headers]]:
        """Yield offset, timestamp, key, value and headers of each record."""
        ...

    @property
    def offsets(self) -> Sequence[int]:
        """Offsets, in ascending order."""
        ...

    @property
    def timestamps_ms(self) -> Sequence[int]: ...

    @property
    def keys(self) -> Sequence[bytes | None]: ...

    @property
    def values(self) -> Sequence[bytes | None]: ...

    @property
    def headers(self) -> Sequence[Headers]:
        """Headers; an empty tuple for a record without any."""
        ...

    @property
    def size_bytes(self) -> int:
        """Upper bound of the size of keys, values and headers together."""
        ...

    @property
    def first_offset(self) -> int:
        """Offset of the first record; there must be one."""
        ...

    @property
    def last_offset(self) -> int:
        """Offset of the last record; there must be one."""
        ...

    def find(self, offset: int) -> int:
        """Return the index of the first record at or after `offset`; the length if none is."""
        ...

    def rows(self, start: int, stop: int | None = None) -> RecordColumns:
        """Return the records from index `start` up to, but excluding, `stop`."""
        ...


class SendSlowly(Protocol[T]):
    """Function that `send` calls if the core cannot append a record alone, about once per batch."""

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
        """Append the record, waiting for metadata or memory if necessary, or raise."""
        ...
