"""LeaderHints: who leads partitions by now, as an answer about something else tells (KIP-951).

A broker that is asked as the leader, and is not, names the leader that it knows of. Taken into the
picture of the cluster at once, that saves the wait for a Metadata answer. A hint never takes us
back: it counts for a topic that is known, with a newer leader epoch, and a broker that has an
address.

Owner: whoever reads the answer.
Source: KIP-951; Java method ``Metadata.updatePartitionLeadership``.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from pykclient.errors import DecodeError
from pykclient.network.broker.broker_response import broker_node
from pykclient.network.client_log import ClientLog
from pykclient.network.cluster.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.network.broker.broker_response import BrokerAnswer
    from pykclient.network.cluster.cluster import PartitionInfo
    from pykclient.types import Node, TopicPartition

__all__ = ["LeaderAnswer", "LeaderHints"]

log = ClientLog("pykclient.network", "")


class LeaderAnswer(Protocol):
    """How the messages of several APIs tell of a leader; -1 stands for none."""

    leader_id: int
    leader_epoch: int


class LeaderHints:
    """The hints of one answer; `endpoints` are the addresses that it gives."""

    def __init__(self, endpoints: Iterable[BrokerAnswer]) -> None:
        self._endpoints = endpoints
        self._told: dict[TopicPartition, LeaderAnswer] = {}

    def add(self, partition: TopicPartition, told: LeaderAnswer) -> None:
        """Take what is said of a partition, if anything is."""
        if told.leader_id >= 0 and told.leader_epoch >= 0:
            self._told[partition] = told

    def newer_than(self, cluster: Cluster) -> Cluster | None:
        """Return the picture with what is new in it; None if nothing is."""
        if not self._told:
            return None
        nodes = {**self._nodes(), **cluster.nodes}
        changed: defaultdict[str, dict[int, PartitionInfo]] = defaultdict(dict)
        for partition, told in self._told.items():
            known = cluster.partition(partition)
            if known is not None and told.leader_id in nodes and _is_newer(told, known):
                changed[partition.topic][partition.partition] = known._replace(
                    leader_id=told.leader_id, leader_epoch=told.leader_epoch
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
                log.warning("a leader that cannot be: %s", error)
        return nodes


def _is_newer(told: LeaderAnswer, known: PartitionInfo) -> bool:
    return known.leader_epoch is None or told.leader_epoch > known.leader_epoch
