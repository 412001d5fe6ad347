"""ConsumerRecords: columns that become records during iteration."""

from __future__ import annotations

import pickle
from contextlib import nullcontext

import pytest

from pykclient.accel import ConsumerRecord, decode_records, pure, record_bytes
from pykclient.consumer.record import ConsumerRecords, RecordSpan
from pykclient.errors import UsageError
from pykclient.types import OffsetAndMetadata, TimestampType, TopicPartition
from tests.consumer.fetched_records import TIMESTAMP_MS, A, B, span

RECORDS = ConsumerRecords([span(A, [1, 2]), span(B, [7]), span(A, [3])])


def test_records_come_in_order_of_their_runs() -> None:
    assert [(r.topic, r.partition, r.offset) for r in RECORDS] == [
        ("t", 0, 1),
        ("t", 0, 2),
        ("u", 1, 7),
        ("t", 0, 3),
    ]


def test_a_record_has_all_its_fields() -> None:
    (record,) = ConsumerRecords([span(B, [7], keys=[b"k"], headers=[(("h", None),)])])
    assert record == ConsumerRecord(
        topic="u",
        partition=1,
        offset=7,
        timestamp_ms=TIMESTAMP_MS,
        timestamp_type=TimestampType.CREATE_TIME,
        key=b"k",
        value=b"v7",
        headers=(("h", None),),
        leader_epoch=5,
        serialized_key_size=1,
        serialized_value_size=2,
    )


def test_deserialized_values_stand_for_the_raw_ones_and_sizes_stay() -> None:
    deserialized = span(A, [1, 2])._replace(values=["one", "two"], keys=[None, None])
    records = list(ConsumerRecords[str, str]([deserialized]))
    assert [record.value for record in records] == ["one", "two"]
    assert [record.serialized_value_size for record in records] == [2, 2]
    assert [record.serialized_key_size for record in records] == [-1, -1]


def test_iterating_again_gives_the_same() -> None:
    assert list(RECORDS) == list(RECORDS)


def test_the_length_is_the_number_of_records() -> None:
    assert len(RECORDS) == 4
    assert RECORDS
    assert not ConsumerRecords()
    assert list(ConsumerRecords()) == []


def test_by_partition_has_the_records_of_each_in_order() -> None:
    by_partition = RECORDS.by_partition()
    assert {p: [r.offset for r in records] for p, records in by_partition.items()} == {
        A: [1, 2, 3],
        B: [7],
    }
    assert RECORDS.partitions == (A, B)


def test_it_shows_what_it_has() -> None:
    assert repr(RECORDS) == "<ConsumerRecords: 4 of t-0, u-1>"
    assert repr(ConsumerRecords()) == "<ConsumerRecords: 0 of no partition>"


def test_the_records_of_one_partition_are_had_by_its_name() -> None:
    assert [record.offset for record in RECORDS[A]] == [1, 2, 3]
    assert RECORDS[TopicPartition("t", 9)] == []
    with pytest.raises(UsageError, match=r"takes a TopicPartition, a number or a slice, not str"):
        RECORDS["t"]  # type: ignore[call-overload]


def test_the_records_are_had_by_number_in_the_order_of_an_iteration() -> None:
    listed = list(RECORDS)
    assert [RECORDS[number] for number in range(-4, 4)] == [*listed, *listed]
    assert RECORDS[1:3] == listed[1:3]
    assert RECORDS[::-1] == listed[::-1]
    for number in (4, -5):
        with pytest.raises(IndexError, match=f"record {number} of 4"):
            RECORDS[number]
    with pytest.raises(IndexError):
        ConsumerRecords()[0]


def test_a_record_names_its_partition() -> None:
    assert [record.topic_partition for record in RECORDS] == [A, A, B, A]
    assert all(type(record.topic_partition) is TopicPartition for record in RECORDS)


def test_next_offsets_are_behind_the_last_records_where_nothing_more_is_known() -> None:
    assert RECORDS.next_offsets == {
        A: OffsetAndMetadata(4, leader_epoch=5),
        B: OffsetAndMetadata(8, leader_epoch=5),
    }


def test_next_offsets_are_those_that_were_given() -> None:
    records = ConsumerRecords([span(A, [1, 2])], [(B, 3, None), (A, 9, 6)])
    assert records.next_offsets == {A: OffsetAndMetadata(9, leader_epoch=6)}


def decoded_span() -> RecordSpan:
    """Return records as from a broker, with deserialized values."""
    appender = pure.RecordAppender[None](10_000, None, nullcontext())
    for number in range(3):
        appender.append(number, b"key %d" % number, b"%d" % number, [("h", None)])
    appender.seal()
    data = record_bytes(bytes(appender.view()))
    columns, _ = decode_records(data, 0, 0, 3, 10, 0)
    return RecordSpan(A, columns, TimestampType.CREATE_TIME, None, values=[0, 1, 2])


def test_records_come_back_from_another_process_as_they_were() -> None:
    records = ConsumerRecords([decoded_span(), span(B, [7])], [(A, 15, None)])
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        found = pickle.loads(pickle.dumps(records, protocol))
        assert list(found) == list(records)
        assert found.next_offsets == records.next_offsets
        assert len(found) == len(records)
