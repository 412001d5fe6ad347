"""Many records at once, as columns: assigns them to partitions and appends them to open batches.

A `RowBlock` holds records that have been checked completely. A `RowRun` is the part of a block for
one destination, in the block's order, without the rows taken so far; rows are appended before they
are taken, so that an interrupt in between loses none.

Owner: a block never changes; a run belongs to the thread that sends it.
Source: Java class ``BuiltInPartitioner``; KIP-480 (records without a key).
"""

from __future__ import annotations

from array import array
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pykclient.accel.key_rule import HASHES, NULL_IS_HASHED, is_hashed
from pykclient.accel.pure.hashes import partition_of_key
from pykclient.errors.base import SerializationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient.accel.pure.appender import RecordAppender
    from pykclient.accel.pure.byte_column import ByteColumn

    TakeTurn = Callable[[int, int], tuple[int, int]]

ROW_OVERHEAD_BYTES_MAX: Final = 36
"""Maximum size of a record besides its key, value and headers: length 5, attributes 1, timestamp
delta 10, offset delta 5, and three more lengths of 5."""

ROW_OVERHEAD_BYTES_MIN: Final = 7
"""Minimum of that size, which is usually exceeded by only a few bytes."""

ROW_OVERHEAD_EXCESS_BYTES: Final = ROW_OVERHEAD_BYTES_MAX - ROW_OVERHEAD_BYTES_MIN

CHUNK_ROWS: Final = 512
"""Number of rows encoded under one lock, about as long as a thread switch takes."""

T = TypeVar("T")


class RowGroup(NamedTuple):
    """The rows of a block for one partition, or (None) for the topic's sticky partition."""

    topic: int
    partition: int | None
    rows: RowRun


