"""Writes the module of one API: a class per structure, with `__init__`, `write` and `read`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tools.protogen.apis import MASKED
from tools.protogen.emit_read import read_method
from tools.protogen.emit_write import write_method
from tools.protogen.spec import Field, Message, snake_case
from tools.protogen.struct_code import ModuleCode, StructCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.protogen.versions import Versions

_BASES = {"request": "Request", "response": "Message", "data": "DataMessage"}


def emit_module(messages: Sequence[Message], banner: str) -> str:
    """Return the source of the module that holds `messages`: an API's pair, or some data schemas.

    A response must come before its request, which names the class of its response.
    """
    module = ModuleCode()
    names = class_names(messages)
    classes: list[str] = []
    for message in messages:
        for struct in message.structs():
            code = StructCode(struct, message, names[message.name], module)
            classes += ["", "", *_class(code, is_root=struct is message.root)]
    exported = sorted(name for message in messages for name in names[message.name].values())
    return "\n".join(
        [
            *(banner, "", *_imports(messages, module), ""),
            *("__all__ = [", *(f'    "{name}",' for name in exported), "]", ""),
            *(f'{name} = Layout("{code}")' for name, code in sorted(module.layouts.items())),
            *classes,
        ]
    )


def class_names(messages: Sequence[Message]) -> dict[str, dict[str, str]]:
    """Message -> structure -> class.

    Classes are named as in the schema. Where request and response use one name for structures of
    their own, "Request" and "Response" are put in front; where two data schemas do, their names.
    """
    owners: dict[str, set[str]] = {}
    for message in messages:
        for struct in message.structs():
            owners.setdefault(struct.name, set()).add(message.name)
    return {
        message.name: {
            struct.name: struct.name
            if len(owners[struct.name]) == 1
            else _prefix(message) + struct.name
            for struct in message.structs()
        }
        for message in messages
    }


def _prefix(message: Message) -> str:
    return message.name if message.kind == "data" else message.kind.capitalize()


def _imports(messages: Sequence[Message], module: ModuleCode) -> list[str]:
    bases = {_BASES[message.kind] for message in messages} | module.errors
    if any(len(message.structs()) > 1 for message in messages):
        bases.add("Structure")
    primitives = sorted(module.primitives - {"Records"}, key=_natural)
    lines = ["from __future__ import annotations", ""]
    if module.layouts:
        lines.append("from struct import Struct as Layout")
    lines += ["from typing import TYPE_CHECKING, ClassVar, Self", ""]
    if any(message.api_key is not None for message in messages):
        lines.append("from pykclient.protocol.api_keys import ApiKey")
    lines.append(f"from pykclient.protocol.message import {', '.join(sorted(bases))}")
    if primitives:
        lines.append(f"from pykclient.protocol.primitives import ({', '.join(primitives)},)")
    lines += ["", "if TYPE_CHECKING:"]
    if "Records" in module.primitives:
        lines.append("    from pykclient.protocol.primitives import Records")
    lines.append("    from pykclient.protocol.reader import Reader")
    return lines


def _natural(name: str) -> list[str | int]:
    """Return the key under which ``pack_int8`` comes before ``pack_int16``, as ruff wants it."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _class(code: StructCode, *, is_root: bool) -> list[str]:
    message = code.message
    about = _about(message) if is_root else f"Part of `{message.name}`."
    base = _BASES[message.kind] if is_root else "Structure"
    slots = "".join(f'"{code.attribute(field)}", ' for field in code.fields)
    masked = "".join(
        f'"{code.attribute(field)}", '
        for field in code.fields
        if not MASKED.isdisjoint({field.name, f"{code.name}.{field.name}"})
    )
    return [
        f"class {code.class_name}({base}):",
        f'    """{about}"""',
        "",
        f"    __slots__ = ({slots})",
        *([f"    masked = ({masked})"] if masked else []),
        *(_shown_as_json(code) if message.kind == "data" else []),
        *(_constants(message) if is_root else []),
        "",
        *_init_method(code),
        "",
        *write_method(code),
        "",
        *read_method(code),
    ]


def _shown_as_json(code: StructCode) -> list[str]:
    """Write the fields that some versions lack, and the tagged ones, for `message_json`."""
    ranges = "".join(
        f'"{code.attribute(field)}": ({versions.low}, {versions.high}), '
        for field in code.fields
        if (versions := field.versions & code.versions) != code.versions
    )
    tagged = "".join(
        f'"{code.attribute(field)}", ' for field in code.fields if field.tag is not None
    )
    return [
        *(
            [f"    version_ranges: ClassVar[dict[str, tuple[int, int]]] = {{{ranges}}}"]
            if ranges
            else []
        ),
        *([f"    tagged_fields = ({tagged})"] if tagged else []),
    ]


def _about(message: Message) -> str:
    versions = _spoken(message.stable)
    if message.unstable is not None:
        versions += f", and {message.unstable}, which is unstable"
    if message.record_type is not None:
        return f"{message.name} (record type {message.record_type}), {versions}."
    if message.api_key is None:
        return f"{message.name}, {versions}."
    return f"{message.kind.capitalize()} of API {message.api} ({message.api_key}), {versions}."


def _spoken(versions: Versions) -> str:
    if versions.low == versions.high:
        return f"version {versions.low}"
    return f"versions {versions.low} to {versions.high}"


def _constants(message: Message) -> list[str]:
    flexible = message.flexible & message.versions
    lines = [
        f"    min_version: ClassVar[int] = {message.versions.low}",
        f"    max_version: ClassVar[int] = {message.stable.high}",
        f"    flexible_from: ClassVar[int | None] = {flexible.low if flexible else None}",
    ]
    if message.unstable is not None:
        lines.append(f"    unstable_version: ClassVar[int | None] = {message.unstable}")
    if message.api_key is not None:
        key = snake_case(message.api).upper()
        lines.insert(0, f"    api_key: ClassVar[ApiKey] = ApiKey.{key}")
    if message.record_type is not None:
        lines.insert(0, f"    record_type: ClassVar[int] = {message.record_type}")
    if message.kind == "request":
        response = f"{message.api}Response"
        lines.append(f"    response_type: ClassVar[type[{response}]] = {response}")
    return lines


def _init_method(code: StructCode) -> list[str]:
    if not code.fields:
        return ["    def __init__(self) -> None:", "        pass"]
    arguments = "".join(f"{_argument(code, field)}, " for field in code.fields)
    lines = [f"    def __init__(self, {arguments}) -> None:"]
    for field in code.fields:
        comment = f"{field.versions}" if field.tag is None else f"{field.versions}, tag {field.tag}"
        lines.append(f"        self.{code.attribute(field)} = {_stored(code, field)}  # {comment}")
    return lines


def _argument(code: StructCode, field: Field) -> str:
    kind, default = code.type(field), code.default(field)
    if code.is_plain_struct(field):
        kind, default = f"{kind} | None", "None"
    elif code.is_struct_unless_null(field):
        default = "None"
    elif default == "[]":
        default = code.module.use("EMPTY")
    return f"{code.attribute(field)}: {kind} = {default}"


def _stored(code: StructCode, field: Field) -> str:
    """Return the argument, or a fresh object where the default is one that can change."""
    name, default = code.attribute(field), code.default(field)
    if code.is_plain_struct(field):
        return f"{default} if {name} is None else {name}"
    return f"[] if {name} is EMPTY else {name}" if default == "[]" else name
