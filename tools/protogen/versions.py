"""A range of versions as the schemas write it (``none``, ``3``, ``3-5``, ``3+``); code by it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_HIGHEST = 0x7FFF


@dataclass(frozen=True, slots=True)
class Versions:
    """All versions from `low` to `high`; empty when `low` is above `high`."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Return the range that `text` stands for. Raises ValueError."""
        if text == "none":
            return NONE
        if text.endswith("+"):
            return cls(int(text[:-1]), _HIGHEST)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __and__(self, other: Versions) -> Versions:
        both = Versions(max(self.low, other.low), min(self.high, other.high))
        return both if both.low <= both.high else NONE

    def __or__(self, other: Versions) -> Versions:
        """From the lowest to the highest of both."""
        return Versions(min(self.low, other.low), max(self.high, other.high))

    def __bool__(self) -> bool:
        return self.low <= self.high

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.high == _HIGHEST:
            return f"{self.low}+"
        return f"{self.low}" if self.low == self.high else f"{self.low}-{self.high}"

    def each(self) -> range:
        """Every version in the range."""
        return range(self.low, self.high + 1)


ALL = Versions(0, _HIGHEST)
NONE = Versions(0, -1)


def by_version(versions: Versions, code: Callable[[int], list[str]]) -> list[str]:
    """`code` of every single version, where neighbours that are equal share a branch.

    Asking version by version leaves no arithmetic of ranges to get wrong. The newest come first,
    as they are the most used.
    """
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
        result += [f"{word} {condition}:" if condition else "else:", *indented(lines)]
    return result


def indented(lines: list[str], levels: int = 1) -> list[str]:
    """`lines`, moved to the right."""
    return ["    " * levels + line for line in lines]


def _condition(group: Versions, among: Versions, *, is_covered: bool) -> str:
    """Return the condition that separates `group` from the other versions; empty if none."""
    if is_covered:
        return "" if group.low == among.low else f"version >= {group.low}"
    if group.low == among.low:
        return f"version <= {group.high}"
    if group.low == group.high:
        return f"version == {group.low}"
    return f"{group.low} <= version <= {group.high}"
