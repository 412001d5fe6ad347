"""Buffers in Arrow's layout, as both cores fill them; whoever has pyarrow makes arrays of them.

Owner: none, they never change once they are filled.
Source: the Arrow columnar format, "Variable-size Binary Layout" and "Validity bitmaps".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from array import array

    Buffer = bytes | bytearray | array[int]

__all__ = ["ArrowBuffers", "BinaryBuffers", "HeaderBuffers"]


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
    """Records in the layout of Arrow; `headers` only where they were asked for.

    `offsets` and `timestamps_us` are 64-bit numbers. A time that microseconds cannot hold is null.
    """

    record_count: int
    keys: BinaryBuffers
    values: BinaryBuffers
    offsets: Buffer
    timestamps_us: Buffer
    timestamp_null_count: int
    timestamp_validity: Buffer | None
    headers: HeaderBuffers | None
