"""References: where a text has ``${provider:path:key}`` or ``${provider:key}`` in it.

They are found in one pass. The regular expression that Java has for them takes a time that grows
with the square of a text such as ``${${${``.

Owner: no state.
Source: Java class ``ConfigTransformer``; KIP-297.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Reference(NamedTuple):
    """One reference of a text, and where it begins and ends. `path` is empty without one."""

    provider: str
    path: str
    key: str
    start: int
    end: int

    def __str__(self) -> str:
        path = f"{self.path}:" if self.has_path else ""
        return f"${{{self.provider}:{path}{self.key}}}"

    @property
    def has_path(self) -> bool:
        """True if it contains two colons."""
        return self.end - self.start > len(self.provider) + len(self.key) + len("${:}")


def references(text: str) -> Iterator[Reference]:
    """Yield the references of a text, from left to right."""
    begin, close = 0, text.find("}")
    while close >= 0:
        found = _ending_at(text, begin, close)
        if found is not None:
            yield found
        begin, close = close + 1, text.find("}", close + 1)


def is_reference(text: str) -> bool:
    """Return whether a text is one reference, and nothing else."""
    found = next(references(text), None)
    return found is not None and (found.start, found.end) == (0, len(text))


def _ending_at(text: str, begin: int, close: int) -> Reference | None:
    """Return the reference that ends with the brace at `close`, and has one or two colons."""
    last = text.rfind(":", begin, close)
    if last < 0:
        return None
    middle = text.rfind(":", begin, last)
    before = -1 if middle < 0 else text.rfind(":", begin, middle)
    start = text.find("${", max(begin, before + 1), last)
    if start < 0:
        return None
    key = text[last + 1 : close]
    if middle < start:
        return Reference(text[start + 2 : last], "", key, start, close + 1)
    provider, path = text[start + 2 : middle], text[middle + 1 : last]
    return Reference(provider, path, key, start, close + 1)
