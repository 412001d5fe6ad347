"""Buffers in Arrow's layout, filled by both cores; with pyarrow they become arrays.

Owner: none, they never change once they are filled.
Source: the Arrow columnar format, "Variable-size Binary Layout" and "Validity bitmaps".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from array import array
    from typing import TypeAlias

    Buffer: TypeAlias = bytes | bytearray | array[int]


class BinaryBuffers(NamedTuple):
    """An Arrow array of type binary or string, with 32-bit offsets; `validity` None: no nulls."""

    null_count: int
    validity: Buffer | None
    offsets: Buffer
    data: Buffer


class HeaderBuffers(NamedTuple):
    """An Arrow array of lists of headers, `header_count` in all."""

    header_count: int
    offsets: Buffer
    names: BinaryBuffers
    values: BinaryBuffers


class ArrowBuffers(NamedTuple):
    """Records in Arrow's layout; keys, values and headers only if requested.

    `offsets` and `timestamps_us` are 64-bit numbers. A time that does not fit in microseconds is
    null.
    """

    record_count: int
    keys: BinaryBuffers | None
    values: BinaryBuffers | None
    offsets: Buffer
    timestamps_us: Buffer
    timestamp_null_count: int
    timestamp_validity: Buffer | None
    headers: HeaderBuffers | None
