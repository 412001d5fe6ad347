"""Buffers in Arrow's layout, as both cores fill them; whoever has pyarrow makes arrays of them.

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
    """An Arrow array of type binary or string, with 32-bit offsets; no `validity`: no nulls."""

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
    """Records in the layout of Arrow; keys, values and headers only where they are wanted.

    `offsets` and `timestamps_us` are 64-bit numbers. A time that microseconds cannot hold is null.
    """

    record_count: int
    keys: BinaryBuffers | None
    values: BinaryBuffers | None
    offsets: Buffer
    timestamps_us: Buffer
    timestamp_null_count: int
    timestamp_validity: Buffer | None
    headers: HeaderBuffers | None
