"""RecordingStream: notes the callbacks of a selector port; and how tests wait for them.

Owner: the test that made it.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.errors import KafkaError
    from pykclient.network.io.selector import SelectorPort

HOST = "127.0.0.1"
PATIENCE_S = 10.0


class RecordingStream:
    """Notes the port's callbacks."""

    def __init__(self, buffer_bytes: int = 65_536) -> None:
        self.opened_count = 0
        self.received = bytearray()
        self.errors: list[KafkaError] = []
        self._buffer = bytearray(buffer_bytes)
        self.wanted_bytes = 1
        """Fewer bytes than that are a part of something."""

    @property
    def has_events(self) -> bool:
        """True if more than a fragment has come."""
        return len(self.received) >= self.wanted_bytes or bool(self.errors)

    @property
    def error(self) -> str:
        """The one error with which it ended."""
        [error] = self.errors
        return str(error)

    def on_opened(self) -> None:
        self.opened_count += 1

    def get_buffer(self) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, count: int) -> None:
        assert not self.errors, "bytes after the end"
        self.received += self._buffer[:count]

    def on_closed(self, error: KafkaError) -> None:
        self.errors.append(error)


def wait_until(port: SelectorPort, until: Callable[[], bool]) -> None:
    """Drive the port until it holds; fail when that takes too long."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not until():
        assert time.monotonic() < deadline_s, "it did not happen"
        port.wait(1_000)


def port_of(listener: socket.socket) -> int:
    """Return the number of the port that a socket listens at."""
    number: int = listener.getsockname()[1]
    return number


def free_port() -> int:
    """Return a port at which no server listens."""
    with socket.create_server((HOST, 0)) as listener:
        return port_of(listener)


def connect(port: SelectorPort, listener: socket.socket) -> tuple[RecordingStream, socket.socket]:
    """Open a stream to the listener; return both of its ends."""
    stream = RecordingStream()
    port.open(stream, HOST, port_of(listener), attempt=0)
    wait_until(port, lambda: stream.opened_count == 1)
    peer, _ = listener.accept()
    peer.settimeout(PATIENCE_S)
    return stream, peer
