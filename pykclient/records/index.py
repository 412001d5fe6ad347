"""The two indexes of a segment: fixed-size entries in ascending order, for fast search.

The offset index has the positions of some offsets, the time index the largest timestamps so far. A
broker allocates an index file larger than needed and truncates it when the segment is full, so the
index of the active segment ends in zeros, which are not entries. Indexes have no checksums: an
entry is a hint that must be checked against the segment.

Entries are read one at a time as a search needs them: an index of any size uses the same memory,
and a file that a broker truncates meanwhile causes an error, where a mapped file would cause a
crash.

Owner: whoever made it.
Source: Java classes ``AbstractIndex``, ``OffsetIndex`` (four bytes of offset, counted from the
segment's first, and four of position), ``TimeIndex`` (KIP-33: eight bytes of timestamp, and four of
offset, counted likewise).
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final, Generic, NamedTuple, TypeVar

from pykclient.errors.base import DecodeError

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT_NAME: Final = re.compile(r"(\d{20})\.")

ReadAt = Callable[[int, int], bytes]
"""Reads a file: returns the bytes at a position for a size, fewer at the end of the file."""


class CorruptIndexError(DecodeError):
    """A segment's index is invalid; a broker would rebuild it from the segment."""


class OffsetPosition(NamedTuple):
    """A statement that the batch at byte `position` begins at or before `offset`."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """A statement that a record later than `timestamp_ms` comes after `offset`."""

    timestamp_ms: int
    offset: int


E = TypeVar("E", OffsetPosition, TimestampOffset)


class SparseIndex(Generic[E]):
    """The entries of an index file of `size_bytes` bytes, for the segment that begins at an offset.

    They ascend by their first number.

    Raises:
        CorruptIndexError: the file ends inside an entry, or its last entry is before the segment
            or, in time, before the first.
    """

    NAME: ClassVar[str]
    ENTRY: ClassVar[struct.Struct]

    def __init__(self, read_at: ReadAt, size_bytes: int, *, base_offset: int) -> None:
        self._read_at = read_at
        self.base_offset: Final = base_offset
        slot_count, rest_bytes = divmod(size_bytes, self.ENTRY.size)
        if rest_bytes:
            raise self.corrupt(
                f"its {size_bytes} bytes are no multiple of {self.ENTRY.size}, the size of an entry"
            )
        self._entry_count: Final = bisect_left(range(slot_count), True, key=self._is_blank)
        if self._entry_count:
            self._check_last(self.entry(self._entry_count - 1))

    def __len__(self) -> int:
        return self._entry_count

    def entry(self, number: int) -> E:
        """Return the entry with this number, counted from 0.

        Raises:
            CorruptIndexError: the file has become shorter since it was opened.
        """
        return self._parse(*self.ENTRY.unpack(self._bytes(number)))

    def lookup(self, sought: int) -> E | None:
        """Return the entry from which to search for an offset or time; None is the segment's start.

        Raises:
            CorruptIndexError: the file has become shorter since it was opened.
        """
        numbers = range(self._entry_count)
        number = bisect_right(numbers, sought, key=lambda number: self.entry(number)[0]) - 1
        return self.entry(number) if number >= 0 else None

    def corrupt(self, reason: str) -> CorruptIndexError:
        """Return the error for this index, with the cure."""
        return CorruptIndexError(f"the {self.NAME} is corrupt: {reason}; search without the index")

    def _is_blank(self, number: int) -> bool:
        return not any(self._bytes(number))

    def _bytes(self, number: int) -> bytes:
        data = self._read_at(number * self.ENTRY.size, self.ENTRY.size)
        if len(data) < self.ENTRY.size:
            raise self.corrupt(f"it ended before entry {number} while it was read")
        return data

    def _check_last(self, last: E) -> None:
        if last.offset < self.base_offset:
            raise self.corrupt(
                f"its last offset is {last.offset}, and the segment begins at {self.base_offset}"
            )

    def _parse(self, first: int, second: int) -> E:
        """Build an entry from its two numbers."""
        raise NotImplementedError


class OffsetIndex(SparseIndex[OffsetPosition]):
    NAME: ClassVar[str] = "offset index"
    ENTRY: ClassVar[struct.Struct] = struct.Struct(">ii")

    def _parse(self, first: int, second: int) -> OffsetPosition:
        return OffsetPosition(self.base_offset + first, second)


class TimeIndex(SparseIndex[TimestampOffset]):
    NAME: ClassVar[str] = "time index"
    ENTRY: ClassVar[struct.Struct] = struct.Struct(">qi")

    def _parse(self, first: int, second: int) -> TimestampOffset:
        return TimestampOffset(first, self.base_offset + second)

    def _check_last(self, last: TimestampOffset) -> None:
        first_ms = self.entry(0).timestamp_ms
        if last.timestamp_ms < first_ms:
            raise self.corrupt(
                f"its last time is {last.timestamp_ms}, before its first, {first_ms}"
            )
        super()._check_last(last)


def base_offset_of(path: Path) -> int | None:
    """Return the offset at which a segment begins, from its name; None if the name has none."""
    found = SEGMENT_NAME.match(path.name)
    return None if found is None else int(found[1])
