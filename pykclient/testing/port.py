"""A reserved TCP port on the loopback interface.

A port is found by binding to port 0; the socket stays bound and never listens. On Linux another
socket may bind the same port if both set ``SO_REUSEADDR`` and neither listens yet, as Java's server
sockets do. The kernel gives the port to no other process meanwhile, neither for listening nor as
the local end of a connection. A broker that restarts therefore finds its port free, and a client
that connects in between cannot connect to itself. On other systems the port is released just before
the broker binds it.

Owner: its creator.
Source: socket(7), ip(7) on ``SO_REUSEADDR``.
"""

from __future__ import annotations

import socket
import sys
from typing import NamedTuple

LOOPBACK = "127.0.0.1"
CAN_SHARE = sys.platform == "linux"


class Address(NamedTuple):
    """Host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class PortReservation:
    """A port that stays reserved until `close`."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((LOOPBACK, 0))
        self.port: int = self._socket.getsockname()[1]

    def make_way(self) -> None:
        """Allow another process to bind the port; call it just before."""
        if not CAN_SHARE:
            self._socket.close()

    def close(self) -> None:
        """Release the port. Idempotent."""
        self._socket.close()
