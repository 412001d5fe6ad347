"""RangeReader: reads ranges of offsets as Arrow batches, in a task.

It binds the edges that were given as earliest and latest, reads up to the end of the range, and
goes on behind records that are gone where that is allowed. A task whose range has fixed offsets
looks up nothing, unless records have gone in between.

Owner: one task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from pykclient.errors import (
    CorruptRecordError,
    KafkaTimeoutError,
    LogTruncationError,
    OffsetOutOfRangeError,
)
from spark_connector.cluster import log_bounds
from spark_connector.dead_letters import put_aside
from spark_connector.offsets import DataLossError, report_data_loss
from spark_connector.options import BATCH_SIZE_BYTES_MAX
from spark_connector.shown_errors import cause_first
from spark_connector.versions import arrow_schema
from spark_connector.worker_clients import worker_consumer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

    from pykclient import Consumer
    from spark_connector.offsets import OffsetRange
    from spark_connector.options import KafkaOptions

POLL_STEP_MS: Final = 1_000

_CONSUMER_NAMES: Final = {"timestampType": "timestamp_type"}
"""Columns that the consumer calls otherwise."""


def read_ranges(
    ranges: Sequence[OffsetRange], options: KafkaOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Yield the records of one range after the other, in the columns of `schema`.

    Raises: `DataLossError`, `KafkaTimeoutError` if nothing arrived for
    `kafkaConsumer.pollTimeoutMs`, and what `Consumer.poll_arrow` raises.
    """
    columns = RecordColumns(schema)
    settings = options.consumer_settings(offset_count=max(wanted.size for wanted in ranges))
    with cause_first(), worker_consumer(settings) as consumer:
        for wanted in ranges:
            yield from _RangeReader(consumer, wanted, options).batches(columns)


