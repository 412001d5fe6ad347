"""GroupWiring: what a group is given of the consumer that it belongs to.

Owner: the consumer.
Source: the constructor of Java's ``ConsumerCoordinator``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from pykclient.consumer.subscription import AssignedPartition, SubscriptionState
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.coordinators import GroupCoordinator
    from pykclient.network.manager import Operation, UserCall

__all__ = ["GroupWiring"]


class GroupWiring(NamedTuple):
    """Parts of the same consumer, and what the group has it do."""

    subscription: SubscriptionState
    metadata: Metadata
    coordinator: GroupCoordinator
    user_calls: deque[UserCall]
    drop: Callable[[AssignedPartition], None]
    """Forgets the records that are buffered of a partition."""
    refresh: Callable[[AssignedPartition], None]
    """Checks anew whether buffered records of a partition may be returned."""
    commit: Callable[[int], Operation[None]]
    """Commits before a revocation, until a deadline."""
    follow_topics: Callable[[], None]
    """Has metadata kept for what is subscribed to, assigned, and in `ConsumerGroup.topics`."""
