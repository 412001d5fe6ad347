"""Random messages of any schema and version, drawn by hypothesis or from a seed.

Only fields that the version has get a value, since Kafka refuses the others. Strings and arrays
stay short; numbers span their whole range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hypothesis import strategies as st

from tools.protogen.emit_messages import class_names
from tools.protogen.struct_code import ModuleCode, StructCode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random
    from types import ModuleType

    from pykclient.protocol.message import DataMessage, Message, Structure
    from tools.protogen.spec import Field, Struct
    from tools.protogen.spec import Message as Schema

_RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
_SIZE_MAX = 3


class Choices(Protocol):
    """A source of random values."""

    def integer(self, low: int, high: int) -> int: ...

    def real(self) -> float: ...

    def text(self) -> str: ...

    def octets(self, size: int) -> bytes: ...


class DrawnChoices:
    """Choices by hypothesis, which shrinks them when a test fails."""

    def __init__(self, data: st.DataObject) -> None:
        self._draw = data.draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def real(self) -> float:
        return self._draw(st.floats(allow_nan=False))

    def text(self) -> str:
        return self._draw(st.text(max_size=8))

    def octets(self, size: int) -> bytes:
        return self._draw(st.binary(min_size=size, max_size=size))


class SeededChoices:
    """Choices of a seeded generator: quick, for many examples."""

    _ALPHABETS = ("abcXYZ019._-", "äßΩ", "日本語", "\U0001f600\U0001f4a9", "\x00\n\t\x7f")

    def __init__(self, random: Random) -> None:
        self._random = random

    def integer(self, low: int, high: int) -> int:
        # Near the ends and near zero is where mistakes are.
        edge = self._random.choice((low, high, 0, self._random.randint(low, high)))
        return min(max(low, edge + self._random.randint(-1, 1)), high)

    def real(self) -> float:
        return self._random.choice((0.0, -0.0, 1e308, 5e-324, float("inf"), self._random.random()))

    def text(self) -> str:
        alphabet = self._random.choice(self._ALPHABETS)
        # 128 bytes and more need a second byte for a compact length.
        size = self._random.choice((0, 1, 5, self._random.randint(100, 200)))
        return "".join(self._random.choices(alphabet, k=size))

    def octets(self, size: int) -> bytes:
        return self._random.randbytes(size)


class Instances:
    """Makes instances of one schema from the classes in `module`.

    `schemas` are all schemas of that module, since their order and names decide the class names.
    """

    def __init__(self, schema: Schema, schemas: Sequence[Schema], module: ModuleType) -> None:
        self.schema = schema
        self._module = module
        self._names = class_names(schemas)[schema.name]
        self._codes = {
            struct.name: StructCode(struct, schema, self._names, ModuleCode())
            for struct in schema.structs()
        }

    @property
    def type(self) -> type[Message] | type[DataMessage]:
        """The class of the whole message."""
        kind: type[Message] | type[DataMessage] = getattr(self._module, self.schema.name)
        return kind

    def make(self, version: int, choices: Choices) -> Structure:
        """Return a message whose fields have any value that `version` allows."""
        return self._struct(self.schema.root, version, choices)

    def fields(self, struct: Struct) -> list[tuple[Field, str]]:
        """Return the fields that the class of `struct` has, with their names there."""
        code = self._codes[struct.name]
        return [(field, code.attribute(field)) for field in code.fields]

    def _struct(self, struct: Struct, version: int, choices: Choices) -> Structure:
        kind = getattr(self._module, self._names[struct.name])
        instance: Structure = kind(
            **{
                name: self._field(field, version, choices)
                for field, name in self.fields(struct)
                if version in field.versions
            }
        )
        return instance

    def _field(self, field: Field, version: int, choices: Choices) -> object:
        if version in field.nullable and choices.integer(0, 3) == 0:
            return None
        if field.is_array:
            size = choices.integer(0, _SIZE_MAX)
            return [self._value(field, version, choices) for _ in range(size)]
        return self._value(field, version, choices)

    def _value(self, field: Field, version: int, choices: Choices) -> object:
        if field.struct is not None:
            return self._struct(field.struct, version, choices)
        if field.element in _RANGES:
            return choices.integer(*_RANGES[field.element])
        match field.element:
            case "bool":
                return choices.integer(0, 1) == 1
            case "float64":
                return choices.real()
            case "string":
                return choices.text()
            case "uuid":
                return choices.octets(16)
            case _:
                return choices.octets(choices.integer(0, 300))
