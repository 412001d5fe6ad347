"""The differences between versions of PySpark: everything else is written for the newest.

PySpark 4.0 and 4.1 lack parts of the Python data source API of 4.2. What a module of this package
imports of them comes from here, and `stream_reader_for_spark` adapts a stream reader to what the
installed PySpark calls.

- 4.0 has no ``DataSourceStreamArrowWriter``. Its worker passes Arrow batches to every
  ``DataSourceArrowWriter``, in a stream too.
- 4.0 and 4.1 have no limits for a micro-batch. `SelfLimitedReader` keeps them.

Owner: none, everything is immutable; a `SelfLimitedReader` has that of its reader.
Source: ``pyspark/sql/datasource.py`` and ``pyspark/sql/worker`` of PySpark 4.0.0 to 4.3.0; Spark's
classes ``MicroBatchExecution``, ``PythonMicroBatchStream`` and ``AvailableNowDataStreamWrapper``.
"""

from __future__ import annotations

import ast
import json
import logging
import re
from typing import TYPE_CHECKING, Final

import pyspark

OLDEST: Final = (4, 0)
"""The first PySpark with Python data sources of this form."""

_LOG = logging.getLogger(__name__)


def parsed_version(text: str) -> tuple[int, int]:
    """Return major and minor version; a text that is not a version counts as the newest.

    Raises: ImportError for a version before `OLDEST`.
    """
    found = re.match(r"(\d+)\.(\d+)", text)
    version = (1_000, 0) if found is None else (int(found[1]), int(found[2]))
    if version < OLDEST:
        raise ImportError(
            f"Format 'pykafka' needs PySpark {'.'.join(map(str, OLDEST))} or newer, and this is "
            f"{text}: pip install --upgrade 'pyspark[connect]'"
        )
    return version


PYSPARK: Final = parsed_version(pyspark.__version__)
"""Major and minor version of the installed PySpark."""

HAS_READ_LIMITS: Final = PYSPARK >= (4, 2)
"""Spark passes the start and the limit of a micro-batch to a stream reader."""

# Imported below the check: a PySpark before 4.0 has no such module.
from pyspark.sql.datasource import (  # noqa: E402
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
)

if TYPE_CHECKING or PYSPARK >= (4, 1):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """A stream writer to which PySpark 4.0 passes Arrow batches."""


if TYPE_CHECKING or HAS_READ_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:
    from abc import ABC
    from dataclasses import dataclass

    class ReadLimit:
        """A limit of a micro-batch."""

    @dataclass
    class ReadAllAvailable(ReadLimit):
        """No limit."""

    @dataclass
    class ReadMinRows(ReadLimit):
        """The fewest rows of a micro-batch."""

        min_rows: int

    @dataclass
    class ReadMaxRows(ReadLimit):
        """The most rows of a micro-batch."""

        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):
        """The most bytes of a micro-batch."""

        max_bytes: int

    class SupportsTriggerAvailableNow(ABC):  # noqa: B024 - as PySpark's, of which it takes the place
        """The mark of a reader that may end a query; this PySpark does not look for it."""


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from spark_connector.stream_reader import KafkaStreamReader

    Offset = dict[str, dict[str, int]]

__all__ = [
    "DataSource",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "SelfLimitedReader",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "offset_of_progress",
    "register_source",
    "stream_reader_for_spark",
]


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark takes for `schema`, with timestamps in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if HAS_READ_LIMITS:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


def stream_reader_for_spark(reader: KafkaStreamReader) -> DataSourceStreamReader:
    """Return the reader in the form that the installed PySpark calls."""
    return reader if HAS_READ_LIMITS else SelfLimitedReader(reader)


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Make a source known to a session, again or for the first time.

    PySpark 4.0 refuses a source that it has found by itself; the session then knows it already.
    """
    from pyspark.errors import PySparkException

    try:
        spark.dataSource.register(source)
    except PySparkException as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def offset_of_progress(text: str | None) -> object:
    """Return an offset of a query's progress, None if there is none.

    If the progress was made from JSON, PySpark 4.0 and 4.1 return the text of a Python dict, not
    JSON.

    Raises: ValueError if the text is neither.
    """
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError:
        try:
            return ast.literal_eval(text)
        except (SyntaxError, RecursionError) as error:
            raise ValueError(f"no offset: {text[:100]!r}") from error


class SelfLimitedReader(DataSourceStreamReader):
    """A stream reader that finds start and limit of each micro-batch itself.

    PySpark 4.0 and 4.1 pass neither to `latestOffset`. The start is where the last batch ended:
    Spark plans each end that it gets before it requests another one. A process that goes on from
    a checkpoint gets the last end of the log first, by `partitions` without a range; one that gets
    none begins a new query. So the start is what Spark's log says, and nothing else is kept.

    An end that is cut also has the ends that topics have, since this Spark has no other place for
    them in its progress.
    """

    def __init__(self, reader: KafkaStreamReader) -> None:
        self._reader = reader
        self._last: Offset | None = None
        """The last end that Spark received or showed."""
        self._has_ended_one = False
        self._has_warned = False

    # Called in the driver's process.

    def initialOffset(self) -> Offset:
        """Return the start of a new query."""
        return self._reader.initialOffset()

    def latestOffset(self) -> Offset:  # type: ignore[override]  # as PySpark 4.0 calls it
        """Return the end of the next batch, within the limits."""
        from spark_connector.offsets import with_known_ends

        start = self.initialOffset() if self._last is None else self._last
        limit = self._reader.getDefaultReadLimit()
        end = self._reader.latestOffset(start, limit)
        if end is not start and not isinstance(limit, ReadAllAvailable):
            whole = with_known_ends(end, self._reader.reportLatestOffset() or {})
            if whole != end:
                self._warn_of_single_batches()
            end = whole
        self._last, self._has_ended_one = end, True
        return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the ranges of each task of a batch.

        Raises: `UsageError` if Spark does not plan the last end that it got, which happens with one
        setting only.
        """
        if self._has_ended_one and end != self._last:
            from pykclient.errors import UsageError

            raise UsageError(
                f"Spark plans a batch up to another end than it got from this source. PySpark "
                f"{pyspark.__version__} does so with the trigger availableNow and "
                f"spark.sql.streaming.triggerAvailableNowWrapper.enabled=true: set it to false."
            )
        self._last = end
        return self._reader.partitions(start, end)

    def stop(self) -> None:
        """Close the connections."""
        self._reader.stop()

    def _warn_of_single_batches(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "A micro-batch was cut: there is more than the options allow it. PySpark %s runs "
                "the triggers availableNow and once as one batch, so a query with one of them ends "
                "here, and its next run reads on. Leave out maxOffsetsPerTrigger and "
                "maxBytesPerTrigger there, or use PySpark 4.2. Other triggers read on at once.",
                pyspark.__version__,
            )

    # Called in a task.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the records of one task."""
        return self._reader.read(partition)
