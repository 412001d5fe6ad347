"""From what an answer says of a broker's address to a `Node`.

Owner: no state.
Source: the Metadata API of the Kafka protocol guide; KIP-951 (addresses in other answers).
"""

from __future__ import annotations

from typing import Final, Protocol

from pykclient.config.setting import HOST_LENGTH_MAX
from pykclient.errors import DecodeError
from pykclient.types import Node

__all__ = ["BrokerAnswer", "broker_node"]

PORT_MAX: Final = 65_535


class BrokerAnswer(Protocol):
    """How the messages of several APIs tell of a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None


def broker_node(answer: BrokerAnswer) -> Node:
    """Return a broker at the address that an answer gives.

    Raises:
        DecodeError: nobody can be there.
    """
    # Negative ids are the bootstrap addresses'; the others would fail late, inside the system.
    host, port = answer.host, answer.port
    is_host = 0 < len(host) <= HOST_LENGTH_MAX and host.isprintable() and " " not in host
    if answer.node_id < 0 or not is_host or not 0 < port <= PORT_MAX:
        raise DecodeError(
            f"an answer says that broker {answer.node_id} is at host "
            f"{host[:HOST_LENGTH_MAX]!r}, port {port}; check the broker's advertised.listeners"
        )
    return Node(answer.node_id, host, port, answer.rack)
