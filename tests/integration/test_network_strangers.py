"""What is not a Kafka broker, or one too old, is told by name, reason and cure, in time.

Here by the network layer alone; `test_bad_input` has the same as whole journeys.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient.errors import UnsupportedVersionError
from pykclient.protocol.message import decode_request_header, encode_response
from pykclient.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from pykclient.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.integration.loopback_server import (
    Behaviour,
    LoopbackServer,
    expects_tls,
    hangs_up,
    is_kafka_before_2_1,
    is_silent,
    sends_random_bytes,
    speaks_http,
    unused_address,
)
from tests.integration.network_line import NetworkLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.protocol.message import Message

TIMEOUT_MS = 1_200
HANDSHAKE_TIMEOUT_MS = 400
GRACE_S = 1.0
PEAK_GROWTH_KB = 200_000
METADATA_KEY, METADATA_VERSION = 3, 12


def told_by(servers: str, **settings: object) -> str:
    """Try for metadata, which must not come, and return what is told of it."""
    start_s = time.monotonic()
    with NetworkLine(servers, request_timeout_ms=HANDSHAKE_TIMEOUT_MS, **settings) as line:
        assert not line.learn(TIMEOUT_MS)
        assert time.monotonic() - start_s < TIMEOUT_MS / 1000 + GRACE_S
        assert line.metadata.fatal_error is None
        return line.client.describe_failures()


def memory_kb(name: str) -> int:
    [line] = [x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name)]
    return int(line.split()[1])


@contextmanager
def takes_little_memory() -> Iterator[None]:
    """Check that the process never grows much beyond what it holds when this begins."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew from now
    before_kb = memory_kb("VmRSS")
    yield
    assert memory_kb("VmHWM") - before_kb < PEAK_GROWTH_KB


def hangs_up_at_once(connection: socket.socket) -> None:
    """Close without reading."""


def announces_a_huge_answer(connection: socket.socket) -> None:
    """Announce 100 MB, and send none of them."""
    if connection.recv(4096):
        connection.sendall((100_000_000).to_bytes(4))
        is_silent(connection)


IS_IT_KAFKA = "is it a Kafka listener of security protocol PLAINTEXT, and Kafka 2.1 or newer?"
STRANGERS: list[tuple[Behaviour, str, str]] = [
    (speaks_http, "looks like an HTTP server, not a Kafka broker", "check the port"),
    (expects_tls, "looks like a TLS listener", "use the broker's plaintext port"),
    (hangs_up, "hung up during the Kafka handshake", IS_IT_KAFKA),
    (hangs_up_at_once, "hung up during the Kafka handshake", IS_IT_KAFKA),
    (
        is_silent,
        f"did not respond to the Kafka handshake within {HANDSHAKE_TIMEOUT_MS} ms",
        IS_IT_KAFKA,
    ),
    (announces_a_huge_answer, "did not respond to the Kafka handshake", IS_IT_KAFKA),
    (sends_random_bytes, "was announced", "receive_max_bytes"),
]


@pytest.mark.promise("a port that is not Kafka's is reported")
@pytest.mark.parametrize(
    ("behaviour", "what", "cure"), STRANGERS, ids=[stranger[0].__name__ for stranger in STRANGERS]
)
def test_a_port_that_is_not_kafka_is_told_with_place_reason_and_cure(
    behaviour: Behaviour, what: str, cure: str
) -> None:
    with LoopbackServer(behaviour) as server:
        text = told_by(server.address)
        assert server.address in text
        assert what in text
        assert cure in text
        assert server.connection_count <= 5 * (TIMEOUT_MS / 1000 + GRACE_S)


def test_a_silent_port_is_told_before_its_time_is_over() -> None:
    with (
        LoopbackServer(is_silent) as server,
        NetworkLine(server.address, request_timeout_ms=30_000) as line,
    ):
        assert not line.learn(300)
        text = line.client.describe_failures()
        assert (
            f"bootstrap server {server.address} accepted the connection but has not responded to"
            in text
        )
        assert IS_IT_KAFKA in text


@pytest.mark.promise("brokers that cannot be reached are reported with the reason of each")
def test_every_address_that_cannot_be_reached_is_told() -> None:
    one, two = unused_address(), unused_address()
    text = told_by(f"{one},{two},no-host.invalid:9092")
    assert f"cannot connect to {one}: connection refused" in text
    assert f"cannot connect to {two}: connection refused" in text
    assert "the host name 'no-host.invalid' cannot be resolved" in text


