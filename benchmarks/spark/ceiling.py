"""CeilingDataSource: what Spark can take from a Python source at best.

Its tasks yield one ready Arrow batch again and again, with the columns, types and sizes of the
records that the others read. Nothing is fetched or decoded: what it takes is Spark's own cost.

Owner: none, Spark makes one for each plan.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from spark_connector.schema import record_schema
from spark_connector.versions import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

BATCH_ROWS = 10_000


class CeilingDataSource(DataSource):
    """Options: `rows` in all and `partitions` that they are in; others are ignored."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> StructType:
        """All columns of a record."""
        return record_schema(include_headers=False)

    def reader(self, schema: StructType) -> CeilingReader:
        """Return the reader of one query."""
        return CeilingReader(schema, int(self.options["rows"]), int(self.options["partitions"]))


class CeilingReader(DataSourceReader):
    """Divides `row_count` rows among tasks; each yields the same batch until it has its rows."""

    def __init__(self, schema: StructType, row_count: int, partition_count: int) -> None:
        self._schema = schema
        self._row_count = row_count
        self._partition_count = partition_count

    def partitions(self) -> Sequence[InputPartition]:
        """As many rows in each, and the rest in the last."""
        each, rest = divmod(self._row_count, self._partition_count)
        counts = [each] * self._partition_count
        counts[-1] += rest
        return [InputPartition(count) for count in counts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        batch = _batch(self._schema)
        full_count, rest = divmod(int(partition.value), BATCH_ROWS)
        yield from repeat(batch, full_count)
        if rest:
            yield batch.slice(0, rest)


def _batch(schema: StructType) -> pa.RecordBatch:
    rows = range(BATCH_ROWS)
    columns = {
        "key": [b"%08d" % row for row in rows],
        "value": [b"%0100d" % row for row in rows],
        "topic": ["bench-00000-0"] * BATCH_ROWS,
        "partition": [0] * BATCH_ROWS,
        "offset": list(rows),
        "timestamp": [1_700_000_000_000_000 + row for row in rows],
        "timestampType": [0] * BATCH_ROWS,
    }
    arrow = arrow_schema(schema)
    arrays = [pa.array(columns[field.name], field.type) for field in arrow]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)
