"""A message schema, parsed: which fields a message has, in which versions, of which types.

Source: the README beside the schemas in Kafka's source; class ``MessageSpec`` of its generator.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tools.protogen.versions import ALL, NONE, Versions

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

FIXED_SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
_VARIABLE = {"string", "bytes", "records"}
_FIELD_KEYS = {
    *("name", "type", "versions", "nullableVersions", "taggedVersions", "tag", "ignorable"),
    *("default", "flexibleVersions", "fields", "about", "entityType", "mapKey", "zeroCopy"),
}
_MESSAGE_KEYS = {
    *("apiKey", "type", "name", "validVersions", "flexibleVersions", "fields", "listeners"),
    *("commonStructs", "latestVersionUnstable"),
    "deprecatedVersions",  # of Kafka 3.9, for brokers' logs
}


# A coordinator's log has keys and values; both have the number of the record's type as "apiKey".
_RECORD_TYPES = {"coordinator-key", "coordinator-value"}


@dataclass(frozen=True, slots=True)
class Struct:
    """A named group of fields."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `element` is the type, of the elements if `is_array`; `struct` its structure."""

    name: str
    element: str
    is_array: bool
    struct: Struct | None
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    ignorable: bool
    default: str | bool | int | None
    flexible: Versions | None

    @property
    def is_fixed(self) -> bool:
        """True if every value takes the same number of bytes."""
        return not self.is_array and self.element in FIXED_SIZES

    @property
    def is_null_by_default(self) -> bool:
        """True if the default is null: stated, or for nullable `records`."""
        return self.default == "null" or (self.element == "records" and bool(self.nullable))


@dataclass(frozen=True, slots=True)
class Message:
    """One schema file. `api_key` is None for data that belongs to no API.

    `record_type` is the number by which a coordinator tells its records apart, None for all others.
    `unstable` is the last of `versions` if Kafka calls it unstable, None if it does not.
    """

    name: str
    kind: str
    api_key: int | None
    versions: Versions
    flexible: Versions
    root: Struct
    listeners: tuple[str, ...]
    record_type: int | None = None
    unstable: int | None = None

    @property
    def stable(self) -> Versions:
        """The versions without the one that is unstable."""
        return self.versions & Versions(0, self.versions.high - (self.unstable is not None))

    @property
    def api(self) -> str:
        """The API's name: the message's without "Request" or "Response"."""
        return _api(self.name)

    def structs(self) -> list[Struct]:
        """Return the root and all structures below it, each once, outer ones first."""
        found = {self.root.name: self.root}
        pending = [self.root]
        while pending:
            for field in pending.pop(0).fields:
                if field.struct is not None and field.element not in found:
                    found[field.element] = field.struct
                    pending.append(field.struct)
        return [struct for struct in found.values() if self.used_in(struct)]

    def used_in(self, struct: Struct) -> Versions:
        """Return the versions in which `struct` may be sent, from the first to the last."""
        return _used_in(struct, self.root, self.versions)


def parse(text: str, unstable_apis: Collection[str] = ()) -> Message:
    """Parse a schema (JSON with ``//`` comments); unstable versions count for some APIs only.

    Raises:
        ValueError: the schema has something that this parser does not know.
    """
    raw = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    _check_keys(raw, _MESSAGE_KEYS, raw["name"])
    versions = Versions.parse(raw["validVersions"])
    unstable = versions.high if raw.get("latestVersionUnstable") else None
    if unstable is not None and _api(raw["name"]) not in unstable_apis:
        versions, unstable = versions & Versions(0, unstable - 1), None
    common = {struct["name"]: struct["fields"] for struct in raw.get("commonStructs", ())}
    is_record = raw["type"] in _RECORD_TYPES
    return Message(
        name=raw["name"],
        kind="data" if is_record else raw["type"],
        api_key=None if is_record else raw.get("apiKey"),
        versions=versions,
        flexible=Versions.parse(raw.get("flexibleVersions", "none")),
        root=_struct(raw["name"], raw.get("fields", ()), common),
        listeners=tuple(raw.get("listeners", ())),
        record_type=raw["apiKey"] if is_record else None,
        unstable=unstable,
    )


def parse_all(texts: Mapping[str, str], unstable_apis: Collection[str] = ()) -> dict[str, Message]:
    """Name -> schema. A response has no version that its request has not (or not stable)."""
    schemas = {name: parse(text, unstable_apis) for name, text in texts.items()}
    for name, schema in schemas.items():
        if schema.kind == "response":
            request = schemas[f"{schema.api}Request"]
            versions = schema.versions & request.versions
            schemas[name] = replace(schema, versions=versions, unstable=request.unstable)
    return schemas


def snake_case(name: str) -> str:
    """``ThrottleTimeMs`` as ``throttle_time_ms``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _api(name: str) -> str:
    return re.sub(r"(Request|Response)$", "", name)


def _struct(name: str, fields: Any, common: dict[str, Any]) -> Struct:
    return Struct(name, tuple(_field(field, common) for field in fields))


def _field(raw: dict[str, Any], common: dict[str, Any]) -> Field:
    _check_keys(raw, _FIELD_KEYS, raw["name"])
    element = raw["type"].removeprefix("[]")
    struct = None
    if element[0].isupper():
        struct = _struct(element, raw.get("fields") or common[element], common)
    elif element not in FIXED_SIZES and element not in _VARIABLE:
        raise ValueError(f"field {raw['name']} has the unknown type {element}")
    flexible = raw.get("flexibleVersions")
    return Field(
        name=raw["name"],
        element=element,
        is_array=element != raw["type"],
        struct=struct,
        versions=Versions.parse(raw.get("versions") or raw.get("taggedVersions") or str(ALL)),
        nullable=Versions.parse(raw.get("nullableVersions", "none")),
        tag=raw.get("tag"),
        tagged=Versions.parse(raw.get("taggedVersions", "none")),
        ignorable=raw.get("ignorable", False),
        default=raw.get("default"),
        flexible=None if flexible is None else Versions.parse(flexible),
    )


def _used_in(struct: Struct, within: Struct, versions: Versions) -> Versions:
    if within.name == struct.name:
        return versions
    used = NONE
    for field in within.fields:
        inner = versions & field.versions
        if field.struct is not None and inner:
            found = _used_in(struct, field.struct, inner)
            used = used | found if used and found else used or found
    return used


def _check_keys(raw: dict[str, Any], known: set[str], name: str) -> None:
    if unknown := raw.keys() - known:
        raise ValueError(f"{name} has properties that this generator does not know: {unknown}")
