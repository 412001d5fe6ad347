"""Writes the module of one API: a class per structure, with `write` and `read` in plain lines.

Code that depends on the version is written by asking for the lines of every single version and
joining neighbours that are equal (`_by_version`); no range arithmetic, so nothing to get wrong.
"""

from __future__ import annotations

import keyword
import re
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from tools.protogen.apis import MASKED
from tools.protogen.spec import FIXED_SIZES, Field, Message, Struct, snake_case
from tools.protogen.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["emit_module"]

_CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
_PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "uuid": "bytes",
    "records": "Records",
}
_READERS = {"bool": "boolean"}


class _Module:
    """What the module's lines need above them, collected while the classes are written."""

    def __init__(self) -> None:
        self.layouts: dict[str, str] = {}
        self.primitives: set[str] = set()
        self.errors: set[str] = set()

    def use(self, name: str) -> str:
        """Import `name` from the primitives."""
        self.primitives.add(name)
        return name

    def layout(self, fields: Sequence[Field]) -> str:
        """The name of the `struct` layout of several fixed-size fields."""
        name = "_" + "_".join(field.element.upper() for field in fields)
        self.layouts[name] = ">" + "".join(_CODES[field.element] for field in fields)
        return name


def emit_module(messages: Sequence[Message], banner: str) -> str:
    """The source of the module that holds `messages`: an API's pair, or some data schemas."""
    module = _Module()
    names = _class_names(messages)
    lines: list[str] = []
    for message in messages:  # responses first, since a request names the class of its answer
        writer = _MessageWriter(message, module, names[message.name], messages)
        lines += writer.classes()
    exported = sorted(name for message in messages for name in names[message.name].values())
    return "\n".join(
        [banner, "", *_imports(messages, module), "", "__all__ = [", *_quoted(exported), "]", ""]
        + [f'{name} = Layout("{code}")' for name, code in sorted(module.layouts.items())]
        + lines
    )


def _imports(messages: Sequence[Message], module: _Module) -> list[str]:
    bases = {
        "request": {"Request"},
        "response": {"Message"},
        "data": {"DataMessage"},
        "header": {"DataMessage"},
    }
    base = set().union(*(bases[message.kind] for message in messages)) | module.errors
    if any(True for message in messages for _ in _nested(message.root)):
        base.add("Structure")
    lines = ["from __future__ import annotations", ""]
    if module.layouts:
        lines.append("from struct import Struct as Layout")
    lines.append("from typing import TYPE_CHECKING, ClassVar, Self")
    lines.append("")
    if any(message.api_key is not None for message in messages):
        lines.append("from pykclient.protocol.api_keys import ApiKey")
    lines.append(f"from pykclient.protocol.message import {', '.join(sorted(base))}")
    typing_only = {"Reader", "Records"} & module.primitives
    used = sorted(module.primitives - typing_only, key=_natural)
    if used:
        lines.append(f"from pykclient.protocol.primitives import ({', '.join(used)},)")
    lines += ["", "if TYPE_CHECKING:"]
    lines.append(f"    from pykclient.protocol.primitives import {', '.join(sorted(typing_only))}")
    return lines


def _quoted(names: Sequence[str]) -> list[str]:
    return [f'"{name}",' for name in names]


def _nested(struct: Struct) -> Iterator[Struct]:
    """All structures below `struct`, each once, parents first."""
    seen: set[str] = set()
    pending = [struct]
    while pending:
        current = pending.pop(0)
        for field in current.fields:
            if field.struct is not None and field.struct.name not in seen:
                seen.add(field.struct.name)
                yield field.struct
                pending.append(field.struct)


