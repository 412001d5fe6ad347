"""A range of versions, as the schemas write it: ``none``, ``3``, ``3-5`` or ``3+``."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ALL", "NONE", "Versions"]

_HIGHEST = 0x7FFF


@dataclass(frozen=True, slots=True)
class Versions:
    """All versions from `low` to `high`; empty when `low` is above `high`."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """The range that `text` stands for. Raises ValueError."""
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

    def each(self) -> range:
        """Every version in the range."""
        return range(self.low, self.high + 1)

    def __bool__(self) -> bool:
        return self.low <= self.high

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.high == _HIGHEST:
            return f"{self.low}+"
        return f"{self.low}" if self.low == self.high else f"{self.low}-{self.high}"


ALL = Versions(0, _HIGHEST)
NONE = Versions(0, -1)
