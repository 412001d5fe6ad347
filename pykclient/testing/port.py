"""A TCP port on the loopback interface that stays ours until we let it go.

A port is found by binding to port 0, and the socket stays bound without ever listening. On Linux
another socket may bind the same port beside it if both set ``SO_REUSEADDR`` and neither listens
yet, as Java's server sockets do; meanwhile the kernel gives the port to no process that binds just
any, neither to a listener nor as the near end of a connection. So a broker that is down for a while
finds its port free when it comes back, and a client that knocks in between cannot be connected to
itself. On other systems the port is given back just before the broker binds it.

Owner: whoever made it.
Source: socket(7), ip(7) on ``SO_REUSEADDR``.
"""

from __future__ import annotations

import socket
import sys
from typing import NamedTuple

LOOPBACK = "127.0.0.1"
CAN_SHARE = sys.platform == "linux"


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class PortReservation:
    """A reserved port; held until `close`."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((LOOPBACK, 0))
        self.port: int = self._socket.getsockname()[1]

    def make_way(self) -> None:
        """Call just before another process binds the port."""
        if not CAN_SHARE:
            self._socket.close()

    def close(self) -> None:
        """Give the port back; may be called more than once."""
        self._socket.close()
