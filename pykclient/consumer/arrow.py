"""Arrow record batches from records: one array per column, over buffers that the core filled.

This is the only module of the consumer that imports pyarrow, and only when it is called.

Owner: none, it has no state.
Source: the Arrow columnar format; the column names and types are those of Spark's Kafka source.
"""

from __future__ import annotations

from itertools import groupby
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeVar

from pykclient import accel
from pykclient.arguments import name_list, shown_argument
from pykclient.config.unknown_keys import did_you_mean
from pykclient.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import pyarrow

    from pykclient.accel.arrow_buffers import BinaryBuffers, Buffer, HeaderBuffers
    from pykclient.consumer.record import RecordSpan

T = TypeVar("T")

_NUMBER: Final = Struct("=i")

COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "headers",
)


def arrow_batch(spans: Sequence[RecordSpan], wanted: Collection[str]) -> pyarrow.RecordBatch:
    """Return the records of `spans` in order, with the `wanted` columns in the order of `COLUMNS`.

    Without spans the batch is empty.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UsageError("poll_arrow needs pyarrow: pip install pyarrow") from error

    filled = accel.arrow_buffers([span.columns for span in spans], wanted=wanted)
    count = filled.record_count
    times = [filled.timestamp_validity, filled.timestamps_us]
    makers: dict[str, Callable[[], pyarrow.Array]] = {
        "key": lambda: _binary(pa.binary(), count, filled.keys),
        "value": lambda: _binary(pa.binary(), count, filled.values),
        "topic": lambda: _topics(spans, count),
        "partition": lambda: _numbers(_runs(spans, lambda span: span.partition.partition), count),
        "offset": lambda: _array(pa.int64(), count, [None, filled.offsets], 0),
        "timestamp": lambda: _array(
            pa.timestamp("us", tz="UTC"), count, times, filled.timestamp_null_count
        ),
        "timestamp_type": lambda: _numbers(_runs(spans, lambda span: span.timestamp_type), count),
        "headers": lambda: _headers(count, filled.headers),
    }
    names = [name for name in COLUMNS if name in wanted]
    return pa.RecordBatch.from_arrays([makers[name]() for name in names], names=names)


def wanted_columns(columns: Iterable[str] | None, *, include_headers: bool) -> frozenset[str]:
    """Return the columns that a call names; None is all except the headers.

    Raises:
        UsageError: a column is unknown.
    """
    if columns is None:
        return frozenset(COLUMNS if include_headers else COLUMNS[:-1])
    wanted = frozenset(name_list(columns, "column", "poll_arrow"))
    if not wanted:
        raise UsageError(f"poll_arrow: columns is empty; use some of {', '.join(COLUMNS)}")
    for name in wanted.difference(COLUMNS):
        raise UsageError(
            f"poll_arrow: unknown column {shown_argument(name)}.{did_you_mean(name, COLUMNS)} "
            f"The columns are {', '.join(COLUMNS)}"
        )
    return wanted | {"headers"} if include_headers else wanted


# Arrays are created from buffers only: `pyarrow.array` and `pyarrow.scalar` import pandas if it is
# installed, which takes half a second.


def _array(
    kind: pyarrow.DataType, count: int, buffers: Sequence[Buffer | None], null_count: int
) -> pyarrow.Array:
    import pyarrow as pa

    parts = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    return pa.Array.from_buffers(kind, count, parts, null_count)


def _topics(spans: Sequence[RecordSpan], count: int) -> pyarrow.Array:
    import pyarrow as pa

    runs = _runs(spans, lambda span: span.partition.topic)
    return _binary(pa.string(), count, accel.repeated([(name.encode(), n) for name, n in runs]))


def _binary(kind: pyarrow.DataType, count: int, filled: BinaryBuffers | None) -> pyarrow.Array:
    assert filled is not None
    parts = [filled.validity, filled.offsets, filled.data]
    return _array(kind, count, parts, filled.null_count)


def _headers(count: int, filled: HeaderBuffers | None) -> pyarrow.Array:
    assert filled is not None
    import pyarrow as pa

    fields = [("key", pa.string()), ("value", pa.binary())]
    names = _binary(pa.string(), filled.header_count, filled.names)
    values = _binary(pa.binary(), filled.header_count, filled.values)
    pairs = pa.StructArray.from_arrays([names, values], [name for name, _ in fields])
    parts = [None, pa.py_buffer(filled.offsets)]
    return pa.Array.from_buffers(pa.list_(pa.struct(fields)), count, parts, 0, children=[pairs])


def _runs(spans: Sequence[RecordSpan], value: Callable[[RecordSpan], T]) -> Iterator[tuple[T, int]]:
    """Yield each value that consecutive spans share, with their number of records."""
    for same, of_spans in groupby(spans, value):
        yield same, sum(span.record_count for span in of_spans)


def _numbers(runs: Iterable[tuple[int, int]], count: int) -> pyarrow.Array:
    """Repeat each number `times`, without an object per record."""
    import pyarrow as pa

    data = b"".join([_NUMBER.pack(number) * times for number, times in runs])
    return _array(pa.int32(), count, [None, data], 0)
