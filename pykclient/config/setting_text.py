"""SettingText: a setting's value that comes from text instead of a program.

The value itself carries the mark, not the mapping around it, so the mark survives when mappings are
copied or merged, and when Spark pickles them for its tasks. It names the place that the text comes
from and the policy under which it entered: an executor follows its driver's policy.

Owner: none, it is immutable.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.config.policy import Policy, Reach, switch

if TYPE_CHECKING:
    from collections.abc import Iterable

HIDDEN: Final = "<hidden>"
"""The text shown instead of a secret."""

_NAME_LENGTH_MAX: Final = 100

REFUSED_MAX: Final = 8
"""Refused names that an error lists: a setting may have as many as it has room for."""


class Origin(NamedTuple):
    """The place that a text comes from, in words, and the policy that limits it."""

    place: str
    policy: Policy
    process: str = "this process"
    """The process whose environment sets the policy, in words."""
    is_secret: bool = False
    """True if a configuration provider returned the text."""

    def complaint(self, named: Iterable[tuple[Reach, str]]) -> str:
        """Return a complaint about names that the policy refuses, with the cure, or ""."""
        all_refused = (each for each in named if not self.policy.allows(*each))
        refused = list(islice(all_refused, REFUSED_MAX))
        if not refused:
            return ""
        actions = " or ".join(
            f"{reach.value} {HIDDEN if self.is_secret else repr(name[:_NAME_LENGTH_MAX])}"
            for reach, name in refused
        )
        problem = f"text from {self.place} may not {actions}. A program may do so in code."
        if any(reach is Reach.FUNCTION for reach, _ in refused):
            return f"{problem} Text may name a source of tokens in sasl_oauth_token_provider."
        return f"{problem} To allow it in text, {self.cure(refused)}."

    def cure(self, refused: Iterable[tuple[Reach, str]]) -> str:
        """Return the environment variables that would allow some names, and the words to add."""
        words: dict[str, list[str]] = {}
        for each in refused:
            variable, word = switch(*each)
            words.setdefault(variable, []).append(HIDDEN if self.is_secret else word)
        added = (f"{','.join(found)} to {variable}" for variable, found in words.items())
        return f"add {' and '.join(added)} in the environment of {self.process}"


class SettingText(str):
    """A str that knows its origin."""

    __slots__ = ("origin",)

    origin: Origin | None

    def __new__(cls, text: str, origin: Origin | None = None) -> SettingText:
        made = super().__new__(cls, text)
        made.origin = origin
        return made

    def __reduce__(self) -> tuple[type[SettingText], tuple[str, Origin | None]]:
        return type(self), (str.__str__(self), self.origin)


class SecretText(SettingText):
    """Text whose `repr` is `<hidden>`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN


def origin_of(value: object) -> Origin | None:
    """Return the origin of a text, or of the first text in a list; None for a program's value."""
    if isinstance(value, (list, tuple)):
        return next((found for each in value if (found := origin_of(each)) is not None), None)
    return value.origin if isinstance(value, SettingText) else None


def with_origin(text: str, origin: Origin | None) -> str:
    """Return a text with an origin; unchanged if the origin is None."""
    if origin is None:
        return text
    return (SecretText if origin.is_secret else SettingText)(text, origin)
