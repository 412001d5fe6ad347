"""Serializers and deserializers: convert an application's objects to bytes and back.

A setting such as `value_serializer` may be an object with `serialize(topic, value)`, or a callable
of the value (`str.encode`, `json.loads` and the like) or of topic and value. If it has a parameter
named `headers`, it gets the record's headers, too: ``(topic, headers, value)`` as in Java,
``(topic, value, headers)`` or ``(value, headers)``. The client determines the form once, when it is
made; each record takes one call. None is null, which is neither serialized nor deserialized.

The classes use the same encoding as Java's classes of the same name, whose full names the settings
accept. If a value cannot be encoded or decoded, they fail where Java's use a replacement character.

Owner: none; these classes have no state.
Source: Java package ``org.apache.kafka.common.serialization``; KIP-82 (headers).
"""

from __future__ import annotations

import inspect
import json
import math
import struct
from collections.abc import Callable
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    Protocol,
    TypeVar,
    cast,
)
from uuid import UUID

from pykclient.errors.base import ConfigError, KafkaError, SerializationError, describe_cause

if TYPE_CHECKING:
    from pykclient.types import Headers

__all__ = [
    "BooleanDeserializer",
    "BooleanSerializer",
    "BytesDeserializer",
    "BytesSerializer",
    "Deserializer",
    "DoubleDeserializer",
    "DoubleSerializer",
    "FloatDeserializer",
    "FloatSerializer",
    "IntegerDeserializer",
    "IntegerSerializer",
    "JsonDeserializer",
    "JsonSerializer",
    "LongDeserializer",
    "LongSerializer",
    "Serializer",
    "ShortDeserializer",
    "ShortSerializer",
    "StringDeserializer",
    "StringSerializer",
    "UUIDDeserializer",
    "UUIDSerializer",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)
Number = TypeVar("Number", bound=float)

HeaderList = list[tuple[str, bytes | None]]
"""Headers of a record to send. A serializer may append to them."""

Serialize = Callable[[str, object], bytes | None]
"""Converts topic and value to bytes or null; raises only KafkaError. Never called with None."""

Deserialize = Callable[[str, bytes], object]
"""Converts topic and bytes to a value; raises the deserializer's errors. Never called with None."""


class SerializeWithHeaders(NamedTuple):
    """A `Serialize` function of a serializer that takes the record's headers."""

    call: Callable[[str, HeaderList, object], bytes | None]


class DeserializeWithHeaders(NamedTuple):
    """A `Deserialize` function of a deserializer that takes the record's headers."""

    call: Callable[[str, Headers, bytes], object]


Encoded = bytes | bytearray | memoryview | None
"""The result of an application's serializer."""


class Serializer(Protocol[T_contra]):
    """Converts keys or values to bytes.

    If it has a parameter named `headers`, as in ``serialize(topic, headers, value)``, it gets the
    record's headers, a list of pairs of a name and bytes or None, and may append to them. The key
    is serialized before the value, with the same list.
    """

    def serialize(self, topic: str, value: T_contra, /) -> Encoded:
        """Return the bytes to send to `topic`, or None for null. Never called with None.

        Any exception is raised by `send` as a `SerializationError` that names the setting.

        Raises: anything; `send` raises it as a `SerializationError` that names the setting.
        """
        ...


class Deserializer(Protocol[T_co]):
    """Converts bytes to keys or values.

    If it has a parameter named `headers`, as in ``deserialize(topic, headers, data)``, it gets the
    record's headers, a tuple of pairs of a name and bytes or None.
    """

    def deserialize(self, topic: str, data: bytes, /) -> T_co:
        """Return the object for `data`, read from `topic`. Never called with None.

        Any exception is raised by `poll` as a `RecordDeserializationError` that names the record.

        Raises: anything; `poll` raises it as a `RecordDeserializationError` that names the record.
        """
        ...


class _WithHeaders(Protocol[T_contra]):
    def serialize(self, topic: str, headers: HeaderList, value: T_contra, /) -> Encoded: ...


