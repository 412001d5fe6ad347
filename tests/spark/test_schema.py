"""Columns of a record, and which part of them a query may request."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructType

from pykclient.errors import ConfigError
from spark_connector.schema import check_projection, record_schema

COLUMNS = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
    "timestamp:timestamp,timestampType:int"
)


def test_columns_are_those_of_sparks_own_source() -> None:
    assert record_schema(include_headers=False).simpleString() == f"{COLUMNS}>"
    with_headers = record_schema(include_headers=True)
    assert with_headers.simpleString() == (
        f"{COLUMNS},headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in with_headers)


@pytest.mark.parametrize(
    "names",
    [["value"], ["offset", "key"], ["timestampType", "timestamp"], ["headers"], ["topic"]],
)
def test_any_part_of_the_columns_in_any_order_may_be_requested(names: list[str]) -> None:
    columns = record_schema(include_headers=True)
    check_projection(StructType([columns[name] for name in names]), include_headers=True)


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (StructType().add("payload", BinaryType()), "A Kafka record has no column 'payload'"),
        (StructType().add("Value", BinaryType()), "Did you mean 'value'"),
        (
            StructType().add("value", StringType()),
            "'value' of a Kafka record has type binary, not string. Read it as binary",
        ),
        (
            StructType().add("offset", IntegerType()),
            "'offset' of a Kafka record has type bigint, not int",
        ),
        (
            StructType().add("headers", ArrayType(StringType())),
            "array<struct<key:string,value:binary>>, not array<string>",
        ),
        (
            StructType().add("value", BinaryType(), nullable=False),
            "'value' may be null: leave out NOT NULL",
        ),
        (
            StructType().add("value", BinaryType()).add("value", BinaryType()),
            "names a column twice",
        ),
    ],
)
def test_other_columns_and_types_are_refused(schema: StructType, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_projection(schema, include_headers=True)
    assert complaint in str(caught.value)


def test_headers_need_the_option_that_includes_them() -> None:
    schema = record_schema(include_headers=True)
    with pytest.raises(ConfigError, match="needs the option includeHeaders=true"):
        check_projection(schema, include_headers=False)
