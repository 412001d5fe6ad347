"""RecordSerializer: how it serializes each field, and the error messages for bad ones."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from pykclient.errors import RecordTooLargeError, SerializationError, UsageError
from pykclient.producer.config import ProducerConfig
from pykclient.producer.record import ProducerRecord, RecordMetadata
from pykclient.producer.serializers import RecordSerializer
from pykclient.records.builder import batch_size_upper_bound

if TYPE_CHECKING:
    from pykclient.accel.abc import HeadersInput
    from pykclient.producer.record import SerializedRecord

NOW_MS = 1_700_000_000_000


def serializer(**settings: object) -> RecordSerializer:
    config = ProducerConfig.from_settings(bootstrap_servers="localhost:9092", **settings)
    return RecordSerializer(config, lambda: NOW_MS)


def serialized(
    topic: object = "t",
    value: object = b"v",
    key: object = None,
    *,
    partition: object = None,
    timestamp_ms: object = None,
    headers: HeadersInput | None = None,
    by: RecordSerializer | None = None,
) -> SerializedRecord:
    return (by or serializer()).serialize(
        topic,
        value,
        key,
        partition=partition,
        timestamp_ms=timestamp_ms,
        headers=headers,
        on_delivery=None,
    )


def test_bytes_go_as_they_are_and_none_is_null() -> None:
    record = serialized(value=None, key=b"k")
    assert (record.topic, record.value, record.key) == ("t", None, b"k")
    assert (record.partition, record.timestamp_ms, record.headers) == (None, NOW_MS, ())


@pytest.mark.parametrize("value", [bytearray(b"v"), memoryview(b"v")])
def test_other_buffers_are_copied_into_bytes(value: object) -> None:
    assert serialized(value=value, key=value)[1:3] == (b"v", b"v")


def test_serializers_get_the_topic_and_never_null() -> None:
    def serialize(topic: str, value: object) -> bytes:
        return f"{topic}:{value}".encode()

    by = serializer(value_serializer=serialize, key_serializer=str.encode)
    assert not by.takes_bytes_only
    assert serialized(value=5, key="k", by=by)[1:3] == (b"t:5", b"k")
    assert serialized(value=None, by=by).value is None
    assert serializer().takes_bytes_only


class Typed:
    """A serializer that adds a header."""

    def __init__(self, name: str) -> None:
        self.name = name

    def serialize(self, topic: str, headers: list[tuple[str, object]], value: object) -> bytes:
        headers.append((self.name, str(len(headers)).encode()))
        return f"{topic}:{value}".encode()


@pytest.mark.parametrize("headers", [None, {"a": b"x"}, [("a", b"x")]])
def test_what_serializers_add_to_the_headers_is_sent_the_keys_first(
    headers: HeadersInput | None,
) -> None:
    by = serializer(key_serializer=Typed("key"), value_serializer=Typed("value"))
    assert by.takes_headers
    given = () if headers is None else (("a", b"x"),)
    count = len(given)
    record = serialized(value=5, key="k", headers=headers, by=by)
    assert record[1:3] == (b"t:5", b"t:k")
    assert record.headers == (
        *given,
        ("key", str(count).encode()),
        ("value", str(count + 1).encode()),
    )
    assert not serializer(value_serializer=str.encode).takes_headers


def test_a_header_of_a_serializer_that_cannot_be_sent_is_an_error() -> None:
    def serialize(value: object, headers: list[object]) -> bytes:
        headers.append(("a", "text"))
        return b""

    with pytest.raises(
        SerializationError, match=r"headers of a record for topic 't' are malformed"
    ):
        serialized(value=5, by=serializer(value_serializer=serialize))


@pytest.mark.parametrize("value", ["text", 5, 1.5, ["list"], object()])
def test_what_is_not_bytes_names_topic_type_and_cure(value: object) -> None:
    with pytest.raises(SerializationError) as raised:
        serialized(value=value)
    for part in ("'t'", type(value).__name__, "value_serializer"):
        assert part in str(raised.value)
    with pytest.raises(SerializationError, match="key_serializer"):
        serialized(key=value)


def test_a_serializer_that_fails_is_the_cause() -> None:
    with pytest.raises(SerializationError, match=r"value_serializer.*topic t") as raised:
        serialized(value=5, by=serializer(value_serializer=str.encode))
    assert isinstance(raised.value.__cause__, TypeError)


@pytest.mark.parametrize("topic", ["", None, 5, b"t", "t" * 250, "half of a pair: \ud800"])
def test_a_topic_is_text_that_fits_in_a_request(topic: object) -> None:
    with pytest.raises(UsageError, match="topic"):
        serialized(topic)


@pytest.mark.parametrize("topic", ["t" * 249, "brokers will say no!", "äöü"])
def test_whether_a_name_is_allowed_is_left_to_the_brokers(topic: str) -> None:
    assert serialized(topic).topic == topic


@pytest.mark.parametrize("number", [-1, True, 1.5, "1", 2**63])
def test_partitions_and_timestamps_are_whole_numbers_from_0(number: object) -> None:
    with pytest.raises(UsageError, match=r"partition of a record for topic 't'"):
        serialized(partition=number)
    with pytest.raises(UsageError, match=r"timestamp_ms of a record for topic 't'"):
        serialized(timestamp_ms=number)


def test_headers_are_pairs_of_text_and_bytes_or_none() -> None:
    pairs: list[tuple[str, bytes | None]] = [("a", b"1"), ("b", None)]
    assert serialized(headers=iter(pairs)).headers == (("a", b"1"), ("b", None))
    ((_, value),) = serialized(headers=[("c", bytearray(b"2"))]).headers  # type: ignore[list-item]
    assert value == b"2"
    assert type(value) is bytes


@pytest.mark.parametrize(
    "headers", [[("a",)], [("a", "text")], [(b"a", b"1")], [5], 5, {"a": 1}, [("\ud800", b"")]]
)
def test_other_headers_are_refused(headers: HeadersInput) -> None:
    with pytest.raises(SerializationError, match=r"'t'.*pairs"):
        serialized(headers=headers)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"max_request_size": 1_000}, "max_request_size is 1000"),
        ({"buffer_memory": 1_000}, "buffer_memory is 1000"),
    ],
)
def test_a_record_that_is_too_large_names_the_limit(settings: dict[str, int], name: str) -> None:
    by = serializer(**settings)
    overhead = batch_size_upper_bound(None, b"")
    assert serialized(value=bytes(1_000 - overhead), by=by).value is not None
    with pytest.raises(RecordTooLargeError, match=rf"'t'.*1001 bytes.*{name}"):
        serialized(value=bytes(1_001 - overhead), by=by)
    with pytest.raises(RecordTooLargeError, match=name):
        serialized(value=None, headers=[("h", bytes(1_000))], by=by)


def test_headers_are_kept_as_a_tuple_also_when_they_come_one_by_one() -> None:
    record = ProducerRecord("t", headers=(pair for pair in [("a", b"1"), ("a", None)]))
    assert record.headers == (("a", b"1"), ("a", None))


def test_records_compare_by_value_and_are_hashable_whatever_they_hold() -> None:
    first = ProducerRecord("t", {"un": "hashable"}, headers=[("a", b"1")])
    assert first == ProducerRecord("t", {"un": "hashable"}, headers=[("a", b"1")])
    assert first != ProducerRecord("t", {"un": "other"}, headers=[("a", b"1")])
    assert hash(first) == hash(ProducerRecord("t", {"un": "hashable"}, headers=[("a", b"1")]))


@pytest.mark.parametrize(
    "value", [ProducerRecord("t", b"v", headers=[("a", b"1")]), RecordMetadata("t", 0, 5, 9)]
)
def test_what_comes_and_goes_can_be_pickled(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value


def size_of(value: bytes | None, key: bytes | None, *headers: tuple[str, bytes]) -> int:
    return serialized(value=value, key=key, headers=headers).size_bytes_max


def test_the_size_of_a_record_counts_everything_in_it() -> None:
    bare = size_of(None, None)
    assert size_of(b"12345", b"678") == bare + 8
    assert size_of(None, None, ("ab", b"123")) >= bare + 5
