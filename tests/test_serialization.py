"""Serializers: round trips, Java's forms, clear errors, and every shape that a setting may have."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.config.setting import resolve_class_setting
from pykclient.errors.base import BufferExhaustedError, ConfigError, SerializationError
from pykclient.serialization import (
    BytesDeserializer,
    BytesSerializer,
    DoubleDeserializer,
    DoubleSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    JsonDeserializer,
    JsonSerializer,
    LongDeserializer,
    LongSerializer,
    StringDeserializer,
    StringSerializer,
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


@pytest.mark.parametrize(
    ("serializer", "value", "data"),
    [
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


@pytest.mark.parametrize(
    ("serializer", "deserializer", "values"),
    [
        (BytesSerializer(), BytesDeserializer(), st.binary()),
        (StringSerializer(), StringDeserializer(), st.text()),
        (IntegerSerializer(), IntegerDeserializer(), st.integers(-(2**31), 2**31 - 1)),
        (LongSerializer(), LongDeserializer(), st.integers(-(2**63), 2**63 - 1)),
        (DoubleSerializer(), DoubleDeserializer(), st.floats()),
        (JsonSerializer(), JsonDeserializer(), JSON),
    ],
)
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
    assert serialize_function("value_serializer", configured)("t", "v") == data


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
    assert deserialize_function("value_deserializer", configured)("t", b"1") == value


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
        serialize_function("value_serializer", fail)("flights", 1)
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_message_of_a_failing_serializer_does_not_have_the_value() -> None:
    def encode(value: str) -> bytes:
        return value.encode("ascii")

    with pytest.raises(SerializationError, match="UnicodeEncodeError: ") as caught:
        serialize_function("value_serializer", encode)("t", "\xe9 a secret")
    assert "secret" not in str(caught.value)


def test_an_error_of_ours_passes_through_a_serializer_unchanged() -> None:
    def fail(value: object) -> bytes:
        raise BufferExhaustedError

    with pytest.raises(BufferExhaustedError):
        serialize_function("value_serializer", fail)("t", 1)


def test_a_serializer_that_returns_something_else_than_bytes_is_an_error() -> None:
    with pytest.raises(SerializationError, match=r"made a str of a dict .* must return bytes"):
        serialize_function("value_serializer", json.dumps)("t", {})
