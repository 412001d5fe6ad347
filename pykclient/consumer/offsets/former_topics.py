"""FormerTopics: ids of topics that were deleted and recreated under the same names.

Brokers with stale metadata report such an id for a while after others report its successor. A
position or an offset belongs to one id: it means nothing in another log (KIP-516).

Owner: the core lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.network.cluster.cluster import NO_TOPIC_ID

if TYPE_CHECKING:
    from pykclient.network.cluster.cluster import Cluster

FORMER_MAX: Final = 1_000
"""Maximum number of ids; the oldest are dropped."""


class FormerTopics:
    """Ids that one consumer has seen replaced."""

    def __init__(self) -> None:
        self._ids: dict[bytes, None] = {}

    def __contains__(self, topic_id: bytes) -> bool:
        return topic_id in self._ids

    def add(self, topic_id: bytes) -> None:
        """Add an id, whose name belongs to another topic now."""
        if topic_id not in self._ids and len(self._ids) >= FORMER_MAX:
            del self._ids[next(iter(self._ids))]
        self._ids[topic_id] = None

    def discard(self, topic_id: bytes) -> None:
        """Remove an id, which is the present one after all."""
        self._ids.pop(topic_id, None)

    def present_id(self, cluster: Cluster, topic: str) -> bytes:
        """Return a topic's id; `NO_TOPIC_ID` if brokers report none, or only a former one."""
        topic_id = cluster.topic_id(topic)
        return NO_TOPIC_ID if topic_id in self._ids else topic_id