class _HeadersLast(Protocol[T_contra]):
    def serialize(self, topic: str, value: T_contra, /, headers: HeaderList) -> Encoded: ...


class _ReadsHeaders(Protocol[T_co]):
    def deserialize(self, topic: str, headers: Headers, data: bytes, /) -> T_co: ...


class _ReadsHeadersLast(Protocol[T_co]):
    def deserialize(self, topic: str, data: bytes, /, headers: Headers) -> T_co: ...


if TYPE_CHECKING:
    # Types of the settings, for type checkers; `_call_of` tells these forms apart.
    SerializerSetting = (
        Serializer[T]
        | type[Serializer[T]]
        | _WithHeaders[T]
        | type[_WithHeaders[T]]
        | _HeadersLast[T]
        | type[_HeadersLast[T]]
        | Callable[[T], Encoded]
        | Callable[[str, T], Encoded]
        | Callable[[T, HeaderList], Encoded]
        | Callable[[str, HeaderList, T], Encoded]
        | Callable[[str, T, HeaderList], Encoded]
        | str
    )
    DeserializerSetting = (
        Deserializer[T | None]
        | type[Deserializer[T | None]]
        | _ReadsHeaders[T | None]
        | type[_ReadsHeaders[T | None]]
        | _ReadsHeadersLast[T | None]
        | type[_ReadsHeadersLast[T | None]]
        | Callable[[bytes], T | None]
        | Callable[[str, bytes], T | None]
        | Callable[[bytes, Headers], T | None]
        | Callable[[str, Headers, bytes], T | None]
        | Callable[[str, bytes, Headers], T | None]
        | str
    )


def serialize_function(setting: str, serializer: object) -> Serialize | SerializeWithHeaders:
    """Return the function to call per record for the serializer in `setting`.

    Raises:
        ConfigError: `serializer` is neither a `Serializer` nor a suitable callable.
    """
    call, takes_headers = _call_of(setting, serializer, "serialize")
    if takes_headers:
        return SerializeWithHeaders(
            lambda topic, headers, value: _checked(
                setting, lambda topic, value: call(topic, headers, value)
            )(topic, value)
        )
    return _checked(setting, call)


def _checked(setting: str, call: Callable[..., object]) -> Serialize:
    """Return a function that calls `call` and checks that a record can have the result."""

    def serialize(topic: str, value: object) -> bytes | None:
        try:
            data = call(topic, value)
        except SerializationError as error:
            raise SerializationError(f"{setting}: {error}") from error.__cause__
        except KafkaError:
            raise
        except Exception as error:
            raise SerializationError(
                f"{setting} failed on {_shown(value)} for topic {topic}: {describe_cause(error)}"
            ) from error
        if data is None or type(data) is bytes:
            return data
        if isinstance(data, bytes | bytearray | memoryview):
            return bytes(data)
        raise SerializationError(
            f"{setting} returned a {type(data).__name__} for {_shown(value)} in topic {topic}; it "
            f"must return bytes, or None for null"
        )

    return serialize


def deserialize_function(
    setting: str, deserializer: object
) -> Deserialize | DeserializeWithHeaders:
    """Return the function to call per record for the deserializer in `setting`.

    The caller wraps its errors, since only the caller knows the record.

    Raises:
        ConfigError: `deserializer` is neither a `Deserializer` nor a suitable callable.
    """
    call, takes_headers = _call_of(setting, deserializer, "deserialize")
    return DeserializeWithHeaders(call) if takes_headers else call


def _call_of(
    setting: str, configured: object, method_name: str
) -> tuple[Callable[..., object], bool]:
    """Return a function of topic and value, and False; or of topic, headers and value, and True."""
    method = getattr(configured, method_name, None)
    is_method = callable(method)
    function = cast("object", method) if is_method else configured
    if not callable(function):
        raise ConfigError(
            f"{setting} is {configured!r:.100}, a {type(configured).__name__} (a class is called "
            f"without arguments): it must have {method_name}(topic, value), or be a callable of "
            f"the value, or of topic and value"
        )
    names = _parameters(function)
    if "headers" in names:
        if names[1:2] == ["headers"] and _accepts(function, 3):  # as in Java
            return function, True
        if not is_method and _accepts(function, 1, headers=()):
            return lambda _, headers, value: function(value, headers=headers), True
        if _accepts(function, 2, headers=()):
            return lambda topic, headers, value: function(topic, value, headers=headers), True
    elif is_method:
        return function, False
    elif _accepts(function, 1):
        return lambda _, value: function(value), False
    elif _accepts(function, 2):
        return function, False
    raise ConfigError(
        f"{setting} is {configured!r:.100}: it must take the value, or topic and value, and "
        f"optionally a parameter named headers"
    )


