"""Records as an Arrow record batch: one array per field, over buffers that the core filled.

The only place that imports pyarrow, and only when it is called.

Owner: no state.
Source: the Arrow columnar format; the column names and types are those of Spark's Kafka source.
"""

from __future__ import annotations

from itertools import groupby
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeVar

from pykclient import accel
from pykclient.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow

    from pykclient.accel.arrow_buffers import BinaryBuffers, Buffer, HeaderBuffers
    from pykclient.consumer.record import RecordSpan

__all__ = ["arrow_batch"]

T = TypeVar("T")

_NUMBER: Final = Struct("=i")


def arrow_batch(spans: Sequence[RecordSpan], *, include_headers: bool) -> pyarrow.RecordBatch:
    """Return the records of `spans`, in that order; no spans make an empty batch."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UsageError("poll_arrow needs pyarrow: pip install 'pykclient[arrow]'") from error

    filled = accel.arrow_buffers([span.columns for span in spans], include_headers=include_headers)
    count = filled.record_count
    times = [filled.timestamp_validity, filled.timestamps_us]
    time_type = pa.timestamp("us", tz="UTC")
    topics = accel.repeated(
        [(name.encode(), times) for name, times in _runs(spans, lambda span: span.partition.topic)]
    )
    columns = {
        "key": _binary(pa.binary(), count, filled.keys),
        "value": _binary(pa.binary(), count, filled.values),
        "topic": _binary(pa.string(), count, topics),
        "partition": _numbers(_runs(spans, lambda span: span.partition.partition), count),
        "offset": _array(pa.int64(), count, [None, filled.offsets], 0),
        "timestamp": _array(time_type, count, times, filled.timestamp_null_count),
        "timestamp_type": _numbers(_runs(spans, lambda span: span.timestamp_type), count),
    }
    if filled.headers is not None:
        columns["headers"] = _headers(count, filled.headers)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


# Arrays are made of buffers only: `pyarrow.array` and `pyarrow.scalar` import pandas where it is
# installed, which takes half a second.


def _array(
    kind: pyarrow.DataType, count: int, buffers: Sequence[Buffer | None], null_count: int
) -> pyarrow.Array:
    import pyarrow as pa

    parts = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    return pa.Array.from_buffers(kind, count, parts, null_count)


def _binary(kind: pyarrow.DataType, count: int, filled: BinaryBuffers) -> pyarrow.Array:
    parts = [filled.validity, filled.offsets, filled.data]
    return _array(kind, count, parts, filled.null_count)


def _headers(count: int, filled: HeaderBuffers) -> pyarrow.Array:
    import pyarrow as pa

    fields = [("key", pa.string()), ("value", pa.binary())]
    names = _binary(pa.string(), filled.header_count, filled.names)
    values = _binary(pa.binary(), filled.header_count, filled.values)
    pairs = pa.StructArray.from_arrays([names, values], [name for name, _ in fields])
    parts = [None, pa.py_buffer(filled.offsets)]
    return pa.Array.from_buffers(pa.list_(pa.struct(fields)), count, parts, 0, children=[pairs])


def _runs(spans: Sequence[RecordSpan], value: Callable[[RecordSpan], T]) -> Iterator[tuple[T, int]]:
    """Yield what spans that follow one another have in common, and how many records they have."""
    for same, of_spans in groupby(spans, value):
        yield same, sum(span.record_count for span in of_spans)


def _numbers(runs: Iterable[tuple[int, int]], count: int) -> pyarrow.Array:
    """Repeat each number as often as the one beside it says, without an object per record."""
    import pyarrow as pa

    data = b"".join([_NUMBER.pack(number) * times for number, times in runs])
    return _array(pa.int32(), count, [None, data], 0)
