"""KafkaBatchReader: plans one batch query; its tasks read the ranges.

`partitions` runs on the driver, once for each frame, however often the frame is used: it finds the
partitions, resolves the limits to offsets and cuts the ranges. Where the read begins or ends at an
edge of the log, the tasks look that edge up in every action.

Owner: the reader is immutable and pickled to the tasks.
Source: PySpark's Python data source API (``DataSourceReader``).
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_connector.cluster import Cluster
from spark_connector.offsets import batch_ranges, task_ranges
from spark_connector.range_reader import read_ranges
from spark_connector.schema import check_projection
from spark_connector.sent_to_tasks import SentToTasks
from spark_connector.shown_errors import cause_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from spark_connector.options import KafkaOptions


class KafkaBatchReader(SentToTasks, DataSourceReader):
    """The reader of the topics that `options` select, in the columns of `schema`.

    Raises: `ConfigError` if `schema` has a column that records do not have.
    """

    def __init__(self, options: KafkaOptions, schema: StructType) -> None:
        check_projection(schema, include_headers=options.include_headers)
        self._options = options
        self._schema = schema

    @cause_first()
    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges of offsets of each task, mostly one.

        Raises: `ConfigError` and `DataLossError` (see `batch_ranges`), and what the clients raise:
        a topic that does not exist, no connection, a timeout.
        """
        options = self._options
        with closing(Cluster(options)) as cluster:
            partitions = cluster.topics().partitions
            starts, ends = (
                limit.offsets(partitions, cluster.offsets_at, cluster.committed)
                for limit in (options.starting, options.ending)
            )
            # After the times were looked up, so that what they found is held by now.
            bounds = cluster.bounds(ends)
        ranges = batch_ranges(
            options.starting.clamped(starts, bounds),
            options.ending.clamped(ends, bounds),
            bounds,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        return [InputPartition(task) for task in task_ranges(ranges, options.tasks)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task.

        Spark passes None if there is no range at all; PySpark 4.0 then passes no partition.
        """
        if partition is None or partition.value is None:
            return iter(())
        return read_ranges(partition.value, self._options, self._schema)
