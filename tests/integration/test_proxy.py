"""The fault proxy itself on the loopback interface, before an echo server.

The tests show what passes, what it does to connections, and that it ends. Every wait is for an
event; the timeouts are for broken proxies.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pykclient.errors import ClosedError, ConfigError, KafkaError
from pykclient.testing import (
    Blackhole,
    Cut,
    Delay,
    Direction,
    Double,
    FaultProxy,
    Flip,
    ForgeLength,
    Lose,
    Refuse,
)
from pykclient.testing.port import Address
from tests.integration.loopback_server import LoopbackServer, unused_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing import Fault

TIMEOUT_S = 20.0
LARGE_BYTES = 5_000_000
RATE_BYTES_PER_S = 200_000
DELAY_MS = 300

REQUEST = (12).to_bytes(4, "big") + b"\x00\x03\x00\x01\x00\x00\x00\x2aabcd"
"""Metadata, version 1, correlation id 42."""


def echoes(connection: socket.socket) -> None:
    """Send everything back. An echoed request has API and version where a response has its id."""
    while data := connection.recv(65536):
        connection.sendall(data)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(echoes) as server:
        yield server


@pytest.fixture
def proxy(server: LoopbackServer) -> Iterator[FaultProxy]:
    with FaultProxy(address_of(server.address), seed=1) as proxy:
        yield proxy


def address_of(text: str) -> Address:
    host, _, port = text.partition(":")
    return Address(host, int(port))


def connect(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection(proxy.address, timeout=TIMEOUT_S)


def receive(connection: socket.socket, size_bytes: int) -> bytes:
    data = b""
    while len(data) < size_bytes and (more := connection.recv(65536)):
        data += more
    return data


def exchange(connection: socket.socket) -> None:
    """See that a request has its response."""
    connection.sendall(REQUEST)
    assert receive(connection, len(REQUEST)) == REQUEST


def is_ended(connection: socket.socket) -> bool:
    """Wait for the end, an orderly one or a reset."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def is_ended_at_once(proxy: FaultProxy) -> bool:
    """Connect, and wait for the end; the reset may come before `connect` has returned."""
    try:
        with connect(proxy) as connection:
            return is_ended(connection)
    except ConnectionResetError:
        return True


def test_everything_passes_both_ways(proxy: FaultProxy) -> None:
    with connect(proxy) as first, connect(proxy) as second:
        for connection, data in ((first, REQUEST), (second, b"\xffno frame"), (first, REQUEST)):
            connection.sendall(data)
            assert receive(connection, len(data)) == data
    assert proxy.connection_count == 2
    assert proxy.counts == {}


def test_a_large_frame_passes_and_a_slow_reader_makes_the_sender_wait(proxy: FaultProxy) -> None:
    data = LARGE_BYTES.to_bytes(4, "big") + bytes(LARGE_BYTES)
    with connect(proxy) as connection:
        sender = threading.Thread(target=connection.sendall, args=[data])
        sender.start()
        assert receive(connection, len(data)) == data
        sender.join(TIMEOUT_S)
        assert not sender.is_alive()


def test_the_servers_last_bytes_arrive(proxy: FaultProxy) -> None:
    with connect(proxy) as connection:
        connection.sendall(REQUEST[:5])
        connection.shutdown(socket.SHUT_WR)
        # The echo ends when its input has ended, and so does everything; nothing hangs.
        assert is_ended(connection) or receive(connection, 5) in (b"", REQUEST[:5])


def test_a_lost_response_ends_the_connection_and_a_new_one_works(proxy: FaultProxy) -> None:
    proxy.inject(Lose(count_max=1))
    with connect(proxy) as connection:
        connection.sendall(REQUEST)
        assert is_ended(connection)
    with connect(proxy) as connection:
        exchange(connection)
    assert proxy.counts == {"Lose": 1}


def test_a_cut_response_comes_in_part(proxy: FaultProxy) -> None:
    proxy.inject(Cut())
    with connect(proxy) as connection:
        connection.sendall(REQUEST)
        part = receive(connection, len(REQUEST))
    assert 0 < len(part) < len(REQUEST)
    assert REQUEST.startswith(part)
    assert proxy.counts == {"Cut": 1}


@pytest.mark.parametrize(
    ("fault", "responses"),
    [
        pytest.param(Double(), REQUEST * 2, id="double"),
        pytest.param(ForgeLength(length_bytes=1), b"\0\0\0\1" + REQUEST[4:], id="forge"),
    ],
)
def test_a_response_is_changed_by_the_fault_and_counted(
    proxy: FaultProxy, fault: Fault, responses: bytes
) -> None:
    proxy.inject(fault)
    with connect(proxy) as connection:
        connection.sendall(REQUEST)
        assert receive(connection, len(responses)) == responses
    assert proxy.counts == {type(fault).__name__: 1}


def test_one_bit_of_a_response_is_flipped_and_counted(proxy: FaultProxy) -> None:
    proxy.inject(Flip())
    with connect(proxy) as connection:
        connection.sendall(REQUEST)
        response = receive(connection, len(REQUEST))
    changed = [had ^ has for had, has in zip(REQUEST, response, strict=True) if had != has]
    assert [bits.bit_count() for bits in changed] == [1]
    assert response[:4] == REQUEST[:4]
    assert proxy.counts == {"Flip": 1}


