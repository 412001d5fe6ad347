"""The port and the names of hosts: several addresses, resolvers that hang or come too late."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from pykclient.network.io.selector import SelectorPort
from tests.integration.recording_stream import (
    HOST,
    PATIENCE_S,
    RecordingStream,
    free_port,
    port_of,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Names:
    """Stands in for the system's resolver, and has one name with several addresses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.addresses: list[tuple[str, int]] = []
        self._ask_system = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._getaddrinfo)

    def _getaddrinfo(self, host: str, port: int, **options: int) -> object:
        if host != "broker":
            return self._ask_system(host, port, **options)
        if options.get("flags"):
            raise socket.gaierror("not a number")
        assert self.gate.wait(PATIENCE_S)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in self.addresses]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    names = Names(monkeypatch)
    yield names
    names.gate.set()


def test_a_host_whose_first_address_refuses_is_reached_at_the_next(
    port: SelectorPort, listener: socket.socket, names: Names
) -> None:
    names.addresses = [(HOST, free_port()), (HOST, port_of(listener))]
    stream = RecordingStream()
    port.open(stream, "broker", 9092, attempt=0)
    wait_until(port, lambda: stream.opened_count == 1)
    assert not stream.errors


def test_a_host_that_refuses_at_every_address_is_reported_once(
    port: SelectorPort, names: Names
) -> None:
    names.addresses = [(HOST, free_port()), (HOST, free_port())]
    stream = RecordingStream()
    port.open(stream, "broker", 9092, attempt=0)
    wait_until(port, lambda: bool(stream.errors))
    assert stream.error == "cannot connect to broker:9092: connection refused"


def test_each_attempt_begins_at_another_address(port: SelectorPort, names: Names) -> None:
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(2)]
        names.addresses = [(HOST, port_of(listener)) for listener in listeners]
        for attempt in range(3):
            stream = RecordingStream()
            port.open(stream, "broker", 9092, attempt=attempt)
            wait_until(port, lambda stream=stream: stream.opened_count == 1)  # type: ignore[misc]
            expected = listeners[attempt % 2]
            expected.settimeout(PATIENCE_S)
            expected.accept()[0].close()


def test_a_host_without_addresses_is_reported(port: SelectorPort, names: Names) -> None:
    names.addresses = []
    stream = RecordingStream()
    port.open(stream, "broker", 9092, attempt=3)
    wait_until(port, lambda: bool(stream.errors))
    assert stream.error == "cannot connect to broker:9092: no address"


def test_a_response_for_a_stream_that_was_closed_meanwhile_is_dropped(
    port: SelectorPort, names: Names, listener: socket.socket
) -> None:
    names.gate.clear()
    names.addresses = [(HOST, port_of(listener))]
    given_up, wanted = RecordingStream(), RecordingStream()
    port.open(given_up, "broker", 9092, attempt=0)
    port.open(wanted, "broker", 9092, attempt=0)
    port.close(given_up)
    names.gate.set()
    wait_until(port, lambda: wanted.opened_count == 1)
    assert not given_up.opened_count
    assert not given_up.errors


def test_a_resolver_that_returns_after_the_shutdown_does_no_harm(names: Names) -> None:
    names.gate.clear()
    port = SelectorPort()
    port.open(RecordingStream(), "broker", 9092, attempt=0)
    [lookup] = [t for t in threading.enumerate() if t.name == "pykclient-resolve-broker"]
    port.shutdown()
    names.gate.set()
    lookup.join(PATIENCE_S)  # an error on that thread would fail the test, as a warning
    assert not lookup.is_alive()
