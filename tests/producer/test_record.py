"""ProducerRecord and RecordMetadata: plain values; the size of a record."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace

import pytest

from pykclient.producer.record import ProducerRecord, RecordMetadata
from pykclient.producer.serializers import RecordSerializer


def test_a_record_has_defaults_that_leave_everything_to_the_producer() -> None:
    record = ProducerRecord("t", b"v")
    assert (record.key, record.partition, record.timestamp_ms, record.headers) == (
        None,
        None,
        None,
        (),
    )


def test_headers_are_kept_as_a_tuple_also_when_they_come_one_by_one() -> None:
    record = ProducerRecord("t", headers=(pair for pair in [("a", b"1"), ("a", None)]))
    assert record.headers == (("a", b"1"), ("a", None))


def test_records_compare_by_value_and_are_hashable_whatever_they_hold() -> None:
    first = ProducerRecord("t", {"un": "hashable"}, headers=[("a", b"1")])
    assert first == ProducerRecord("t", {"un": "hashable"}, headers=[("a", b"1")])
    assert first != ProducerRecord("t", {"un": "other"}, headers=[("a", b"1")])
    assert hash(first) == hash(ProducerRecord("t", {"un": "hashable"}, headers=[("a", b"1")]))


def test_a_record_does_not_change_but_can_be_replaced() -> None:
    record = ProducerRecord("t", b"v", b"k", partition=3)
    with pytest.raises(FrozenInstanceError):
        record.topic = "u"  # type: ignore[misc]
    assert replace(record, topic="u") == ProducerRecord("u", b"v", b"k", partition=3)


@pytest.mark.parametrize(
    "value", [ProducerRecord("t", b"v", headers=[("a", b"1")]), RecordMetadata("t", 0, 5, 9)]
)
def test_what_comes_and_goes_can_be_pickled(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value


def size_of(value: bytes | None, key: bytes | None, *headers: tuple[str, bytes]) -> int:
    serializer = RecordSerializer(
        None, None, max_request_size=1_000, buffer_memory=1_000, clock_ms=lambda: 0
    )
    record = serializer.serialize(
        "t", value, key, partition=None, timestamp_ms=0, headers=headers, on_delivery=None
    )
    return record.size_bytes_max


def test_the_size_of_a_record_counts_everything_in_it() -> None:
    bare = size_of(None, None)
    assert size_of(b"12345", b"678") == bare + 8
    assert size_of(None, None, ("ab", b"123")) >= bare + 5
