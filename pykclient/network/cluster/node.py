"""Nodes of responses: a broker's address, checked; and a broker as a coordinator.

A coordinator has a connection of its own, and so a node id of its own, beyond every broker's.

Owner: none, nodes are immutable.
Source: the Metadata API of the Kafka protocol guide; KIP-951 (addresses in other responses); Java
class ``AbstractCoordinator``, which takes an id from the other end of the range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from pykclient.config.setting import HOST_LENGTH_MAX, INT_MAX
from pykclient.errors import DecodeError
from pykclient.types import Node

if TYPE_CHECKING:
    from typing import Self

PORT_MAX: Final = 65_535

COORDINATOR_ID_BASE: Final = INT_MAX + 1
"""Added to a broker's id; what results is never a broker's and never goes over the wire."""


class CoordinatorNode(Node):
    """The address of a coordinator; `id` is the connection's, `broker_id` the broker's."""

    __slots__ = ()

    @classmethod
    def of(cls, broker: Node) -> Self:
        return cls(coordinator_id(broker.id), broker.host, broker.port, broker.rack)

    @property
    def broker_id(self) -> int:
        return self.id - COORDINATOR_ID_BASE

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.broker_id}, as coordinator)"


def coordinator_id(broker_id: int) -> int:
    return COORDINATOR_ID_BASE + broker_id


def is_coordinator(node_id: int) -> bool:
    return node_id >= COORDINATOR_ID_BASE


def wire_id(node_id: int) -> int:
    """Return the broker's id; negative for a bootstrap address."""
    return node_id - COORDINATOR_ID_BASE if is_coordinator(node_id) else node_id


def broker_label(node_id: int) -> str:
    """Return what to call a node in a message of which only the id is known."""
    if is_coordinator(node_id):
        return f"broker {wire_id(node_id)}, as coordinator,"
    return f"broker {node_id}"


class BrokerAddress(Protocol):
    node_id: int
    host: str
    port: int
    rack: str | None


def broker_node(address: BrokerAddress) -> Node:
    """Return the broker at an address of a response.

    Raises:
        DecodeError: it is no address of a broker.
    """
    return checked_node(address.node_id, address.host, address.port, address.rack)


def checked_node(node_id: int, host: str, port: int, rack: str | None = None) -> Node:
    """As `broker_node`, from the parts of an address."""
    # Negative ids are the bootstrap addresses'; the others would fail late, inside the system.
    is_host = 0 < len(host) <= HOST_LENGTH_MAX and host.isprintable() and " " not in host
    if node_id < 0 or not is_host or not 0 < port <= PORT_MAX:
        raise DecodeError(
            f"a response says that broker {node_id} is at host {host[:HOST_LENGTH_MAX]!r}, port "
            f"{port}; check the broker's advertised.listeners"
        )
    return Node(node_id, host, port, rack)
