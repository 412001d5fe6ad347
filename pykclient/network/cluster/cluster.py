"""An immutable picture of the cluster: brokers, topics, partitions and their leaders.

It is replaced whole at each metadata answer and never changed, so any thread may read the one it
holds without a lock.

Source: Java class ``org.apache.kafka.common.Cluster``; leader epochs by KIP-320, topic ids by
KIP-516.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pykclient.errors import BrokerError
    from pykclient.types import Node, TopicPartition

__all__ = ["NO_TOPIC_ID", "Cluster", "PartitionInfo", "TopicInfo"]

NO_TOPIC_ID = bytes(16)
"""What brokers before 2.8, which have no topic ids, are understood to say."""


class PartitionInfo(NamedTuple):
    """One partition: where its leader and replicas are. `leader_id` None means it has no leader."""

    topic: str
    partition: int
    leader_id: int | None
    leader_epoch: int | None
    replica_ids: tuple[int, ...] = ()
    in_sync_replica_ids: tuple[int, ...] = ()
    offline_replica_ids: tuple[int, ...] = ()


class TopicInfo(NamedTuple):
    """One topic. `partitions` is in order of partition number, without gaps."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


class Cluster:
    """The snapshot. `version` counts the metadata answers that led to it; 0 is before the first."""

    __slots__ = (
        "_topic_names",
        "cluster_id",
        "controller_id",
        "nodes",
        "topic_errors",
        "topics",
        "version",
    )

    def __init__(
        self,
        *,
        version: int = 0,
        cluster_id: str | None = None,
        controller_id: int | None = None,
        nodes: Iterable[Node] = (),
        topics: Iterable[TopicInfo] = (),
        topic_errors: Mapping[str, BrokerError] | None = None,
    ) -> None:
        self.version = version
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.nodes: Mapping[int, Node] = MappingProxyType({node.id: node for node in nodes})
        self.topics: Mapping[str, TopicInfo] = MappingProxyType({t.name: t for t in topics})
        self.topic_errors: Mapping[str, BrokerError] = MappingProxyType(dict(topic_errors or {}))
        self._topic_names = {t.topic_id: t.name for t in self.topics.values()}

    def is_like(self, other: Cluster) -> bool:
        """Return whether another picture has the same brokers, topics and leaders."""
        return (
            self.nodes == other.nodes
            and self.controller_id == other.controller_id
            and self.topics == other.topics
            and self.topic_errors.keys() == other.topic_errors.keys()
        )

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...] | None:
        """Return a topic's partitions, or None if the topic is not known."""
        info = self.topics.get(topic)
        return None if info is None else info.partitions

    def partition(self, partition: TopicPartition) -> PartitionInfo | None:
        """Return one partition, or None if it is not known."""
        info = self.topics.get(partition.topic)
        if info is None or not 0 <= partition.partition < len(info.partitions):
            return None
        return info.partitions[partition.partition]

    def leader_of(self, partition: TopicPartition) -> Node | None:
        """Return the broker that leads a partition, or None if there is none that we know."""
        info = self.partition(partition)
        if info is None or info.leader_id is None:
            return None
        return self.nodes.get(info.leader_id)

    def topic_id(self, topic: str) -> bytes:
        """Return a topic's 16-byte id; zeros where the topic or its id is not known."""
        info = self.topics.get(topic)
        return NO_TOPIC_ID if info is None else info.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id, or None if it is not known."""
        return None if topic_id == NO_TOPIC_ID else self._topic_names.get(topic_id)
