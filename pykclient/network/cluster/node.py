"""CoordinatorNode: a broker as a coordinator, with a connection apart from the one for data.

A broker answers each connection in order: a fetch that waits for data would hold back heartbeats
and commits on the same one. So the coordinator has a node id of its own, beyond every broker's.

Owner: none, it is immutable.
Source: Java class ``AbstractCoordinator``, which takes an id from the other end of the range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.config.setting import INT_MAX
from pykclient.types import Node

if TYPE_CHECKING:
    from typing import Self

__all__ = ["CoordinatorNode", "broker_label", "coordinator_id", "is_coordinator"]

COORDINATOR_ID_BASE: Final = INT_MAX + 1
"""Added to a broker's id; what results is never a broker's and never goes over the wire."""


class CoordinatorNode(Node):
    """The address of a coordinator; `id` is the connection's, `broker_id` the broker's."""

    __slots__ = ()

    @classmethod
    def of(cls, broker: Node) -> Self:
        """Return the same broker as a coordinator."""
        return cls(coordinator_id(broker.id), broker.host, broker.port, broker.rack)

    @property
    def broker_id(self) -> int:
        """The broker's id in the cluster."""
        return self.id - COORDINATOR_ID_BASE

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.broker_id}, as coordinator)"


def coordinator_id(broker_id: int) -> int:
    """Return the id of a broker's connection as coordinator."""
    return COORDINATOR_ID_BASE + broker_id


def is_coordinator(node_id: int) -> bool:
    """Return whether an id is that of a broker's connection as coordinator."""
    return node_id >= COORDINATOR_ID_BASE


def broker_label(node_id: int) -> str:
    """Return what to call a node in a message of which only the id is known."""
    if is_coordinator(node_id):
        return f"broker {node_id - COORDINATOR_ID_BASE}, as coordinator,"
    return f"broker {node_id}"