@pytest.mark.promise("the look-up of a name blocks no call")
def test_a_resolver_that_hangs_is_told_and_holds_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def hang(host: str, port: int, **options: int) -> object:
        if options.get("flags"):
            raise socket.gaierror("not a number")
        assert gate.wait(60)
        raise socket.gaierror("too late")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        text = told_by("slow.example:9092")
        assert "bootstrap server slow.example:9092 has not accepted the connection yet" in text
    finally:
        gate.set()


@pytest.mark.promise("a broker that is too old is reported")
def test_a_broker_too_old_is_fatal_at_once() -> None:
    with LoopbackServer(is_kafka_before_2_1) as server:
        start_s = time.monotonic()
        with NetworkLine(server.address) as line:
            assert line.learn(TIMEOUT_MS)
            assert time.monotonic() - start_s < GRACE_S
            error = line.metadata.fatal_error
        assert isinstance(error, UnsupportedVersionError)
        assert server.address in str(error)
        assert "is older than Kafka 2.1" in str(error)
        assert "use Kafka 2.1 or newer" in str(error)


def test_a_broker_too_old_beside_a_dead_address_is_fatal_when_the_time_is_up() -> None:
    with LoopbackServer(is_kafka_before_2_1) as server:
        servers = f"{server.address},{unused_address()}"
        with NetworkLine(servers, request_timeout_ms=HANDSHAKE_TIMEOUT_MS) as line:
            assert not line.learn(HANDSHAKE_TIMEOUT_MS // 2)
            assert line.learn(TIMEOUT_MS)
            assert isinstance(line.metadata.fatal_error, UnsupportedVersionError)


class ScriptedBroker:
    """A broker of our own versions, whose Metadata answers are made by a function."""

    def __init__(self, answer: Callable[[int], bytes]) -> None:
        self._answer = answer

    def __call__(self, connection: socket.socket) -> None:
        """Serve one connection."""
        stream = connection.makefile("rb")
        while size := stream.read(4):
            header = decode_request_header(stream.read(int.from_bytes(size)))
            if header.api_key == METADATA_KEY:
                connection.sendall(self._answer(header.correlation_id))
                continue
            versions = ApiVersionsResponse(api_keys=[ApiVersion(METADATA_KEY, 0, METADATA_VERSION)])
            frame = encode_response(versions, header.api_version, header.correlation_id)
            connection.sendall(frame)


def metadata_frame(message: Message, correlation_id: int) -> bytes:
    return bytes(encode_response(message, METADATA_VERSION, correlation_id))


BAD_BROKER = MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="", port=-1)])


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (lambda number: metadata_frame(MetadataResponse(), number + 1), "is due; the stream"),
        (lambda number: b"\x00\x00\x00\x05" + number.to_bytes(4) + b"Z", "cannot be read"),
        (lambda _: b"\xff\xff\xff\xff", "a frame of -1 bytes was announced"),
        (partial(metadata_frame, BAD_BROKER), "says that broker 1 is at host '', port -1"),
    ],
    ids=["wrong correlation id", "cut", "negative size", "impossible address"],
)
def test_a_broker_that_answers_wrongly_is_told_and_tried_again(
    answer: Callable[[int], bytes], what: str
) -> None:
    with LoopbackServer(ScriptedBroker(answer)) as server:
        text = told_by(server.address)
        assert what in text
        assert server.connection_count <= 5 * (TIMEOUT_MS / 1000 + GRACE_S)


@pytest.mark.promise("a frame has a size limit")
def test_an_answer_over_the_limit_is_refused_before_memory_is_taken_for_it() -> None:
    def announce(_: int) -> bytes:
        return (2**31 - 1).to_bytes(4) + bytes(1_000)

    with (
        LoopbackServer(ScriptedBroker(announce)) as server,
        NetworkLine(server.address) as line,
        takes_little_memory(),
    ):
        assert not line.learn(500)
        assert "receive_max_bytes is 100000000" in line.client.describe_failures()


def test_a_flood_of_answers_that_nobody_asked_for_fills_nothing() -> None:
    flood = metadata_frame(MetadataResponse(cluster_id="x" * 30_000), 99) * 100

    def serve(connection: socket.socket) -> None:
        while True:
            connection.sendall(flood)

    with LoopbackServer(serve) as server, takes_little_memory():
        text = told_by(server.address)
    assert "sent what cannot be read: the response to correlation id 99 came while" in text
