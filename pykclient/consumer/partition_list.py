"""Partitions as a message lists them: the first few, and how many more there are.

Owner: no state.
Source: ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.types import TopicPartition

__all__ = ["PARTITIONS_SHOWN_MAX", "describe_partitions"]

PARTITIONS_SHOWN_MAX: Final = 8


def describe_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions for a message, the first few of them in order."""
    names = sorted(partitions)
    shown = ", ".join(map(str, names[:PARTITIONS_SHOWN_MAX]))
    more_count = len(names) - PARTITIONS_SHOWN_MAX
    return f"{shown} and {more_count} more" if more_count > 0 else shown
