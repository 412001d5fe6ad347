"""The kind of a setting with values per topic.

Owner: none; it holds no state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pykclient.config.setting import Kind, shown
from pykclient.config.unknown_keys import did_you_mean, underscored
from pykclient.types import is_topic_name

if TYPE_CHECKING:
    from pykclient.config.setting import Setting

TopicSettings = Mapping[str, Mapping[str, object]]
"""Settings by topic name and setting name, with underscores."""


def per_topic(*settings: Setting[Any]) -> Kind[TopicSettings]:
    """Return the kind of a mapping from topics to mappings of some `settings`, in any spelling."""

    def parse(value: object) -> TopicSettings:
        if not isinstance(value, Mapping):
            raise ValueError
        found: dict[str, Mapping[str, object]] = {}
        for topic, given in value.items():
            if not is_topic_name(topic):
                raise ValueError(f"{shown('', topic)} is not a topic name.")
            if not isinstance(given, Mapping):
                raise ValueError(f"Topic {topic!r} has {shown('', given)}, not a dictionary.")
            found[topic] = dict(_read(topic, spelling, given[spelling]) for spelling in given)
            if len(found[topic]) < len(given):
                raise ValueError(f"Topic {topic!r} has one setting in two spellings.")
        return found

    def _read(topic: str, spelling: object, value: object) -> tuple[str, object]:
        by_name = {name: each for each in settings for name in (each.name, underscored(each.key))}
        setting = by_name.get(underscored(spelling)) if isinstance(spelling, str) else None
        if setting is None:
            hint = did_you_mean(str(spelling), [each.key for each in settings])
            keys = ", ".join(each.key for each in settings)
            raise ValueError(
                f"A topic has no setting {shown('', spelling)}, as {topic!r} is given here; it has "
                f"{keys}.{hint}"
            )
        try:
            return setting.name, setting.read(value, str(spelling))
        except ValueError as error:
            raise ValueError(f"Topic {topic!r}: {error}") from None

    return Kind(
        parse,
        "a dictionary of topics, each with a dictionary such as {'compression.type': 'zstd'}",
        lambda value: str(value) if value else "",
        "Mapping[str, Mapping[str, object]]",
    )
