"""Descriptions of topics: all given ones must exist, or those that still do.

Owner: none; it holds no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.cli.complaint import absent_topic
from pykclient.errors import AdminCallError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient import Admin, TopicDescription


def described(admin: Admin, names: Iterable[str]) -> list[TopicDescription]:
    """Describe topics in the given order. Raises `UsageError` for one that does not exist."""
    wanted = dict.fromkeys(names)
    found = found_topics(admin, wanted)
    for name in wanted:
        if name not in found:
            raise absent_topic(name)
    return [found[name] for name in wanted]


def found_topics(admin: Admin, names: Iterable[str]) -> dict[str, TopicDescription]:
    """Describe the existing ones among topics, in the given order."""
    left = list(names)
    while True:
        try:
            found = admin.describe_topics(left)
            return {name: found[name] for name in left}
        except (UnknownTopicOrPartitionError, AdminCallError):
            existing = admin.list_topics(include_internal=True)
            if existing.keys() >= {*left}:
                raise
            left = [name for name in left if name in existing]
