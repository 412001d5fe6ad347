"""arrow_batch: the documented columns and types, from spans of records."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from pykclient.consumer.arrow import arrow_batch, wanted_columns
from pykclient.errors import UsageError
from tests.consumer.fetched_records import TIMESTAMP_MS, A, B, span

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_type", pa.int32()),
    ]
)
PLAIN = wanted_columns(None, include_headers=False)
ALL = wanted_columns(None, include_headers=True)
HEADERS = pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))


@pytest.mark.promise("`poll_arrow` returns keys, values, headers, nulls and timestamps as written")
def test_each_record_is_a_row_in_order() -> None:
    table = arrow_batch(
        [span(A, range(5, 7), keys=[None, b"k"]), span(B, [9], values=[None])],
        PLAIN,
    )
    assert table.schema == SCHEMA
    time = datetime.fromtimestamp(TIMESTAMP_MS / 1000, UTC)
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (None, b"v5", "t", 0, 5, time, 0),
        (b"k", b"v6", "t", 0, 6, time, 0),
        (None, None, "u", 1, 9, time, 0),
    ]


def test_headers_are_there_when_requested() -> None:
    headers = [(("a", b"1"), ("a", None)), ()]
    table = arrow_batch([span(A, [1, 2], headers=headers)], ALL)
    assert table.schema == SCHEMA.append(HEADERS)
    assert table.column("headers").to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        [],
    ]


@pytest.mark.parametrize("include_headers", [False, True])
def test_no_records_make_an_empty_batch_of_the_same_schema(include_headers: bool) -> None:
    table = arrow_batch([], ALL if include_headers else PLAIN)
    assert table.num_rows == 0
    assert table.schema == (SCHEMA.append(HEADERS) if include_headers else SCHEMA)


def test_a_time_is_exact_to_the_millisecond() -> None:
    times = [-1, 0, 1, TIMESTAMP_MS + 123]
    table = arrow_batch([span(A, [1, 2, 3, 4], timestamps_ms=times)], PLAIN)
    in_microseconds = table.column("timestamp").cast(pa.int64()).to_pylist()
    assert in_microseconds == [time * 1000 for time in times]


@pytest.mark.parametrize("time_ms", [2**63 - 1, -(2**63), (2**63 - 1) // 1000 + 1])
def test_a_time_beyond_microseconds_is_null_and_the_others_stay(time_ms: int) -> None:
    table = arrow_batch([span(A, [1, 2], timestamps_ms=[time_ms, 7])], PLAIN)
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [None, 7000]


def test_without_pyarrow_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match="pip install pyarrow"):
        arrow_batch([], PLAIN)


@pytest.mark.parametrize("name", [*SCHEMA.names, "headers"])
def test_each_column_may_be_had_alone(name: str) -> None:
    spans = [span(A, range(5, 7), keys=[None, b"k"]), span(B, [9], values=[None])]
    whole = arrow_batch(spans, ALL)
    alone = arrow_batch(spans, wanted_columns([name], include_headers=False))
    assert alone.to_pydict() == {name: whole.column(name).to_pylist()}
    assert alone.schema == pa.schema([whole.schema.field(name)])


def test_no_column_leaves_the_number_of_rows_unknown_and_is_an_error() -> None:
    with pytest.raises(UsageError, match="columns is empty"):
        wanted_columns([], include_headers=False)


def test_a_column_that_there_is_not_is_refused_with_the_likely_one() -> None:
    with pytest.raises(UsageError, match=r"unknown column 'vlaue'\. Did you mean 'value'"):
        wanted_columns(["key", "vlaue"], include_headers=False)
