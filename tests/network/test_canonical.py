"""Canonical names of bootstrap addresses, if the setting asks for them."""

from __future__ import annotations

import logging
import socket
import threading
from typing import TYPE_CHECKING, Final

import pytest

from pykclient import Admin
from pykclient.admin.config import AdminConfig
from pykclient.network.io.canonical import with_canonical_names

if TYPE_CHECKING:
    from collections.abc import Iterator

CANONICAL: Final = "resolve_canonical_bootstrap_servers_only"
ADDRESSES = {"alias": ["10.0.0.1", "10.0.0.2"], "nameless": ["10.0.0.9"]}
NAMES = {"10.0.0.1": "broker-1.example.com", "10.0.0.2": "broker-2.example.com"}

Found = list[tuple[int, int, int, str, tuple[str, int]]]


def getaddrinfo(host: str, port: int, **_: int) -> Found:
    if host not in ADDRESSES:
        raise socket.gaierror(f"{host} is not known")
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ADDRESSES[host]]


def getnameinfo(address: tuple[str, int], _: int) -> tuple[str, str]:
    return NAMES.get(address[0], address[0]), str(address[1])


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket, "getnameinfo", getnameinfo)


def config(servers: str, **settings: object) -> AdminConfig:
    return AdminConfig.from_settings(bootstrap_servers=servers, **settings)


def test_every_address_of_a_name_has_its_own_name() -> None:
    given = config("alias:9092,nameless:9093,alias:9092", client_dns_lookup=CANONICAL)
    assert with_canonical_names(given).bootstrap_servers == (
        ("broker-1.example.com", 9092),
        ("broker-2.example.com", 9092),
        ("10.0.0.9", 9093),
    )
    assert given.bootstrap_servers == (("alias", 9092), ("nameless", 9093))


def test_without_the_setting_nothing_is_looked_up() -> None:
    given = config("unknown:9092")
    assert with_canonical_names(given) is given


def test_a_name_that_is_not_known_stays_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    given = config("unknown:9092,alias:1", client_dns_lookup=CANONICAL)
    assert with_canonical_names(given).bootstrap_servers == (
        ("unknown", 9092),
        ("broker-1.example.com", 1),
        ("broker-2.example.com", 1),
    )
    [record] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "unknown:9092 has no canonical name: unknown is not known" in record.getMessage()


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Provide a resolver that hangs during the whole test."""
    gate = threading.Event()

    def hang(_host: str, _port: int, **_: int) -> Found:
        gate.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    yield
    gate.set()


@pytest.mark.usefixtures("hung")
def test_a_resolver_that_hangs_does_not_hold_the_client(caplog: pytest.LogCaptureFixture) -> None:
    given = config("alias:9092", client_dns_lookup=CANONICAL, socket_connection_setup_timeout_ms=10)
    assert with_canonical_names(given).bootstrap_servers == (("alias", 9092),)
    assert "were not resolved within 10 ms" in caplog.text


def test_a_client_starts_from_the_canonical_names() -> None:
    with Admin(bootstrap_servers="alias:9092", client_dns_lookup=CANONICAL) as admin:
        assert "broker-1.example.com" in repr(admin)
