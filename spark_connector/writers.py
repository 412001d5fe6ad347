"""The writers that Spark calls, of a batch and of a stream: both hand their rows to a `Sink`.

Spark makes a stream's writer twice for each micro-batch, to plan it and to commit it, each in a
process of its own, so nothing is kept on it; a batch's is pickled in between. Where rows are
written at least once there is nothing to commit or abort. Where they are written exactly once, a
writer that is planned gets a view of the sink's record, which travels to the tasks.

Owner: immutable once it is planned; pickled to the tasks.
Source: PySpark's Python data source API (``DataSourceArrowWriter`` and its twin for streams).
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter

from pykclient.errors import ConfigError
from spark_connector.exactly_once.driver import driver_of
from spark_connector.foreach_batch import QUERY_PROPERTY
from spark_connector.sent_to_tasks import SentToTasks
from spark_connector.shown_errors import cause_first
from spark_connector.sink import TOPIC_WAIT_S, Place, WrittenRows
from spark_connector.versions import DataSourceStreamArrowWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage

    from spark_connector.exactly_once.delivery import ExactDelivery
    from spark_connector.exactly_once.driver import SinkDriver
    from spark_connector.exactly_once.protocol import Report, View
    from spark_connector.sink import Sink

_LOG = logging.getLogger(__name__)

BATCH_PROPERTY: Final = "streaming.sql.batchId"
"""The local property of a task that has the number of its micro-batch."""

STREAM_SETTINGS: Final = (
    "spark.sql.cbo.enabled",
    "spark.sql.requireAllClusterKeysForDistribution",
)
"""Settings that Spark sets to false in the session in which it runs the batches of a query. A task
has the settings of its session as local properties; on Spark Connect nothing else shows that a
write is in foreachBatch.
Source: Spark's ``StreamExecution``.
"""

PLANNER: Final = "pyspark.sql.worker.write_into_data_source"
"""Spark's module that plans a write. It is not loaded where a stream's batch is committed."""


class KafkaBatchWriter(SentToTasks, DataSourceArrowWriter):
    """``df.write.format("pykafka").mode("append")``.

    Where rows are written exactly once, making it claims the sink. Raises: `KafkaError` where it
    cannot.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._view: View | None = None
        self._batch = -1
        self._is_answered = _is_answered(sink)
        if sink.exactly is not None:
            given = sink.exactly.batch
            view = self._view = _driver(sink).view(sink.first_response_s(given))
            self._batch = view.batch + 1 if given is None else given

    @cause_first()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Write one task's rows. Raises: what `Sink.write` and `Sink.write_exactly` raise."""
        if self._view is None:
            timeout_s = _first_response_s(self._sink, is_answered=self._is_answered)
            return self._sink.write(iterator, timeout_s)
        context = _task()
        assert self._sink.exactly is not None
        query = query_of(self._sink.exactly, context.getLocalProperty)
        place = _place(context, self._batch)._replace(query=query)
        return self._sink.write_exactly(iterator, self._view, place)

    @cause_first()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the tasks' exactly-once transactions.

        Raises: what `SinkDriver.commit` raises.
        """
        _note_too_large(self._sink, messages)
        _end(self._sink, messages, lambda driver, reports: driver.commit(self._batch, reports))

    @cause_first()
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the tasks' exactly-once transactions; other rows stay."""
        _end(self._sink, messages, lambda driver, reports: driver.abort(self._batch, reports))


