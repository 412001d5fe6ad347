"""KafkaStreamReader: the source of ``spark.readStream``.

One instance lives in a process of the driver for as long as the query and plans its micro-batches
(`StreamPlanner`); others are pickled to the tasks, which only read. Spark hides an error that is
raised while a stream reader is made, so options are checked by the first call after it.

Owner: Spark's planning process, or one task.
Source: PySpark's Python data source API (``DataSourceStreamReader``).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_connector.cluster import Cluster
from spark_connector.offsets import StreamOffset, offsets_as_json, task_ranges
from spark_connector.options import LONG_MAX, KafkaOptions, Use
from spark_connector.range_reader import read_ranges
from spark_connector.schema import check_projection
from spark_connector.sent_to_tasks import SentToTasks
from spark_connector.shown_errors import cause_first
from spark_connector.stream_planner import StreamPlanner
from spark_connector.versions import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from spark_connector.versions import ReadLimit


class KafkaStreamReader(SentToTasks, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of the topics that `given`, the options of one ``load()``, select.

    The checkpoint has the format of Spark's own Kafka source, so a query may move between both.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._given = dict(given)
        self._schema = schema

    # Called in the driver's process.

    @cause_first()
    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that Spark passes to `latestOffset`, except for `Trigger.Once`."""
        limits = self._options.stream
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        if limits.topic_offsets_max is not None:
            return ReadMaxRows(min(sum(limits.topic_offsets_max.values()), LONG_MAX))
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        if limits.offsets_min is not None:
            return ReadMinRows(limits.offsets_min)
        return ReadAllAvailable()

    @cause_first()
    def prepareForTriggerAvailableNow(self) -> None:
        """Stop the query at the ends that its first batch finds."""
        self._planner.stop_at_present_ends()

    @cause_first()
    def initialOffset(self) -> dict[str, dict[str, int]]:
        """Return the start of a new query, which Spark logs with the first batch."""
        return self._planner.initial_offset().as_json()

    @cause_first()
    def latestOffset(
        self, start: dict[str, dict[str, int]], limit: ReadLimit
    ) -> dict[str, dict[str, int]]:
        """Return the end of the next batch; `start` if there is nothing new.

        Spark compares offsets as text.
        """
        begin = StreamOffset.from_json(start)
        is_limited = not isinstance(limit, ReadAllAvailable)
        end = self._planner.next_offset(begin, is_limited=is_limited)
        return start if end is begin else end.as_json()

    @cause_first()
    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:
        """Return the last known ends, for the query's progress."""
        return offsets_as_json(self._planner.known_ends()) or None

    @cause_first()
    def partitions(
        self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]
    ) -> Sequence[InputPartition]:
        """Return the ranges of each task of a batch, mostly one."""
        ranges = self._planner.ranges(StreamOffset.from_json(start), StreamOffset.from_json(end))
        return [InputPartition(task) for task in task_ranges(ranges, self._options.tasks)]

    def commit(self, end: dict[str, dict[str, int]]) -> None:
        """Do nothing: `latestOffset` gets the same offsets earlier."""

    def stop(self) -> None:
        """Close the connections. Spark ends the process of a query without calling this."""
        if "_planner" in self.__dict__:
            self._planner.close()

    # Called in a task.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        return read_ranges(partition.value, self._options, self._schema)

    @cached_property
    def _options(self) -> KafkaOptions:
        options = KafkaOptions.from_spark(self._given, Use.STREAM)
        check_projection(self._schema, include_headers=options.include_headers)
        return options

    @cached_property
    def _planner(self) -> StreamPlanner:
        return StreamPlanner(self._options, Cluster(self._options))
