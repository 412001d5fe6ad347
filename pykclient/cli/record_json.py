"""A record as a line of JSON, as ``consume --json`` writes and ``produce --json`` reads it.

Keys, values and header values are text if they are UTF-8, else ``{"base64": ...}``; null is null. A
topic that is read and sent again thus keeps its bytes.

Owner: none; it holds no state.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.errors import UsageError

if TYPE_CHECKING:
    from pykclient import ConsumerRecord

    Headers = tuple[tuple[str, bytes | None], ...]

WHERE: Final = ("type", "topic", "offset", "timestamp_type")
"""Fields of a consumed record that do not apply to a record to send."""
NO_TIMESTAMP_MS: Final = -1
"""The timestamp that ``consume --json`` prints for a record of the oldest format, which has
none."""
FIELDS: Final = ("key", "value", "headers", "partition", "timestamp_ms")


class NewRecord(NamedTuple):
    """A record to send.

    `partition` None lets the partitioner choose; `timestamp_ms` None means the time of sending.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def json_bytes(data: bytes | None) -> object:
    """Return bytes in their JSON form."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def record_line(record: ConsumerRecord) -> bytes:
    """Return the line of a consumed record, with its line end."""
    fields = {
        "type": "record",
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": record.timestamp_type.name.lower(),
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[name, json_bytes(data)] for name, data in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def parse_record(line: bytes) -> NewRecord:
    """Parse the record in a line. Only ``value`` is required; ``partition`` is kept.

    Raises:
        UsageError: the line is invalid; the message says why.
    """
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise UsageError(f"it is not JSON: {error.msg} at column {error.colno}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"it is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise UsageError("it is not a JSON object; write records as {'key': ..., 'value': ...}")
    unknown = sorted(fields.keys() - {*WHERE, *FIELDS})
    if unknown or "value" not in fields:
        wrong = f"there is no field {unknown[0]!r}" if unknown else "it has no 'value'"
        raise UsageError(f"{wrong}; a record has {', '.join(FIELDS)}")
    timestamp_ms = _number(fields.get("timestamp_ms"), "timestamp_ms")
    return NewRecord(
        _bytes(fields["value"], "value"),
        _bytes(fields.get("key"), "key"),
        _headers(fields.get("headers")),
        _number(fields.get("partition"), "partition"),
        None if timestamp_ms == NO_TIMESTAMP_MS else timestamp_ms,
    )


def _bytes(value: object, name: str) -> bytes | None:
    if value is None:
        return None
    try:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict) and value.keys() == {"base64"}:
            return base64.b64decode(value["base64"], validate=True)
    except (UnicodeEncodeError, TypeError, ValueError, binascii.Error) as error:
        raise UsageError(f"its {name} cannot be read: {error}") from error
    raise UsageError(
        f"its {name} is neither text, null nor {{'base64': ...}}; write a JSON value as its text"
    )


def _headers(value: object) -> Headers:
    headers = []
    if value is not None and not isinstance(value, list):
        raise UsageError("its headers are not a list of [name, value]")
    for pair in value or ():
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise UsageError("one of its headers is not [name, value]")
        headers.append((pair[0], _bytes(pair[1], f"header {pair[0]!r}")))
    return tuple(headers)


def _number(value: object, name: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise UsageError(f"its {name} is not a whole number")
