"""Serializers: round trips, Java's forms, clear errors, and every shape that a setting may have."""

from __future__ import annotations

import json
import math
import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient import serialization
from pykclient.config.setting import resolve_class_setting
from pykclient.consumer.config import ConsumerConfig
from pykclient.errors.base import BufferExhaustedError, ConfigError, SerializationError
from pykclient.producer.config import ProducerConfig
from pykclient.serialization import (
    BooleanDeserializer,
    BooleanSerializer,
    BytesDeserializer,
    BytesSerializer,
    Deserialize,
    DeserializeWithHeaders,
    DoubleDeserializer,
    DoubleSerializer,
    FloatDeserializer,
    FloatSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    JsonDeserializer,
    JsonSerializer,
    LongDeserializer,
    LongSerializer,
    Serialize,
    SerializeWithHeaders,
    ShortDeserializer,
    ShortSerializer,
    StringDeserializer,
    StringSerializer,
    UUIDDeserializer,
    UUIDSerializer,
    deserialize_function,
    serialize_function,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=10,
).filter(lambda value: json.loads(json.dumps(value)) == value)


ID = UUID("0f8fad5b-d9cb-469f-a165-70867728950e")
OTHER_NAN: float = struct.unpack(">d", b"\xff\xf8\x00\x00\x00\x00\x00\x01")[0]
ALL = [
    (BooleanSerializer(), BooleanDeserializer(), st.booleans()),
    (BytesSerializer(), BytesDeserializer(), st.binary()),
    (StringSerializer(), StringDeserializer(), st.text()),
    (ShortSerializer(), ShortDeserializer(), st.integers(-(2**15), 2**15 - 1)),
    (IntegerSerializer(), IntegerDeserializer(), st.integers(-(2**31), 2**31 - 1)),
    (LongSerializer(), LongDeserializer(), st.integers(-(2**63), 2**63 - 1)),
    (FloatSerializer(), FloatDeserializer(), st.floats(width=32)),
    (DoubleSerializer(), DoubleDeserializer(), st.floats()),
    (UUIDSerializer(), UUIDDeserializer(), st.uuids()),
    (JsonSerializer(), JsonDeserializer(), JSON.filter(lambda value: value is not None)),
]


def serialize_by(configured: object) -> Serialize:
    found = serialize_function("value_serializer", configured)
    assert not isinstance(found, SerializeWithHeaders)
    return found


def deserialize_by(configured: object) -> Deserialize:
    found = deserialize_function("value_deserializer", configured)
    assert not isinstance(found, DeserializeWithHeaders)
    return found


@pytest.mark.parametrize(
    ("serializer", "value", "data"),
    [
        (BooleanSerializer(), True, b"\x01"),
        (ShortSerializer(), -2, b"\xff\xfe"),
        (FloatSerializer(), 0.1, b"\x3d\xcc\xcc\xcd"),
        (DoubleSerializer(), OTHER_NAN, b"\x7f\xf8\x00\x00\x00\x00\x00\x00"),
        (UUIDSerializer(), ID, b"0f8fad5b-d9cb-469f-a165-70867728950e"),
        (BytesSerializer(), bytearray(b"\x00\xff"), b"\x00\xff"),
        (StringSerializer(), "Grüße", b"Gr\xc3\xbc\xc3\x9fe"),
        (StringSerializer("utf-16-be"), "a", b"\x00a"),
        (IntegerSerializer(), 1, b"\x00\x00\x00\x01"),
        (IntegerSerializer(), -(2**31), b"\x80\x00\x00\x00"),
        (LongSerializer(), -1, b"\xff" * 8),
        (DoubleSerializer(), 1.0, b"\x3f\xf0\x00\x00\x00\x00\x00\x00"),
        (JsonSerializer(), {"a": [1, "é"]}, b'{"a":[1,"\xc3\xa9"]}'),
    ],
)
def test_the_bytes_are_those_of_java_or_of_the_standard(
    serializer: Any, value: object, data: bytes
) -> None:
    assert serializer.serialize("t", value) == data


@pytest.mark.parametrize(("serializer", "deserializer", "_"), ALL)
def test_null_is_null(serializer: Any, deserializer: Any, _: object) -> None:
    assert serializer.serialize("t", None) is None
    assert deserializer.deserialize("t", None) is None


@pytest.mark.parametrize(("serializer", "deserializer", "values"), ALL)
@given(data=st.data())
def test_what_is_written_comes_back(
    serializer: Any,
    deserializer: Any,
    values: st.SearchStrategy[object],
    data: st.DataObject,
) -> None:
    value = data.draw(values)
    written = serializer.serialize("t", value)
    assert written is not None
    # By their text: a NaN equals nothing.
    assert repr(deserializer.deserialize("t", written)) == repr(value)


