"""Checks that a broker leads a partition, and that a client's leader epoch is current.

Owner: none; it holds no state.
Source: KIP-320; Java class ``Partition`` (``checkCurrentLeaderEpoch``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)

if TYPE_CHECKING:
    from pykclient.errors.base import BrokerError
    from pykclient.testing.fake.state import ClusterState
    from pykclient.testing.fake.topics import Partition, Topic

NO_EPOCH = -1


def find_partition(topic: Topic | None, number: int) -> Partition | None:
    """Return the partition, or None."""
    if topic is None or not 0 <= number < len(topic.partitions):
        return None
    return topic.partitions[number]


def led_partition(
    cluster: ClusterState,
    broker_id: int,
    topic: str,
    number: int,
    *,
    leader_epoch: int = NO_EPOCH,
    also_follower: bool = False,
) -> Partition | type[BrokerError]:
    """Return the partition if this broker leads it, or the error.

    `leader_epoch` is the client's; with `also_follower` an in-sync follower may serve it.
    """
    partition = find_partition(cluster.topics.get(topic), number)
    if partition is None:
        return UnknownTopicOrPartitionError
    if leader_epoch != NO_EPOCH and leader_epoch != partition.leader_epoch:
        is_old = leader_epoch < partition.leader_epoch
        return FencedLeaderEpochError if is_old else UnknownLeaderEpochError
    is_follower = also_follower and broker_id in partition.replicas
    if partition.leader_id != broker_id and not is_follower:
        return NotLeaderOrFollowerError
    return partition
