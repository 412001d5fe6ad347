"""The settings for serializers and deserializers, by Java's names or as Python objects.

Owner: none; it holds no state.
Source: Java package ``org.apache.kafka.common.serialization``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pykclient.config.setting import Kind, object_or_name
from pykclient.config.unknown_keys import java_hint

if TYPE_CHECKING:
    Ending = Literal["Serializer", "Deserializer"]
    Parameter = Literal["K", "V"]

JAVA_PACKAGE: Final = "org.apache.kafka.common.serialization."
HOME: Final = "pykclient.serialization"

AS_THEY_ARE: Final = ("ByteArray", "Bytes", "ByteBuffer")
"""Java's classes for bytes, which need no serializer here: `send` and records use bytes."""

OF_THE_SAME_NAME: Final = (
    "String",
    "Short",
    "Integer",
    "Long",
    "Float",
    "Double",
    "UUID",
    "Boolean",
)
"""Java's classes with an equivalent here that has the same encoding."""

_WORDS: Final = {
    "String": ("string", "str", "text", "utf8", "utf-8"),
    "Integer": ("integer", "int"),
    "Long": ("long",),
    "Double": ("double", "float"),
    "Json": ("json",),
}


def serializer_or_name(ending: Ending, parameter: Parameter) -> Kind[object]:
    """Return the kind of a serializer: as `object_or_name`, or the full name of a Java class.

    `parameter` is the client's type parameter that it determines.
    """
    others = object_or_name(lambda text: _hint(text, ending))

    def parse(value: object) -> object:
        text = value.strip() if isinstance(value, str) else ""
        if text.startswith(JAVA_PACKAGE) and text.endswith(ending):
            name = text.removeprefix(JAVA_PACKAGE).removesuffix(ending)
            if name in AS_THEY_ARE:
                return None
            if name in OF_THE_SAME_NAME:
                return f"{HOME}:{name}{ending}"
        return others.parse(value)

    return Kind(
        parse,
        f"{others.allowed}, or {JAVA_PACKAGE}*{ending}",
        annotation=f"{ending}Setting[{parameter}]",
        named=others.named,
    )


def _hint(text: str, ending: Ending) -> str:
    """Return a hint for a serializer that is given as a word; empty for others."""
    word = text.rpartition(".")[2].removesuffix(ending).lower()
    if word in ("bytearray", "bytes", "bytebuffer", "noop", "none"):
        return "Leave it out: without one, bytes are sent as they are."
    for name, words in _WORDS.items():
        if word in words:
            return f"Write '{HOME}:{name}{ending}'."
    return java_hint(text)
