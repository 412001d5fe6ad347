"""ListColumns: the records of one batch as lists, one for each field.

Owner: none, it never changes.
Source: the contract is `accel.abc.RecordColumns`.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pykclient.types import Headers

__all__ = ["ListColumns"]


class ListColumns:
    """Records of one batch, one sequence per field, all of the same length.

    `size_bytes` is an upper bound of what keys, values and headers take together.
    """

    __slots__ = ("headers", "keys", "offsets", "size_bytes", "timestamps_ms", "values")

    def __init__(
        self,
        offsets: Sequence[int],
        timestamps_ms: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[Headers],
        *,
        size_bytes: int,
    ) -> None:
        self.offsets = offsets
        self.timestamps_ms = timestamps_ms
        self.keys = keys
        self.values = values
        self.headers = headers
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[tuple[int, int, bytes | None, bytes | None, Headers]]:
        return zip(
            self.offsets, self.timestamps_ms, self.keys, self.values, self.headers, strict=True
        )

    @property
    def first_offset(self) -> int:
        return self.offsets[0]

    @property
    def last_offset(self) -> int:
        return self.offsets[-1]

    def find(self, offset: int) -> int:
        return bisect_left(self.offsets, offset)

    def rows(self, start: int, stop: int | None = None) -> ListColumns:
        return ListColumns(
            self.offsets[start:stop],
            self.timestamps_ms[start:stop],
            self.keys[start:stop],
            self.values[start:stop],
            self.headers[start:stop],
            size_bytes=self.size_bytes,
        )
