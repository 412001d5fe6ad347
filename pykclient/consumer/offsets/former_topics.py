"""FormerTopics: ids of topics that were deleted and created again under their names.

Brokers that lag report such an id for a while after another one has named its successor. A position
or an offset belongs to one id: it means nothing in the log of another one (KIP-516).

Owner: the core lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.network.cluster.cluster import NO_TOPIC_ID

if TYPE_CHECKING:
    from pykclient.network.cluster.cluster import Cluster

FORMER_MAX: Final = 1_000
"""Ids that are remembered; the oldest is forgotten first."""


class FormerTopics:
    """The ids that one consumer has seen replaced."""

    def __init__(self) -> None:
        self._ids: dict[bytes, None] = {}

    def __contains__(self, topic_id: bytes) -> bool:
        return topic_id in self._ids

    def add(self, topic_id: bytes) -> None:
        """Record that another topic has the name of this one now."""
        if topic_id not in self._ids and len(self._ids) >= FORMER_MAX:
            del self._ids[next(iter(self._ids))]
        self._ids[topic_id] = None

    def discard(self, topic_id: bytes) -> None:
        """Record that the topic is the present one after all."""
        self._ids.pop(topic_id, None)

    def present_id(self, cluster: Cluster, topic: str) -> bytes:
        """Return the id of a topic; `NO_TOPIC_ID` while brokers report none, or a former one."""
        topic_id = cluster.topic_id(topic)
        return NO_TOPIC_ID if topic_id in self._ids else topic_id
