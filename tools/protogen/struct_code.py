"""The parts that the code of one structure is made of: names, types, defaults and fields.

`ModuleCode` collects what the module must import and define above its classes while `StructCode`s
are asked; `emit_write` and `emit_read` turn a `StructCode` into methods.
"""

from __future__ import annotations

import keyword
from typing import TYPE_CHECKING

from tools.protogen.spec import Field, Message, Struct, snake_case

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORMAT_CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Fixed-size types -> their codes in Python's ``struct``."""

_PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "uuid": "bytes",
    "records": "Records",
}


def primitive(field: Field) -> str:
    """Return the type's name in `pykclient.protocol.primitives`."""
    return "boolean" if field.element == "bool" else field.element


class ModuleCode:
    """The imports and definitions that a module needs above its classes."""

    def __init__(self) -> None:
        self.layouts: dict[str, str] = {}
        self.primitives: set[str] = set()
        self.errors: set[str] = set()

    def use(self, name: str) -> str:
        """Import `name` from the primitives."""
        self.primitives.add(name)
        return name

    def use_error(self, name: str) -> str:
        """Import `name` from the module of the messages' base."""
        self.errors.add(name)
        return name

    def layout(self, fields: Sequence[Field]) -> str:
        """Return the name of a ``struct`` layout of several fixed-size fields."""
        name = "_" + "_".join(field.element.upper() for field in fields)
        self.layouts[name] = ">" + "".join(FORMAT_CODES[field.element] for field in fields)
        return name


class StructCode:
    """One structure of one message, in the versions in which it can stand on the wire."""

    def __init__(
        self, struct: Struct, message: Message, class_names: Mapping[str, str], module: ModuleCode
    ) -> None:
        self.message = message
        self.module = module
        self.versions = message.used_in(struct)
        self.flexible = message.flexible & self.versions
        self.fields = [field for field in struct.fields if field.versions & self.versions]
        self.name = struct.name
        self.class_name = class_names[struct.name]
        self._class_names = class_names

    @property
    def tagged(self) -> list[Field]:
        """The tagged fields, in the order in which they are written."""
        tagged = [(field.tag, field) for field in self.fields if field.tag is not None]
        return [field for _, field in sorted(tagged, key=lambda pair: pair[0])]

    def attribute(self, field: Field) -> str:
        """Return the field's name in Python."""
        name = snake_case(field.name)
        return f"{name}_" if keyword.iskeyword(name) else name

    def class_of(self, field: Field) -> str:
        """Return the class of the structure that the field has, or is a list of."""
        return self._class_names[field.element]

    def label(self, field: Field) -> str:
        """Return the name of the field in errors."""
        return f'"{self.class_name}.{self.attribute(field)}"'

    def is_flexible(self, field: Field, version: int) -> bool:
        """Return whether the field has the compact form in `version`."""
        return version in (self.message.flexible if field.flexible is None else field.flexible)

    def form(self, field: Field, version: int) -> str:
        """Return the prefix of the primitive that reads or writes the field in `version`."""
        compact = "compact_" if self.is_flexible(field, version) else ""
        return compact + ("nullable_" if version in field.nullable else "")

    def is_nullable(self, field: Field) -> bool:
        """Tell whether the field may be null in any version."""
        return bool(field.nullable & self.versions)

    def is_plain_struct(self, field: Field) -> bool:
        """Tell whether the field is a structure that is neither null nor a list."""
        return self._is_struct(field) and not self.is_nullable(field)

    def is_struct_unless_null(self, field: Field) -> bool:
        """Tell whether the field is a structure that is present by default but may be null."""
        is_optional = self._is_struct(field) and self.is_nullable(field)
        return is_optional and not field.is_null_by_default

    def _is_struct(self, field: Field) -> bool:
        return field.struct is not None and not field.is_array

    def type(self, field: Field) -> str:
        """Return the field's type in Python."""
        name = _PYTHON_TYPES.get(field.element, "int")
        if field.struct is not None:
            name = self.class_of(field)
        if field.element == "records":
            self.module.use("Records")
        if field.is_array:
            name = f"list[{name}]"
        return f"{name} | None" if self.is_nullable(field) else name

    def default(self, field: Field) -> str:
        """Return the field's default, as an expression."""
        if field.is_null_by_default and self.is_nullable(field):
            return "None"
        if field.is_array:
            return "[]"
        if field.struct is not None:
            return f"{self.class_of(field)}()"
        if field.element == "uuid":
            return self.module.use("ZERO_UUID")
        if field.element in ("bytes", "records"):
            return 'b""'
        return self._scalar_default(field)

    def _scalar_default(self, field: Field) -> str:
        text = "" if field.default is None else str(field.default)
        if field.element == "string":
            return f'"{text}"'
        if field.element == "bool":
            return str(text.lower() == "true")
        if field.element == "float64":
            return str(float(text or 0))
        return str(int(text or "0", 0))

    def differs(self, field: Field, owner: str = "self") -> str:
        """Return the condition under which the field does not have its default."""
        value = f"{owner}.{self.attribute(field)}"
        if self.is_plain_struct(field) or self.is_struct_unless_null(field):
            assert field.struct is not None
            inner = (f for f in field.struct.fields if f.versions & self.versions)
            null = [f"{value} is None"] if self.is_nullable(field) else []
            return " or ".join((*null, *(self.differs(f, value) for f in inner)))
        default = self.default(field)
        if default == "None":
            return f"{value} is not None"
        if field.element == "bool" and not field.is_array:
            return value if default == "False" else f"not {value}"
        return f"{value} != {default}"
