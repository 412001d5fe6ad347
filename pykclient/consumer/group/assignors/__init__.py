"""Assignors, which distribute a group's partitions to members: Kafka's four, and one of our own.

Owner: none, it has no state.
Source: Java interface ``ConsumerPartitionAssignor`` and its implementations.
"""

from pykclient.consumer.group.assignors.assignor import (
    Assignment,
    Assignor,
    GroupMember,
    PartitionReplicas,
    RebalanceProtocol,
    TopicRacks,
    TopicReplicas,
)
from pykclient.consumer.group.assignors.fewest_brokers import FewestBrokersAssignor
from pykclient.consumer.group.assignors.range import RangeAssignor
from pykclient.consumer.group.assignors.round_robin import RoundRobinAssignor
from pykclient.consumer.group.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "Assignment",
    "Assignor",
    "CooperativeStickyAssignor",
    "FewestBrokersAssignor",
    "GroupMember",
    "PartitionReplicas",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "TopicRacks",
    "TopicReplicas",
]
