"""LoopbackServer: listens where a client expects a broker, and behaves as it is set.

Each connection gets a thread that runs the server's behaviour, a function of the connected socket.
The behaviours here are what a wrong port may hold, a broker too old among them.

Owner: the test that made it; `close` ends its connections and its threads.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Callable
from typing import Self

from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.message import decode_request_header, encode_response
from pykclient.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

HOST = "127.0.0.1"
UNSUPPORTED_VERSION = 35
RANGES_OF_0_10 = (
    (ApiKey.PRODUCE, 0, 2),
    (ApiKey.FETCH, 0, 2),
    (ApiKey.LIST_OFFSETS, 0, 0),
    (ApiKey.METADATA, 0, 1),
    (ApiKey.API_VERSIONS, 0, 0),
)
RANDOM_SEED = 20_130_101

Behaviour = Callable[[socket.socket], None]


class LoopbackServer:
    """A listener on a free port of the loopback interface; a context manager.

    It accepts from when it is made. `address` is what ``bootstrap_servers`` takes.
    """

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._listener = socket.create_server((HOST, 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._is_closed = False
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept)
        self._acceptor.start()

    @property
    def connection_count(self) -> int:
        """Number of connections so far."""
        return len(self._connections)

    def close(self) -> None:
        """End every connection and wait for the threads."""
        self._is_closed = True
        with socket.create_connection(self._listener.getsockname()):  # makes the accept return
            self._acceptor.join()
        self._listener.close()
        for connection in self._connections:
            # One that has ended already cannot be shut down.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if self._is_closed:
                connection.close()
                return
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=[connection]))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        # A client may leave in the middle of anything.
        with connection, contextlib.suppress(ConnectionError):
            self._behaviour(connection)


def unused_address() -> str:
    """Return an address of the loopback interface at which no server listens."""
    with socket.create_server((HOST, 0)) as listener:
        return f"{HOST}:{listener.getsockname()[1]}"


def speaks_http(connection: socket.socket) -> None:
    """Respond as web servers do to what they do not understand."""
    if connection.recv(4096):
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


def expects_tls(connection: socket.socket) -> None:
    """Respond as TLS listeners do to plain text: with the alert *protocol version*."""
    if connection.recv(4096):
        connection.sendall(b"\x15\x03\x03\x00\x02\x02\x46")


def hangs_up(connection: socket.socket) -> None:
    """Read the first request and close."""
    connection.recv(4096)


def is_silent(connection: socket.socket) -> None:
    """Read everything, send nothing."""
    while connection.recv(4096):
        pass


def sends_random_bytes(connection: socket.socket) -> None:
    """Answer whatever comes with noise, the same in each run."""
    noise = random.Random(RANDOM_SEED)
    while connection.recv(4096):
        connection.sendall(noise.randbytes(4096))


def is_kafka_before_2_1(connection: socket.socket) -> None:
    """Send the versions of Kafka 0.10.0; hang up, as it does, on anything else."""
    stream = connection.makefile("rb")
    while size := stream.read(4):
        header = decode_request_header(stream.read(int.from_bytes(size)))
        if header.api_key != ApiKey.API_VERSIONS:
            return
        versions = ApiVersionsResponse(
            error_code=UNSUPPORTED_VERSION if header.api_version > 0 else 0,
            api_keys=[ApiVersion(*api_range) for api_range in RANGES_OF_0_10],
        )
        connection.sendall(encode_response(versions, 0, header.correlation_id))
