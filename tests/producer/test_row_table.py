"""RowTables: accepted sequences, and those rejected before anything is sent."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, cast

import pytest

from pykclient import accel
from pykclient.errors import RecordTooLargeError, SerializationError, UsageError
from pykclient.producer.bulk.table import BulkInput, RowTables
from pykclient.producer.config import ProducerConfig
from pykclient.producer.serializers import RecordSerializer
from tests.accel.records import new_appender, records_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.accel.abc import RecordColumns
    from pykclient.producer.bulk.table import BulkHeaders, RowTable, Timestamps

NOW_MS = 1_700_000_000_000


def tables(max_request_size: int = 10**6) -> RowTables:
    config = ProducerConfig.from_settings(
        bootstrap_servers="localhost:9092", max_request_size=max_request_size
    )
    return RowTables(RecordSerializer(config, lambda: NOW_MS), lambda: NOW_MS)


def table(values: Iterable[object], keys: Iterable[object] | None = None, **rest: Any) -> RowTable:
    return tables().table(BulkInput(rest.pop("topic", "t"), values, keys, **rest))


def written(made: RowTable) -> RecordColumns:
    appender = new_appender(accel)
    made.blocks[0].rows.all_rows().fill(appender)
    return records_of(appender)


@pytest.mark.parametrize("make", [list, tuple, iter, lambda items: (item for item in items)])
def test_any_iterable_of_bytes_is_taken(make: type) -> None:
    columns = written(table(make([b"a", None]), make([None, b"k"])))
    assert list(columns.values) == [b"a", None]
    assert list(columns.keys) == [None, b"k"]


def test_a_table_has_its_topic_and_partition() -> None:
    made = table([b"a"], partition=4)
    assert (made.topics, made.row_count) == (("t",), 1)
    assert made.blocks[0].partitions == 4
    assert made.largest_partitions() == [("t", 4)]
    assert table([b"a"]).largest_partitions() == [("t", None)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, [NOW_MS, NOW_MS]),
        (0, [0, 0]),
        ([1, None], [1, NOW_MS]),
        (array("q", [3, 4]), [3, 4]),
        (range(2), [0, 1]),
    ],
)
def test_timestamps_are_one_for_all_or_one_for_each(
    given: Timestamps | None, expected: list[int]
) -> None:
    assert list(written(table([b"", b""], timestamps_ms=given)).timestamps_ms) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], [(), ()]),
        ([("a", b"1")], [(("a", b"1"),)] * 2),
        ((("a", b"1"), ("b", None)), [(("a", b"1"), ("b", None))] * 2),
        ([["a", b"1"]], [(("a", b"1"),)] * 2),
        ([None, [("a", b"1")]], [(), (("a", b"1"),)]),
        ([[("a", b"1")], ()], [(("a", b"1"),), ()]),
    ],
)
def test_headers_are_for_all_or_one_list_for_each(
    given: BulkHeaders, expected: list[tuple[object, ...]]
) -> None:
    assert list(written(table([b"", b""], headers=given)).headers) == expected
    made = tables().records(BulkInput("t", [b"", b""], headers=given))
    if given != [["a", b"1"]]:
        assert [record.headers for record in made] == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"values": b"abc"}, "values has one entry for each record.*of type bytes"),
        ({"values": "abc"}, "values has one entry for each record.*of type str"),
        ({"values": 7}, "values has one entry for each record.*of type int"),
        ({"values": [b""], "keys": []}, "keys has 0 entries for 1 values"),
        ({"values": [b""], "timestamps_ms": [1, 2]}, "timestamps_ms has 2 entries for 1 values"),
        ({"values": [b""], "headers": [None, None]}, "headers has 2 entries for 1 values"),
        ({"values": [b""], "timestamps_ms": -1}, "timestamps_ms is a whole number.*not -1"),
        ({"values": [b""] * 2, "timestamps_ms": [1, -1]}, r"timestamps_ms\[1\] is a whole.*not -1"),
        ({"values": [b""], "timestamps_ms": [1.5]}, r"timestamps_ms\[0\] is a whole.*not 1\.5"),
        ({"values": [b""], "timestamps_ms": [2**63]}, r"timestamps_ms\[0\] is a whole"),
        ({"values": [b""], "partition": -1}, "partition is a whole number.*not -1"),
        ({"values": [b""], "partition": True}, "partition is a whole number.*not True"),
        ({"values": [b""], "topic": ""}, "a topic's name is a string"),
        ({"values": [b""], "topic": None}, "a topic's name is a string"),
    ],
)
def test_what_no_records_can_have_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        table(**arguments)  # type: ignore[arg-type]


class Index:
    """An integer that is not an int, like numpy's."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __index__(self) -> int:
        return self._number


def test_a_wrong_timestamp_is_named_also_among_numbers_of_another_type() -> None:
    with pytest.raises(UsageError, match=r"timestamps_ms\[1\] is .*, not -1"):
        table([b"", b""], timestamps_ms=cast("Timestamps", [Index(5), Index(-1)]))


def test_wrong_entries_are_named() -> None:
    with pytest.raises(SerializationError, match=r"keys\[1\] is of type str.*key_serializer"):
        table([b"", b""], [b"", "k"])
    with pytest.raises(SerializationError, match=r"headers\[1\]: "):
        table([b"", b""], headers=[None, [("a", "text")]])
    with pytest.raises(SerializationError, match="headers: number 0 is wrong"):
        table([b"", b""], headers=[("a", 7)])


def test_a_record_too_large_is_named_with_the_setting() -> None:
    with pytest.raises(RecordTooLargeError, match=r"record at index 2 .* max_request_size is 1000"):
        tables(1_000).table(BulkInput("t", [b"", b"x" * 890, b"x" * 950]))
