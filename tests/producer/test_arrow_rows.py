"""ArrowTables and ArrowFields: how each column is converted, and which are rejected."""

from __future__ import annotations

import struct
from array import array
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pykclient import accel
from pykclient.errors import RecordTooLargeError, SerializationError, UsageError
from pykclient.producer.bulk.arrow import ArrowTables
from pykclient.producer.config import ProducerConfig
from pykclient.producer.serializers import RecordSerializer
from tests.accel.records import new_appender, records_of

if TYPE_CHECKING:
    from pykclient.accel.abc import RecordColumns

NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ROWS = 5_000
"""Enough rows that no column counts as fragmented."""
NOT_UTF8 = pa.array([b"t\xff"]).view(pa.string())
"""Arrow itself does not validate this."""


class Stream:
    """An object with Arrow data that is not a pyarrow type."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def tables(**settings: object) -> ArrowTables:
    config = ProducerConfig.from_settings(bootstrap_servers="localhost:9092", **settings)
    return ArrowTables(RecordSerializer(config, lambda: NOW_MS), lambda: NOW_MS)


def written(
    data: object, topic: str | None = "t", made_by: ArrowTables | None = None
) -> RecordColumns:
    """Return the records of a table that comes in one block, as they are written."""
    (block,) = (made_by or tables()).table(topic, data).blocks
    appender = new_appender(accel)
    assert block.rows.all_rows().fill(appender) == len(block.rows)
    return records_of(appender)


def encoded(column: pa.Array, kind: pa.DataType) -> pa.DictionaryArray:
    """Return text as a dictionary; Arrow cannot cast to one of views."""
    found = column.dictionary_encode()
    values = found.dictionary.cast(kind.value_type)
    return pa.DictionaryArray.from_arrays(found.indices.cast(kind.index_type), values)


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.uint32(), pa.string_view()),
        pa.binary(2),
    ],
    ids=str,
)
def test_keys_and_values_may_be_binary_or_text_of_any_kind(kind: pa.DataType) -> None:
    column = pa.array(["ab", None, "cd", "ef"]).cast(
        pa.binary() if kind == pa.binary(2) else pa.string()
    )
    column = encoded(column, kind) if pa.types.is_dictionary(kind) else column.cast(kind)
    columns = written(pa.table({"value": column, "key": column}).slice(1, 2))
    assert list(columns.values) == list(columns.keys) == [None, b"cd"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_timestamps_of_any_unit_become_milliseconds(unit: str, zone: str | None) -> None:
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    times = pa.array([moment, None, moment + timedelta(hours=1)], pa.timestamp("us", "UTC"))
    table = pa.table({"value": [b""] * 3, "timestamp": times.cast(pa.timestamp(unit, zone))})
    first_ms = 1_577_836_800_000
    assert list(written(table).timestamps_ms) == [first_ms, NOW_MS, first_ms + 3_600_000]


@pytest.mark.parametrize("kind", [HEADERS, pa.large_list(HEADERS.value_type)], ids=str)
def test_headers_come_with_their_records(kind: pa.DataType) -> None:
    headers = [[("x", b"0")], [("a", b"1"), ("a", None)], None, [], [("é", b"")]]
    table = pa.table({"value": [b""] * 5, "headers": pa.array(headers, kind)}).slice(1)
    assert list(written(table).headers) == [(("a", b"1"), ("a", None)), (), (), (("é", b""),)]


def test_columns_of_nulls_are_as_if_they_were_not_there() -> None:
    names = ["value", "key", "headers", "partition", "timestamp"]
    table = pa.table({name: pa.nulls(2) for name in names})
    (block,) = tables().table("t", table).blocks
    assert block.partitions is None
    columns = written(table)
    assert list(columns.values) == list(columns.keys) == [None, None]
    assert list(columns.timestamps_ms) == [NOW_MS] * 2
    assert list(columns.headers) == [(), ()]


def test_rows_name_their_partitions_and_topics() -> None:
    table = pa.table(
        {
            "value": [b"a", b"b", b"c"],
            "partition": pa.array([3, None, 0], pa.int64()),
            "topic": pa.array(["u", "t", "u"]).dictionary_encode(),
        }
    )
    made = tables().table(None, table)
    (block,) = made.blocks
    assert made.topics == ("u", "t")
    assert block.topics is not None
    assert list(block.topics) == [0, 1, 0]
    assert not isinstance(block.partitions, int | None)
    assert list(block.partitions) == [3, -1, 0]
    assert made.largest_partitions() == [("u", 3), ("t", None)]


def test_one_topic_in_all_rows_is_as_if_it_were_given() -> None:
    table = pa.table({"topic": ["t", "t"], "value": [b"a", b"b"]})
    made = tables().table(None, table)
    assert made.topics == ("t",)
    assert made.blocks[0].topics is None


@pytest.mark.parametrize("piece_count", [1, 3, 1_000])
def test_pieces_of_a_table_are_numbered_through(piece_count: int) -> None:
    count = 9_000
    size = -(-count // piece_count)
    values = [b"%d" % number for number in range(count)]
    chunks = [pa.array(values[start : start + size]) for start in range(0, count, size)]
    made = tables().table("t", pa.table({"value": pa.chunked_array(chunks)}))
    assert len(made.blocks) == (1 if piece_count == 1_000 else piece_count)
    starts = [block.rows.first_row for block in made.blocks]
    assert starts == [size * number for number in range(len(starts))]
    assert made.row_count == count


def test_anything_with_an_arrow_stream_is_taken() -> None:
    table = pa.table({"value": [b"a"]})
    for data in (table, table.to_batches()[0], Stream(table), table.to_reader()):
        assert list(written(data).values) == [b"a"]


@pytest.mark.parametrize("data", [pa.array([b"a"]), pa.chunked_array([[1], [2]])], ids=type)
def test_a_stream_of_something_else_than_rows_is_refused(data: object) -> None:
    with pytest.raises(UsageError, match=r"send_arrow takes rows with columns, not .*Array"):
        tables().table("t", data)


def test_a_topic_may_be_text_of_any_kind() -> None:
    kinds = [pa.large_string(), pa.string_view(), pa.dictionary(pa.uint32(), pa.string_view())]
    for kind in kinds:
        topic = pa.array(["a", "b", "a"])
        topic = encoded(topic, kind) if pa.types.is_dictionary(kind) else topic.cast(kind)
        made = tables().table(None, pa.table({"value": [b""] * 3, "topic": topic}))
        assert made.topics == ("a", "b")


def test_no_rows_make_no_blocks_but_their_types_count() -> None:
    assert tables().table("t", pa.table({"value": pa.array([], pa.binary())})).blocks == ()
    assert tables().table(None, pa.table({"value": [], "topic": pa.array([], pa.string())})) == (
        (),
        (),
    )
    with pytest.raises(SerializationError, match="'value' is of type int64"):
        tables().table("t", pa.table({"value": pa.array([], pa.int64())}))


def damaged_view(text: bytes) -> pa.Array:
    """Return views that end far beyond the data they refer to."""
    view = struct.pack("<i4sii", 100, text, 0, 0)
    buffers = [None, pa.py_buffer(view * ROWS), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string_view(), ROWS, buffers)


def damaged_dictionary(items: pa.Array, last: int) -> pa.Array:
    numbers = pa.array([0] * (ROWS - 1) + [last], pa.int32())
    return pa.DictionaryArray.from_arrays(numbers, items, safe=False)


@pytest.mark.parametrize(
    "column",
    [
        damaged_view(b"abcd"),
        damaged_view(b"abcd").view(pa.binary_view()),
        damaged_dictionary(pa.array(["a", "b"]), 2),
        damaged_dictionary(pa.array(["a", "b"]), -1),
        damaged_dictionary(damaged_view(b"abcd"), 1),
        damaged_dictionary(
            pa.Array.from_buffers(
                pa.string(), 2, [None, pa.py_buffer(array("i", [0, 99, 2])), pa.py_buffer(b"ab")]
            ),
            1,
        ),
    ],
)
@pytest.mark.parametrize("name", ["value", "key"])
def test_what_looks_behind_its_buffers_is_refused(column: pa.Array, name: str) -> None:
    table = pa.table({"value": pa.array([b""] * ROWS)} | {name: column})
    with pytest.raises(SerializationError, match=r"is not what Arrow says|do not fit its buffers"):
        tables().table("t", table)
    with pytest.raises(SerializationError, match=f"the column '{name}' is not what Arrow says"):
        tables().records("t", table)


def test_a_serializer_takes_any_type() -> None:
    made_by = tables(value_serializer=lambda _, value: repr(value).encode())
    columns = written(pa.table({"value": [1, None]}), made_by=made_by)
    assert list(columns.values) == [b"1", None]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"values": [b""]},
            r"unknown column 'values'\. Did you mean 'value'\? The columns are value, key, ",
        ),
        (
            {"value": [b""], "offset": [1]},
            r"unknown column 'offset'\. The columns are value, .* topic$",
        ),
        ({"key": [b""]}, "column 'value' is missing"),
        ({"value": [b""], "topic": ["u"]}, "topic is given twice"),
        ({"value": [b""], "partition": ["0"]}, "'partition' is of type string; it takes int32"),
        ({"value": [b""], "partition": [2**31]}, "'partition' exceeds int32"),
        ({"value": [b""] * 2, "partition": [0, -2]}, "'partition' is -2 at row 1"),
        ({"value": [b""], "timestamp": [5]}, r"'timestamp' is of type int64; it takes timestamp"),
        (
            {"value": [b""] * 2, "timestamp": pa.array([None, -9], pa.timestamp("ms"))},
            "'timestamp' is -9 at row 1",
        ),
        (
            {"value": [b""], "timestamp": pa.array([2**60], pa.timestamp("s"))},
            "'timestamp' is out of range",
        ),
    ],
    ids=lambda argument: argument[:20] if isinstance(argument, str) else "",
)
def test_a_wrong_column_is_named_with_what_is_taken(table: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tables().table("t", pa.table(table))


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        (pa.array([b""]), "'headers' is of type binary; it takes list<struct"),
        (pa.array([[{"name": "a", "value": b""}]]), "'headers' is of type list<.*; it takes list"),
        (pa.array([[None]], HEADERS), "header without a name"),
        (pa.array([[{"key": None, "value": b""}]], HEADERS), "header without a name"),
        (pa.array([[{"key": 7, "value": b""}]]), "'headers' is of type int64; it takes binary"),
        (pa.array([[{"key": b"\xff", "value": b""}]]), "'headers' has a name that is not UTF-8"),
        (
            pa.ListArray.from_arrays(
                [0, 1], pa.StructArray.from_arrays([NOT_UTF8, NOT_UTF8], ["key", "value"])
            ),
            "'headers' is not what Arrow says it is: .* UTF8",
        ),
    ],
)
def test_wrong_headers_are_refused(headers: pa.Array, message: str) -> None:
    table = pa.table({"value": [b""], "headers": headers})
    with pytest.raises(SerializationError, match=message):
        tables().table("t", table)
    with pytest.raises(SerializationError, match=message):
        tables().records("t", table)


def test_damaged_headers_of_many_rows_are_refused() -> None:
    ends = array("i", range(ROWS + 1))
    ends[1] = ROWS + 1
    texts = pa.array([b"\xff"] * ROWS).view(pa.string())
    good = pa.array([b"a"] * ROWS)
    behind = pa.Array.from_buffers(
        pa.binary(), ROWS, [None, pa.py_buffer(ends), pa.py_buffer(b"a" * ROWS)]
    )

    def headers(name: pa.Array, value: pa.Array, offsets: array[int]) -> pa.Array:
        items = pa.StructArray.from_arrays([name, value], ["key", "value"])
        buffers = [None, pa.py_buffer(offsets)]
        kind = pa.list_(items.type)
        return pa.Array.from_buffers(kind, ROWS, buffers, children=[items])

    plain = array("i", range(ROWS + 1))
    names = behind.view(pa.string())
    for column, message in (
        (headers(good, good, ends), "'headers' is not what Arrow says"),
        (headers(names, good, plain), "'headers' is not what Arrow says"),
        (headers(behind, good, plain), "'headers' is not what Arrow says"),
        (headers(texts, good, plain), "'headers' has a name that is not UTF-8"),
        (headers(good, behind, plain), "'headers' is not what Arrow says|do not fit its buffers"),
    ):
        table = pa.table({"value": good, "headers": column})
        for read in (tables().table, tables().records):
            with pytest.raises(SerializationError, match=message):
                read("t", table)


def test_text_for_a_serializer_has_to_be_text() -> None:
    made_by = tables(value_serializer=lambda _, value: repr(value).encode())
    table = pa.table({"value": NOT_UTF8})
    with pytest.raises(SerializationError, match="the column 'value' has text that is not UTF-8"):
        made_by.table("t", table)
    with pytest.raises(SerializationError, match="the column 'value' has text that is not UTF-8"):
        made_by.records("t", table)
    assert list(written(table).values) == [b"t\xff"]


def test_numbers_and_offsets_may_stand_at_any_address() -> None:
    """Goal: read a column inside a message, as Arrow Flight sends them."""

    def moved(column: pa.Array) -> pa.Array:
        buffers = [
            None if part is None else pa.py_buffer(b"x" + part.to_pybytes()).slice(1)
            for part in column.buffers()
        ]
        return pa.Array.from_buffers(column.type, len(column), buffers, column.null_count)

    values = [b"%d" % number for number in range(1_000)]
    times = pa.array(range(1_000), pa.timestamp("ms"))
    names = {
        "value": pa.array(values),
        "key": pa.array(values, pa.large_binary()),
        "timestamp": times,
        "partition": pa.array(range(1_000), pa.int32()),
    }
    table = pa.table({name: moved(column) for name, column in names.items()})
    columns = written(table)
    assert list(columns.values) == list(columns.keys) == values
    assert list(columns.timestamps_ms) == list(range(1_000))
    (block,) = tables().table("t", table).blocks
    assert not isinstance(block.partitions, int)
    assert list(block.partitions or ()) == list(range(1_000))


@pytest.mark.parametrize("kind", [pa.int64(), pa.list_(pa.binary()), pa.bool_()], ids=str)
def test_what_is_not_bytes_names_the_serializer(kind: pa.DataType) -> None:
    table = pa.table({"value": pa.nulls(1, kind)})
    with pytest.raises(SerializationError, match=r"it takes binary or string.*or set value_serial"):
        tables().table("t", table)


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        (pa.array(["t", None]), "'topic' is null at row 1"),
        (pa.array([1, 2]), "'topic' is of type int64; it takes string"),
        (pa.array(["t", ""]), "a topic's name is a string of 1 to 249"),
        (pa.concat_arrays([NOT_UTF8, NOT_UTF8]), "the column 'topic' has text that is not UTF-8"),
    ],
)
def test_a_wrong_topic_is_refused(topic: pa.Array, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tables().table(None, pa.table({"value": [b"", b""], "topic": topic}))


def test_without_any_topic_there_is_nowhere_to_send() -> None:
    with pytest.raises(UsageError, match="no topic is given, and there is no column 'topic'"):
        tables().table(None, pa.table({"value": [b""]}))


def test_the_same_column_twice_is_refused() -> None:
    table = pa.Table.from_arrays([pa.array([b""])] * 2, ["value", "value"])
    with pytest.raises(UsageError, match="more than one column 'value'"):
        tables().table("t", table)


def test_a_row_too_large_is_named() -> None:
    table = pa.table({"value": pa.chunked_array([[b""] * 2_000, [b""] * 1_999 + [b"x" * 2_000]])})
    with pytest.raises(RecordTooLargeError, match=r"the record at index 3999 .*max_request_size"):
        tables(max_request_size=2_000).table("t", table)


def test_records_are_made_one_by_one_for_interceptors() -> None:
    table = pa.table(
        {
            "value": ["a", None],
            "key": [b"k", None],
            "partition": [1, None],
            "timestamp": pa.array([5, None], pa.timestamp("ms")),
            "headers": pa.array([[("h", b"1"), ("i", None)], None], HEADERS),
            "topic": ["t", "u"],
        }
    )
    first, second = tables().records(None, table)
    assert (first.topic, first.value, first.key, first.partition) == ("t", b"a", b"k", 1)
    assert (first.timestamp_ms, first.headers) == (5, (("h", b"1"), ("i", None)))
    assert (second.topic, second.value, second.key, second.partition) == ("u", None, None, None)
    assert (second.timestamp_ms, second.headers) == (None, ())
