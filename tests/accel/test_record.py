"""Record objects: every field in its place, made when they are asked for."""

from __future__ import annotations

import gc
import pickle
import weakref
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from pykclient.accel import ListColumns
from pykclient.types import TimestampType

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from pykclient.accel import ConsumerRecord
    from pykclient.accel.abc import RecordColumns

COLUMNS = ListColumns(
    range(5, 7),
    [1000, 2000],
    [b"key", None],
    [None, b"value"],
    [(("h", b"x"),), ()],
    size_bytes=10,
)


def test_records_have_the_fields_of_their_columns(core: ModuleType) -> None:
    records = list(
        core.iterate_records(
            COLUMNS,
            topic="flights",
            partition=3,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            leader_epoch=8,
        )
    )
    assert records == [
        core.ConsumerRecord(
            topic="flights",
            partition=3,
            offset=5,
            timestamp_ms=1000,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            key=b"key",
            value=None,
            headers=(("h", b"x"),),
            leader_epoch=8,
            serialized_key_size=3,
            serialized_value_size=-1,
        ),
        core.ConsumerRecord(
            topic="flights",
            partition=3,
            offset=6,
            timestamp_ms=2000,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            key=None,
            value=b"value",
            headers=(),
            leader_epoch=8,
            serialized_key_size=-1,
            serialized_value_size=5,
        ),
    ]
    assert records[0].offset == 5
    assert repr(records[0]).startswith("ConsumerRecord(topic='flights', partition=3, offset=5")


def test_deserialized_keys_and_values_keep_the_sizes_of_their_bytes(core: ModuleType) -> None:
    first, second = core.iterate_records(
        COLUMNS,
        topic="t",
        partition=0,
        timestamp_type=TimestampType.CREATE_TIME,
        leader_epoch=None,
        keys=["KEY", None],
        values=[None, {"v": 1}],
    )
    assert (first.key, first.serialized_key_size) == ("KEY", 3)
    assert (second.value, second.serialized_value_size) == ({"v": 1}, 5)
    assert second.leader_epoch is None


def record(core: ModuleType, **changed: object) -> ConsumerRecord:
    """A record made by hand."""
    fields: dict[str, object] = {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "timestamp_ms": 3,
        "timestamp_type": TimestampType.CREATE_TIME,
        "key": b"k",
        "value": None,
        "headers": (("h", b"x"),),
        "leader_epoch": 4,
        "serialized_key_size": 1,
        "serialized_value_size": -1,
    }
    made: ConsumerRecord = core.ConsumerRecord(**fields | changed)
    return made


def test_records_are_equal_by_what_they_hold(core: ModuleType) -> None:
    assert record(core) == record(core)
    assert hash(record(core)) == hash(record(core))
    assert record(core, offset=9) != record(core)
    assert record(core, headers=()) != record(core)
    stranger: object = "t"
    assert record(core) != stranger


def test_a_record_can_be_pickled(core: ModuleType) -> None:
    assert pickle.loads(pickle.dumps(record(core))) == record(core)


def test_a_record_cannot_be_changed(core: ModuleType) -> None:
    made = record(core)
    for name in ("topic", "offset", "value", "headers"):
        with pytest.raises(AttributeError):
            setattr(made, name, None)


@pytest.mark.promise("a record that is kept keeps only its own bytes")
def test_a_record_made_from_a_frame_is_whole_when_the_frame_is_gone(core: ModuleType) -> None:
    appender = core.RecordAppender(10**6, None, nullcontext())
    appender.append(1000, b"key", b"v" * 1000, [("h", b"x"), ("ü", None)])
    appender.seal()
    frame = bytearray(appender.view())
    data = core.record_bytes(memoryview(frame))
    (made,) = core.iterate_records(
        core.decode_records(data, 0, 0, 1, 5, 1000)[0],
        topic="t",
        partition=0,
        timestamp_type=TimestampType.CREATE_TIME,
        leader_epoch=None,
    )
    del data
    frame.clear()  # a BufferError if anything still held it
    assert (made.key, made.value) == (b"key", b"v" * 1000)
    assert made.headers == (("h", b"x"), ("ü", None))
    assert made.headers is made.headers


@pytest.mark.promise("no reference cycle through a deserialized value lasts")
def test_a_deserialized_value_that_knows_its_record_is_freed(core: ModuleType) -> None:
    class Value:
        record: ConsumerRecord

    value = Value()
    made = record(core, value=value)
    value.record = made
    is_gone = weakref.ref(value)
    del value, made
    gc.collect()
    assert is_gone() is None


@pytest.mark.promise("a released record is filled anew; a kept record never changes")
def test_a_record_that_is_kept_stays_as_it_was_while_the_loop_goes_on(core: ModuleType) -> None:
    columns = framed_columns(core, count=50)
    kept = [record for record in iterated(core, columns) if record.offset % 3]
    assert [(record.offset, record.value) for record in kept] == [
        (offset, b"%d" % offset) for offset in range(50) if offset % 3
    ]


@pytest.mark.promise("a released record is filled anew; a kept record never changes")
def test_a_field_of_a_record_outlives_it(core: ModuleType) -> None:
    columns = framed_columns(core, count=50)
    values = [(record.value, record.headers) for record in iterated(core, columns)]
    assert values == [(b"%d" % number, (("n", b"%d" % number),)) for number in range(50)]


def framed_columns(core: ModuleType, *, count: int) -> RecordColumns:
    """Records as they come from a broker, with their numbers as values."""
    appender = core.RecordAppender(10_000, None, nullcontext())
    for number in range(count):
        appender.append(0, None, b"%d" % number, [("n", b"%d" % number)])
    appender.seal()
    data = core.record_bytes(bytes(appender.view()))
    columns: RecordColumns = core.decode_records(data, 0, 0, count, 0, 0)[0]
    return columns


def iterated(core: ModuleType, columns: RecordColumns) -> Iterator[ConsumerRecord]:
    """The records as the application gets them."""
    records: Iterator[ConsumerRecord] = core.iterate_records(
        columns,
        topic="t",
        partition=0,
        timestamp_type=TimestampType.CREATE_TIME,
        leader_epoch=None,
    )
    return records