class RowBlock:
    """Records as columns of the same length.

    `keys` and `headers` None mean that all are null, or have none; `headers` are encoded.
    `timestamps_ms` is one number for all, or one for each, and not negative. `first_row` is the
    number of the block's first row in the whole that it is part of.
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
        for name, column in (
            ("keys", self._keys),
            ("headers", self._headers),
            ("timestamps", None if isinstance(timestamps_ms, int) else timestamps_ms),
        ):
            if column is not None and len(column) != len(values):
                raise SerializationError(columns_differ(name, len(column), len(values)))
        self._sizes = array("q", [ROW_OVERHEAD_BYTES_MAX]) * len(values)
        for items in columns:
            self._sizes = array("q", map(int.__add__, self._sizes, map(_size, items)))

    def __len__(self) -> int:
        return len(self._values)

    def key_and_value(self, row: int) -> tuple[bytes | None, bytes | None]:
        return (None if self._keys is None else self._keys[row]), self._values[row]

    def largest(self) -> tuple[int, int]:
        """Return the first row with the largest possible size in a batch, and that size.

        The block must not be empty.
        """
        size_bytes = max(self._sizes)
        return self.first_row + self._sizes.index(size_bytes), size_bytes

    def all_rows(self) -> RowRun:
        return RowRun(self, range(len(self)), sum(self._sizes))

    def by_partition(
        self,
        partition_counts: Sequence[int],
        *,
        key_rule: int,
        take_turn: TakeTurn,
        topics: Sequence[int] | None = None,
        partitions: Sequence[int] | None = None,
    ) -> list[RowGroup]:
        """Return the runs for each partition, each in the block's order.

        `partition_counts` has the topics' partition counts, `topics` each row's index into it
        (None: a single topic); `partitions` has each row's partition, -1 or None to leave it to the
        key. A row whose key `key_rule` hashes goes to the partition of the hash. All others go to
        the sticky partition: as a separate run with partition None if no row of their topic has a
        fixed partition, otherwise merged in order with those that have.

        ``take_turn(topic, size_bytes)`` counts the bytes that the sticky partition took since the
        last call, and returns the next sticky partition and the minimum number of bytes it takes.
        """
        self._check(partition_counts, topics, partitions)
        are_keys_hashed = key_rule & HASHES and (
            self._keys is not None or key_rule & NULL_IS_HASHED
        )
        if len(self) and topics is None and partitions is None and not are_keys_hashed:
            return [RowGroup(0, None, self.all_rows())]
        topic_of = [0] * len(self) if topics is None else topics
        chosen = list(repeat(-1, len(self)) if partitions is None else partitions)
        if are_keys_hashed:
            keys = repeat(None, len(self)) if self._keys is None else self._keys
            for row, key in enumerate(keys):
                if chosen[row] < 0 and is_hashed(key_rule, key):
                    count = partition_counts[topic_of[row]]
                    chosen[row] = partition_of_key(key or b"", count, key_rule)
        self._spread(topic_of, chosen, partition_counts, take_turn)
        groups: dict[tuple[int, int], array[int]] = {}
        for row, place in enumerate(zip(topic_of, chosen, strict=True)):
            rows = groups.get(place)
            if rows is None:
                rows = groups[place] = array("q")
            rows.append(row)
        return [
            RowGroup(
                topic,
                None if partition < 0 else partition,
                RowRun(self, rows, sum(map(self._sizes.__getitem__, rows))),
            )
            for (topic, partition), rows in groups.items()
        ]

    def _check(
        self,
        partition_counts: Sequence[int],
        topics: Sequence[int] | None,
        partitions: Sequence[int] | None,
    ) -> None:
        for name, column in (("topics", topics), ("partitions", partitions)):
            if column is not None and len(column) != len(self):
                raise SerializationError(columns_differ(name, len(column), len(self)))
        if not partition_counts or min(partition_counts) < 1:
            raise IndexError("a topic has no partition")
        if topics and not 0 <= min(topics) <= max(topics) < len(partition_counts):
            raise IndexError("a row has a topic that there is not")

    def _spread(
        self,
        topic_of: Sequence[int],
        chosen: list[int],
        partition_counts: Sequence[int],
        take_turn: TakeTurn,
    ) -> None:
        """Assign rows without a fixed partition, in topics that also have fixed rows."""
        anywhere = [row for row, partition in enumerate(chosen) if partition < 0]
        if not anywhere or len(anywhere) == len(chosen):
            return
        mixed = {topic_of[row] for row in anywhere}
        if len(partition_counts) > 1:
            mixed &= {topic for topic, chose in zip(topic_of, chosen, strict=True) if chose >= 0}
        turns = {topic: _Turn(*take_turn(topic, 0)) for topic in sorted(mixed)}
        sizes = self._sizes
        for row in anywhere:
            topic = topic_of[row]
            if topic not in turns:
                continue
            turn = turns[topic]
            if turn.taken_bytes >= turn.room_bytes:
                turn = turns[topic] = _Turn(*take_turn(topic, turn.taken_bytes))
            # A partition added after they were counted gets its turn next time.
            chosen[row] = turn.partition % partition_counts[topic]
            turn.taken_bytes += sizes[row] - ROW_OVERHEAD_EXCESS_BYTES
        for topic, turn in turns.items():
            take_turn(topic, turn.taken_bytes)

    def size_bytes_max(self, row: int) -> int:
        """Return the maximum size of a row."""
        return self._sizes[row]

    def append_to(self, appender: RecordAppender[T], rows: Sequence[int]) -> tuple[int, int]:
        """Append rows until one does not fit; return the first index and the number of rows."""
        times = self._timestamps_ms
        return appender.append_rows(
            [times] * len(rows) if isinstance(times, int) else _picked(times, rows),
            [None] * len(rows) if self._keys is None else _picked(self._keys, rows),
            _picked(self._values, rows),
            [None] * len(rows) if self._headers is None else _picked(self._headers, rows),
        )


class RowRun:
    """Rows of a block for one destination, in order, without the rows taken so far.

    `rows` are indexes into the block; `size_bytes` is the maximum size of all of them.
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
        """Estimated size of the remaining rows; enough for the first one, if there is one."""
        return max(self._bytes_per_row * len(self), self.next_size_bytes_max)

    @property
    def next_size_bytes_max(self) -> int:
        """Maximum size of the next row; 0 if there is none."""
        return self._block.size_bytes_max(self._rows[self._position]) if self else 0

    def append_to(self, appender: RecordAppender[T]) -> tuple[int, int]:
        """Append as many rows as fit, or some of them; return the first index and their number.

        No row is appended only if none fits. Take the appended rows afterwards.
        """
        return self._block.append_to(appender, self._chunk(self._position))

    def fill(self, appender: RecordAppender[T]) -> int:
        """Append as many rows as fit to an appender of this thread only; return their number."""
        position = self._position
        while chunk := self._chunk(position):
            _, count = self._block.append_to(appender, chunk)
            position += count
            if count < len(chunk):
                break
        return position - self._position

    def take(self, count: int) -> Sequence[int]:
        """Remove the next `count` rows; return their indexes, as a range if they are contiguous."""
        first = self._block.first_row
        taken = self._rows[self._position : self._position + count]
        self._position += count
        if not taken or taken[-1] - taken[0] == len(taken) - 1:
            start = first + taken[0] if taken else first
            return range(start, start + len(taken))
        return array("q", [first + row for row in taken]) if first else taken

    def _chunk(self, position: int) -> Sequence[int]:
        return self._rows[position : position + CHUNK_ROWS]


class _Turn:
    """The sticky partition, until rows have filled its turn."""

    __slots__ = ("partition", "room_bytes", "taken_bytes")

    def __init__(self, partition: int, room_bytes: int) -> None:
        self.partition = partition
        self.room_bytes = max(1, room_bytes)
        self.taken_bytes = 0


def largest_partitions(
    partitions: Sequence[int], topics: Sequence[int] | None, topic_count: int
) -> list[int]:
    """Return the largest partition named for each topic, or -1 if there is none.

    `topics` has each row's topic; None means a single one.
    """
    largest = [-1] * topic_count
    if topics is not None and len(topics) != len(partitions):
        raise SerializationError(columns_differ("topics", len(topics), len(partitions)))
    for partition, topic in zip(partitions, repeat(0) if topics is None else topics, strict=False):
        if not 0 <= topic < topic_count:
            raise IndexError("a row has a topic that there is not")
        if partition > largest[topic]:
            largest[topic] = partition
    return largest


def columns_differ(name: str, count: int, row_count: int) -> str:
    return f"there are {count} {name} for {row_count} records"


def _size(item: bytes | None) -> int:
    return len(item) if item else 0


def _picked(items: Sequence[T], rows: Sequence[int]) -> Sequence[T]:
    if rows and rows[-1] - rows[0] == len(rows) - 1:
        return items[rows[0] : rows[-1] + 1]
    return [items[row] for row in rows]
