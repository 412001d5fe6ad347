"""RecordDeserializer: applies the user's deserializers to records, a column at a time.

If a deserializer fails, the span ends before the failed record. Only if that is the first record,
an error is raised, which carries the raw bytes.

Owner: none, it has no state.
Source: KIP-334 and KIP-1036 (``RecordDeserializationException``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pykclient.config.setting import resolve_class_setting
from pykclient.errors import RecordDeserializationError
from pykclient.errors.base import describe_cause
from pykclient.network.interrupts import raise_of_signal_handler
from pykclient.serialization import DeserializeWithHeaders, deserialize_function

if TYPE_CHECKING:
    from pykclient.accel.abc import RecordColumns
    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.record import RecordSpan
    from pykclient.serialization import Deserialize


class _Failure(NamedTuple):
    """Row of a span that could not be deserialized, key or value, and the cause."""

    row: int
    what: str
    cause: Exception


class RecordDeserializer:
    """The two deserializers of a consumer; None leaves bytes as they are."""

    def __init__(
        self,
        key: Deserialize | DeserializeWithHeaders | None,
        value: Deserialize | DeserializeWithHeaders | None,
    ) -> None:
        self._key = key
        self._value = value

    @classmethod
    def from_config(cls, config: ConsumerConfig) -> RecordDeserializer | None:
        """Return the configured deserializers, None if there are none."""
        functions: list[Deserialize | DeserializeWithHeaders | None] = []
        for name, setting in (
            ("key_deserializer", config.key_deserializer),
            ("value_deserializer", config.value_deserializer),
        ):
            if setting is None:
                functions.append(None)
                continue
            functions.append(deserialize_function(name, resolve_class_setting(name, setting)))
        key, value = functions
        return None if key is None and value is None else cls(key, value)

    def apply(self, span: RecordSpan) -> RecordSpan:
        """Return the span deserialized, up to the first record that cannot be.

        Raises:
            RecordDeserializationError: the first record cannot be deserialized.
        """
        topic, columns = span.partition.topic, span.columns
        keys, key_failure = _apply(self._key, "key", topic, columns)
        values, value_failure = _apply(self._value, "value", topic, columns)
        failures = [failure for failure in (key_failure, value_failure) if failure is not None]
        failure = min(failures, key=lambda failure: failure.row, default=None)
        if failure is None:
            return span._replace(keys=keys, values=values)
        if failure.row == 0:
            raise _error(span, failure) from failure.cause
        return span._replace(
            columns=columns.rows(0, failure.row),
            keys=None if keys is None else keys[: failure.row],
            values=None if values is None else values[: failure.row],
        )


def _apply(
    deserialize: Deserialize | DeserializeWithHeaders | None,
    what: str,
    topic: str,
    columns: RecordColumns,
) -> tuple[list[object] | None, _Failure | None]:
    """Return a column deserialized up to the first failure, and that failure."""
    if deserialize is None:
        return None, None
    column = columns.keys if what == "key" else columns.values
    result: list[object] = []
    add = result.append
    try:
        if isinstance(deserialize, DeserializeWithHeaders):
            call = deserialize.call
            for data, headers in zip(column, columns.headers, strict=True):
                add(None if data is None else call(topic, headers, data))
        else:
            for data in column:
                add(None if data is None else deserialize(topic, data))
    except Exception as error:  # noqa: BLE001  # user code; reported in the record's error
        raise_of_signal_handler(error)
        return result, _Failure(len(result), what, error)
    return result, None


def _error(span: RecordSpan, failure: _Failure) -> RecordDeserializationError:
    columns = span.columns
    offset = columns.first_offset
    topic, partition = span.partition
    return RecordDeserializationError(
        f"{span.partition}: {failure.what}_deserializer failed on the {failure.what} of the record "
        f"at offset {offset}: {describe_cause(failure.cause)}; the position stays there, seek() to "
        f"{offset + 1} skips it, on_record_error='skip' all such records; this error has its bytes",
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=columns.timestamps_ms[0],
        key=columns.keys[0],
        value=columns.values[0],
        headers=columns.headers[0],
    )
