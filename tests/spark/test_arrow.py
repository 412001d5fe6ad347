"""Columns of the consumer become columns of Spark, in exactly the types that Spark checks for."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StructType

from spark_connector.range_reader import RecordColumns
from spark_connector.schema import record_schema
from spark_connector.versions import arrow_schema

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def consumed() -> pa.RecordBatch:
    """Two records as `Consumer.poll_arrow` returns them."""
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.record_batch(
        {
            "key": pa.array([b"k", None], pa.binary()),
            "value": pa.array([None, b""], pa.binary()),
            "topic": pa.array(["t", "t"], pa.string()),
            "partition": pa.array([3, 3], pa.int32()),
            "offset": pa.array([7, 8], pa.int64()),
            "timestamp": pa.array([NOON, NOON], pa.timestamp("us", "UTC")),
            "timestamp_type": pa.array([0, 1], pa.int32()),
            "headers": pa.array([[("h", b"1"), ("h", None)], []], headers),
        }
    )


def test_all_columns_are_picked_with_exactly_sparks_schema() -> None:
    schema = record_schema(include_headers=True)
    picked = RecordColumns(schema).pick(consumed())
    assert picked.schema.equals(arrow_schema(schema), check_metadata=True)
    assert picked.to_pylist() == [
        {
            "key": b"k",
            "value": None,
            "topic": "t",
            "partition": 3,
            "offset": 7,
            "timestamp": NOON,
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        },
        {
            "key": None,
            "value": b"",
            "topic": "t",
            "partition": 3,
            "offset": 8,
            "timestamp": NOON,
            "timestampType": 1,
            "headers": None,
        },
    ]


def test_only_the_requested_columns_are_picked_in_their_order() -> None:
    columns = RecordColumns(StructType().add("offset", LongType()).add("value", BinaryType()))
    assert columns.names == ["offset", "value"]
    assert columns.pick(consumed()).to_pydict() == {"offset": [7, 8], "value": [None, b""]}


def test_bytes_are_not_copied_when_picked() -> None:
    batch = consumed()
    picked = RecordColumns(StructType().add("value", BinaryType())).pick(batch)
    assert [buffer and buffer.address for buffer in picked.column("value").buffers()] == [
        buffer and buffer.address for buffer in batch.column("value").buffers()
    ]


def test_an_empty_batch_stays_empty() -> None:
    picked = RecordColumns(record_schema(include_headers=True)).pick(consumed().slice(0, 0))
    assert picked.num_rows == 0
