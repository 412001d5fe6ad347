"""RecordDeserializer: whole columns at a time, up to the first record that fails."""

from __future__ import annotations

import pytest

from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.deserializers import RecordDeserializer
from pykclient.errors import ConfigError, RecordDeserializationError
from pykclient.serialization import DeserializeWithHeaders, StringDeserializer
from tests.consumer.fetched_records import TIMESTAMP_MS, A, span


def as_number(topic: str, data: bytes) -> int:
    assert topic == "t"
    return int(data)


def config(**settings: object) -> ConsumerConfig:
    return ConsumerConfig.from_settings(bootstrap_servers="localhost:9092", **settings)


def test_keys_and_values_are_deserialized_each_by_its_own() -> None:
    deserializer = RecordDeserializer(as_number, lambda _, data: data.decode())
    done = deserializer.apply(span(A, [1, 2], keys=[b"10", b"20"]))
    assert (done.keys, done.values) == ([10, 20], ["v1", "v2"])
    assert list(done.columns.keys) == [b"10", b"20"]


def test_one_that_takes_headers_gets_those_of_each_record() -> None:
    deserializer = RecordDeserializer(
        DeserializeWithHeaders(lambda topic, headers, data: (topic, headers, data)), as_number
    )
    one, two = (("a", b"1"),), (("b", None),)
    done = deserializer.apply(
        span(A, [1, 2, 3], keys=[b"k", None, b"l"], values=[b"1"] * 3, headers=[one, one, two])
    )
    assert done.keys == [("t", one, b"k"), None, ("t", two, b"l")]
    assert done.values == [1, 1, 1]


def test_null_stays_null() -> None:
    done = RecordDeserializer(as_number, as_number).apply(
        span(A, [1, 2], keys=[None, b"5"], values=[b"6", None])
    )
    assert (done.keys, done.values) == ([None, 5], [6, None])


def test_what_has_no_deserializer_stays_as_it_is() -> None:
    done = RecordDeserializer(None, as_number).apply(span(A, [1], keys=[b"k"], values=[b"6"]))
    assert (done.keys, done.values) == (None, [6])


@pytest.mark.parametrize(
    ("keys", "values", "good_count"),
    [
        ([b"1", b"2", b"x", b"4"], [b"1", b"2", b"3", b"4"], 2),
        ([b"1", b"2", b"3", b"4"], [b"1", b"2", b"3", b"x"], 3),
        ([b"1", b"2", b"3", b"x"], [b"1", b"x", b"3", b"4"], 1),
        ([b"1", b"x", b"3", b"4"], [b"1", b"2", b"x", b"4"], 1),
    ],
)
def test_the_run_ends_before_the_first_record_that_cannot_be_read(
    keys: list[bytes], values: list[bytes], good_count: int
) -> None:
    records = span(A, [5, 6, 7, 8], keys=keys, values=values)
    done = RecordDeserializer(as_number, as_number).apply(records)
    assert list(done.columns.offsets) == [5, 6, 7, 8][:good_count]
    assert done.keys is not None
    assert done.values is not None
    assert len(done.keys) == len(done.values) == good_count


@pytest.mark.parametrize(("keys", "values", "what"), [("x", "1", "key"), ("1", "x", "value")])
def test_a_first_record_that_cannot_be_read_is_reported_with_its_raw_bytes(
    keys: str, values: str, what: str
) -> None:
    record = span(
        A, [5], keys=[keys.encode()], values=[values.encode()], headers=[(("trace", b"1"),)]
    )
    with pytest.raises(RecordDeserializationError) as raised:
        RecordDeserializer(as_number, as_number).apply(record)
    error = raised.value
    assert (error.topic, error.partition, error.offset) == ("t", 0, 5)
    assert (error.key, error.value) == (keys.encode(), values.encode())
    assert (error.timestamp_ms, error.headers) == (TIMESTAMP_MS, (("trace", b"1"),))
    assert f"{what}_deserializer" in str(error)
    assert "seek() to 6" in str(error)
    assert "on_record_error='skip'" in str(error)
    assert isinstance(error.__cause__, ValueError)


def test_the_message_of_an_error_does_not_have_the_records_bytes() -> None:
    record = span(A, [5], keys=[None], values=[b"\xffa secret"])
    with pytest.raises(RecordDeserializationError, match="UnicodeDecodeError: ") as raised:
        RecordDeserializer(None, StringDeserializer().deserialize).apply(record)
    assert "secret" not in str(raised.value)
    assert raised.value.value == b"\xffa secret"


def test_settings_may_be_objects_classes_callables_and_names() -> None:
    for setting in (bytes.decode, "pykclient.serialization:StringDeserializer"):
        deserializer = RecordDeserializer.from_config(config(value_deserializer=setting))
        assert deserializer is not None
        assert deserializer.apply(span(A, [1])).values == ["v1"]


def test_without_settings_there_is_nothing_to_apply() -> None:
    assert RecordDeserializer.from_config(config()) is None


@pytest.mark.parametrize("setting", [5, "no_such_module:Name"])
def test_a_setting_that_is_no_deserializer_is_refused_by_name(setting: object) -> None:
    with pytest.raises(ConfigError, match=r"key.deserializer"):
        RecordDeserializer.from_config(config(key_deserializer=setting))
