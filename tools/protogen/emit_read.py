"""Writes a structure's `read`: the mirror image of `write`."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from tools.protogen.spec import FIXED_SIZES, Field, Struct
from tools.protogen.struct_code import FORMAT_CODES, StructCode, primitive
from tools.protogen.versions import by_version, indented

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def read_method(code: StructCode) -> list[str]:
    """Return the method's lines, as they stand in the class.

    The object is made without `__init__`, since every field is set here, once.
    """
    body = ["self = cls.__new__(cls)"]
    for run in _runs(code.fields):
        if run[0].is_array:
            body += by_version(code.versions, partial(_count, code, run[0]))
            body += by_version(code.versions, partial(_elements, code, run[0]))
        else:
            body += by_version(code.versions, partial(_values, code, run))
    body += [f"self.{code.attribute(field)} = {code.default(field)}" for field in code.tagged]
    body += _tags(code)
    return [
        "    @classmethod",
        "    def read(cls, reader: Reader, version: int) -> Self:",
        *indented([*body, "return self"], 2),
    ]


def _runs(fields: Sequence[Field]) -> Iterator[list[Field]]:
    """Untagged fields; neighbours of fixed size together, to be unpacked by one call."""
    untagged = (field for field in fields if field.tag is None)
    for is_fixed, group in groupby(untagged, key=lambda field: field.is_fixed):
        if is_fixed:
            yield list(group)
        else:
            yield from ([field] for field in group)


def _values(code: StructCode, run: Sequence[Field], version: int) -> list[str]:
    """Return the fields of `run`, which are no arrays."""
    lines: list[str] = []
    present = [field for field in run if version in field.versions]
    if len(present) > 1:
        names = ", ".join(f"self.{code.attribute(field)}" for field in present)
        lines.append(f"{names} = reader.unpack({code.module.layout(present)})")
    elif present:
        lines.append(f"self.{code.attribute(present[0])} = {_value(code, present[0], version)}")
    absent = (field for field in run if version not in field.versions)
    return lines + [f"self.{code.attribute(field)} = {code.default(field)}" for field in absent]


def _value(code: StructCode, field: Field, version: int) -> str:
    if field.is_fixed:
        return f"reader.{primitive(field)}()"
    if field.struct is None:
        return f"reader.{code.form(field, version)}{field.element}()"
    read = f"{code.class_of(field)}.read(reader, version)"
    if version not in field.nullable:
        return read
    return f"None if reader.int8() {'<' if field.tag is None else '<='} 0 else {read}"


def _count(code: StructCode, field: Field, version: int) -> list[str]:
    if version not in field.versions:
        return []
    # One bound for all versions of the same form: looser for some, but one branch instead of many.
    size_min = min(
        _element_size_min(code, field, other)
        for other in (code.versions & field.versions).each()
        if code.is_flexible(field, other) == code.is_flexible(field, version)
    )
    return [f"count = reader.{code.form(field, version)}count({size_min})"]


def _elements(code: StructCode, field: Field, version: int) -> list[str]:
    name = f"self.{code.attribute(field)}"
    if version not in field.versions:
        return [f"{name} = {code.default(field)}"]
    elements = _list(code, field, version)
    if code.is_nullable(field):
        elements = f"None if count < 0 else {elements}"
    return [f"{name} = {elements}"]


def _list(code: StructCode, field: Field, version: int) -> str:
    if field.element in FIXED_SIZES and field.element != "uuid":
        return f'reader.numbers("{FORMAT_CODES[field.element]}", count)'
    if field.struct is not None:
        read = f"{code.class_of(field)}.read(reader, version)"
    else:
        is_compact = code.is_flexible(field, version) and field.element != "uuid"
        read = f"reader.{'compact_' if is_compact else ''}{field.element}()"
    return f"[{read} for _ in range(count)]"


def _element_size_min(code: StructCode, field: Field, version: int) -> int:
    """Return the least number of bytes that one value of the field's type takes."""
    if field.struct is not None:
        return _struct_size_min(code, field.struct, version)
    if field.element in FIXED_SIZES:
        return FIXED_SIZES[field.element]
    if code.is_flexible(field, version):
        return 1
    return 2 if field.element == "string" else 4


def _struct_size_min(code: StructCode, struct: Struct, version: int) -> int:
    size = 1 if version in code.message.flexible else 0
    for field in struct.fields:
        if version not in field.versions or field.tag is not None:
            continue
        if field.is_array:
            size += 1 if code.is_flexible(field, version) else 4
        elif field.struct is not None and version in field.nullable:
            size += 1
        else:
            size += _element_size_min(code, field, version)
    assert size > 0, f"{struct.name} can be empty on the wire, so that its count has no bound"
    return size


def _tags(code: StructCode) -> list[str]:
    if not code.flexible:
        return []
    known = [field for field in code.tagged if field.versions & code.flexible]
    section = ["reader.skip_tags()"]
    if known:
        section = ["for _ in range(reader.tag_count()):", "    tag, end = reader.tag()"]
        for index, field in enumerate(known):
            section += indented(_tag(code, field, "elif" if index else "if"))
        section += ["    else:", "        reader.position = end", "    reader.end_tag(tag, end)"]
    return by_version(code.versions, lambda version: section if version in code.flexible else [])


def _tag(code: StructCode, field: Field, word: str) -> list[str]:
    """Return the branch that reads one tagged field; in versions without it the tag is unknown."""
    versions = field.versions & code.flexible
    condition = f"tag == {field.tag}"
    if versions.low > code.flexible.low:
        condition += f" and version >= {versions.low}"
    assert versions.high == code.flexible.high, f"{field.name}: a tag that ends is not supported"
    if field.is_array:
        lines = by_version(versions, partial(_count, code, field))
        lines += by_version(versions, partial(_elements, code, field))
    else:
        lines = by_version(versions, partial(_values, code, [field]))
    return [f"{word} {condition}:", *indented(lines)]
