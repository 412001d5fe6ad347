"""How a group assigns its partitions: what an assignor is, and the four that Kafka has.

Owner: no state of its own.
Source: Java interface ``ConsumerPartitionAssignor`` and its implementations.
"""

from pykclient.consumer.group.assignors.assignor import (
    Assignment,
    Assignor,
    GroupMember,
    RebalanceProtocol,
    TopicRacks,
)
from pykclient.consumer.group.assignors.range import RangeAssignor
from pykclient.consumer.group.assignors.round_robin import RoundRobinAssignor
from pykclient.consumer.group.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "Assignment",
    "Assignor",
    "CooperativeStickyAssignor",
    "GroupMember",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "TopicRacks",
]
