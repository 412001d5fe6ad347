"""The writers that Spark calls, of a batch and of a stream: both hand their rows to a `Sink`.

Spark makes a stream's writer twice for each micro-batch, so nothing is kept on it. There is nothing
to commit or abort: rows are delivered at least once.

Owner: immutable, pickled to the tasks.
Source: PySpark's Python data source API (``DataSourceArrowWriter`` and its twin for streams).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from spark_connector.sent_to_tasks import SentToTasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage

    from spark_connector.sink import Sink, WrittenRows


class KafkaBatchWriter(SentToTasks, DataSourceArrowWriter):
    """``df.write.format("pykafka").mode("append")``."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Write one task's rows. Raises: what `Sink.write` raises."""
        return self._sink.write(iterator)


class KafkaStreamWriter(SentToTasks, DataSourceStreamArrowWriter):
    """``df.writeStream.format("pykafka")``."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Write one task's rows. Raises: what `Sink.write` raises."""
        return self._sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: all rows of a batch that succeeded are acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: rows that were written stay, and the batch is repeated."""