def _class_names(messages: Sequence[Message]) -> dict[str, dict[str, str]]:
    """Message -> schema name -> class name.

    Classes are named as in the schema. Where request and response use one name for structures of
    their own, "Request" and "Response" are put in front.
    """
    owners: dict[str, set[str]] = {}
    for message in messages:
        for struct in (message.root, *_nested(message.root)):
            owners.setdefault(struct.name, set()).add(message.name)
    return {
        message.name: {
            struct.name: struct.name
            if len(owners[struct.name]) == 1
            else message.kind.capitalize() + struct.name
            for struct in (message.root, *_nested(message.root))
        }
        for message in messages
    }


class _MessageWriter:
    """Writes the classes of one message."""

    def __init__(
        self,
        message: Message,
        module: _Module,
        names: dict[str, str],
        siblings: Sequence[Message],
    ) -> None:
        self._message = message
        self._module = module
        self._names = names
        self._siblings = siblings
        self._versions = message.versions  # of the structure that is being written
        self._used_in = _used_in(message)

    def classes(self) -> list[str]:
        lines = self._class(self._message.root, is_root=True)
        for struct in _nested(self._message.root):
            lines += self._class(struct, is_root=False)
        return lines

    def _class(self, struct: Struct, *, is_root: bool) -> list[str]:
        name = self._names[struct.name]
        self._versions = self._used_in[struct.name]
        fields = [field for field in struct.fields if field.versions & self._versions]
        slots = "".join(f'"{_attribute(field)}", ' for field in fields)
        base = {"request": "Request", "response": "Message"}.get(self._message.kind, "DataMessage")
        lines = ["", "", f"class {name}({base if is_root else 'Structure'}):"]
        if is_root:
            lines += [f'    """{self._about()}"""']
        else:
            lines += [f'    """Part of `{self._message.name}`."""']
        lines += ["", f"    __slots__ = ({slots})"]
        masked = "".join(f'"{_attribute(field)}", ' for field in fields if field.name in MASKED)
        if masked:
            lines.append(f"    masked = ({masked})")
        if is_root:
            lines += self._constants()
        lines += ["", *self._init(fields)]
        lines += ["", *self._write(name, fields)]
        lines += ["", *self._read(name, fields)]
        return lines

    def _about(self) -> str:
        versions = _versions_text(self._versions)
        what = {"request": "Request", "response": "Response"}.get(self._message.kind)
        if what is None:
            return f"Data, {versions}."
        return f"{what} of API {self._message.api} ({self._message.api_key}), {versions}."

    def _constants(self) -> list[str]:
        message = self._message
        flexible = message.flexible & message.versions
        lines = [
            f"    min_version: ClassVar[int] = {message.versions.low}",
            f"    max_version: ClassVar[int] = {message.versions.high}",
            f"    flexible_from: ClassVar[int | None] = {flexible.low if flexible else None}",
        ]
        if message.api_key is not None:
            key = snake_case(message.api).upper()
            lines.insert(0, f"    api_key: ClassVar[ApiKey] = ApiKey.{key}")
        if message.kind == "request":
            response = f"{message.api}Response"
            lines.append(f"    response_type: ClassVar[type[{response}]] = {response}")
        return lines

    # __init__

    def _init(self, fields: Sequence[Field]) -> list[str]:
        if not fields:
            return ["    def __init__(self) -> None:", "        pass"]
        arguments = ", ".join(
            f"{_attribute(field)}: {self._argument_type(field)} = {self._argument_default(field)}"
            for field in fields
        )
        lines = [f"    def __init__(self, {arguments},) -> None:"]
        for field in fields:
            name = _attribute(field)
            comment = f"# {field.versions}"
            if field.tag is not None:
                comment += f", tag {field.tag}"
            lines.append(f"        self.{name} = {self._stored(field)}  {comment}")
        return lines

    def _argument_type(self, field: Field) -> str:
        if self._is_plain_struct(field):
            return f"{self._names[field.element]} | None"
        return self._type(field)

    def _type(self, field: Field) -> str:
        name = self._element_type(field)
        if field.is_array:
            name = f"list[{name}]"
        if field.element == "records":
            self._module.use("Records")
        return f"{name} | None" if field.nullable & self._versions else name

    def _element_type(self, field: Field) -> str:
        if field.struct is not None:
            return self._names[field.element]
        return _PYTHON_TYPES.get(field.element, "int")

    def _is_plain_struct(self, field: Field) -> bool:
        return field.struct is not None and not field.is_array and not field.is_null_by_default

    def _argument_default(self, field: Field) -> str:
        if self._is_plain_struct(field):
            return "None"
        if field.is_array and not field.is_null_by_default:
            return self._module.use("EMPTY")
        return self._default(field)

    def _stored(self, field: Field) -> str:
        name = _attribute(field)
        if self._is_plain_struct(field):
            return f"{self._names[field.element]}() if {name} is None else {name}"
        if field.is_array and not field.is_null_by_default:
            annotation = f"{name}"
            return f"[] if {annotation} is EMPTY else {name}"
        return name

    def _default(self, field: Field) -> str:
        if field.is_null_by_default:
            return "None"
        if field.is_array:
            return "[]"
        if field.struct is not None:
            return f"{self._names[field.element]}()"
        if field.element == "uuid":
            return self._module.use("ZERO_UUID")
        if field.element in ("bytes", "records"):
            return 'b""'
        text = "" if field.default is None else str(field.default)
        if field.element == "string":
            return f'"{text}"'
        if field.element == "bool":
            return str(text.lower() == "true")
        if field.element == "float64":
            return str(float(text or 0))
        return str(int(text or "0", 0))

    def _differs(self, field: Field) -> str:
        """The condition under which the field does not have its default."""
        value = f"self.{_attribute(field)}"
        default = self._default(field)
        if default == "None":
            return f"{value} is not None"
        if field.element == "bool" and not field.is_array:
            return value if default == "False" else f"not {value}"
        return f"{value} != {default}"

    # write

    def _write(self, owner: str, fields: Sequence[Field]) -> list[str]:
        body: list[str] = []
        for run in _runs(fields, lambda field: field.is_fixed and field.element != "uuid"):
            body += self._by_version(partial(self._write_head, owner, run))
            body += self._by_version(partial(self._write_tail, run))
        tagged = [field for field in fields if field.tag is not None]
        body += self._write_tags(owner, tagged)
        return [
            "    def write(self, out: bytearray, version: int) -> None:",
            *_indent(body or ["pass"], 2),
        ]

    def _write_head(self, owner: str, run: Sequence[Field], version: int) -> list[str]:
        """What stands for the fields of `run` in `version`; of arrays, the count."""
        lines: list[str] = []
        present = [field for field in run if self._is_present(field, version)]
        for field in run:
            if field not in present:
                lines += self._refuse(owner, field)
        if len(present) > 1 or (len(present) == 1 and present[0].is_fixed):
            lines += self._write_fixed(present)
        elif present:
            lines += self._write_variable(owner, present[0], version)
        return lines

    def _refuse(self, owner: str, field: Field) -> list[str]:
        if field.ignorable:
            return []
        self._module.errors.add("unsupported_field")
        name = f"{owner}.{_attribute(field)}"
        return [
            f"if {self._differs(field)}:",
            f'    raise unsupported_field("{name}", version)',
        ]

    def _write_fixed(self, fields: Sequence[Field]) -> list[str]:
        values = ", ".join(f"self.{_attribute(field)}" for field in fields)
        if len(fields) > 1:
            return [f"out += {self._module.layout(fields)}.pack({values})"]
        if fields[0].element == "uuid":
            return [f"{self._module.use('write_uuid')}(out, {values})"]
        return [f"out += {self._pack(fields[0])}({values})"]

    def _pack(self, field: Field) -> str:
        return self._module.use(f"pack_{_READERS.get(field.element, field.element)}")

    def _write_variable(self, owner: str, field: Field, version: int) -> list[str]:
        value = f"self.{_attribute(field)}"
        lines = []
        if field.nullable & self._versions and version not in field.nullable:
            self._module.errors.add("null_field")
            name = f"{owner}.{_attribute(field)}"
            lines = [f"if {value} is None:", f'    raise null_field("{name}", version)']
        if field.struct is not None and not field.is_array:
            return [*lines, *self._write_struct(field, version)]
        kind = "count" if field.is_array else field.element
        function = self._module.use(f"write_{self._form(field, version)}{kind}")
        return [*lines, f"{function}(out, {value})"]

    def _write_struct(self, field: Field, version: int) -> list[str]:
        value = f"self.{_attribute(field)}"
        if version not in field.nullable:
            return [f"{value}.write(out, version)"]
        return [
            f"if {value} is None:",
            r'    out += b"\xff"',
            "else:",
            r'    out += b"\x01"',
            f"    {value}.write(out, version)",
        ]

    def _form(self, field: Field, version: int) -> str:
        compact = "compact_" if self._is_flexible(field, version) else ""
        return compact + ("nullable_" if version in field.nullable else "")

    def _is_flexible(self, field: Field, version: int) -> bool:
        own = field.flexible
        return version in (self._message.flexible if own is None else own)

    def _is_present(self, field: Field, version: int) -> bool:
        return version in field.versions

    def _write_tail(self, run: Sequence[Field], version: int) -> list[str]:
        """The elements of an array."""
        field = run[0]
        if not field.is_array or not self._is_present(field, version):
            return []
        value = f"self.{_attribute(field)}"
        if field.nullable & self._versions:
            value += " or ()"
        if field.struct is not None:
            item = _loop_variable(field)
            return [f"for {item} in {value}:", f"    {item}.write(out, version)"]
        if field.element in FIXED_SIZES and field.element != "uuid":
            return [f'{self._module.use("write_numbers")}(out, "{_CODES[field.element]}", {value})']
        compact = "compact_" if self._is_flexible(field, version) else ""
        kind = "uuid" if field.element == "uuid" else compact + field.element
        item = _loop_variable(field)
        return [f"for {item} in {value}:", f"    {self._module.use('write_' + kind)}(out, {item})"]

    def _write_tags(self, owner: str, tagged: Sequence[Field]) -> list[str]:
        lines = self._by_version(partial(self._refuse_tagged, owner, tagged))
        flexible = self._message.flexible & self._versions
        if not flexible:
            return lines
        section = [r'out += b"\x00"']
        if any(field.versions & flexible for field in tagged):
            section = ["tags: dict[int, bytearray] = {}"]
            for field in sorted(tagged, key=lambda field: field.tag or 0):
                section += self._by_version(partial(self._write_tag, owner, field), flexible)
            section.append(f"{self._module.use('write_tags')}(out, tags)")
        return lines + self._by_version(lambda version: section if version in flexible else [])

    def _refuse_tagged(self, owner: str, tagged: Sequence[Field], version: int) -> list[str]:
        absent = (field for field in tagged if not self._is_present(field, version))
        return [line for field in absent for line in self._refuse(owner, field)]

    def _write_tag(self, owner: str, field: Field, version: int) -> list[str]:
        if not self._is_present(field, version):
            return []
        inner = self._write_head(owner, [field], version) + self._write_tail([field], version)
        return [
            f"if {self._differs(field)}:",
            f"    value = tags[{field.tag}] = bytearray()",
            *_indent([re.sub(r"\bout\b", "value", line) for line in inner], 1),
        ]

    # read

    def _read(self, owner: str, fields: Sequence[Field]) -> list[str]:
        self._module.use("Reader")
        body = ["self = cls.__new__(cls)"]
        for run in _runs(fields, lambda field: field.is_fixed):
            body += self._by_version(partial(self._read_head, run))
            body += self._by_version(partial(self._read_tail, run))
        tagged = [field for field in fields if field.tag is not None]
        body += [f"self.{_attribute(field)} = {self._default(field)}" for field in tagged]
        body += self._by_version(lambda v: self._read_tags(tagged, v))
        return [
            "    @classmethod",
            "    def read(cls, reader: Reader, version: int) -> Self:",
            *_indent([*body, "return self"], 2),
        ]

    def _read_head(self, run: Sequence[Field], version: int) -> list[str]:
        present = [field for field in run if self._is_present(field, version)]
        lines: list[str] = []
        if len(present) > 1:
            names = ", ".join(f"self.{_attribute(field)}" for field in present)
            lines.append(f"{names} = reader.unpack({self._module.layout(present)})")
        elif present and present[0].is_array:
            lines.append(f"count = reader.{self._read_count(present[0], version)}")
        elif present:
            lines += self._read_value(present[0], version)
        for field in run:
            if field not in present and not field.is_array:
                lines.append(f"self.{_attribute(field)} = {self._default(field)}")
        return lines

    def _read_count(self, field: Field, version: int) -> str:
        return f"{self._form(field, version)}count({self._size_min(field, version)})"

    def _size_min(self, field: Field, version: int) -> int:
        """The least that an element takes, in any version that is as flexible as `version`."""
        flexible = self._is_flexible(field, version)
        return min(
            self._element_size_min(field, v)
            for v in self._versions.each()
            if self._is_flexible(field, v) == flexible and self._is_present(field, v)
        )

    def _element_size_min(self, field: Field, version: int) -> int:
        if field.struct is not None:
            return self._struct_size_min(field.struct, version)
        if field.element in FIXED_SIZES:
            return FIXED_SIZES[field.element]
        if self._is_flexible(field, version):
            return 1
        return 2 if field.element == "string" else 4

    def _struct_size_min(self, struct: Struct, version: int) -> int:
        size = 1 if version in self._message.flexible else 0
        for field in struct.fields:
            if not self._is_present(field, version) or field.tag is not None:
                continue
            if field.is_array:
                size += 1 if self._is_flexible(field, version) else 4
            elif field.struct is not None and version in field.nullable:
                size += 1
            else:
                size += self._element_size_min(field, version)
        assert size > 0, f"{struct.name} may be empty on the wire: its count cannot be bounded"
        return size

    def _read_value(self, field: Field, version: int) -> list[str]:
        name = f"self.{_attribute(field)}"
        if field.struct is None:
            form = "" if field.is_fixed else self._form(field, version)
            kind = _READERS.get(field.element, field.element)
            return [f"{name} = reader.{form}{kind}()"]
        read = f"{self._names[field.element]}.read(reader, version)"
        if version in field.nullable:
            read = f"None if reader.int8() < 0 else {read}"
        return [f"{name} = {read}"]

    def _read_tail(self, run: Sequence[Field], version: int) -> list[str]:
        field = run[0]
        if not field.is_array:
            return []
        name = f"self.{_attribute(field)}"
        if not self._is_present(field, version):
            return [f"{name} = {self._default(field)}"]
        elements = self._elements(field, version)
        if field.nullable & self._versions:
            elements = f"None if count < 0 else {elements}"
        return [f"{name} = {elements}"]

    def _elements(self, field: Field, version: int) -> str:
        if field.struct is not None:
            read = f"{self._names[field.element]}.read(reader, version)"
        elif field.element in FIXED_SIZES and field.element != "uuid":
            return f'reader.numbers("{_CODES[field.element]}", count)'
        elif field.element == "uuid":
            read = "reader.uuid()"
        else:
            compact = "compact_" if self._is_flexible(field, version) else ""
            read = f"reader.{compact}{field.element}()"
        return f"[{read} for _ in range(count)]"

    def _read_tags(self, tagged: Sequence[Field], version: int) -> list[str]:
        flexible = self._message.flexible & self._versions
        if version not in flexible:
            return []
        known = [field for field in tagged if field.versions & flexible]
        if not known:
            return ["reader.skip_tags()"]
        lines = ["for _ in range(reader.tag_count()):", "    tag, end = reader.tag()"]
        for index, field in enumerate(sorted(known, key=lambda field: field.tag or 0)):
            present = field.versions & flexible
            condition = f"tag == {field.tag}"
            if present.low > flexible.low:
                condition += f" and version >= {present.low}"
            assert present.high == flexible.high, f"{field.name}: a tag that ends is not supported"
            inner = self._by_version(partial(self._read_head, [field]), present)
            inner += self._by_version(partial(self._read_tail, [field]), present)
            lines += [f"    {'elif' if index else 'if'} {condition}:", *_indent(inner, 2)]
        lines += ["    else:", "        reader.position = end", "    reader.end_tag(tag, end)"]
        return lines

    # versions

    def _by_version(
        self, code: Callable[[int], list[str]], among: Versions | None = None
    ) -> list[str]:
        """`code` of every version (of the structure, or `among`), equal neighbours joined.

        The newest come first, as they are the most used.
        """
        versions = among or self._versions
        groups: list[tuple[Versions, list[str]]] = []
        for lines, neighbours in groupby(reversed(versions.each()), key=code):
            same = list(neighbours)
            groups.append((Versions(same[-1], same[0]), lines))
        if len(groups) == 1:
            return groups[0][1]
        result: list[str] = []
        is_covered = True  # whether all versions above are handled by an earlier branch
        for group, lines in groups:
            if not lines:
                is_covered = False
                continue
            condition = _condition(group, versions, is_covered=is_covered)
            word = "elif" if result else "if"
            result += [f"{word} {condition}:" if condition else "else:", *_indent(lines, 1)]
        return result


