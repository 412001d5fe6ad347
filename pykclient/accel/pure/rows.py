"""Many records at once, as columns: which partition each goes to, and their way into open batches.

A `RowBlock` holds records that have been checked, so that nothing can be wrong with one any more. A
`RowRun` is what of a block goes to one place, in the block's order, less what has been taken; rows
are appended first and taken then, so that an interrupt in between loses none.

Owner: a block never changes; a run belongs to the thread that sends it.
Source: Java class ``BuiltInPartitioner``; KIP-480 (records without a key).
"""

from __future__ import annotations

from array import array
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pykclient.accel.pure.hashes import murmur2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pykclient.accel.pure.appender import RecordAppender
    from pykclient.accel.pure.byte_column import ByteColumn

__all__ = ["RowBlock", "RowGroup", "RowRun", "largest_partitions"]

ROW_OVERHEAD_BYTES_MAX: Final = 36
"""What a record takes at most beside its key, value and headers: length 5, attributes 1, timestamp
delta 10, offset delta 5, and three more lengths of 5."""

CHUNK_ROWS: Final = 512
"""How many rows are encoded under one lock: about as long as a thread switch takes."""

T = TypeVar("T")


class RowGroup(NamedTuple):
    """The rows of a block that go to one partition, or (None) wherever the topic's turn is."""

    topic: int
    partition: int | None
    rows: RowRun


class RowBlock:
    """Records as columns of the same length.

    `keys` and `headers` None: all are null, or have none; `headers` are encoded. `timestamps_ms` is
    one for all, or one for each, and not negative. `first_row` is the number of the block's first
    row in whatever it is a part of.
    """

    __slots__ = ("_headers", "_keys", "_sizes", "_timestamps_ms", "_values", "first_row")

    def __init__(
        self,
        values: ByteColumn,
        *,
        keys: ByteColumn | None,
        headers: ByteColumn | None,
        timestamps_ms: int | Sequence[int],
        first_row: int,
    ) -> None:
        self.first_row = first_row
        self._values = values.items
        self._keys = None if keys is None else keys.items
        self._headers = None if headers is None else headers.items
        self._timestamps_ms = timestamps_ms
        columns = [
            items for items in (self._values, self._keys, self._headers) if items is not None
        ]
        self._sizes = array("q", [ROW_OVERHEAD_BYTES_MAX]) * len(values)
        for items in columns:
            assert len(items) == len(values)
            self._sizes = array("q", map(int.__add__, self._sizes, map(_size, items)))

    def __len__(self) -> int:
        return len(self._values)

    @property
    def has_keys(self) -> bool:
        """Whether rows may have keys."""
        return self._keys is not None

    def key_and_value(self, row: int) -> tuple[bytes | None, bytes | None]:
        """Return the key and the value of a row, by its number in the block."""
        return (None if self._keys is None else self._keys[row]), self._values[row]

    def largest(self) -> tuple[int, int]:
        """Return the row that may take the most bytes in a batch, the first of them, and how many.

        The block must not be empty.
        """
        size_bytes = max(self._sizes)
        return self.first_row + self._sizes.index(size_bytes), size_bytes

    def all_rows(self) -> RowRun:
        """Return all rows as one run."""
        return RowRun(self, range(len(self)), sum(self._sizes))

    def by_partition(
        self,
        partition_counts: Sequence[int],
        *,
        hash_keys: bool,
        topics: Sequence[int] | None = None,
        partitions: Sequence[int] | None = None,
    ) -> list[RowGroup]:
        """Return the runs that go to each partition.

        `partition_counts` has the topics' numbers of partitions, `topics` each row's topic by its
        place there, None when there is one; `partitions` has each row's partition, -1 to leave it
        to the key, None when all do. A row with a key goes where Java's producer puts it, one
        without, or with `hash_keys` False, nowhere in particular.
        """
        keys = self._keys if hash_keys and self._keys is not None else repeat(None)
        groups: dict[tuple[int, int | None], array[int]] = {}
        for row, (_, topic, partition, key) in enumerate(
            zip(
                self._values,
                repeat(0) if topics is None else topics,
                repeat(-1) if partitions is None else partitions,
                keys,
                strict=False,
            )
        ):
            chosen: int | None = partition
            if partition < 0:
                chosen = (
                    None if key is None else (murmur2(key) & 0x7FFFFFFF) % partition_counts[topic]
                )
            rows = groups.get((topic, chosen))
            if rows is None:
                rows = groups[topic, chosen] = array("q")
            rows.append(row)
        return [
            RowGroup(topic, partition, RowRun(self, rows, sum(map(self._sizes.__getitem__, rows))))
            for (topic, partition), rows in groups.items()
        ]

    def size_bytes_max(self, row: int) -> int:
        """Return the most bytes that a row can take."""
        return self._sizes[row]

    def append_to(self, appender: RecordAppender[T], rows: Sequence[int]) -> tuple[int, int]:
        """Append rows until one does not fit; return the first one's index, and how many."""
        times = self._timestamps_ms
        return appender.append_rows(
            [times] * len(rows) if isinstance(times, int) else _picked(times, rows),
            repeat(None, len(rows)) if self._keys is None else _picked(self._keys, rows),
            _picked(self._values, rows),
            repeat(None, len(rows)) if self._headers is None else _picked(self._headers, rows),
        )


