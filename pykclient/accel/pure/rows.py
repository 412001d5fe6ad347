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

from pykclient.accel.key_rule import HASHES, NULL_IS_HASHED, is_hashed
from pykclient.accel.pure.hashes import partition_of_key
from pykclient.errors.base import SerializationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient.accel.pure.appender import RecordAppender
    from pykclient.accel.pure.byte_column import ByteColumn

    TakeTurn = Callable[[int, int], tuple[int, int]]

ROW_OVERHEAD_BYTES_MAX: Final = 36
"""What a record takes at most beside its key, value and headers: length 5, attributes 1, timestamp
delta 10, offset delta 5, and three more lengths of 5."""

ROW_OVERHEAD_BYTES_MIN: Final = 7
"""What it takes at least, and nearly always but for a few bytes."""

ROW_OVERHEAD_EXCESS_BYTES: Final = ROW_OVERHEAD_BYTES_MAX - ROW_OVERHEAD_BYTES_MIN

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
        """Return the row that may take the most bytes in a batch, the first of them, and how many.

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
        """Return the runs that go to each partition, each in the block's order.

        `partition_counts` has the topics' numbers of partitions, `topics` each row's topic by its
        place there, None when there is one; `partitions` has each row's partition, -1 to leave it
        to the key, None when all do. A row that `key_rule` hashes the key of goes where that says.
        Any other goes to the sticky partition: in a run of its own, with
        partition None, if no row of its topic has to be anywhere; else it is put in order with
        those that have.

        ``take_turn(topic, size_bytes)`` counts what the sticky partition took since the last call,
        and returns the partition whose turn it is then, and how many bytes it takes at least.
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
        """Give rows that may go anywhere their turns, in topics that have other rows as well."""
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
            # A partition that was added since they were counted has its turn the next time.
            chosen[row] = turn.partition % partition_counts[topic]
            turn.taken_bytes += sizes[row] - ROW_OVERHEAD_EXCESS_BYTES
        for topic, turn in turns.items():
            take_turn(topic, turn.taken_bytes)

    def size_bytes_max(self, row: int) -> int:
        """Return the most bytes that a row can take."""
        return self._sizes[row]

    def append_to(self, appender: RecordAppender[T], rows: Sequence[int]) -> tuple[int, int]:
        """Append rows until one does not fit; return the first one's index, and how many."""
        times = self._timestamps_ms
        return appender.append_rows(
            [times] * len(rows) if isinstance(times, int) else _picked(times, rows),
            [None] * len(rows) if self._keys is None else _picked(self._keys, rows),
            _picked(self._values, rows),
            [None] * len(rows) if self._headers is None else _picked(self._headers, rows),
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
        """Append as many rows as fit to an appender that no other thread sees; return how many."""
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


class _Turn:
    """The partition that rows go to which may go anywhere, until they have taken all the room."""

    __slots__ = ("partition", "room_bytes", "taken_bytes")

    def __init__(self, partition: int, room_bytes: int) -> None:
        self.partition = partition
        self.room_bytes = max(1, room_bytes)
        self.taken_bytes = 0


def largest_partitions(
    partitions: Sequence[int], topics: Sequence[int] | None, topic_count: int
) -> list[int]:
    """Return the largest partition that is named for each topic, -1 where none is.

    `topics` has each row's topic, None when there is one.
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
