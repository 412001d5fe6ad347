"""What does each way to speak TLS cost a client: `MemoryBIO` in a layer, or `SSLSocket` as socket?

    python benchmarks/tls_layers.py [--megabytes N] [--round-trips N] [--runs N]

A figure is the client's CPU alone, user and system; the peer is a process of its own, on the
loopback interface, with TLS 1.3. "read" and "write" move bytes as a fetch and a produce do; a round
trip is 100 bytes there and back. "socket" and "SSLSocket" are bare loops over `select`, below which
no client gets; "port" and "TlsPort" are what the network client uses. So `SSLSocket` inside of the
port would cost "port" and the difference of the bare loops.
"""

from __future__ import annotations

import argparse
import multiprocessing
import select
import socket
import ssl
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Protocol

import trustme
from rich.console import Console
from rich.table import Table

from pykclient.admin.config import AdminConfig
from pykclient.network.io.secured import secured
from pykclient.network.io.selector import SelectorPort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from pykclient.errors import KafkaError
    from pykclient.network.io.port import Port

HOST = "127.0.0.1"
CHUNK_BYTES = 1_000_000
BUFFER_BYTES = 128 * 1024
MESSAGE_BYTES = 100
WAIT_S = 30.0
READ, WRITE, PING = b"r", b"w", b"p"


class Peer(Protocol):
    """A client's end of a connection."""

    def write(self, data: bytes) -> None:
        """Write all of it."""

    def read(self, size: int) -> None:
        """Wait until so many bytes have come."""

    def close(self) -> None:
        """Close the connection."""


class BarePeer:
    """A non-blocking socket, with TLS or without, and `select`."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext | None) -> None:
        sock = socket.create_connection(address, WAIT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock if context is None else context.wrap_socket(sock, server_hostname=HOST)
        self._socket.setblocking(False)
        self._buffer = memoryview(bytearray(BUFFER_BYTES))

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                select.select([], [self._socket], [], WAIT_S)

    def read(self, size: int) -> None:
        while size:
            try:
                count = self._socket.recv_into(self._buffer[:size])
            except (BlockingIOError, ssl.SSLWantReadError):
                select.select([self._socket], [], [], WAIT_S)
                continue
            if not count:
                raise ConnectionError("the peer has closed the connection")
            size -= count

    def close(self) -> None:
        self._socket.close()


class PortPeer:
    """A stream of a port, as connections of the network client are."""

    def __init__(self, address: tuple[str, int], port: Port) -> None:
        self._port = port
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._is_open = False
        self._failure: KafkaError | None = None
        self._read_bytes = 0
        self.has_events = False
        port.open(self, *address, attempt=0)
        self._wait_until(lambda: self._is_open)

    def on_opened(self) -> None:
        self._is_open = self.has_events = True

    def get_buffer(self) -> memoryview:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self._read_bytes += count
        self.has_events = True

    def on_closed(self, error: KafkaError) -> None:
        self._failure = error
        self.has_events = True

    def write(self, data: bytes) -> None:
        self._port.write(self, [data])
        self._wait_until(lambda: not self._port.unsent_bytes(self))

    def read(self, size: int) -> None:
        self._wait_until(lambda: self._read_bytes >= size)
        self._read_bytes -= size

    def close(self) -> None:
        self._port.close(self)
        self._port.shutdown()

    def _wait_until(self, is_done: Callable[[], bool]) -> None:
        until_s = time.monotonic() + WAIT_S
        while not is_done():
            self.has_events = False
            self._port.wait(1 if self._port.unsent_bytes(self) else 1_000)
            if self._failure is not None:
                raise self._failure
            if time.monotonic() > until_s:
                raise TimeoutError(f"the peer does not respond for {WAIT_S} s")


def serve(chain: str, total_bytes: int, ready: Connection) -> None:
    """Do what clients request, one connection after the other, until this process is ended."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    chunk = bytes(CHUNK_BYTES)
    listeners = [socket.create_server((HOST, 0)) for _ in range(2)]
    ready.send([listener.getsockname() for listener in listeners])
    while True:
        for listener in select.select(listeners, [], [])[0]:
            accepted, _ = listener.accept()
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            has_tls = listener is listeners[1]
            connection = context.wrap_socket(accepted, server_side=True) if has_tls else accepted
            with connection:
                while command := connection.recv(1):
                    _obey(connection, command, chunk, total_bytes)


