"""Where in a segment an offset stands: some of its offsets with their positions, ascending.

Owner: whoever made it.
Source: Java class ``OffsetIndex``: four bytes of offset, counted from the segment's first, and four
of position.
"""

from __future__ import annotations

import struct
from typing import ClassVar, NamedTuple

from pykclient.records.sparse_index import SparseIndex

__all__ = ["OffsetIndex", "OffsetPosition"]


class OffsetPosition(NamedTuple):
    """The batch at byte `position` begins at `offset` or before it."""

    offset: int
    position: int


class OffsetIndex(SparseIndex[OffsetPosition]):
    """The entries of an ``.index`` file."""

    NAME: ClassVar[str] = "offset index"
    ENTRY: ClassVar[struct.Struct] = struct.Struct(">ii")

    def lookup(self, offset: int) -> OffsetPosition | None:
        """Find where to begin to look for `offset`; None means at the segment's start.

        Raises:
            CorruptIndexError: the file has become shorter since it was opened.
        """
        return self._last_up_to(offset)

    def _parse(self, first: int, second: int) -> OffsetPosition:
        return OffsetPosition(self.base_offset + first, second)

    def _key(self, number: int) -> int:
        return self.entry(number).offset

    def _check_last(self, first: OffsetPosition, last: OffsetPosition) -> None:
        if last.offset < self.base_offset:
            raise self.corrupt(
                f"its last offset is {last.offset}, and the segment begins at {self.base_offset}"
            )
