"""The two indexes beside a segment: entries of one size, ascending, found fast.

The offset index has the positions of some offsets, the time index the largest timestamp so far.

A broker makes an index file larger than it needs and cuts it when the segment is full, so the index
of the segment that it is writing ends in zeros; they are no entries. Nothing in an index is covered
by a checksum: what an entry says is a hint, to be checked against the segment.

Entries are read one at a time, as a search needs them: an index of any size costs the same memory,
and a file that a broker cuts in the meantime is an error and not a crash, as it would be mapped.

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
"""Reads a file: a position and a size in bytes -> the bytes there, fewer where the file ends."""


class CorruptIndexError(DecodeError):
    """An index of a segment cannot be right; a broker would make it anew from the segment."""


class OffsetPosition(NamedTuple):
    """The batch at byte `position` begins at `offset` or before it."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """A record later than `timestamp_ms` stands after `offset`."""

    timestamp_ms: int
    offset: int


E = TypeVar("E", OffsetPosition, TimestampOffset)


class SparseIndex(Generic[E]):
    """The entries of an index file of `size_bytes` bytes, of the segment that begins at an offset.

    They ascend by their first number.

    Raises:
        CorruptIndexError: the file does not end at the end of an entry, or its last entry is before
            the segment, or, in time, before the first.
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
        """Find the entry from which to look for an offset or a time; None is the segment's start.

        Raises:
            CorruptIndexError: the file has become shorter since it was opened.
        """
        numbers = range(self._entry_count)
        number = bisect_right(numbers, sought, key=lambda number: self.entry(number)[0]) - 1
        return self.entry(number) if number >= 0 else None

    def corrupt(self, reason: str) -> CorruptIndexError:
        """Return the error that says what is wrong with this index, and the way round it."""
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
        """Make an entry of its two numbers."""
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
    """Return the offset at which a segment begins, which is its name; None when it is not."""
    found = SEGMENT_NAME.match(path.name)
    return None if found is None else int(found[1])
