"""RowsChecksum: a checksum of the rows of one task, by which a repeat is compared with the first.

It covers the content of each column and the order of rows. It does not depend on how rows are cut
into Arrow batches, nor on padding: lengths, bytes and nulls of each column are streams of their
own, each with a CRC-32, which go on from batch to batch. Nothing runs per row.

Owner: one task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator


class RowsChecksum:
    """See the module."""

    def __init__(self) -> None:
        self._streams: dict[str, int] = {}

    def add(self, table: pa.Table) -> None:
        """Add the next rows."""
        for name, column in zip(table.column_names, table.columns, strict=True):
            for chunk in column.chunks:
                for stream, data in _streams(name, chunk):
                    self._streams[stream] = crc32(data, self._streams.get(stream, 0))

    @property
    def value(self) -> int:
        """The checksum of all rows so far, 32 bits."""
        return crc32(repr(sorted(self._streams.items())).encode())


def _streams(name: str, array: pa.Array) -> Iterator[tuple[str, pa.Buffer]]:
    """Yield the streams of a column, and what an array adds to each."""
    yield f"{name} valid", _fixed(pc.is_valid(array).cast(pa.uint8()))
    if array.null_count:
        array = array.drop_null()
    kind = array.type
    if pa.types.is_list(kind):
        yield f"{name} lengths", _fixed(pc.list_value_length(array))
        yield from _streams(f"{name} items", cast("pa.ListArray[pa.Scalar]", array).flatten())
    elif pa.types.is_struct(kind):
        parts = cast("pa.StructArray", array).flatten()
        for field, part in zip(kind, parts, strict=True):
            yield from _streams(f"{name}.{field.name}", part)
    elif kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        yield f"{name} lengths", _fixed(pc.binary_length(array))
        yield f"{name} bytes", _bytes(array)
    else:
        yield f"{name} values", _fixed(array)


def _fixed(array: pa.Array) -> pa.Buffer:
    """Return the values of an array without nulls whose values have one width."""
    width = array.type.bit_width // 8
    buffer = array.buffers()[-1]
    if buffer is None:  # of no rows
        return pa.py_buffer(b"")
    return buffer.slice(array.offset * width, len(array) * width)


def _bytes(array: pa.Array) -> pa.Buffer:
    """Return the bytes of an array of texts without nulls."""
    _, offsets, data = array.buffers()
    if offsets is None or data is None:
        return pa.py_buffer(b"")
    is_large = array.type in (pa.large_string(), pa.large_binary())
    places = pa.Array.from_buffers(
        pa.int64() if is_large else pa.int32(),
        len(array) + 1,
        [None, offsets],
        offset=array.offset,
    )
    first, last = places[0].as_py(), places[-1].as_py()
    return data.slice(first, last - first)
