"""Messages between Kafka's servers as JSON, with Kafka's names of fields.

Fields that a message's version lacks are left out, and so are tagged fields with their default.

Owner: none; it holds no state.
Source: the ``JsonConverter`` of each message in Java; KIP-482 (tagged fields).
"""

from __future__ import annotations

import base64
import json
import re
from typing import Final, NamedTuple

from pykclient.protocol.message import Structure

_UUIDS: Final = ("_id", "_ids")
_ESCAPES: Final = re.compile(r"\\\\|\\u00[01][0-9a-f]")


class Decoded(NamedTuple):
    """A record's key and value in JSON form; None for a value that deletes.

    If the record is malformed, `error` has the reason instead.
    """

    key: dict[str, object]
    value: dict[str, object] | None
    error: str = ""


def message_fields(message: Structure, version: int) -> dict[str, object]:
    """Return a message's fields in JSON form, with Kafka's names."""
    kind = type(message)
    fields: dict[str, object] = {}
    for name in kind.__slots__:
        first, last = kind.version_ranges.get(name, (version, version))
        if not first <= version <= last:
            continue
        value = getattr(message, name)
        is_tagged = name in kind.tagged_fields and value is not None
        if is_tagged and value in _defaults(kind, name, value):
            continue
        fields[_java_name(name)] = _json_value(name, value, version)
    return fields


def _defaults(kind: type[Structure], name: str, value: object) -> tuple[object, ...]:
    """Return the values with which a field is not written, by Java's default for structures."""
    default = getattr(kind(), name)
    return (default, type(value)()) if isinstance(value, Structure) else (default,)


def json_text(fields: object) -> str:
    """Return JSON in the format of Java's tools: no spaces, control characters in upper case."""
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return _ESCAPES.sub(lambda found: found[0][:2] + found[0][2:].upper(), text)


def _java_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _json_value(name: str, value: object, version: int) -> object:
    if isinstance(value, Structure):
        return message_fields(value, version)
    if isinstance(value, list):
        return [_json_value(name, item, version) for item in value]
    if isinstance(value, bytes) and name.endswith(_UUIDS):
        # Kafka writes an id as URL-safe base64 without padding.
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return value
