"""KafkaBatchReader: plans one batch query and reads its partitions.

`partitions` runs once, on the driver: it finds the partitions, resolves the limits to offsets and
cuts the ranges. `read` runs in a task: it assigns one partition to a consumer of its own and hands
Arrow batches on until the end of the range. A task does not look up offsets again, unless records
have gone in between.

Owner: the reader is immutable and pickled to the tasks; a task owns its consumer.
Source: PySpark's Python data source API (``DataSourceReader``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from pykclient import Consumer
from pykclient.errors import KafkaTimeoutError, OffsetOutOfRangeError
from spark_connector.consumer_log import ConsumerLog
from spark_connector.offsets import report_data_loss, resolve_ranges, split_ranges
from spark_connector.schema import HEADERS, check_projection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

    from spark_connector.offsets import OffsetRange
    from spark_connector.options import KafkaOptions

__all__ = ["KafkaBatchReader", "RecordColumns"]

_CONSUMER_NAMES: Final = {"timestampType": "timestamp_type"}
"""Columns that the consumer calls otherwise."""


class KafkaBatchReader(DataSourceReader):
    """Reads what `options` choose, in the columns of `schema`.

    Raises: `ConfigError` when `schema` has a column that records do not have.
    """

    def __init__(self, options: KafkaOptions, schema: StructType) -> None:
        check_projection(schema, include_headers=options.include_headers)
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """One range of offsets for each task.

        Raises: `ConfigError` and `DataLossError` (see `resolve_ranges`), and what the clients
        raise: a topic that does not exist, no connection, a time-out.
        """
        options = self._options
        with Consumer(options.consumer_settings()) as consumer:
            log = ConsumerLog(consumer)
            ranges = resolve_ranges(
                options.starting,
                options.ending,
                log.bounds(log.partitions(options.choice)),
                log.offsets_at,
                fail_on_data_loss=options.fail_on_data_loss,
            )
        parts = split_ranges(
            ranges,
            records_per_partition_max=options.records_per_partition_max,
            partitions_min=options.partitions_min,
        )
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range. Spark passes None where there is no range at all.

        Raises: `DataLossError`, `KafkaTimeoutError` when nothing came for
        `kafkaConsumer.pollTimeoutMs`, and what `Consumer.poll_arrow` raises.
        """
        if partition.value is None:
            return
        with Consumer(self._options.consumer_settings()) as consumer:
            yield from _RangeRead(consumer, partition.value, self._options).batches(
                RecordColumns(self._schema)
            )


class _RangeRead:
    def __init__(self, consumer: Consumer, wanted: OffsetRange, options: KafkaOptions) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._options = options

    def batches(self, columns: RecordColumns) -> Iterator[pa.RecordBatch]:
        consumer, (partition, start, end) = self._consumer, self._wanted
        consumer.assign([partition])
        consumer.seek(partition, start)
        while (position := consumer.position(partition)) < end:
            try:
                batch = consumer.poll_arrow(
                    self._options.poll_timeout_ms / 1_000,
                    self._options.batch_rows,
                    until={partition: end},
                    include_headers=columns.has_headers,
                )
            except OffsetOutOfRangeError as error:
                self._skip_lost(position, error)
                continue
            if batch.num_rows:
                yield columns.pick(batch)
            elif consumer.position(partition) == position:
                raise KafkaTimeoutError(
                    f"{self._wanted}: no record came from offset {position} on within "
                    f"{self._options.poll_timeout_ms} ms (option kafkaConsumer.pollTimeoutMs)."
                )

    def _skip_lost(self, position: int, error: OffsetOutOfRangeError) -> None:
        """Go on where the log begins now; raise when that is not allowed, or would not help."""
        partition = self._wanted.partition
        held = ConsumerLog(self._consumer).bounds([partition])[partition]
        if held.beginning <= position < held.end:
            raise error
        report_data_loss(
            f"{self._wanted} was read up to offset {position}, then {partition} held only "
            f"[{held.beginning}, {held.end}): records were aged out, or the topic was made again.",
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        is_behind = position < held.beginning
        self._consumer.seek(partition, held.beginning if is_behind else self._wanted.end)


class RecordColumns:
    """The columns of one query: picked from those that a consumer returns and, where types differ,
    cast. Spark takes exactly the names, order, types and nullability of the query's schema."""

    def __init__(self, schema: StructType) -> None:
        self.schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self.has_headers: bool = HEADERS in schema.names
        self._names = [_CONSUMER_NAMES.get(name, name) for name in schema.names]

    def pick(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch of a consumer as Spark wants it. Costs per column, not per record."""
        columns = [
            _as_type(batch.column(name), field.type)
            for name, field in zip(self._names, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _as_type(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_list(wanted):
        # Spark's own source has null, not an empty list, for a record without headers.
        column = pc.if_else(pc.equal(pc.list_value_length(column), 0), None, column)
    return column if column.type.equals(wanted) else column.cast(wanted)
