"""ByteColumn: one field of many records, from objects and from Arrow's buffers."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykclient.errors.base import SerializationError
from tests.accel.records import appended

if TYPE_CHECKING:
    from types import ModuleType

    from pykclient.accel.abc import HeadersInput
    from pykclient.accel.pure import ByteColumn

FIELDS = st.lists(st.none() | st.binary(max_size=70), max_size=20)


def from_arrow(core: ModuleType, array: pa.Array) -> ByteColumn:
    validity, offsets, data = array.buffers()
    size = 8 if array.type in (pa.large_binary(), pa.large_string()) else 4
    column: ByteColumn = core.ByteColumn.from_arrow(
        len(array), array.offset, validity=validity, offsets=offsets, data=data, offset_size=size
    )
    return column


def from_views(core: ModuleType, array: pa.Array) -> ByteColumn:
    validity, views, *buffers = array.buffers()
    column: ByteColumn = core.ByteColumn.from_views(
        len(array), array.offset, validity=validity, views=views, buffers=buffers
    )
    return column


def values_of(core: ModuleType, column: ByteColumn) -> list[bytes | None]:
    """Read a column by way of the records made of it, as applications do."""
    if not len(column):
        return []
    block = core.RowBlock(column, keys=None, headers=None, timestamps_ms=0, first_row=0)
    return list(appended(core, block.all_rows()).values)


def headers_of(core: ModuleType, column: ByteColumn) -> list[tuple[object, ...]]:
    values = core.ByteColumn.repeated(None, len(column))
    block = core.RowBlock(values, keys=None, headers=column, timestamps_ms=0, first_row=0)
    return list(appended(core, block.all_rows()).headers)


@settings(max_examples=60)
@given(FIELDS, st.integers(0, 20), st.integers(0, 20))
def test_views_are_read_where_they_are(
    core: ModuleType, fields: list[bytes | None], start: int, stop: int
) -> None:
    array = pa.array(fields, pa.binary_view()).slice(start, max(0, stop - start))
    assert values_of(core, from_views(core, array)) == array.to_pylist()


def test_views_look_into_any_number_of_buffers(core: ModuleType) -> None:
    views = [(13, 1, 2), (14, 0, 0), (13, 1, 0), (4, 0, 0)]
    found = core.ByteColumn.from_views(
        3,
        1,
        validity=b"\x0f",
        views=b"".join(struct.pack("=i4xii", *view) for view in views),
        buffers=[b"a" * 14, b"b" * 15],
    )
    assert values_of(core, found) == [b"a" * 14, b"b" * 13, bytes(4)]


@pytest.mark.parametrize(
    "view",
    [
        (-1, 0, 0),
        (-(2**31), 0, 0),
        (20, 0, 1),
        (21, 0, 0),
        (13, 0, -1),
        (13, -1, 0),
        (13, 1, 0),
        (2**31 - 1, 0, 2**31 - 1),
    ],
)
def test_views_that_look_elsewhere_are_refused(
    core: ModuleType, view: tuple[int, int, int]
) -> None:
    views = struct.pack("=i4xii", 13, 0, 0) + struct.pack("=i4xii", *view)

    def column(count: int, first: int, validity: bytes | None = None) -> ByteColumn:
        taken: ByteColumn = core.ByteColumn.from_views(
            count, first, validity=validity, views=views, buffers=[b"x" * 20]
        )
        return taken

    with pytest.raises(SerializationError, match="do not fit"):
        column(2, 0)
    assert values_of(core, column(1, 0)) == [b"x" * 13]
    assert values_of(core, column(2, 0, b"\x01")) == [b"x" * 13, None]


@pytest.mark.parametrize(
    ("count", "first"), [(3, 0), (1, 2), (-1, 0), (1, -1), (2**62, 2**62), (2**63 - 1, 1)]
)
def test_more_views_than_there_are_are_refused(core: ModuleType, count: int, first: int) -> None:
    views = struct.pack("=i4xii", 1, 0, 0) * 2
    with pytest.raises(SerializationError, match="do not fit"):
        core.ByteColumn.from_views(count, first, validity=None, views=views, buffers=[])
    with pytest.raises(SerializationError, match="do not fit"):
        core.ByteColumn.from_views(2, 0, validity=b"", views=views, buffers=[])
    with pytest.raises(SerializationError, match="do not fit"):
        core.ByteColumn.from_views(1, 0, validity=None, views=None, buffers=[])


def test_bytes_and_none_are_taken_as_they_are(core: ModuleType) -> None:
    column = core.ByteColumn.from_objects((b"a", None, b"", b"x" * 9000), "values")
    assert len(column) == 4
    assert values_of(core, column) == [b"a", None, b"", b"x" * 9000]


def test_what_can_be_read_as_bytes_is_copied(core: ModuleType) -> None:
    changing = bytearray(b"ab")
    column = core.ByteColumn.from_objects([changing, memoryview(b"cd"), None, b"e"], "keys")
    changing[:] = b"xy"
    assert values_of(core, column) == [b"ab", b"cd", None, b"e"]


@pytest.mark.parametrize(("item", "kind"), [("text", "str"), (7, "int"), ([], "list")])
def test_the_first_that_is_not_bytes_is_named_with_the_cure(
    core: ModuleType, item: object, kind: str
) -> None:
    with pytest.raises(SerializationError) as raised:
        core.ByteColumn.from_objects([b"", None, item, item], "values")
    assert str(raised.value) == (
        f"values[2] is of type {kind}, not bytes; pass bytes or None, or set value_serializer"
    )


def test_later_changes_of_the_list_change_nothing(core: ModuleType) -> None:
    objects: list[bytes | None] = [b"a", b"b"]
    column = core.ByteColumn.from_objects(objects, "values")
    objects.clear()
    assert values_of(core, column) == [b"a", b"b"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_arrow_arrays_are_read_where_they_are(core: ModuleType, kind: pa.DataType) -> None:
    array = pa.array(["a", None, "", "dé"], kind)
    assert values_of(core, from_arrow(core, array)) == [b"a", None, b"", "dé".encode()]


@settings(deadline=None)  # the first use of pyarrow takes long
@given(fields=FIELDS, data=st.data())
def test_any_slice_of_an_arrow_array_is_read(
    core: ModuleType, fields: list[bytes | None], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(fields)))
    stop = data.draw(st.integers(start, len(fields)))
    array = pa.array(fields, data.draw(st.sampled_from([pa.binary(), pa.large_binary()])))
    column = from_arrow(core, array.slice(start, stop - start))
    assert values_of(core, column) == fields[start:stop]


def test_an_array_without_any_byte_has_no_data(core: ModuleType) -> None:
    offsets = bytes(4 * 3)
    column = core.ByteColumn.from_arrow(
        2, 0, validity=None, offsets=offsets, data=None, offset_size=4
    )
    assert values_of(core, column) == [b"", b""]


def test_headers_are_encoded_record_by_record(core: ModuleType) -> None:
    column = core.ByteColumn.from_headers(
        [[("a", b"1"), ("b", None)], None, (), [("long", b"x" * 300)]], "headers"
    )
    assert headers_of(core, column) == [
        (("a", b"1"), ("b", None)),
        (),
        (),
        (("long", b"x" * 300),),
    ]


@pytest.mark.parametrize("wrong", [[("a", "text")], [(b"a", b"")], [("a",)], 7])
def test_wrong_headers_name_their_record(core: ModuleType, wrong: HeadersInput) -> None:
    with pytest.raises(SerializationError, match=r"^headers\[1\]: "):
        core.ByteColumn.from_headers([None, wrong], "headers")


def test_header_columns_are_encoded_as_header_lists_are(core: ModuleType) -> None:
    names = core.ByteColumn.from_objects([b"a", b"b", b"long"], "names")
    values = core.ByteColumn.from_objects([b"1", None, b"x" * 300], "values")
    column = core.ByteColumn.from_header_columns(array("q", [2, 0, 1]), names, values)
    assert headers_of(core, column) == [
        (("a", b"1"), ("b", None)),
        (),
        (("long", b"x" * 300),),
    ]


@pytest.mark.parametrize("item", [b"same", None])
def test_one_item_may_stand_for_all(core: ModuleType, item: bytes | None) -> None:
    column = core.ByteColumn.repeated(item, 3)
    assert len(column) == 3
    assert values_of(core, column) == [item] * 3
