"""Names and record of the exactly-once sink: round trips, and errors for invalid ones."""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

import pytest

from pykclient.errors import ConfigError, DecodeError
from spark_connector.exactly_once.names import (
    SlotName,
    checked_atomicity,
    checked_sink_id,
    sink_group,
    slot_id,
    slot_name,
)
from spark_connector.exactly_once.record import (
    PART_LENGTH_MAX,
    Missing,
    SinkRecord,
    Stage,
    Written,
    part_of,
    parts_of,
)


def record(task_count: int) -> SinkRecord:
    written = tuple(
        Written(
            task,
            50_000 + task,
            slot_id("a", SlotName(3, f"w{task * 7919}", task)),
            4000 + task,
            3,
            2,
            crc32(b"%d" % task),
        )
        for task in range(task_count)
    )
    return SinkRecord(turn=3, number=8).decided(
        57, "0b5f", written, topic="a", task_count=task_count
    )


@pytest.mark.parametrize("task_count", [0, 1, 200, 3_000])
def test_a_record_is_read_back_from_its_parts(task_count: int) -> None:
    written = record(task_count)
    parts = parts_of(written.to_text("a"))
    assert {part_of(part)[0] for part in parts} == {len(parts)}
    assert all(len(part) <= PART_LENGTH_MAX + 20 for part in parts)
    text = "".join(part_of(part)[1] for part in parts)
    assert SinkRecord.from_text("a", written.number, text) == written


def test_a_record_of_a_hundred_and_forty_tasks_is_one_part() -> None:
    assert len(parts_of(record(140).to_text("a"))) == 1


def test_what_brokers_refuse_to_commit_is_missing() -> None:
    decided = record(3)
    ended = decided.ended(frozenset({decided.written[1].transactional_id}))
    assert (ended.stage, ended.missing) == (Stage.INCOMPLETE, ((1, 50_001, crc32(b"1")),))
    assert decided.ended(frozenset()).stage is Stage.COMPLETE


def test_a_record_of_format_1_is_read() -> None:
    fields = (
        '{"format":1,"turn":3,"stage":"%s","batch":57,"query":"0b5f","tasks":2,"written":[%s],'
        '"missing":[%s]}'
    )
    decided = SinkRecord.from_text("a", 9, fields % ("decided", '[0,50,"3:w:1",4000,3,2]', ""))
    assert decided.written == (Written(0, 50, slot_id("a", SlotName(3, "w", 1)), 4000, 3, 2),)
    incomplete = SinkRecord.from_text("a", 9, fields % ("incomplete", "", "[0,50]"))
    assert incomplete.missing == (Missing(0, 50),)
    assert (incomplete.topic, incomplete.missing[0].checksum) == (None, None)


@pytest.mark.parametrize("text", ["", "{}", "z?", "zeJwr", '{"format":1}', "[]", "null"])
def test_a_text_that_is_no_record_is_named(text: str) -> None:
    with pytest.raises(DecodeError, match="record of sink 'a' cannot be read"):
        SinkRecord.from_text("a", 1, text)


def test_a_record_of_a_newer_version_is_named() -> None:
    with pytest.raises(DecodeError, match="update pykclient"):
        SinkRecord.from_text("a", 1, '{"format":3}')


@pytest.mark.parametrize("text", ["", "1/0 x", "x", "1/x y"])
def test_a_text_that_is_no_part_is_named(text: str) -> None:
    with pytest.raises(DecodeError, match="no part of a sink's record"):
        part_of(text)


def test_ids_are_told_apart_by_sink() -> None:
    name = SlotName(12, "ab3f", 4)
    assert slot_name("a.b", slot_id("a.b", name)) == name
    assert slot_name("a", slot_id("a.b", name)) is None
    assert slot_name("a.b", sink_group("a.b", 1)) is None
    assert replace(record(0)).turn == 3


@pytest.mark.parametrize("text", ["", "a:b", "a b", "x" * 101])
def test_a_sink_id_that_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="sinkId"):
        checked_sink_id(text)
    assert checked_sink_id(" a-1.b_C ") == "a-1.b_C"


def test_an_unknown_atomicity_is_refused_with_a_guess() -> None:
    with pytest.raises(ConfigError, match=r"must be task or batch, not 'bacth'.*batch"):
        checked_atomicity("bacth")
