"""What one member of a group told, from its start to its end; and what others saw meanwhile.

Owner: none; journals never change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pykclient import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CommittedSample", "Journal", "partitions_in"]


@dataclass(frozen=True, slots=True)
class Journal:
    """The events of a watched consumer in their order; `status` is None if it was killed or runs.

    Their timestamps are milliseconds since 1970, by the one clock of this machine.
    """

    member: str
    events: tuple[Mapping[str, Any], ...]
    status: int | None = None
    errors: str = ""


class CommittedSample(NamedTuple):
    """What the coordinator said was committed; the answer was here at `timestamp_ms`."""

    timestamp_ms: int
    offsets: Mapping[TopicPartition, int]


def partitions_in(event: Mapping[str, Any]) -> set[TopicPartition]:
    """The partitions that an event speaks of."""
    return {TopicPartition(part["topic"], part["partition"]) for part in event["partitions"]}