@pytest.mark.parametrize(
    ("serializer", "value"),
    [
        (BytesSerializer(), "text"),
        (StringSerializer(), b"bytes"),
        (StringSerializer(), "\ud800"),
        (StringSerializer("ascii"), "é"),
        (IntegerSerializer(), 2**31),
        (IntegerSerializer(), "1"),
        (IntegerSerializer(), True),
        (BooleanSerializer(), 1),
        (ShortSerializer(), 2**15),
        (FloatSerializer(), 1e39),
        (UUIDSerializer(), str(ID)),
        (LongSerializer(), 2**63),
        (LongSerializer(), 1.5),
        (DoubleSerializer(), "1"),
        (DoubleSerializer(), 10**400),
        (JsonSerializer(), b"bytes"),
        (JsonSerializer(), math.nan),
    ],
)
def test_a_value_that_does_not_fit_is_a_serialization_error_that_names_its_type(
    serializer: Any, value: object
) -> None:
    with pytest.raises(SerializationError) as caught:
        serializer.serialize("flights", value)
    assert f"a {type(value).__name__} for topic flights" in str(caught.value)


@pytest.mark.parametrize(
    ("deserializer", "data"),
    [
        (StringDeserializer(), b"\xff"),
        (IntegerDeserializer(), b"\x00\x00\x01"),
        (LongDeserializer(), b"\x00" * 9),
        (DoubleDeserializer(), b""),
        (BooleanDeserializer(), b"\x02"),
        (BooleanDeserializer(), b""),
        (ShortDeserializer(), b"\x00"),
        (FloatDeserializer(), b"\x00" * 8),
        (UUIDDeserializer(), str(ID).replace("-", "").encode()),
        (UUIDDeserializer(), b"\xff" * 36),
        (JsonDeserializer(), b"{"),
        (JsonDeserializer(), b"\xff"),
    ],
)
def test_bytes_that_do_not_fit_are_a_value_error(deserializer: Any, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        deserializer.deserialize("t", data)


def _topic_and_value(topic: str, value: str) -> bytes:
    return f"{topic}:{value}".encode()


class _Callable:
    def __call__(self, value: str) -> bytes:
        return value.upper().encode()


@pytest.mark.parametrize(
    ("configured", "data"),
    [
        (StringSerializer(), b"v"),
        (str.encode, b"v"),
        (lambda value: bytearray(value.encode()), b"v"),
        (lambda *values: values[0].encode(), b"v"),
        (_topic_and_value, b"t:v"),
        (_Callable(), b"V"),
        (lambda _: None, None),
    ],
)
def test_a_serializer_may_be_an_object_or_a_callable_of_one_or_two_arguments(
    configured: object, data: bytes | None
) -> None:
    assert serialize_by(configured)("t", "v") == data


@pytest.mark.parametrize(
    ("configured", "value"),
    [
        (StringDeserializer(), "1"),
        (bytes.decode, "1"),
        (json.loads, 1),
        (int, 1),
        (lambda topic, data: (topic, data), ("t", b"1")),
    ],
)
def test_a_deserializer_may_be_an_object_or_a_callable_of_one_or_two_arguments(
    configured: object, value: object
) -> None:
    assert deserialize_by(configured)("t", b"1") == value


@pytest.mark.parametrize("configured", [b"", 5, lambda: b"", lambda a, b, c: b""])
def test_what_cannot_be_called_with_a_value_is_refused_when_configured(configured: object) -> None:
    with pytest.raises(ConfigError, match="key_serializer"):
        serialize_function("key_serializer", configured)
    with pytest.raises(ConfigError, match="key_deserializer"):
        deserialize_function("key_deserializer", configured)


def test_a_class_that_makes_no_serializer_is_refused_with_its_name() -> None:
    with pytest.raises(ConfigError, match=r"value_serializer is '', a str \(a class is called"):
        serialize_function("value_serializer", resolve_class_setting("value_serializer", str))


def test_a_failing_serializer_is_a_serialization_error_with_its_cause() -> None:
    def fail(value: object) -> bytes:
        raise KeyError(value)

    with pytest.raises(SerializationError, match=r"value_serializer .* int .* flights") as caught:
        serialize_by(fail)("flights", 1)
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_message_of_a_failing_serializer_does_not_have_the_value() -> None:
    def encode(value: str) -> bytes:
        return value.encode("ascii")

    with pytest.raises(SerializationError, match="UnicodeEncodeError: ") as caught:
        serialize_by(encode)("t", "\xe9 a secret")
    assert "secret" not in str(caught.value)


def test_an_error_of_ours_passes_through_a_serializer_unchanged() -> None:
    def fail(value: object) -> bytes:
        raise BufferExhaustedError

    with pytest.raises(BufferExhaustedError):
        serialize_by(fail)("t", 1)


def test_a_serializer_that_returns_something_else_than_bytes_is_an_error() -> None:
    with pytest.raises(SerializationError, match=r"returned a str for a dict .* must return bytes"):
        serialize_by(json.dumps)("t", {})


def test_an_error_of_a_serializer_here_has_the_name_of_the_setting() -> None:
    with pytest.raises(
        SerializationError, match=r"^value_serializer: a str for topic t is not a 32-bit integer"
    ) as caught:
        serialize_by(IntegerSerializer())("t", "1")
    assert isinstance(caught.value.__cause__, struct.error)


class _JavaOrder:
    def serialize(self, topic: str, headers: list[tuple[str, bytes]], value: str) -> bytes:
        headers.append(("type", topic.encode()))
        return value.encode()

    def deserialize(self, topic: str, headers: tuple[tuple[str, bytes], ...], data: bytes) -> str:
        return f"{topic}:{dict(headers)}:{data.decode()}"


class _HeadersLast:
    def serialize(
        self, topic: str, value: str, headers: list[tuple[str, bytes]] | None = None
    ) -> bytes:
        assert headers is not None
        return _JavaOrder().serialize(topic, headers, value)

    def deserialize(self, topic: str, data: bytes, *, headers: tuple[Any, ...] = ()) -> str:
        return _JavaOrder().deserialize(topic, headers, data)


def _value_and_headers(value: str, headers: list[tuple[str, bytes]]) -> bytes:
    return _JavaOrder().serialize("t", headers, value)


def _data_and_headers(data: bytes, headers: tuple[Any, ...]) -> str:
    return _JavaOrder().deserialize("t", headers, data)


@pytest.mark.parametrize(
    ("serializer", "deserializer"),
    [
        (_JavaOrder(), _JavaOrder()),
        (_JavaOrder().serialize, _JavaOrder().deserialize),
        (_HeadersLast(), _HeadersLast()),
        (_HeadersLast().serialize, _HeadersLast().deserialize),
        (_value_and_headers, _data_and_headers),
    ],
)
def test_one_with_a_parameter_for_headers_gets_them(serializer: Any, deserializer: Any) -> None:
    serialize = serialize_function("value_serializer", serializer)
    assert isinstance(serialize, SerializeWithHeaders)
    headers: list[tuple[str, bytes | None]] = [("a", b"1")]
    assert serialize.call("t", headers, "v") == b"v"
    assert headers == [("a", b"1"), ("type", b"t")]
    deserialize = deserialize_function("value_deserializer", deserializer)
    assert isinstance(deserialize, DeserializeWithHeaders)
    assert deserialize.call("t", (("a", b"1"),), b"v") == "t:{'a': b'1'}:v"


@pytest.mark.parametrize(
    "configured", [lambda headers: b"", lambda a, headers, b, c: b"", lambda headers, a, b: b""]
)
def test_headers_in_another_place_are_refused_when_configured(configured: object) -> None:
    with pytest.raises(ConfigError, match="a parameter named headers"):
        serialize_function("key_serializer", configured)


JAVA = "org.apache.kafka.common.serialization"


@pytest.mark.parametrize(
    "name", ["String", "Short", "Integer", "Long", "Float", "Double", "UUID", "Boolean"]
)
def test_the_settings_take_javas_class_names(name: str) -> None:
    producer = ProducerConfig.from_settings(
        {"bootstrap.servers": "h:1", "key.serializer": f" {JAVA}.{name}Serializer "}
    )
    consumer = ConsumerConfig.from_settings(
        {"bootstrap.servers": "h:1", "value.deserializer": f"{JAVA}.{name}Deserializer"}
    )
    for configured, ending in (
        (producer.key_serializer, "Serializer"),
        (consumer.value_deserializer, "Deserializer"),
    ):
        made = resolve_class_setting("it", configured)
        assert type(made) is getattr(serialization, f"{name}{ending}")


@pytest.mark.parametrize("name", ["ByteArray", "Bytes", "ByteBuffer"])
def test_javas_classes_for_bytes_stand_for_no_serializer(name: str) -> None:
    config = ProducerConfig.from_settings(
        {"bootstrap.servers": "h:1", "value.serializer": f"{JAVA}.{name}Serializer"}
    )
    assert config.value_serializer is None
