"""A reserved port is free for the server that it is for, and for nobody who looks for any port."""

from __future__ import annotations

import socket
import sys

import pytest

from pykclient.testing.port import LOOPBACK, PortReservation

PORT_COUNT = 50


def listener(port: int) -> socket.socket:
    """Listens as Java's server sockets do."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((LOOPBACK, port))
    server.listen()
    return server


def test_the_server_it_is_for_can_listen_again_and_again() -> None:
    reservation = PortReservation()
    for _ in range(2):
        reservation.make_way()
        with (
            listener(reservation.port),
            socket.create_connection((LOOPBACK, reservation.port)) as client,
        ):
            assert client.getpeername() == (LOOPBACK, reservation.port)
    reservation.close()


@pytest.mark.promise("ports are free, and stay a broker's own")
def test_reservations_never_meet() -> None:
    reservations = [PortReservation() for _ in range(PORT_COUNT)]
    assert len({reservation.port for reservation in reservations}) == PORT_COUNT
    for reservation in reservations:
        reservation.close()


@pytest.mark.promise("ports are free, and stay a broker's own")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets two sockets share a port")
def test_the_port_is_nobody_elses_while_its_server_is_away() -> None:
    reservation = PortReservation()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((LOOPBACK, reservation.port))
    # A port that a connection may start from could be connected to itself.
    with socket.socket() as client, pytest.raises(ConnectionRefusedError):
        client.connect((LOOPBACK, reservation.port))
    reservation.close()


def test_a_closed_reservation_gives_the_port_back() -> None:
    reservation = PortReservation()
    reservation.close()
    reservation.close()
    with socket.socket() as other:
        other.bind((LOOPBACK, reservation.port))
