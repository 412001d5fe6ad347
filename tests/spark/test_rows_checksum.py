"""The checksum of a task's rows: equal for equal rows, however they are cut into batches."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_connector.exactly_once.checksum import RowsChecksum

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ROWS = pa.table(
    {
        "key": pa.array([b"k", None, b"", b"long key", b"m"], pa.binary()),
        "value": pa.array(["a", "bc", None, "", "d"], pa.string()),
        "headers": pa.array(
            [[("h", b"1"), ("h", None)], None, [], [("i", b"2")], [("j", b"")]], HEADERS
        ),
        "partition": pa.array([1, None, 0, 2, 3], pa.int32()),
        "timestamp": pa.array([1, 2, 3, 4, 5], pa.timestamp("us", "UTC")),
    }
)


def checksum(*tables: pa.Table) -> int:
    found = RowsChecksum()
    for table in tables:
        found.add(table)
    return found.value


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_it_does_not_depend_on_how_rows_are_cut_into_batches(size: int) -> None:
    cut = [ROWS.slice(at, size) for at in range(0, len(ROWS), size)]
    copied = [pa.Table.from_pylist(each.to_pylist(), ROWS.schema) for each in cut]
    assert checksum(*cut) == checksum(*copied) == checksum(ROWS)


OTHERS = [
    ("key", [b"k", None, b"", b"long kex", b"m"]),
    ("key", [b"k", b"", None, b"long key", b"m"]),
    ("value", ["ab", "c", None, "", "d"]),
    ("value", ["a", "bc", "", None, "d"]),
    ("value", ["d", "bc", None, "", "a"]),
    ("headers", [[("h", b"1")], [("h", None)], [], [("i", b"2")], [("j", b"")]]),
    ("headers", [[("h", b"1"), ("h", b"")], None, [], [("i", b"2")], [("j", b"")]]),
    ("partition", [1, 0, None, 2, 3]),
    ("timestamp", [1, 2, 3, 4, 6]),
]


@pytest.mark.parametrize(("column", "values"), OTHERS)
def test_other_rows_have_another_one(column: str, values: list[object]) -> None:
    place = ROWS.column_names.index(column)
    other = ROWS.set_column(place, column, pa.array(values, ROWS.schema.field(column).type))
    assert checksum(other) != checksum(ROWS)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.large_binary(), pa.binary()])
def test_texts_of_any_width_are_covered(kind: pa.DataType) -> None:
    first, second = (pa.table({"value": pa.array([b"x", each], kind)}) for each in (b"y", b"z"))
    assert checksum(first) != checksum(second)
    assert checksum(first.slice(1), first.slice(0, 0)) == checksum(first.slice(1))


def test_no_rows_have_one_of_their_own() -> None:
    assert checksum() != checksum(ROWS)
