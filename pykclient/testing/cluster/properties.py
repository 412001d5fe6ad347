"""Java's properties files, as far as writing one needs.

Owner: none; it holds no state.
Source: Java class ``java.util.Properties``, methods ``load`` and ``store``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PropertyValue", "dump_properties"]

PropertyValue = str | int | float | bool

# A line end would end the property, a backslash begin an escape; the others mean something in a
# name or at the start of a value, and may be escaped anywhere.
_ESCAPES = str.maketrans({character: f"\\{character}" for character in "\\=:#! "}) | str.maketrans(
    {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
)


def dump_properties(properties: Mapping[str, PropertyValue]) -> str:
    """The text of a properties file in ASCII: a line for each property, in the given order."""
    return "".join(
        f"{_escape(name)}={_escape(_text(value))}\n" for name, value in properties.items()
    )


def _text(value: PropertyValue) -> str:
    # Java's booleans are written in lower case.
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escape(text: str) -> str:
    escaped = text.translate(_ESCAPES)
    if escaped.isascii():
        return escaped
    # Java reads the file as Latin-1, and everything else as UTF-16 units written \uXXXX.
    return "".join(
        character if character.isascii() else _utf16_units(character) for character in escaped
    )


def _utf16_units(character: str) -> str:
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[i] << 8 | data[i + 1]:04x}" for i in range(0, len(data), 2))
