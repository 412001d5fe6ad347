"""Assignors, which share a group's partitions out: the four that Kafka has, and one of ours.

Owner: no state of its own.
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
