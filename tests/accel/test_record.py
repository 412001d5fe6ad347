"""Record objects: every field in its place, made when they are read."""

from __future__ import annotations

import gc
import pickle
import weakref
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from pykclient.accel import ListColumns
from pykclient.types import TimestampType
from tests.accel.records import decoded, encoded, iterated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from pykclient.accel import ConsumerRecord

COLUMNS = ListColumns(
    range(5, 7),
    [1000, 2000],
    [b"key", None],
    [None, b"value"],
    [(("h", b"x"),), ()],
    size_bytes=10,
)


def made(core: ModuleType, **changed: object) -> ConsumerRecord:
    """Return a record made by hand: the first one of `COLUMNS`."""
    fields: dict[str, object] = {
        "topic": "flights",
        "partition": 3,
        "offset": 5,
        "timestamp_ms": 1000,
        "timestamp_type": TimestampType.LOG_APPEND_TIME,
        "key": b"key",
        "value": None,
        "headers": (("h", b"x"),),
        "leader_epoch": 8,
        "serialized_key_size": 3,
        "serialized_value_size": -1,
    }
    record: ConsumerRecord = core.ConsumerRecord(**fields | changed)
    return record


def test_a_header_is_had_by_its_name_the_last_one_first(core: ModuleType) -> None:
    record = made(core, headers=(("a", b"1"), ("b", None), ("a", b"2")))
    assert record.header("a") == b"2"
    assert record.header("b", b"default") is None
    assert record.header("c") is None
    assert record.header("c", b"default") == b"default"


def test_a_timestamp_is_a_datetime_in_utc_if_there_is_one(core: ModuleType) -> None:
    record = made(core, timestamp_ms=1_700_000_000_123)
    assert record.timestamp == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    assert [made(core, timestamp_ms=ms).timestamp for ms in (-1, 2**62)] == [None, None]


def test_records_have_the_fields_of_their_columns(core: ModuleType) -> None:
    records = list(
        core.iterate_records(
            COLUMNS,
            topic="flights",
            partition=3,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            leader_epoch=8,
        )[0]
    )
    second = {"key": None, "value": b"value", "headers": (), "offset": 6, "timestamp_ms": 2000}
    sizes = {"serialized_key_size": -1, "serialized_value_size": 5}
    assert records == [made(core), made(core, **second, **sizes)]
    assert records[0].offset == 5
    assert repr(records[0]).startswith("ConsumerRecord(topic='flights', partition=3, offset=5")


def test_deserialized_keys_and_values_keep_the_sizes_of_their_bytes(core: ModuleType) -> None:
    (first, second), _ = core.iterate_records(
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


def test_records_are_equal_by_what_they_hold(core: ModuleType) -> None:
    assert made(core) == made(core)
    assert hash(made(core)) == hash(made(core))
    assert made(core, offset=9) != made(core)
    assert made(core, headers=()) != made(core)
    stranger: object = "t"
    assert made(core) != stranger


def test_a_record_can_be_pickled(core: ModuleType) -> None:
    assert pickle.loads(pickle.dumps(made(core))) == made(core)


def test_a_record_cannot_be_changed(core: ModuleType) -> None:
    record = made(core)
    for name in ("topic", "offset", "value", "headers"):
        with pytest.raises(AttributeError):
            setattr(record, name, None)


def test_a_record_made_from_a_frame_is_whole_when_the_frame_is_gone(core: ModuleType) -> None:
    headers = (("h", b"x"), ("ü", None))
    frame = bytearray(encoded(core, [(1000, b"key", b"v" * 1000, headers)]))
    data = core.record_bytes(memoryview(frame))
    (record,) = iterated(core, decoded(core, data))
    del data
    frame.clear()  # a BufferError if anything still held it
    assert (record.key, record.value) == (b"key", b"v" * 1000)
    assert record.headers == headers
    assert record.headers is record.headers


def test_a_deserialized_value_that_refers_to_its_record_is_freed(core: ModuleType) -> None:
    class Value:
        record: ConsumerRecord

    value = Value()
    value.record = made(core, value=value)
    is_gone = weakref.ref(value)
    del value
    gc.collect()
    assert is_gone() is None


def fifty(core: ModuleType) -> Iterator[ConsumerRecord]:
    """Yield records as they come from a broker, with their numbers as values."""
    rows = [(0, None, b"%d" % number, (("n", b"%d" % number),)) for number in range(50)]
    return iterated(core, decoded(core, core.record_bytes(encoded(core, rows)), 50))


def test_a_record_that_is_kept_stays_as_it_was_while_the_loop_goes_on(core: ModuleType) -> None:
    kept = [record for record in fifty(core) if record.offset % 3]
    assert [(record.offset, record.value) for record in kept] == [
        (offset, b"%d" % offset) for offset in range(50) if offset % 3
    ]


def test_a_field_of_a_record_outlives_it(core: ModuleType) -> None:
    values = [(record.value, record.headers) for record in fifty(core)]
    assert values == [(b"%d" % number, (("n", b"%d" % number),)) for number in range(50)]
