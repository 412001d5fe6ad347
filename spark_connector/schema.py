"""The Spark schema of a Kafka record, and what part of it a query may select.

Columns have the names, types and order of Spark's own Kafka source. A schema given by the user is a
projection: the columns that it names are built, and no others.

Owner: none, everything is immutable.
Source: Spark's Structured Streaming + Kafka Integration Guide, table of columns.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from pykclient.config.unknown_keys import did_you_mean
from pykclient.errors import ConfigError

HEADERS: Final = "headers"


def record_schema(*, include_headers: bool) -> StructType:
    schema = (
        StructType()
        .add("key", BinaryType())
        .add("value", BinaryType())
        .add("topic", StringType())
        .add("partition", IntegerType())
        .add("offset", LongType())
        .add("timestamp", TimestampType())
        .add("timestampType", IntegerType())
    )
    if include_headers:
        header = StructType().add("key", StringType()).add("value", BinaryType())
        schema.add(HEADERS, ArrayType(header))
    return schema


def check_projection(schema: StructType, *, include_headers: bool) -> None:
    """Raise `ConfigError` unless every column of `schema` is one of a record's, with its type."""
    known = {field.name: field for field in record_schema(include_headers=True)}
    if len(set(schema.names)) < len(schema.names):
        raise ConfigError(f"The schema names a column twice: {', '.join(schema.names)}.")
    for field in schema:
        if field.name not in known:
            raise ConfigError(
                f"A Kafka record has no column {field.name!r}.{did_you_mean(field.name, known)} "
                f"Its columns are {', '.join(known)}."
            )
        if field.name == HEADERS and not include_headers:
            raise ConfigError("Column 'headers' needs the option includeHeaders=true.")
        wanted, actual = field.dataType.simpleString(), known[field.name].dataType.simpleString()
        if wanted != actual:
            raise ConfigError(
                f"Column {field.name!r} of a Kafka record has type {actual}, not {wanted}. Read it "
                f"as {actual}, and cast the column afterwards."
            )
        if not field.nullable:
            raise ConfigError(f"Column {field.name!r} may be null: leave out NOT NULL.")
