"""Records as an Arrow record batch: one array per field, over buffers that the core filled.

The only place that imports pyarrow, and only when it is called.

Owner: no state.
Source: the Arrow columnar format; the column names and types are those of Spark's Kafka source.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from pykclient import accel
from pykclient.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow

    from pykclient.accel.arrow_buffers import BinaryBuffers, Buffer
    from pykclient.consumer.record import RecordRun

__all__ = ["arrow_batch"]

_NUMBER: Final = Struct("=i")
_OFFSETS: Final = Struct("=ii")


def arrow_batch(runs: Sequence[RecordRun], *, include_headers: bool) -> pyarrow.RecordBatch:
    """Return the records of `runs`, in that order; no runs make an empty batch.

    Raises:
        UsageError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UsageError("poll_arrow needs pyarrow: pip install 'pykclient[arrow]'") from error

    def wrapped(buffer: Buffer | None) -> pa.Buffer | None:
        return None if buffer is None else pa.py_buffer(buffer)

    def binary(buffers: BinaryBuffers, count: int, kind: pa.DataType) -> pa.Array:
        parts = [wrapped(buffers.validity), wrapped(buffers.offsets), wrapped(buffers.data)]
        return pa.Array.from_buffers(kind, count, parts, buffers.null_count)

    def repeated(values: Iterable[bytes], kind: pa.DataType, *, has_sizes: bool) -> pa.Array:
        # A run has one topic, one partition; Arrow repeats it without an object per record. Made of
        # buffers, since `pa.scalar` and `pa.array` import pandas, which takes half a second.
        counts: list[tuple[bytes, int]] = [(b"", 0)]
        for value, run in zip(values, runs, strict=True):
            last_value, last_count = counts[-1]
            if last_value == value:
                counts[-1] = value, last_count + run.record_count
            else:
                counts.append((value, run.record_count))
        parts = []
        for value, repeat_count in counts[1:]:
            sizes = [pa.py_buffer(_OFFSETS.pack(0, len(value)))] if has_sizes else []
            once = pa.Array.from_buffers(kind, 1, [None, *sizes, pa.py_buffer(value)])
            parts.append(pa.repeat(once[0], repeat_count))
        if len(parts) == 1:
            return parts[0]
        return pa.concat_arrays(parts) if parts else pa.nulls(0, kind)

    filled = accel.arrow_buffers([run.columns for run in runs], include_headers=include_headers)
    count = filled.record_count
    columns = {
        "key": binary(filled.keys, count, pa.binary()),
        "value": binary(filled.values, count, pa.binary()),
        "topic": repeated(
            (run.partition.topic.encode() for run in runs), pa.string(), has_sizes=True
        ),
        "partition": repeated(
            (_NUMBER.pack(run.partition.partition) for run in runs), pa.int32(), has_sizes=False
        ),
        "offset": pa.Array.from_buffers(pa.int64(), count, [None, wrapped(filled.offsets)], 0),
        "timestamp": pa.Array.from_buffers(
            pa.timestamp("us", tz="UTC"),
            count,
            [wrapped(filled.timestamp_validity), wrapped(filled.timestamps_us)],
            filled.timestamp_null_count,
        ),
        "timestamp_type": repeated(
            (_NUMBER.pack(run.timestamp_type) for run in runs), pa.int32(), has_sizes=False
        ),
    }
    if filled.headers is not None:
        header_count = filled.headers.header_count
        names = binary(filled.headers.names, header_count, pa.string())
        values = binary(filled.headers.values, header_count, pa.binary())
        columns["headers"] = pa.Array.from_buffers(
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            count,
            [None, wrapped(filled.headers.offsets)],
            0,
            children=[pa.StructArray.from_arrays([names, values], ["key", "value"])],
        )
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
