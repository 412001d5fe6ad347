"""RebalanceListener, and what changes hands in a rebalance.

Owner: a listener belongs to the application; the functions have no state.
Source: Java interface ``ConsumerRebalanceListener``; KIP-429 (cooperative rebalances, lost).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pykclient.consumer.group.assignors import RebalanceProtocol
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["PartitionCallback", "RebalanceListener", "given_up_to_join"]

PartitionCallback = Callable[[Sequence[TopicPartition]], object]
"""Is called with partitions, sorted."""


@dataclass(frozen=True, slots=True)
class RebalanceListener:
    """What an application wants to hear of partitions that come and go.

    Each is called on the thread that uses the consumer, from inside `poll`, `unsubscribe` or
    `close`, and may call the consumer: commit in `on_revoked`, say, or seek in `on_assigned`. What
    one raises is raised by that call as `RebalanceListenerError`, after the rebalance went on.

    `on_assigned` hears what came, after each rebalance, nothing perhaps. `on_revoked` hears what
    is given up, while it can still be committed. `on_lost` hears what others may have by now, so
    that it cannot be; None stands for `on_revoked`.
    """

    on_assigned: PartitionCallback | None = None
    on_revoked: PartitionCallback | None = None
    on_lost: PartitionCallback | None = None


def given_up_to_join(
    protocol: RebalanceProtocol, owned: Iterable[TopicPartition], topics: Collection[str]
) -> list[TopicPartition]:
    """Return what a member gives up before it joins again.

    Everything in an eager group; in a cooperative one only what it does not want any more.
    """
    if protocol is RebalanceProtocol.EAGER:
        return sorted(owned)
    return sorted(partition for partition in owned if partition.topic not in topics)
