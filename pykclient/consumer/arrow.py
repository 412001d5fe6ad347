"""Records as an Arrow record batch: one array per field, built from columns, not record by record.

The only place that imports pyarrow, and only when it is called.

Owner: no state.
Source: the Arrow columnar format; the column names and types are those of Spark's Kafka source.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from pykclient.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow

    from pykclient.consumer.record import RecordRun

__all__ = ["arrow_batch"]

TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000
"""The latest time that microseconds in 64 bits can hold; Kafka's milliseconds go further."""


def arrow_batch(runs: Sequence[RecordRun], *, include_headers: bool) -> pyarrow.RecordBatch:
    """Return the records of `runs`, in that order; no runs make an empty batch.

    Raises:
        UsageError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UsageError("poll_arrow needs pyarrow: pip install 'pykclient[arrow]'") from error

    def joined(columns: Iterable[Iterable[object]], kind: pa.DataType) -> pa.Array:
        return pa.array(list(chain.from_iterable(columns)), kind)

    def repeated(values: Iterable[object], kind: pa.DataType) -> pa.Array:
        # A run has one topic, one partition; Arrow repeats it without an object per record.
        parts = [
            pa.repeat(pa.scalar(value, kind), run.record_count)
            for value, run in zip(values, runs, strict=True)
        ]
        return pa.concat_arrays(parts) if parts else pa.array([], kind)

    def timestamps() -> pa.Array:
        milliseconds = joined((run.columns.timestamps_ms for run in runs), pa.int64())
        try:
            return milliseconds.cast(pa.timestamp("ms", tz="UTC")).cast(kind_of_time)
        except pa.ArrowInvalid:
            held = [
                time_ms * 1000 if abs(time_ms) <= TIMESTAMP_MS_MAX else None
                for time_ms in milliseconds.to_pylist()
            ]
            return pa.array(held, kind_of_time)

    kind_of_time = pa.timestamp("us", tz="UTC")
    columns = {
        "key": joined((run.columns.keys for run in runs), pa.binary()),
        "value": joined((run.columns.values for run in runs), pa.binary()),
        "topic": repeated((run.partition.topic for run in runs), pa.string()),
        "partition": repeated((run.partition.partition for run in runs), pa.int32()),
        "offset": joined((run.columns.offsets for run in runs), pa.int64()),
        "timestamp": timestamps(),
        "timestamp_type": repeated((int(run.timestamp_type) for run in runs), pa.int32()),
    }
    if include_headers:
        header = pa.struct([("key", pa.string()), ("value", pa.binary())])
        columns["headers"] = joined((run.columns.headers for run in runs), pa.list_(header))
    return pa.RecordBatch.from_pydict(columns)
