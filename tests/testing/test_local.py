"""Copies of a formatted folder for other servers, and reserved ports."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

import pytest

from pykclient.testing.cluster.local import copy_storage
from pykclient.testing.cluster.processes import BrokerFailedError
from pykclient.testing.port import LOOPBACK, PortReservation

if TYPE_CHECKING:
    from pathlib import Path

META = "#\n#Sat Nov 21 09:57:38 UTC 2026\nnode.id=100\ndirectory.id=oZ\nversion=1\ncluster.id=AA\n"


def formatted(folder: Path, meta: str) -> Path:
    folder.mkdir()
    (folder / "meta.properties").write_text(meta)
    (folder / "bootstrap.checkpoint").write_bytes(b"\x00features")
    return folder


def test_a_copy_differs_in_the_ids_of_server_and_folder_only(tmp_path: Path) -> None:
    original = formatted(tmp_path / "100", META)
    copies = [tmp_path / "1", tmp_path / "2"]
    for node_id, copy in enumerate(copies, 1):
        copy_storage(original, copy, node_id)
    metas = [
        dict(line.split("=") for line in (copy / "meta.properties").read_text().splitlines()[2:])
        for copy in copies
    ]
    assert [meta["node.id"] for meta in metas] == ["1", "2"]
    assert len({meta["directory.id"] for meta in metas} | {"oZ"}) == len(metas) + 1
    assert {(meta["version"], meta["cluster.id"]) for meta in metas} == {("1", "AA")}
    assert all((copy / "bootstrap.checkpoint").read_bytes() == b"\x00features" for copy in copies)


def test_a_folder_of_another_form_is_an_error(tmp_path: Path) -> None:
    original = formatted(tmp_path / "100", META.replace("directory.id", "disk.id"))
    with pytest.raises(BrokerFailedError, match=r"0 settings directory\.id"):
        copy_storage(original, tmp_path / "1", 1)


PORT_COUNT = 50


def listener(port: int) -> socket.socket:
    """Listen as Java's server sockets do."""
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


def test_reservations_never_meet() -> None:
    reservations = [PortReservation() for _ in range(PORT_COUNT)]
    assert len({reservation.port for reservation in reservations}) == PORT_COUNT
    for reservation in reservations:
        reservation.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets two sockets share a port")
def test_no_other_gets_the_port_while_its_server_is_away() -> None:
    reservation = PortReservation()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((LOOPBACK, reservation.port))
    # A port that a connection may use as its local end could be connected to itself.
    with socket.socket() as client, pytest.raises(ConnectionRefusedError):
        client.connect((LOOPBACK, reservation.port))
    reservation.close()


def test_a_closed_reservation_gives_the_port_back() -> None:
    reservation = PortReservation()
    reservation.close()
    reservation.close()
    with socket.socket() as other:
        other.bind((LOOPBACK, reservation.port))
