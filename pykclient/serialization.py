"""Serializers and deserializers: from an application's objects to bytes and back.

A setting such as `value_serializer` may be an object with `serialize(topic, value)`, or a plain
callable of the value alone (`str.encode`, `json.loads` and the like) or of topic and value. Which
of these it is, is found out once, here; per record there is one call. Null is null: None is neither
serialized nor deserialized.

Owner: none of these classes has state.
Source: Java package ``org.apache.kafka.common.serialization``.
"""

from __future__ import annotations

import inspect
import json
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

from pykclient.errors.base import ConfigError, KafkaError, SerializationError, describe_cause

T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

Serialize = Callable[[str, object], bytes | None]
"""Topic and value -> bytes or null; raises KafkaError and nothing else. Never called with None."""

Deserialize = Callable[[str, bytes], object]
"""Topic and bytes -> value; raises whatever the deserializer raises. Never called with None."""


class Serializer(Protocol[T_contra]):
    """Turns keys or values into bytes."""

    def serialize(self, topic: str, value: T_contra) -> bytes | None:
        """Return the bytes to send to `topic`, None for null; `value` is never None."""
        ...


class Deserializer(Protocol[T_co]):
    """Turns bytes into keys or values."""

    def deserialize(self, topic: str, data: bytes) -> T_co:
        """Return what `data`, read from `topic`, stands for; it is never None."""
        ...


def serialize_function(setting: str, serializer: object) -> Serialize:
    """Return the one function to call per record for what was configured as `setting`.

    Raises:
        ConfigError: `serializer` is neither a `Serializer` nor a fitting callable.
    """
    call = _call_of(setting, serializer, "serialize")

    def serialize(topic: str, value: object) -> bytes | None:
        try:
            data = call(topic, value)
        except KafkaError:
            raise
        except Exception as error:
            raise SerializationError(
                f"{setting} failed on a {type(value).__name__} for topic {topic}: "
                f"{describe_cause(error)}"
            ) from error
        if data is None or type(data) is bytes:
            return data
        if isinstance(data, bytearray | memoryview):
            return bytes(data)
        raise SerializationError(
            f"{setting} made a {type(data).__name__} of a {type(value).__name__} for topic "
            f"{topic}; it must return bytes, or None for null"
        )

    return serialize


def deserialize_function(setting: str, deserializer: object) -> Deserialize:
    """Return the one function to call per record for what was configured as `setting`.

    What it raises is for the caller to wrap: only the caller knows the record.

    Raises:
        ConfigError: `deserializer` is neither a `Deserializer` nor a fitting callable.
    """
    return _call_of(setting, deserializer, "deserialize")


def _call_of(setting: str, configured: object, method_name: str) -> Callable[[str, Any], object]:
    method = getattr(configured, method_name, None)
    if callable(method):
        return cast("Callable[[str, Any], object]", method)
    if not callable(configured):
        raise ConfigError(
            f"{setting} is {configured!r:.100}, a {type(configured).__name__} (a class is called "
            f"without arguments): it must have {method_name}(topic, value), or be a callable of "
            f"the value, or of topic and value"
        )
    if _accepts(configured, 1):
        return lambda _, value: configured(value)
    if _accepts(configured, 2):
        return configured
    raise ConfigError(
        f"{setting} is {configured!r:.100}: it must take the value, or topic and value"
    )


def _accepts(function: Callable[..., object], count: int) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Some functions written in C do not tell; those in question take the value alone.
        return count == 1
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


class BytesSerializer:
    """Sends bytes, bytearrays and memoryviews as they are."""

    def serialize(self, topic: str, value: bytes | bytearray | memoryview) -> bytes:
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        raise SerializationError(f"{_shown(value)} for topic {topic} is not bytes")


class BytesDeserializer:
    """Hands out bytes as they are."""

    def deserialize(self, topic: str, data: bytes) -> bytes:
        return data


class StringSerializer:
    """Sends text, in UTF-8 unless told otherwise."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def serialize(self, topic: str, value: str) -> bytes:
        try:
            return value.encode(self._encoding)
        except (AttributeError, UnicodeError) as error:
            raise SerializationError(
                f"{_shown(value)} for topic {topic} is not text in {self._encoding}: {error}"
            ) from error


class StringDeserializer:
    """Reads text, in UTF-8 unless told otherwise. Raises ValueError for bytes that are no text."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def deserialize(self, topic: str, data: bytes) -> str:
        return data.decode(self._encoding)


class _Form(NamedTuple):
    """How a number is written: always big-endian, as Java's serializers do."""

    layout: struct.Struct
    meaning: str


_INT32: Final = _Form(struct.Struct(">i"), "a 32-bit integer")
_INT64: Final = _Form(struct.Struct(">q"), "a 64-bit integer")
_FLOAT64: Final = _Form(struct.Struct(">d"), "a 64-bit floating-point number")


def _packed(form: _Form, topic: str, value: float) -> bytes:
    # True is an int to Python, and not to whoever reads the topic.
    if not isinstance(value, bool):
        try:
            return form.layout.pack(value)
        except (struct.error, OverflowError) as error:
            raise SerializationError(
                f"{_shown(value)} for topic {topic} is not {form.meaning}: {error}"
            ) from error
    raise SerializationError(f"{_shown(value)} for topic {topic} is not {form.meaning}")


def _unpacked(form: _Form, data: bytes) -> float:
    if len(data) != form.layout.size:
        raise ValueError(f"{len(data)} bytes are not {form.meaning}, which has {form.layout.size}")
    number: float = form.layout.unpack(data)[0]
    return number


class IntegerSerializer:
    """Sends integers of 32 bits, as Java's IntegerSerializer does."""

    def serialize(self, topic: str, value: int) -> bytes:
        return _packed(_INT32, topic, value)


class IntegerDeserializer:
    """Reads integers of 32 bits. Raises ValueError for anything but 4 bytes."""

    def deserialize(self, topic: str, data: bytes) -> int:
        return int(_unpacked(_INT32, data))


class LongSerializer:
    """Sends integers of 64 bits, as Java's LongSerializer does."""

    def serialize(self, topic: str, value: int) -> bytes:
        return _packed(_INT64, topic, value)


class LongDeserializer:
    """Reads integers of 64 bits. Raises ValueError for anything but 8 bytes."""

    def deserialize(self, topic: str, data: bytes) -> int:
        return int(_unpacked(_INT64, data))


class DoubleSerializer:
    """Sends floating-point numbers of 64 bits, as Java's DoubleSerializer does."""

    def serialize(self, topic: str, value: float) -> bytes:
        return _packed(_FLOAT64, topic, value)


class DoubleDeserializer:
    """Reads floating-point numbers of 64 bits. Raises ValueError for anything but 8 bytes."""

    def deserialize(self, topic: str, data: bytes) -> float:
        return _unpacked(_FLOAT64, data)


_COMPACT: Final = (",", ":")


class JsonSerializer:
    """Sends what `json.dumps` accepts, as compact JSON in UTF-8. None is null, not JSON's null."""

    def serialize(self, topic: str, value: object) -> bytes:
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=_COMPACT)
            return text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(
                f"{_shown(value)} for topic {topic} is not JSON: {error}"
            ) from error


class JsonDeserializer:
    """Reads JSON in UTF-8. Raises ValueError for anything else."""

    def deserialize(self, topic: str, data: bytes) -> object:
        value: object = json.loads(data.decode())
        return value


def _shown(value: object) -> str:
    # Never what it is: it is a record's, and errors end up in logs.
    return f"a {type(value).__name__}"
