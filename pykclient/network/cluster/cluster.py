"""An immutable snapshot of the cluster: brokers, topics, partitions and their leaders.

Each Metadata response replaces it as a whole, so any thread may read its snapshot without a lock.
`LeaderHints` applies the leaders that a Produce or Fetch response names (KIP-951) to make a newer
snapshot, which saves the wait for a Metadata response.

Owner: none; `LeaderHints` belongs to the reader of the response.
Source: Java classes ``org.apache.kafka.common.Cluster``, ``MetadataResponse``, method
``Metadata.updatePartitionLeadership``; leader epochs by KIP-320, topic ids by KIP-516.
"""

from __future__ import annotations

from collections import defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pykclient.errors import DecodeError
from pykclient.errors.text import printable
from pykclient.network.cluster.node import broker_node
from pykclient.network.log import ClientLog
from pykclient.network.manager import check_sent_back
from pykclient.types import Node

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pykclient.errors import BrokerError
    from pykclient.network.cluster.node import BrokerAddress
    from pykclient.protocol.messages.metadata import (
        MetadataResponsePartition,
        MetadataResponseTopic,
    )
    from pykclient.types import TopicPartition

log = ClientLog("pykclient.network", "")

NO_TOPIC_ID = bytes(16)
"""The id of every topic on brokers before 2.8, which have no topic ids."""


class PartitionInfo(NamedTuple):
    """One partition, with its leader and replicas. `leader_id` None means it has no leader."""

    topic: str
    partition: int
    leader_id: int | None
    leader_epoch: int | None
    replica_ids: tuple[int, ...] = ()
    in_sync_replica_ids: tuple[int, ...] = ()
    offline_replica_ids: tuple[int, ...] = ()


class TopicInfo(NamedTuple):
    """One topic. `partitions` is ordered by partition number, without gaps."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


class Cluster:
    """The snapshot. `version` grows with each one, also by leader hints; the first has 0."""

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
        return (
            self.nodes == other.nodes
            and self.controller_id == other.controller_id
            and self.topics == other.topics
            and self.topic_errors.keys() == other.topic_errors.keys()
        )

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...] | None:
        info = self.topics.get(topic)
        return None if info is None else info.partitions

    def partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of each topic, by name."""
        return {topic.name: len(topic.partitions) for topic in self.topics.values()}

    def partition(self, partition: TopicPartition) -> PartitionInfo | None:
        info = self.topics.get(partition.topic)
        if info is None or not 0 <= partition.partition < len(info.partitions):
            return None
        return info.partitions[partition.partition]

    def leader_of(self, partition: TopicPartition) -> Node | None:
        info = self.partition(partition)
        if info is None or info.leader_id is None:
            return None
        return self.nodes.get(info.leader_id)

    def topic_id(self, topic: str) -> bytes:
        """Return a topic's 16-byte id, or zeros if the topic or its id is unknown."""
        info = self.topics.get(topic)
        return NO_TOPIC_ID if info is None else info.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        return None if topic_id == NO_TOPIC_ID else self._topic_names.get(topic_id)


def bootstrap_nodes(addresses: Sequence[tuple[str, int]]) -> tuple[Node, ...]:
    """Return the bootstrap addresses as nodes, in the given order.

    Their ids are -1, -2 ..., which no broker has.
    """
    return tuple(Node(-1 - index, host, port) for index, (host, port) in enumerate(addresses))


def topic_info(topic: MetadataResponseTopic) -> TopicInfo:
    """Return the topic of a response that has no error for it.

    Raises:
        DecodeError: it has no name, or one that no request can have, or its partitions are not
            numbered from 0 without gaps.
    """
    if topic.name is None:
        raise DecodeError("a Metadata response names a topic by neither name nor known id")
    check_sent_back("Metadata", "a topic's name", topic.name)
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    for expected, partition in enumerate(partitions):
        if partition.partition_index != expected:
            raise DecodeError(
                f"a Metadata response lists partition {partition.partition_index} of topic "
                f"{printable(topic.name)!r} in place of partition {expected}"
            )
    infos = tuple(partition_info(topic.name, partition) for partition in partitions)
    return TopicInfo(topic.name, topic.topic_id, topic.is_internal, infos)


def partition_info(topic: str, partition: MetadataResponsePartition) -> PartitionInfo:
    return PartitionInfo(
        topic=topic,
        partition=partition.partition_index,
        leader_id=None if partition.leader_id < 0 else partition.leader_id,
        leader_epoch=None if partition.leader_epoch < 0 else partition.leader_epoch,
        replica_ids=tuple(partition.replica_nodes),
        in_sync_replica_ids=tuple(partition.isr_nodes),
        offline_replica_ids=tuple(partition.offline_replicas),
    )


class LeaderAndEpoch(Protocol):
    """A leader as several APIs return it; -1 means no leader."""

    leader_id: int
    leader_epoch: int


class LeaderHints:
    """The leader hints of one response; `endpoints` are the addresses that it gives."""

    def __init__(self, endpoints: Iterable[BrokerAddress]) -> None:
        self._endpoints = endpoints
        self._leaders: dict[TopicPartition, LeaderAndEpoch] = {}

    def add(self, partition: TopicPartition, leader: LeaderAndEpoch) -> None:
        if leader.leader_id >= 0 and leader.leader_epoch >= 0:
            self._leaders[partition] = leader

    def newer_than(self, cluster: Cluster) -> Cluster | None:
        """Return a snapshot with the leaders that are newer, or None if none is."""
        if not self._leaders:
            return None
        nodes = {**cluster.nodes, **self._nodes()}
        changed: defaultdict[str, dict[int, PartitionInfo]] = defaultdict(dict)
        for partition, leader in self._leaders.items():
            known = cluster.partition(partition)
            if known is not None and leader.leader_id in nodes and _is_newer(leader, known):
                changed[partition.topic][partition.partition] = known._replace(
                    leader_id=leader.leader_id, leader_epoch=leader.leader_epoch
                )
        if not changed:
            return None
        return Cluster(
            version=cluster.version + 1,
            cluster_id=cluster.cluster_id,
            controller_id=cluster.controller_id,
            nodes=nodes.values(),
            topics=[
                topic._replace(
                    partitions=tuple(
                        changed[topic.name].get(index, partition)
                        for index, partition in enumerate(topic.partitions)
                    )
                )
                if topic.name in changed
                else topic
                for topic in cluster.topics.values()
            ],
            topic_errors=cluster.topic_errors,
        )

    def _nodes(self) -> dict[int, Node]:
        nodes = {}
        for endpoint in self._endpoints:
            try:
                nodes[endpoint.node_id] = broker_node(endpoint)
            except DecodeError as error:
                log.warning("ignored the address of a leader: %s", error)
        return nodes


def _is_newer(leader: LeaderAndEpoch, known: PartitionInfo) -> bool:
    return known.leader_epoch is None or leader.leader_epoch > known.leader_epoch
