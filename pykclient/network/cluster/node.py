"""Nodes of responses: a broker's checked address, and a broker as a coordinator.

A coordinator has its own connection, and so its own node id, above every broker's id.

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
"""Added to a broker's id. The sum is never a broker's id and is never sent."""


class CoordinatorNode(Node):
    """The address of a coordinator; `id` is the connection's id, `broker_id` the broker's."""

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
    """Return the name of a node for messages that know only its id."""
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
        DecodeError: the address is invalid.
    """
    return checked_node(address.node_id, address.host, address.port, address.rack)


def checked_node(node_id: int, host: str, port: int, rack: str | None = None) -> Node:
    """Return the node for the parts of an address, as `broker_node` does."""
    # Negative ids belong to bootstrap addresses; other invalid parts would fail late, in the
    # system.
    is_host = 0 < len(host) <= HOST_LENGTH_MAX and host.isprintable() and " " not in host
    if node_id < 0 or not is_host or not 0 < port <= PORT_MAX:
        raise DecodeError(
            f"a response says that broker {node_id} is at host {host[:HOST_LENGTH_MAX]!r}, port "
            f"{port}; check the broker's advertised.listeners"
        )
    return Node(node_id, host, port, rack)