class KafkaStreamWriter(SentToTasks, DataSourceStreamArrowWriter):
    """``df.writeStream.format("pykafka")``."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._view: View | None = None
        self._is_answered = _is_answered(sink)
        if sink.exactly is not None and sink.exactly.batch is not None:
            raise ConfigError(
                "Option 'batchId' is only valid for batch writes: Spark numbers the batches of a "
                "stream."
            )
        if sink.exactly is not None and sink.exactly.owner:
            raise ConfigError(
                "Option 'sinkOwner' is only valid in foreachBatch: a stream's sink belongs to the "
                "stream."
            )
        if PLANNER in sys.modules:
            # What it raises is shown as it is.
            self._plan()

    @cause_first()
    def __reduce__(self) -> tuple[Callable[[str, bytes], object], tuple[str, bytes]]:
        # Whatever process this is, tasks get a view, and who commits claims no sink.
        self._plan()
        return super().__reduce__()

    def _plan(self) -> None:
        if self._sink.exactly is not None and self._view is None:
            self._view = _driver(self._sink).view(self._sink.first_response_to_plan_s())

    @cause_first()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Write one task's rows. Raises: what `Sink.write` and `Sink.write_exactly` raise."""
        if self._view is None:
            timeout_s = _first_response_s(self._sink, is_answered=self._is_answered)
            return self._sink.write(iterator, timeout_s)
        context = _task()
        batch = int(context.getLocalProperty(BATCH_PROPERTY) or "")
        return self._sink.write_exactly(iterator, self._view, _place(context, batch))

    @cause_first()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the tasks' exactly-once transactions.

        Raises: what `SinkDriver.commit` raises.
        """
        _note_too_large(self._sink, messages)
        _end(self._sink, messages, lambda driver, reports: driver.commit(batchId, reports))

    @cause_first()
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort the tasks' exactly-once transactions.

        Otherwise rows stay, and the batch is repeated.
        """
        _end(self._sink, messages, lambda driver, reports: driver.abort(batchId, reports))


def query_of(exactly: ExactDelivery, property_of: Callable[[str], str | None]) -> str:
    """Return the query that a batch write belongs to, empty outside of foreachBatch.

    `property_of` returns a local property of the task, None if there is none.

    Raises: `ConfigError` for a write in foreachBatch without a number, or of an unknown query.
    """
    query = exactly.owner or property_of(QUERY_PROPERTY) or ""
    is_in_foreach_batch = property_of(BATCH_PROPERTY) is not None or all(
        property_of(name) == "false" for name in STREAM_SETTINGS
    )
    if not is_in_foreach_batch:
        return query
    if exactly.batch is None:
        raise ConfigError(
            "This write is in foreachBatch, and has no number: Spark may repeat the batch, and its "
            "rows would be written again. Use spark_connector.foreach_batch(options), or give the "
            "number that Spark passes as option 'batchId'."
        )
    if not query:
        raise ConfigError(
            "This write is in foreachBatch, and Spark Connect does not tell which query it is of: "
            "batches of another query with the same sinkId would be skipped. Use "
            "spark_connector.foreach_batch(options), or give the option 'sinkOwner', a name of the "
            "query: the same at each start, and another one for another checkpoint."
        )
    return query


def _driver(sink: Sink) -> SinkDriver:
    assert sink.exactly is not None
    return driver_of(sink.exactly, sink.client)


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are written in tasks"
    return context


def _is_answered(sink: Sink) -> bool:
    """Return False if this process plans a write and no broker responds to it.

    If rows are written exactly once, the plan itself fails then.
    """
    return PLANNER not in sys.modules or sink.exactly is not None or sink.is_answered()


def _first_response_s(sink: Sink, *, is_answered: bool) -> float | None:
    """Return the maximum wait of this task for a first response, None for no limit of its own.

    If brokers have not responded to the driver, the driver has waited already.
    """
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty(BATCH_PROPERTY)
    found = sink.first_response_s(None if batch is None else int(batch))
    return found if is_answered or found is None else TOPIC_WAIT_S


def _place(context: TaskContext, batch: int) -> Place:
    query = context.getLocalProperty(QUERY_PROPERTY) or ""
    return Place(batch, query, context.partitionId(), context.attemptNumber())


def _note_too_large(sink: Sink, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Warn on the driver of rows that were too large: tasks warn on their executors."""
    count = sum(each.too_large_count for each in messages if isinstance(each, WrittenRows))
    if count:
        _LOG.warning(
            "%d rows were too large and were not written: notes of them are in topic %r.",
            count,
            sink.too_large_topic,
        )


def _end(
    sink: Sink,
    messages: Sequence[WriterCommitMessage | None],
    end: Callable[[SinkDriver, Sequence[Report]], None],
) -> None:
    if sink.exactly is None:
        return
    reports = [
        message.report
        for message in messages
        if isinstance(message, WrittenRows) and message.report is not None
    ]
    end(_driver(sink), reports)
