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

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pykclient import Consumer
from pykclient.errors import KafkaTimeoutError, OffsetOutOfRangeError
from spark_connector.consumer_log import ConsumerLog
from spark_connector.offsets import report_data_loss, resolve_ranges, split_ranges
from spark_connector.schema import check_projection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from spark_connector.arrow import RecordColumns
    from spark_connector.offsets import OffsetRange
    from spark_connector.options import KafkaOptions

__all__ = ["KafkaBatchReader"]

BATCH_ROWS: Final = 10_000
"""Rows of an Arrow batch: with fewer Spark's own cost for each shows, with more nothing is won."""


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
        with Consumer(_consumer_settings(options)) as consumer:
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
        from spark_connector.arrow import RecordColumns

        if partition.value is None:
            return
        with Consumer(_consumer_settings(self._options)) as consumer:
            yield from _RangeRead(consumer, partition.value, self._options).batches(
                RecordColumns(self._schema)
            )


class _RangeRead:
    """One range on its way through a consumer. Owner: the task."""

    def __init__(self, consumer: Consumer, wanted: OffsetRange, options: KafkaOptions) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._options = options
        # A max.poll.records of the user's decides how large batches are.
        settings = options.client_settings
        chosen = settings.get("max.poll.records", settings.get("max_poll_records", BATCH_ROWS))
        self._rows_max = int(chosen)

    def batches(self, columns: RecordColumns) -> Iterator[pa.RecordBatch]:
        """Every record of the range, in order."""
        consumer, (partition, start, end) = self._consumer, self._wanted
        consumer.assign([partition])
        consumer.seek(partition, start)
        while (position := consumer.position(partition)) < end:
            try:
                batch = consumer.poll_arrow(
                    self._options.poll_timeout_ms / 1_000,
                    self._rows_max,
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


def _consumer_settings(options: KafkaOptions) -> dict[str, object]:
    """The user's settings, and what follows from ranges being fixed before they are read."""
    return {
        "allow.auto.create.topics": "false",
        **options.client_settings,
        "auto.offset.reset": "none",
    }
