"""Where in a segment a time stands: the largest timestamp so far at some of its offsets.

Owner: whoever made it.
Source: Java class ``TimeIndex``; KIP-33: eight bytes of timestamp, and four of offset, counted from
the segment's first.
"""

from __future__ import annotations

import struct
from typing import ClassVar, NamedTuple

from pykclient.records.sparse_index import SparseIndex

__all__ = ["TimeIndex", "TimestampOffset"]


class TimestampOffset(NamedTuple):
    """A record later than `timestamp_ms` stands after `offset`."""

    timestamp_ms: int
    offset: int


class TimeIndex(SparseIndex[TimestampOffset]):
    """The entries of a ``.timeindex`` file."""

    NAME: ClassVar[str] = "time index"
    ENTRY: ClassVar[struct.Struct] = struct.Struct(">qi")

    def lookup(self, timestamp_ms: int) -> TimestampOffset | None:
        """Find after which offset to look for a time; None means at the segment's start.

        Raises:
            CorruptIndexError: the file has become shorter since it was opened.
        """
        return self._last_up_to(timestamp_ms)

    def _parse(self, first: int, second: int) -> TimestampOffset:
        return TimestampOffset(first, self.base_offset + second)

    def _key(self, number: int) -> int:
        return self.entry(number).timestamp_ms

    def _check_last(self, first: TimestampOffset, last: TimestampOffset) -> None:
        if last.timestamp_ms < first.timestamp_ms:
            raise self.corrupt(
                f"its last time is {last.timestamp_ms}, before its first, {first.timestamp_ms}"
            )
        if last.offset < self.base_offset:
            raise self.corrupt(
                f"its last offset is {last.offset}, and the segment begins at {self.base_offset}"
            )