def test_a_delay_takes_its_time(proxy: FaultProxy) -> None:
    proxy.inject(Delay(delay_ms=DELAY_MS))
    with connect(proxy) as connection:
        started_s = time.monotonic()
        exchange(connection)
        assert time.monotonic() - started_s >= DELAY_MS / 1000
    assert proxy.counts == {"Delay": 1}


def test_a_rate_is_kept(proxy: FaultProxy) -> None:
    data = bytes([255]) * RATE_BYTES_PER_S
    proxy.limit_rate(RATE_BYTES_PER_S)
    with connect(proxy) as connection:
        started_s = time.monotonic()
        connection.sendall(data)
        assert receive(connection, len(data)) == data
        assert time.monotonic() - started_s >= 0.9
        proxy.limit_rate(None)
        connection.sendall(data)
        assert receive(connection, len(data)) == data


def test_a_blackhole_stays_open_and_sends_nothing(proxy: FaultProxy) -> None:
    proxy.inject(Blackhole(direction=Direction.REQUEST, count_max=1))
    with connect(proxy) as connection, connect(proxy) as other:
        connection.sendall(REQUEST)
        # The other's response shows that the proxy has had its turn with the first.
        while proxy.counts.get("Blackhole", 0) == 0:
            time.sleep(0.001)
        exchange(other)
        connection.setblocking(False)
        connection.sendall(REQUEST)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
        connection.settimeout(TIMEOUT_S)
        proxy.heal()
        assert is_ended(connection)


def test_refused_connections_are_reset_and_counted(proxy: FaultProxy) -> None:
    proxy.inject(Refuse(count_max=2))
    for _ in range(2):
        assert is_ended_at_once(proxy)
    with connect(proxy) as connection:
        exchange(connection)
    assert proxy.counts == {"Refuse": 2}
    assert proxy.connection_count == 3


def test_a_proxy_that_refuses_does_not_listen_and_comes_back(proxy: FaultProxy) -> None:
    with connect(proxy) as connection:
        proxy.refuse_connections()
        assert is_ended(connection)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.refuse_connections()
    proxy.accept_connections()
    proxy.accept_connections()
    with connect(proxy) as connection:
        exchange(connection)


def test_connections_die_of_age_and_on_command(proxy: FaultProxy) -> None:
    with connect(proxy) as old:
        exchange(old)
        proxy.limit_lifetimes((10, 50))
        assert is_ended_at_once(proxy)
        assert proxy.counts == {"Lifetime": 1}
        proxy.disconnect_all()
        assert is_ended(old)


def test_healing_takes_every_fault_and_limit_away(proxy: FaultProxy) -> None:
    proxy.limit_rate(1)
    proxy.limit_lifetimes((0, 0))
    proxy.inject(Refuse())
    proxy.refuse_connections()
    proxy.heal()
    with connect(proxy) as connection:
        started_s = time.monotonic()
        connection.sendall(2 * REQUEST)
        assert receive(connection, 2 * len(REQUEST)) == 2 * REQUEST
        assert time.monotonic() - started_s < len(REQUEST), "as many seconds as bytes, or more"
    assert proxy.counts == {}


def test_connections_beyond_the_limit_are_reset(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykclient.testing.proxy.proxy.LINK_COUNT_MAX", 1)
    with connect(proxy) as connection:
        exchange(connection)
        assert is_ended_at_once(proxy)
    assert proxy.counts == {"Crowded": 1}


def test_where_no_broker_listens_a_client_is_refused_at_once() -> None:
    with FaultProxy(address_of(unused_address())) as proxy:
        assert is_ended_at_once(proxy)


def test_it_ends_with_its_connections_and_its_port_is_free(server: LoopbackServer) -> None:
    proxy = FaultProxy(address_of(server.address))
    with connect(proxy) as connection:
        connection.sendall(REQUEST)
        proxy.close()
        while not is_ended(connection):  # What had come before may be read.
            pass
    proxy.close()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    with socket.create_server(proxy.address):
        pass
    names = {thread.name for thread in threading.enumerate()}
    assert f"pykclient-proxy-{proxy.address.port}" not in names
    for order in (proxy.disconnect_all, proxy.heal, lambda: proxy.inject(Cut())):
        with pytest.raises(ClosedError, match="make a new one"):
            order()


def test_a_failure_of_the_proxy_is_not_hidden(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = FaultProxy(address_of(server.address))
    monkeypatch.setattr(proxy, "_accept", lambda listener: 1 / 0)
    assert is_ended_at_once(proxy)
    with pytest.raises(KafkaError, match="has failed: ZeroDivisionError"):
        proxy.disconnect_all()
    with pytest.raises(KafkaError, match="has failed: ZeroDivisionError"):
        proxy.close()


def test_impossible_limits_are_refused(proxy: FaultProxy) -> None:
    with pytest.raises(ConfigError, match="bytes_per_s is 0"):
        proxy.limit_rate(0)
    for lifetimes_ms in ((-1, 5), (6, 5)):
        with pytest.raises(ConfigError, match="give the least and the most"):
            proxy.limit_lifetimes(lifetimes_ms)
