"""RecordSerializer: checks the arguments of `send` and turns them into a serialized record.

Existence of the topic and the partition is checked later.

Owner: none, it has no state; it runs in the application's thread.
Source: Java class ``KafkaProducer``, ``doSend`` therein.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from pykclient.accel import ByteColumn
from pykclient.accel.batch_layout import HEADER_SIZE_BYTES
from pykclient.accel.pure.appender import header_pairs
from pykclient.arguments import check_topic, shown_argument
from pykclient.config.setting import resolve_class_setting
from pykclient.errors import RecordTooLargeError, SerializationError, UsageError
from pykclient.producer.record import SerializedRecord
from pykclient.records.builder import batch_size_upper_bound
from pykclient.serialization import SerializeWithHeaders, serialize_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pykclient.accel import RowBlock
    from pykclient.accel.abc import HeadersInput, OnDelivery
    from pykclient.producer.config import ProducerConfig
    from pykclient.producer.record import RecordMetadata
    from pykclient.serialization import HeaderList, Serialize
    from pykclient.types import Headers

PARTITION_MAX = 2**31 - 1
TIMESTAMP_MAX_MS = 2**63 - 1


class RecordSerializer:
    """Serializers and size limits of a producer.

    `clock_ms` is the time of records without a timestamp, in milliseconds since 1970.
    """

    def __init__(self, config: ProducerConfig, clock_ms: Callable[[], int]) -> None:
        key = _serialize("key_serializer", config.key_serializer)
        value = _serialize("value_serializer", config.value_serializer)
        self._serializers = key, value
        self._key = None if isinstance(key, SerializeWithHeaders) else key
        self._value = None if isinstance(value, SerializeWithHeaders) else value
        self.takes_headers = (self._key, self._value) != self._serializers
        """True if a serializer takes the headers of each record, and may add to them."""
        self._limits = {
            "max_request_size": config.max_request_size,
            "buffer_memory": config.buffer_memory,
        }
        self._limit_bytes = min(self._limits.values())
        self._clock_ms = clock_ms

    @property
    def takes_bytes_only(self) -> bool:
        """True if there is no serializer: keys and values are bytes."""
        return self._serializers == (None, None)

    def serialize(
        self,
        topic: object,
        value: object,
        key: object,
        *,
        partition: object,
        timestamp_ms: object,
        headers: HeadersInput | None,
        on_delivery: OnDelivery[RecordMetadata] | None,
    ) -> SerializedRecord:
        """Return the checked record, ready to append."""
        topic = check_topic(topic, "send")
        if self.takes_headers:
            key, value, headers = self._with_headers(topic, key, value, headers)
        else:
            key = _bytes(key, "key", topic, self._key)
            value = _bytes(value, "value", topic, self._value)
        if partition is not None:
            partition = checked_number(partition, "partition", topic)
        if timestamp_ms is None:
            timestamp_ms = self._clock_ms()
        else:
            timestamp_ms = checked_number(timestamp_ms, "timestamp_ms", topic)
        pairs = _headers(headers, topic) if headers else ()
        size_bytes = batch_size_upper_bound(key, value, pairs)
        if size_bytes > self._limit_bytes:
            self._refuse(f"a record for topic {topic!r}", size_bytes)
        return SerializedRecord(
            topic, value, key, partition, timestamp_ms, pairs, on_delivery, size_bytes
        )

    def column(
        self, name: Literal["keys", "values"], topics: Iterable[str], objects: Iterable[object]
    ) -> ByteColumn:
        """Return keys or values of many records as bytes; `topics` holds each record's topic."""
        assert not self.takes_headers, "records are sent one by one then"
        serialize = self._key if name == "keys" else self._value
        if serialize is None:
            return ByteColumn.from_objects(objects, name)
        return ByteColumn.from_objects(
            [
                None if item is None else serialize(topic, item)
                for topic, item in zip(topics, objects, strict=False)
            ],
            name,
        )

    def has_serializer(self, name: Literal["keys", "values"]) -> bool:
        return self._serializers[name == "values"] is not None

    def _with_headers(
        self, topic: str, key: object, value: object, headers: HeadersInput | None
    ) -> tuple[bytes | None, bytes | None, HeaderList]:
        """Return key, value and headers, to which a serializer may have added."""
        listed = list(_headers(headers, topic)) if headers else []
        serialize_key, serialize_value = (
            partial(_call_with_headers, each, listed)
            if isinstance(each, SerializeWithHeaders)
            else each
            for each in self._serializers
        )
        key = _bytes(key, "key", topic, serialize_key)
        value = _bytes(value, "value", topic, serialize_value)
        return key, value, listed

    def check_sizes(self, rows: RowBlock) -> None:
        if len(rows):
            row, size_bytes = rows.largest()
            if size_bytes + HEADER_SIZE_BYTES > self._limit_bytes:
                self._refuse(f"the record at index {row}", size_bytes + HEADER_SIZE_BYTES)

    def _refuse(self, record: str, size_bytes: int) -> None:
        for name, limit_bytes in self._limits.items():
            if size_bytes > limit_bytes:
                raise RecordTooLargeError(
                    f"{record} takes up to {size_bytes} bytes, but {name} is "
                    f"{limit_bytes}; send less at once or raise {name} (and, if need be, "
                    f"max.message.bytes of the topic)"
                )


def _serialize(name: str, setting: object) -> Serialize | SerializeWithHeaders | None:
    if setting is None:
        return None
    return serialize_function(name, resolve_class_setting(name, setting))


def _call_with_headers(
    serialize: SerializeWithHeaders, headers: HeaderList, topic: str, value: object
) -> bytes | None:
    return serialize.call(topic, headers, value)


def _bytes(field: object, what: str, topic: str, serialize: Serialize | None) -> bytes | None:
    if field is None:
        return None
    if serialize is not None:
        return serialize(topic, field)
    if isinstance(field, bytes):
        return field
    if isinstance(field, bytearray | memoryview):
        return bytes(field)
    raise SerializationError(
        f"the {what} of a record for topic {topic!r} is of type {type(field).__name__}, not bytes; "
        f"pass bytes, or set {what}_serializer"
    )


def checked_number(number: object, name: str, topic: str | None = None) -> int:
    maximum = PARTITION_MAX if name == "partition" else TIMESTAMP_MAX_MS
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= maximum:
        return number
    what = name if topic is None else f"the {name} of a record for topic {topic!r}"
    # Text may be record data, so it is not shown.
    is_number = isinstance(number, (int, float))
    shown = shown_argument(number) if is_number else f"a {type(number).__name__}"
    raise UsageError(
        f"{what} is a whole number from 0 to {maximum}, or None to let the producer choose, not "
        f"{shown}"
    )


def _headers(headers: HeadersInput, topic: str) -> Headers:
    try:
        return tuple(map(_header, header_pairs(headers)))
    except (TypeError, ValueError) as error:
        raise SerializationError(
            f"the headers of a record for topic {topic!r} are malformed ({error}); pass pairs of a "
            f"str and bytes or None, or a dict of them"
        ) from error


def _header(pair: object) -> tuple[str, bytes | None]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"a {type(pair).__name__} is not a pair of a name and a value")
    name, value = pair
    if not isinstance(name, str):
        raise TypeError(f"a name is of type {type(name).__name__}")
    if value is not None and not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"the value of {name!r:.100} is of type {type(value).__name__}")
    name.encode()  # a lone surrogate is not text; fail now rather than inside the batch
    return name, None if value is None else bytes(value)
