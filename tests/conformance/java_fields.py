"""The fields of a message as the Java half of these tests writes them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykclient.protocol.message import Structure
    from tests.protocol.instances import Instances
    from tools.protogen.spec import Struct

__all__ = ["expected_fields"]


def expected_fields(
    java: dict[str, Any], message: Structure, struct: Struct, instances: Instances
) -> dict[str, Any]:
    """Our values under Java's names; what only unstable versions have, and we lack, is Java's."""
    expected = dict(java)
    for field, name in instances.fields(struct):
        java_name = field.name[0].lower() + field.name[1:]
        value, theirs = getattr(message, name), java[java_name]
        if field.struct is None or value is None:
            expected[java_name] = plain(value)
        elif field.is_array:
            pairs = zip(theirs, value, strict=True)
            expected[java_name] = [
                expected_fields(their, our, field.struct, instances) for their, our in pairs
            ]
        else:
            expected[java_name] = expected_fields(theirs, value, field.struct, instances)
    return expected


def plain(value: object) -> object:
    """`value` in the form in which the Java half writes it."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return struct.pack(">d", value).hex()
        case str():
            return value.encode().hex()
        case list():
            return [plain(item) for item in value]
        case bytes() | memoryview():
            return value.hex()
        case _:
            raise AssertionError(f"no plain form for {value!r}")
