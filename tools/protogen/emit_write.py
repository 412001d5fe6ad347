"""Writes a structure's `write`: one statement after the other, with branches by version."""

from __future__ import annotations

import keyword
import re
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from tools.protogen.spec import FIXED_SIZES, Field, snake_case
from tools.protogen.struct_code import FORMAT_CODES, StructCode, primitive
from tools.protogen.versions import by_version, indented

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NO_TAGS = r'out += b"\x00"'
_LOCALS = {"out", "tags", "value", "version"}


def write_method(code: StructCode) -> list[str]:
    """Return the method's lines, as they stand in the class."""
    body: list[str] = []
    for run in _runs(code.fields):
        if run[0].is_array:
            body += by_version(code.versions, partial(_count, code, run[0]))
            body += by_version(code.versions, partial(_elements, code, run[0]))
        else:
            body += by_version(code.versions, partial(_values, code, run))
    body += by_version(code.versions, partial(_refused_tags, code))
    body += _tags(code)
    head = "    def write(self, out: bytearray, version: int) -> None:"
    return [head, *indented(body or ["pass"], 2)]


def _runs(fields: Sequence[Field]) -> Iterator[list[Field]]:
    """Untagged fields; neighbours of fixed size together, to be packed by one call.

    A UUID stands alone: its length must be checked, since ``struct`` would cut or fill it silently.
    """
    untagged = (field for field in fields if field.tag is None)
    for is_packed, group in groupby(
        untagged, key=lambda field: field.is_fixed and field.element != "uuid"
    ):
        if is_packed:
            yield list(group)
        else:
            yield from ([field] for field in group)


def _values(code: StructCode, run: Sequence[Field], version: int) -> list[str]:
    """Return the fields of `run`, which are no arrays."""
    lines: list[str] = []
    for field in run:
        if version not in field.versions:
            lines += _refusal(code, field)
    present = [field for field in run if version in field.versions]
    if len(present) > 1:
        values = ", ".join(f"self.{code.attribute(field)}" for field in present)
        lines.append(f"out += {code.module.layout(present)}.pack({values})")
    elif present:
        lines += _value(code, present[0], version)
    return lines


def _value(code: StructCode, field: Field, version: int) -> list[str]:
    value = f"self.{code.attribute(field)}"
    if field.struct is not None:
        return _struct(code, field, version)
    if field.element == "uuid":
        return [f"{code.module.use('write_uuid')}(out, {value})"]
    if field.is_fixed:
        return [f"out += {code.module.use('pack_' + primitive(field))}({value})"]
    function = code.module.use(f"write_{code.form(field, version)}{field.element}")
    return [*_null_check(code, field, version), f"{function}(out, {value})"]


def _struct(code: StructCode, field: Field, version: int) -> list[str]:
    value = f"self.{code.attribute(field)}"
    written = f"{value}.write(out, version)"
    if version not in field.nullable:
        return [*_null_check(code, field, version), written]
    # A presence byte is signed and -1 for null; inside a tag it is a varint and 0 for null.
    null = r"\xff" if field.tag is None else r"\x00"
    return [
        *(f"if {value} is None:", f'    out += b"{null}"'),
        *("else:", r'    out += b"\x01"', f"    {written}"),
    ]


def _count(code: StructCode, field: Field, version: int) -> list[str]:
    if version not in field.versions:
        return _refusal(code, field)
    function = code.module.use(f"write_{code.form(field, version)}count")
    value = f"self.{code.attribute(field)}"
    return [*_null_check(code, field, version), f"{function}(out, {value})"]


def _elements(code: StructCode, field: Field, version: int) -> list[str]:
    if version not in field.versions:
        return []
    values = f"self.{code.attribute(field)}" + (" or ()" if code.is_nullable(field) else "")
    if field.element in FIXED_SIZES and field.element != "uuid":
        write_numbers = code.module.use("write_numbers")
        return [f'{write_numbers}(out, "{FORMAT_CODES[field.element]}", {values})']
    item = _item_name(field)
    if field.struct is not None:
        return [f"for {item} in {values}:", f"    {item}.write(out, version)"]
    is_compact = code.is_flexible(field, version) and field.element != "uuid"
    function = code.module.use(f"write_{'compact_' if is_compact else ''}{field.element}")
    return [f"for {item} in {values}:", f"    {function}(out, {item})"]


def _item_name(field: Field) -> str:
    """Name a loop variable after the element's type: a variable has one type in a function."""
    name = snake_case(field.element)
    assert name not in _LOCALS, f"{name} is the name of another local"
    return f"{name}_" if keyword.iskeyword(name) else name


def _null_check(code: StructCode, field: Field, version: int) -> list[str]:
    """Refuse None, where the type allows it for the sake of other versions."""
    if not code.is_nullable(field) or version in field.nullable:
        return []
    return [
        f"if self.{code.attribute(field)} is None:",
        f"    raise {code.module.use_error('null_field')}({code.label(field)}, version)",
    ]


def _refusal(code: StructCode, field: Field) -> list[str]:
    """Refuse a value in a version that lacks the field, unless it may be dropped."""
    if field.ignorable:
        return []
    return [
        f"if {code.differs(field)}:",
        f"    raise {code.module.use_error('unsupported_field')}({code.label(field)}, version)",
    ]


def _refused_tags(code: StructCode, version: int) -> list[str]:
    absent = (field for field in code.tagged if version not in field.versions)
    return [line for field in absent for line in _refusal(code, field)]


def _tags(code: StructCode) -> list[str]:
    """Return the section of tagged fields; fields with their default are not written."""
    if not code.flexible:
        return []
    section = [_NO_TAGS]
    if any(field.versions & code.flexible for field in code.tagged):
        section = ["tags: dict[int, bytearray] = {}"]
        for field in code.tagged:
            section += by_version(code.flexible, partial(_tag, code, field))
        section.append(f"{code.module.use('write_tags')}(out, tags)")
    return by_version(code.versions, lambda version: section if version in code.flexible else [])


def _tag(code: StructCode, field: Field, version: int) -> list[str]:
    if version not in field.versions:
        return []
    if field.is_array:
        inner = _count(code, field, version) + _elements(code, field, version)
    else:
        inner = _value(code, field, version)
    return [
        f"if {code.differs(field)}:",
        f"    value = tags[{field.tag}] = bytearray()",
        *indented([re.sub(r"\bout\b", "value", line) for line in inner]),
    ]
