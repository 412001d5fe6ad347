"""What users give to `subscribe`: names of topics and patterns, checked.

Owner: no state.
Source: ``Topic.validate`` of Kafka.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pykclient.arguments import shown_argument, value_list
from pykclient.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["TOPIC_NAME", "checked_topics", "compiled_pattern"]

TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def checked_topics(topics: Collection[str]) -> list[str]:
    """Return the names, in order.

    Raises:
        UsageError: it is one string, or something in it can name no topic.
    """
    if isinstance(topics, str):
        shown = shown_argument(topics)
        raise UsageError(f"subscribe({shown}): give a list, as in subscribe([{shown}])")
    listed = value_list(topics, "subscribe: topics", "the name of a topic")
    for topic in listed:
        if not isinstance(topic, str) or not TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
            raise UsageError(
                f"subscribe: {shown_argument(topic)} can be no topic: give up to 249 letters, "
                f"digits, dots, underscores and hyphens; for a regular expression use "
                f"subscribe(pattern=...)"
            )
    return listed


def compiled_pattern(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    """Return the pattern, ready for names.

    Raises:
        UsageError: it is no regular expression for text.
    """
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError) as error:
        raise UsageError(
            f"subscribe: pattern {shown_argument(pattern)} is no regular expression: {error}"
        ) from error
    if not isinstance(compiled.pattern, str):
        raise UsageError("subscribe: pattern is one of bytes; topics are text")
    return compiled