def _obey(connection: socket.socket, command: bytes, chunk: bytes, total_bytes: int) -> None:
    if command == READ:
        for _ in range(total_bytes // CHUNK_BYTES):
            connection.sendall(chunk)
        return
    left = total_bytes if command == WRITE else MESSAGE_BYTES
    while left:
        left -= len(connection.recv(min(left, CHUNK_BYTES)))
    connection.sendall(bytes(1 if command == WRITE else MESSAGE_BYTES))


@contextmanager
def serving(total_bytes: int) -> Iterator[tuple[list[tuple[str, int]], str]]:
    """The peer: its addresses, in plain text and with TLS, and the file of the authority."""
    with tempfile.TemporaryDirectory() as folder:
        authority = trustme.CA()
        chain, trusted = Path(folder, "chain.pem"), Path(folder, "authority.pem")
        authority.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(chain)
        authority.cert_pem.write_to_path(trusted)
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(str(chain), total_bytes, theirs), daemon=True)
        process.start()
        try:
            yield ours.recv(), str(trusted)
        finally:
            process.kill()
            process.join()


def cpu_of(peer: Peer, total_bytes: int, round_trips: int) -> dict[str, float]:
    """The CPU of a gigabyte read, of one written, and of a round trip."""
    figures = {}
    start_s = time.process_time()
    peer.write(READ)
    peer.read(total_bytes)
    figures["read, s per GB"] = (time.process_time() - start_s) / total_bytes * 1e9
    chunk = bytes(CHUNK_BYTES)
    start_s = time.process_time()
    peer.write(WRITE)
    for _ in range(total_bytes // CHUNK_BYTES):
        peer.write(chunk)
    peer.read(1)
    figures["write, s per GB"] = (time.process_time() - start_s) / total_bytes * 1e9
    message = PING + bytes(MESSAGE_BYTES)
    start_s = time.process_time()
    for _ in range(round_trips):
        peer.write(message)
        peer.read(MESSAGE_BYTES)
    figures["round trip, us"] = (time.process_time() - start_s) / round_trips * 1e6
    return figures


def main() -> int:
    """Measure each way in turns, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--round-trips", type=int, default=5_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    total_bytes = options.megabytes * CHUNK_BYTES
    results: dict[str, list[dict[str, float]]] = {}
    with serving(total_bytes) as ((plain, tls), trusted):
        for _ in range(options.runs):
            for name, peer in peers(plain, tls, trusted):
                results.setdefault(name, []).append(cpu_of(peer, total_bytes, options.round_trips))
                peer.close()
    table = Table("", *next(iter(results.values()))[0])
    for name, turns in results.items():
        table.add_row(name, *(f"{median(turn[what] for turn in turns):.2f}" for what in turns[0]))
    Console().print(table)
    return 0


def peers(plain: tuple[str, int], tls: tuple[str, int], trusted: str) -> Iterator[tuple[str, Peer]]:
    """Each way, connected; the one before is closed by then."""
    context = ssl.create_default_context(cafile=trusted)
    yield "socket", BarePeer(plain, None)
    yield "SSLSocket", BarePeer(tls, context)
    for name, address, settings in (
        ("port", plain, {}),
        (
            "TlsPort",
            tls,
            {"security_protocol": "SSL", "ssl_truststore_location": trusted},
        ),
    ):
        config = AdminConfig.from_settings({"bootstrap_servers": HOST + ":1", **settings})
        yield name, PortPeer(address, secured(SelectorPort.from_config(config), config))


if __name__ == "__main__":
    sys.exit(main())
