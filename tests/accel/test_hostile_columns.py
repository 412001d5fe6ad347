"""Columns whose buffers do not fit their type: each has to be refused before a lookup in memory.

Run as a program with a core's name, it writes the cases that were not refused: under ``python -O``
there are no asserts, and what guards memory has to hold all the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
from array import array
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pykclient.accel.key_rule import MURMUR2
from pykclient.accel.pure.appender import HEADER_COUNT_MAX
from pykclient.errors.base import SerializationError
from pykclient.producer.bulk.arrow import ArrowTables
from pykclient.producer.config import ProducerConfig
from pykclient.producer.serializers import RecordSerializer
from tests.accel.records import new_appender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

Case = tuple[str, "Callable[[], object]", type[Exception]]

BINARY, TEXT = pa.binary(), pa.string()
HEADERS = pa.list_(pa.struct([("key", TEXT), ("value", BINARY)]))


def core_cases(core: ModuleType) -> Iterator[Case]:
    """Columns, blocks and divisions that a caller has given wrong lengths, counts or offsets."""
    column: Any = core.ByteColumn
    names = column.from_objects([b"a", b"b"], "names")

    def of_headers(*counts: int, names: object = names, values: object = names) -> object:
        return column.from_header_columns(array("q", counts), names, values)

    def block(count: int = 2, **columns: Any) -> Any:
        values = column.repeated(b"v", count)
        given = {"keys": None, "headers": None, "timestamps_ms": 1, "first_row": 0, **columns}
        return core.RowBlock(values, **given)

    def divided(counts: Sequence[int], **columns: Any) -> object:
        return block(keys=names).by_partition(
            counts, key_rule=MURMUR2, take_turn=lambda topic, size_bytes: (0, 1), **columns
        )

    one = column.repeated(b"x", 1)
    lost = column.repeated(None, 2)
    many = column.repeated(b"", HEADER_COUNT_MAX + 1)
    bad = SerializationError
    yield "counts beyond the names", lambda: of_headers(1, 10**6), bad
    yield "counts below the names", lambda: of_headers(1), bad
    yield "no counts", of_headers, bad
    yield "negative counts", lambda: of_headers(3, -1), bad
    yield "counts that overflow", lambda: of_headers(2**62, 2**62, 2**62, 2**62, 2), bad
    yield "fewer values than names", lambda: of_headers(2, values=one), bad
    yield "more values than names", lambda: of_headers(1, names=one), bad
    yield "names that are null", lambda: of_headers(2, names=lost), bad
    yield "headers that none reads", lambda: of_headers(len(many), names=many, values=many), bad
    yield "keys of another length", lambda: block(3, keys=names), bad
    yield "headers of another length", lambda: block(1, headers=names), bad
    yield "times of another length", lambda: block(timestamps_ms=array("q", [1])), bad
    yield "no times", lambda: block(timestamps_ms=array("q")), bad
    yield "topics of another length", lambda: divided([1, 1], topics=array("i", [0])), bad
    yield "no topics", lambda: divided([1, 1], topics=array("i")), bad
    yield "partitions of another length", lambda: divided([9], partitions=array("i", [1])), bad
    yield "a topic that there is not", lambda: divided([1], topics=array("i", [0, 1])), IndexError
    yield "a negative topic", lambda: divided([1], topics=array("i", [0, -1])), IndexError
    yield "a topic without partitions", lambda: divided([0]), IndexError
    yield "no topic at all", lambda: divided([]), IndexError
    yield (
        "largest of another length",
        lambda: core.largest_partitions(array("i", [1, 2]), array("i", [0]), 1),
        bad,
    )
    yield (
        "largest of no topic",
        lambda: core.largest_partitions(array("i", [1]), array("i", [5]), 1),
        IndexError,
    )
    yield from layout_cases(core)
    yield from appender_cases(core)


def layout_cases(core: ModuleType) -> Iterator[Case]:
    """Buffers of Arrow arrays that do not fit each other."""

    def of_arrow(offsets: Sequence[int], count: int, first: int = 0, **rest: Any) -> object:
        given = {"validity": None, "data": b"abcdef", "offset_size": 4, **rest}
        form = "i" if given["offset_size"] == 4 else "q"
        return core.ByteColumn.from_arrow(count, first, offsets=array(form, offsets), **given)

    bad = SerializationError
    for size in (4, 8):
        yield "offsets that go back", partial(of_arrow, [0, 3, 1], 2, offset_size=size), bad
        yield "offsets beyond the data", partial(of_arrow, [0, 1, 7], 2, offset_size=size), bad
        yield "negative offsets", partial(of_arrow, [-5, 0, 1], 2, offset_size=size), bad
        yield "too few offsets", partial(of_arrow, [0, 1], 2, offset_size=size), bad
        yield "no offsets", partial(of_arrow, [], 2, offset_size=size), bad
        yield "the last goes back", partial(of_arrow, [3, 2, 1], 2, offset_size=size), bad
        yield "far beyond", partial(of_arrow, [0, 2**31 - 1, 2], 2, offset_size=size), bad
        yield "far below", partial(of_arrow, [-(2**31), 1, 2], 2, offset_size=size), bad
        yield "a slice beyond all", partial(of_arrow, [0, 1], 1, 2**62, offset_size=size), bad
    yield "a length beyond all", lambda: of_arrow([0, 1], 2**63 - 1, 2), bad
    yield "a negative slice", lambda: of_arrow([0, 1, 2], 1, -1), bad
    yield "a negative length", lambda: of_arrow([0, 1, 2], -1), bad
    yield "offsets of no size", lambda: of_arrow([0, 1, 2], 1, offset_size=0), Exception
    yield "no data at all", lambda: of_arrow([0, 1, 2], 2, data=None), bad
    yield "too few bits", lambda: of_arrow(range(10), 9, data=b"x" * 9, validity=b"\xff"), bad


def appender_cases(core: ModuleType) -> Iterator[Case]:
    """Yield views of memory that may move or does not exist."""
    opened, sealed = new_appender(core), new_appender(core)
    for appender in (opened, sealed):
        appender.append(0, None, b"v")
    sealed.seal()
    yield "a view of what may move", opened.view, BufferError
    yield "a frame of what may move", lambda: opened.frame(61), BufferError
    yield "a frame before its room", lambda: sealed.frame(-5), BufferError


def arrow_cases() -> Iterator[Case]:
    """Tables whose buffers were overwritten once Arrow had looked at them.

    Other libraries hand over theirs without a look, by Arrow's C interface.
    """
    tables, by_serializer = (
        ArrowTables(
            RecordSerializer(
                ProducerConfig.from_settings(
                    bootstrap_servers="localhost:9092", value_serializer=serialize
                ),
                lambda: 1,
            ),
            lambda: 1,
        )
        for serialize in (None, lambda _, value: str(value).encode())
    )

    def refused(
        kind: pa.DataType,
        offsets: Sequence[int],
        name: str,
        *,
        pieces: int = 1,
        maker: ArrowTables = tables,
    ) -> object:
        column, memory = overwritten(kind)
        others = {} if name == "value" else {"value": pa.array([b""] * 3)}
        table = pa.concat_tables([pa.table({name: column, **others})] * pieces)
        memory[:] = array("i", offsets).tobytes()
        return maker.table(None if name == "topic" else "t", table)

    for offsets in ([0, 3, 1, 3], [0, -5, 3, 3], [0, 10**6, 2 * 10**6, 3], [0, 1, 2, 10**6]):
        for kind, name, pieces, maker in (
            *((kind, "key", pieces, tables) for kind in (BINARY, TEXT) for pieces in (1, 3)),
            *((HEADERS, "headers", pieces, tables) for pieces in (1, 3)),
            *((kind, "value", 1, by_serializer) for kind in (BINARY, TEXT, HEADERS)),
            *((TEXT, "topic", pieces, tables) for pieces in (1, 3)),
        ):
            yield (
                f"{name} of type {kind} with the offsets {offsets} in {pieces} pieces",
                partial(refused, kind, offsets, name, pieces=pieces, maker=maker),
                SerializationError,
            )


def overwritten(kind: pa.DataType) -> tuple[pa.Array, bytearray]:
    """Return an array of three items, and its offsets, to be overwritten."""
    memory = bytearray(array("i", [0, 1, 2, 3]).tobytes())
    buffers = [None, pa.py_buffer(memory)]
    children = None
    if kind == HEADERS:
        items = pa.array([b"a", b"b", b"c"])
        children = [pa.StructArray.from_arrays([items.cast(TEXT), items], ["key", "value"])]
    else:
        buffers.append(pa.py_buffer(b"abc"))
    return pa.Array.from_buffers(kind, 3, buffers, 0, children=children), memory


def not_refused(cases: Iterator[Case]) -> list[str]:
    """Return the cases that went through, and those that ended in another error."""
    found = []
    for name, call, expected in cases:
        try:
            call()
            found.append(name)
        except expected:
            continue
        except Exception as error:  # noqa: BLE001 - which is shown with its case
            found.append(f"{name}: {error!r}")
    return found


def test_columns_with_impossible_buffers_are_refused(core: ModuleType) -> None:
    assert not_refused(core_cases(core)) == []


def test_damaged_arrow_tables_are_refused() -> None:
    assert not_refused(arrow_cases()) == []


def test_they_are_refused_without_asserts_too(core: ModuleType) -> None:
    name = core.__name__.rpartition(".")[2]
    ended = subprocess.run(
        [sys.executable, "-O", "-m", "tests.accel.test_hostile_columns", name],
        env={**os.environ, "PYKCLIENT_ACCEL": name},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "[]", "")


if __name__ == "__main__":
    chosen = import_module(f"pykclient.accel.{sys.argv[1]}")
    sys.stdout.write(str([*not_refused(core_cases(chosen)), *not_refused(arrow_cases())]))
