"""SettingText: the value of a setting that comes from text, and not from a program.

The mark is on the value, not on the mapping around it, so that it stays where mappings are copied
and merged, and where Spark pickles them for its tasks. It says from which place the text comes and
under which policy it entered: an executor follows its driver's policy.

Owner: none, it is immutable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.config.policy import Policy, Reach, switch

if TYPE_CHECKING:
    from collections.abc import Iterable

HIDDEN: Final = "<hidden>"
"""The text that is shown instead of a secret."""

_NAME_LENGTH_MAX: Final = 100


class Origin(NamedTuple):
    """The place that a text comes from, in words, and the policy that it is under."""

    place: str
    policy: Policy
    process: str = "this process"
    """The process whose environment states the policy, in words."""
    is_secret: bool = False
    """True if a configuration provider returned the text."""

    def complaint(self, named: Iterable[tuple[Reach, str]]) -> str:
        """Return what the policy refuses of some names, and the cure; empty where it allows all."""
        refused = [each for each in named if not self.policy.allows(*each)]
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
        """Return which environment variables allow some names, and with which words."""
        words: dict[str, list[str]] = {}
        for each in refused:
            variable, word = switch(*each)
            words.setdefault(variable, []).append(HIDDEN if self.is_secret else word)
        added = (f"{','.join(found)} to {variable}" for variable, found in words.items())
        return f"add {' and '.join(added)} in the environment of {self.process}"


class SettingText(str):
    """Text that knows its origin; in everything else it is a str."""

    __slots__ = ("origin",)

    origin: Origin | None

    def __new__(cls, text: str, origin: Origin | None = None) -> SettingText:
        made = super().__new__(cls, text)
        made.origin = origin
        return made

    def __reduce__(self) -> tuple[type[SettingText], tuple[str, Origin | None]]:
        return type(self), (str.__str__(self), self.origin)


class SecretText(SettingText):
    """Text that is itself in everything but its `repr`, which is `<hidden>`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN


def origin_of(value: object) -> Origin | None:
    """Return the origin of a text, or of the first text in a list; None for a program's value."""
    if isinstance(value, (list, tuple)):
        return next((found for each in value if (found := origin_of(each)) is not None), None)
    return value.origin if isinstance(value, SettingText) else None


def with_origin(text: str, origin: Origin | None) -> str:
    """Return text with an origin, or as it is without one."""
    if origin is None:
        return text
    return (SecretText if origin.is_secret else SettingText)(text, origin)
