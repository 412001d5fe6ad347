"""The types of rows.pyx, which are those of the pure twin."""

from collections.abc import Callable, Sequence
from typing import TypeVar, final

from _typeshed import ReadableBuffer

from pykclient.accel.compiled.byte_column import ByteColumn
from pykclient.accel.compiled.send import RecordAppender
from pykclient.accel.pure.rows import RowGroup

__all__ = ["RowBlock", "RowRun", "largest_partitions"]

T = TypeVar("T")

@final
class RowBlock:
    def __init__(
        self,
        values: ByteColumn,
        *,
        keys: ByteColumn | None,
        headers: ByteColumn | None,
        timestamps_ms: int | ReadableBuffer,
        first_row: int,
    ) -> None: ...
    @property
    def first_row(self) -> int: ...
    def __len__(self) -> int: ...
    @property
    def has_keys(self) -> bool: ...
    def key_and_value(self, row: int) -> tuple[bytes | None, bytes | None]: ...
    def largest(self) -> tuple[int, int]: ...
    def all_rows(self) -> RowRun: ...
    def by_partition(
        self,
        partition_counts: Sequence[int],
        *,
        hash_keys: bool,
        take_turn: Callable[[int, int], tuple[int, int]],
        topics: ReadableBuffer | None = None,
        partitions: ReadableBuffer | None = None,
    ) -> list[RowGroup]: ...

@final
class RowRun:
    def __len__(self) -> int: ...
    @property
    def size_bytes_estimate(self) -> int: ...
    @property
    def next_size_bytes_max(self) -> int: ...
    def append_to(self, appender: RecordAppender[T]) -> tuple[int, int]: ...
    def fill(self, appender: RecordAppender[T]) -> int: ...
    def take(self, count: int) -> Sequence[int]: ...

def largest_partitions(
    partitions: ReadableBuffer, topics: ReadableBuffer | None, topic_count: int
) -> list[int]: ...
