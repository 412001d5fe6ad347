"""RecordColumns: from the columns that a consumer returns to those of the query.

Spark takes an Arrow batch only when names, order, types and nullability are exactly those of the
query's schema. Columns are picked and, where types differ, cast; nothing is done per record.

Owner: none, it is immutable.
Source: PySpark's Python data source API (``DataSourceReader.read``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from spark_connector.schema import HEADERS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["RecordColumns"]

_CONSUMER_NAMES: Final = {"timestampType": "timestamp_type"}
"""Columns that the consumer calls otherwise."""


class RecordColumns:
    """The columns of one query."""

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