class RowRun:
    """Rows of a block that go to one place, in order, less what was taken.

    `rows` are numbers in the block; `size_bytes` is the most that all of them can take.
    """

    __slots__ = ("_block", "_bytes_per_row", "_position", "_rows")

    def __init__(self, block: RowBlock, rows: Sequence[int], size_bytes: int) -> None:
        self._block = block
        self._rows = rows
        self._position = 0
        self._bytes_per_row = -(-size_bytes // len(rows)) if rows else 0

    def __len__(self) -> int:
        return len(self._rows) - self._position

    @property
    def size_bytes_estimate(self) -> int:
        """About how many bytes the rest takes; enough for its first row, if there is one."""
        return max(self._bytes_per_row * len(self), self.next_size_bytes_max)

    @property
    def next_size_bytes_max(self) -> int:
        """The most bytes that the next row can take; 0 when there is none."""
        return self._block.size_bytes_max(self._rows[self._position]) if self else 0

    def append_to(self, appender: RecordAppender[T]) -> tuple[int, int]:
        """Append some rows, as many as fit at most; return the index of the first, and how many.

        None is appended only when none fits. What was appended has to be taken.
        """
        return self._block.append_to(appender, self._chunk(self._position))

    def fill(self, appender: RecordAppender[T]) -> int:
        """Append as many rows as fit to an appender that nobody else sees; return how many."""
        position = self._position
        while chunk := self._chunk(position):
            _, count = self._block.append_to(appender, chunk)
            position += count
            if count < len(chunk):
                break
        return position - self._position

    def take(self, count: int) -> Sequence[int]:
        """Take the next `count` rows out; return their numbers, a range if they are in a row."""
        first = self._block.first_row
        taken = self._rows[self._position : self._position + count]
        self._position += count
        if not taken or taken[-1] - taken[0] == len(taken) - 1:
            start = first + taken[0] if taken else first
            return range(start, start + len(taken))
        return array("q", [first + row for row in taken]) if first else taken

    def _chunk(self, position: int) -> Sequence[int]:
        return self._rows[position : position + CHUNK_ROWS]


def largest_partitions(
    partitions: Iterable[int], topics: Sequence[int] | None, topic_count: int
) -> list[int]:
    """Return the largest partition that is named for each topic, -1 where none is.

    `topics` has each row's topic, None when there is one.
    """
    largest = [-1] * topic_count
    for partition, topic in zip(partitions, repeat(0) if topics is None else topics, strict=False):
        if partition > largest[topic]:
            largest[topic] = partition
    return largest


def _size(item: bytes | None) -> int:
    return len(item) if item else 0


def _picked(items: Sequence[T], rows: Sequence[int]) -> Sequence[T]:
    if rows and rows[-1] - rows[0] == len(rows) - 1:
        return items[rows[0] : rows[-1] + 1]
    return [items[row] for row in rows]