def _parameters(function: Callable[..., object]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []  # some functions written in C have no signature


def _accepts(function: Callable[..., object], count: int, **keywords: object) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Some functions written in C have no signature; those in question take only the value.
        return count == 1
    try:
        signature.bind(*[None] * count, **keywords)
    except TypeError:
        return False
    return True


class BytesSerializer(Serializer[bytes | bytearray | memoryview]):
    """Sends bytes, bytearrays and memoryviews unchanged.

    A client without a serializer does so faster.
    """

    def serialize(self, topic: str, value: bytes | bytearray | memoryview | None) -> bytes | None:
        if value is None or isinstance(value, bytes | bytearray | memoryview):
            return None if value is None else bytes(value)
        raise SerializationError(f"{_shown(value)} for topic {topic} is not bytes")


class BytesDeserializer(Deserializer[bytes | None]):
    """Returns bytes unchanged. A client without a deserializer does so faster."""

    def deserialize(self, topic: str, data: bytes | None) -> bytes | None:
        return data


class StringSerializer(Serializer[str]):
    """Sends text in UTF-8 or another `encoding`."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def serialize(self, topic: str, value: str | None) -> bytes | None:
        if value is None:
            return None
        try:
            return value.encode(self._encoding)
        except (AttributeError, UnicodeError) as error:
            raise SerializationError(
                f"{_shown(value)} for topic {topic} is not text in {self._encoding}: {error}"
            ) from error


class StringDeserializer(Deserializer[str | None]):
    """Reads text in UTF-8 or another `encoding`. Raises ValueError for invalid bytes."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def deserialize(self, topic: str, data: bytes | None) -> str | None:
        return None if data is None else data.decode(self._encoding)


class UUIDSerializer(Serializer[UUID]):
    """Sends a `uuid.UUID` as the 36 characters of its text."""

    def serialize(self, topic: str, value: UUID | None) -> bytes | None:
        if value is None or isinstance(value, UUID):
            return None if value is None else str(value).encode()
        raise SerializationError(f"{_shown(value)} for topic {topic} is not a UUID")


class UUIDDeserializer(Deserializer[UUID | None]):
    """Reads the 36 characters of a UUID. Raises ValueError for anything else."""

    def deserialize(self, topic: str, data: bytes | None) -> UUID | None:
        if data is None:
            return None
        found = UUID(data.decode())
        # `UUID` accepts more than one form, such as one in braces.
        if str(found) != data.decode().lower():
            raise ValueError(f"{len(data)} bytes are not the 36 characters of a UUID")
        return found


class _Form(NamedTuple):
    """The encoding of a number: big-endian, as in Java's serializers."""

    layout: struct.Struct
    meaning: str


_BOOLEAN: Final = _Form(struct.Struct(">?"), "a boolean")
_INT16: Final = _Form(struct.Struct(">h"), "a 16-bit integer")
_INT32: Final = _Form(struct.Struct(">i"), "a 32-bit integer")
_INT64: Final = _Form(struct.Struct(">q"), "a 64-bit integer")
_FLOAT32: Final = _Form(struct.Struct(">f"), "a 32-bit floating-point number")
_FLOAT64: Final = _Form(struct.Struct(">d"), "a 64-bit floating-point number")


class _NumberSerializer(Serializer[Number]):
    form: ClassVar[_Form]

    def serialize(self, topic: str, value: Number | None) -> bytes | None:
        if value is None:
            return None
        # True is an int in Python, but not to readers of the topic.
        if isinstance(value, bool) == (self.form is _BOOLEAN):
            try:
                return self.form.layout.pack(value)
            except (struct.error, OverflowError) as error:
                raise SerializationError(
                    f"{_shown(value)} for topic {topic} is not {self.form.meaning}: {error}"
                ) from error
        raise SerializationError(f"{_shown(value)} for topic {topic} is not {self.form.meaning}")


class _NumberDeserializer(Deserializer[Number | None], Generic[Number]):
    form: ClassVar[_Form]

    def deserialize(self, topic: str, data: bytes | None) -> Number | None:
        if data is None:
            return None
        form = self.form
        if len(data) != form.layout.size:
            raise ValueError(
                f"{len(data)} bytes are not {form.meaning}, which has {form.layout.size}"
            )
        number: Number = form.layout.unpack(data)[0]
        return number


class BooleanSerializer(_NumberSerializer[bool]):
    """Sends True and False as a byte, 1 or 0."""

    form = _BOOLEAN


class BooleanDeserializer(_NumberDeserializer[bool]):
    """Reads a byte, 1 or 0. Raises ValueError for anything else."""

    form = _BOOLEAN

    def deserialize(self, topic: str, data: bytes | None) -> bool | None:
        if data not in (None, b"\x00", b"\x01"):
            raise ValueError("a boolean is one byte, 1 or 0")
        return super().deserialize(topic, data)


class ShortSerializer(_NumberSerializer[int]):
    """Sends integers of 16 bits, as Java's ShortSerializer does."""

    form = _INT16


class ShortDeserializer(_NumberDeserializer[int]):
    """Reads integers of 16 bits. Raises ValueError for anything but 2 bytes."""

    form = _INT16


class IntegerSerializer(_NumberSerializer[int]):
    """Sends integers of 32 bits, as Java's IntegerSerializer does."""

    form = _INT32


class IntegerDeserializer(_NumberDeserializer[int]):
    """Reads integers of 32 bits. Raises ValueError for anything but 4 bytes."""

    form = _INT32


class LongSerializer(_NumberSerializer[int]):
    """Sends integers of 64 bits, as Java's LongSerializer does."""

    form = _INT64


class LongDeserializer(_NumberDeserializer[int]):
    """Reads integers of 64 bits. Raises ValueError for anything but 8 bytes."""

    form = _INT64


class FloatSerializer(_NumberSerializer[float]):
    """Sends floating-point numbers of 32 bits, rounded, as Java's FloatSerializer does."""

    form = _FLOAT32


class FloatDeserializer(_NumberDeserializer[float]):
    """Reads floating-point numbers of 32 bits. Raises ValueError for anything but 4 bytes."""

    form = _FLOAT32


class DoubleSerializer(_NumberSerializer[float]):
    """Sends floating-point numbers of 64 bits, as Java's DoubleSerializer does."""

    form = _FLOAT64

    def serialize(self, topic: str, value: float | None) -> bytes | None:
        # Java encodes all NaNs alike.
        is_nan = isinstance(value, float) and math.isnan(value)
        return super().serialize(topic, math.nan if is_nan else value)


class DoubleDeserializer(_NumberDeserializer[float]):
    """Reads floating-point numbers of 64 bits. Raises ValueError for anything but 8 bytes."""

    form = _FLOAT64


_COMPACT: Final = (",", ":")


class JsonSerializer(Serializer[object]):
    """Sends objects as compact JSON in UTF-8, by `json.dumps`. None is null, not JSON's null."""

    def serialize(self, topic: str, value: object) -> bytes | None:
        if value is None:
            return None
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=_COMPACT)
            return text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(
                f"{_shown(value)} for topic {topic} is not JSON: {error}"
            ) from error


class JsonDeserializer(Deserializer[Any]):
    """Reads JSON in UTF-8. Raises ValueError for anything else."""

    def deserialize(self, topic: str, data: bytes | None) -> Any:
        return None if data is None else json.loads(data.decode())


def _shown(value: object) -> str:
    # Never show the value: it belongs to a record, and errors end up in logs.
    return f"a {type(value).__name__}"