class _RangeReader:
    def __init__(self, consumer: Consumer, wanted: OffsetRange, options: KafkaOptions) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._options = options
        self._batch_rows = options.batch_rows
        self._damaged_offset: int | None = None
        """Offset of a damaged batch that is being fetched again."""

    def batches(self, columns: RecordColumns) -> Iterator[pa.RecordBatch]:
        consumer, wanted = self._consumer, self._bound()
        if wanted.size <= 0:
            return
        partition, end = wanted.partition, wanted.end
        consumer.assign([partition])
        consumer.seek(partition, wanted.start)
        while (position := consumer.position(partition)) < end:
            try:
                batch = self._polled(end, columns)
            except OffsetOutOfRangeError as error:
                self._skip_lost(position, end, error)
                continue
            except CorruptRecordError as error:
                self._skip_damaged(position, error)
                continue
            if batch.num_rows:
                yield columns.pick(batch)

    def _polled(self, end: int, columns: RecordColumns) -> pa.RecordBatch:
        """Return the next records; none if the position moved over offsets without records.

        It polls in steps. After each, the consumer reports an error that has lasted longer than its
        own timeouts allow.
        """
        options, partition = self._options, self._wanted.partition
        position = self._consumer.position(partition)
        left_ms = options.poll_timeout_ms
        while left_ms > 0:
            step_ms = min(left_ms, POLL_STEP_MS)
            batch = self._consumer.poll_arrow(
                step_ms / 1_000,
                self._batch_rows,
                until={partition: end},
                columns=columns.names,
                max_bytes=BATCH_SIZE_BYTES_MAX,
            )
            if batch.num_rows or self._consumer.position(partition) != position:
                return batch
            left_ms -= step_ms
        raise KafkaTimeoutError(
            f"{self._wanted}: no record came from offset {position} on within "
            f"{options.poll_timeout_ms} ms (option kafkaConsumer.pollTimeoutMs)."
            f"{self._hint_of_transactions()}"
        )

    def _hint_of_transactions(self) -> str:
        if self._options.uncommitted_settings() is None:
            return ""
        return " An open transaction may hide them from a reader of committed records."

    def _bound(self) -> OffsetRange:
        """Return the range with the edges that the partition has now."""
        wanted = self._wanted
        if not (wanted.is_first or wanted.to_latest):
            return wanted
        held = log_bounds(self._consumer, [wanted.partition])[wanted.partition]
        start = held.beginning if wanted.is_first else wanted.start
        end = held.end if wanted.to_latest else wanted.end
        if wanted.to_latest and start > end:
            report_data_loss(
                f"{wanted} begins behind the end of {wanted.partition}, which holds "
                f"[{held.beginning}, {held.end}) now: the topic was deleted and made again.",
                fail_on_data_loss=self._options.fail_on_data_loss,
            )
        return wanted._replace(start=start, end=end)

    def _skip_lost(self, position: int, end: int, error: OffsetOutOfRangeError) -> None:
        """Go on where the log begins now; raise when that is not allowed, or would not help."""
        wanted, partition = self._wanted, self._wanted.partition
        held = log_bounds(self._consumer, [partition])[partition]
        if held.beginning <= position < held.end:
            if not isinstance(error, LogTruncationError):
                raise error
            report_data_loss(
                f"{wanted} was read up to offset {position}, then the log was another one: the "
                f"topic was made again, or brokers have lost records.",
                fail_on_data_loss=self._options.fail_on_data_loss,
            )
            self._consumer.seek(partition, position)
            return
        is_behind = position < held.beginning
        if not (is_behind and wanted.from_earliest):
            report_data_loss(
                f"{wanted} was read up to offset {position}, then {partition} held only "
                f"[{held.beginning}, {held.end}): records were aged out, or the topic was made "
                f"again.",
                fail_on_data_loss=self._options.fail_on_data_loss,
            )
        self._consumer.seek(partition, held.beginning if is_behind else end)

    def _skip_damaged(self, position: int, error: CorruptRecordError) -> None:
        """Fetch a damaged batch again, since it may have been damaged on the network.

        The second time skip the batch, and send a dead letter if the options name a topic for it.
        Raise if skipping is not allowed or if the end of the batch is unknown.
        """
        if self._damaged_offset != error.offset:
            self._damaged_offset = error.offset
            return
        partition, end = self._wanted.partition, error.next_offset
        if end is None or end <= position:
            raise CorruptRecordError(
                f"{partition} has a damaged batch at offset {error.offset}, and where it ends is "
                f"not known, so that it cannot be passed over: {error.__cause__}",
                topic=error.topic,
                partition=error.partition,
                offset=error.offset,
            ) from error
        if self._options.dead_letters_topic:
            settings = self._options.dead_letters_settings()
            put_aside(self._options.dead_letters_topic, settings, partition, error)
            self._consumer.seek(partition, end)
            return
        try:
            report_data_loss(
                f"{partition} has a damaged batch at offsets [{error.offset}, {end}), of which "
                f"[{position}, {min(end, self._wanted.end)}) is to be read: {error.__cause__}.",
                fail_on_data_loss=self._options.fail_on_data_loss,
            )
        except DataLossError as loss:
            raise loss from error
        self._consumer.seek(partition, end)


class RecordColumns:
    """The columns of one query, picked from a consumer's batch and cast if types differ.

    Spark requires exactly the names, order, types and nullability of the query's schema.
    """

    def __init__(self, schema: StructType) -> None:
        self.schema: pa.Schema = arrow_schema(schema)
        self.names = [_CONSUMER_NAMES.get(name, name) for name in schema.names]

    def pick(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a consumer's batch to the query's columns. Costs per column, not per record."""
        columns = [
            _as_type(batch.column(name), field.type)
            for name, field in zip(self.names, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _as_type(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_list(wanted):
        # Spark's own source has null, not an empty list, for a record without headers.
        column = pc.if_else(pc.equal(pc.list_value_length(column), 0), None, column)
    return column if column.type.equals(wanted) else column.cast(wanted)