def _condition(group: Versions, among: Versions, *, is_covered: bool) -> str:
    """What tells `group` from the rest of `among`; empty if everything above is covered."""
    if is_covered:
        return "" if group.low == among.low else f"version >= {group.low}"
    if group.low == among.low:
        return f"version <= {group.high}"
    if group.low == group.high:
        return f"version == {group.low}"
    return f"{group.low} <= version <= {group.high}"


def _versions_text(versions: Versions) -> str:
    if versions.low == versions.high:
        return f"version {versions.low}"
    return f"versions {versions.low} to {versions.high}"


def _used_in(message: Message) -> dict[str, Versions]:
    """Structure -> the versions in which it can stand on the wire, from the first to the last."""
    used = {message.root.name: message.versions}

    def visit(struct: Struct, versions: Versions) -> None:
        for field in struct.fields:
            inner = versions & field.versions
            if field.struct is None or not inner:
                continue
            used[field.element] = used[field.element] | inner if field.element in used else inner
            visit(field.struct, inner)

    visit(message.root, message.versions)
    return used


def _runs(fields: Sequence[Field], joins: Callable[[Field], bool]) -> Iterator[list[Field]]:
    """The untagged fields in order; neighbours for which `joins` holds stand together."""
    for is_joined, group in groupby((f for f in fields if f.tag is None), key=joins):
        if is_joined:
            yield list(group)
        else:
            for field in group:
                yield [field]


def _natural(name: str) -> list[str | int]:
    """The key under which ``pack_int8`` comes before ``pack_int16``."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _attribute(field: Field) -> str:
    name = snake_case(field.name)
    return f"{name}_" if keyword.iskeyword(name) else name


def _loop_variable(field: Field) -> str:
    """One name per type, since a name has one type in a function."""
    name = snake_case(field.element)
    assert name not in ("out", "tags", "value", "version"), f"{name} is taken"
    return f"{name}_" if keyword.iskeyword(name) else name


def _indent(lines: Sequence[str], levels: int) -> list[str]:
    return ["    " * levels + line for line in lines]
