"""Servers that are not Kafka brokers, or too old: errors name server, reason and cure, in time.

As whole journeys of the clients; at the end the probe with which clusters are waited for.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, Producer, TopicPartition
from pykclient.errors import (
    ConnectionFailedError,
    DecodeError,
    DisconnectedError,
    FrameTooLargeError,
    KafkaTimeoutError,
    TlsError,
    UnsupportedVersionError,
)
from pykclient.protocol.message import decode_request_header, encode_response
from pykclient.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from pykclient.protocol.messages.metadata import MetadataResponse
from pykclient.testing.cluster.probe import fetch_metadata
from pykclient.testing.port import Address
from tests.integration.confluent_tools import confluent_create_topic
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.protocol.message import Message
    from pykclient.testing import KafkaCluster

    Journey = Callable[[str], None]

TIMEOUT_MS = 1_000
REQUEST_TIMEOUT_MS = 400
GRACE_S = 1.0
PROBE_TIMEOUT_S = 20.0
PEAK_GROWTH_KB = 200_000
METADATA_KEY, METADATA_VERSION = 3, 12


@contextmanager
def ends_within(seconds: float) -> Iterator[None]:
    """Assert that the block ends within its timeout and one second more."""
    start_s = time.monotonic()
    yield
    assert time.monotonic() - start_s < seconds + GRACE_S


def produce(servers: str) -> None:
    with Producer(
        bootstrap_servers=servers,
        max_block_ms=TIMEOUT_MS,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        delivery_timeout_ms=TIMEOUT_MS,
    ) as producer:
        producer.send("t", b"v").result(timeout=TIMEOUT_MS / 1000)


def consume(servers: str) -> None:
    with Consumer(
        bootstrap_servers=servers,
        default_api_timeout_ms=TIMEOUT_MS,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    ) as consumer:
        consumer.end_offsets([TopicPartition("t", 0)])


def administer(servers: str) -> None:
    with Admin(
        bootstrap_servers=servers,
        default_api_timeout_ms=TIMEOUT_MS,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    ) as admin:
        admin.list_topics()


JOURNEYS = (produce, consume, administer)


def text_of(servers: str, journey: Journey = administer) -> str:
    """Return the error message of a journey, which must fail in time."""
    with ends_within(TIMEOUT_MS / 1000), pytest.raises((KafkaTimeoutError, TlsError)) as raised:
        journey(servers)
    return str(raised.value)


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


def announces_a_huge_response(connection: socket.socket) -> None:
    """Announce 100 MB, and send none of them."""
    if connection.recv(4096):
        connection.sendall((100_000_000).to_bytes(4))
        is_silent(connection)


IS_IT_KAFKA = "is it a Kafka listener, of this security_protocol, and Kafka 2.1 or newer?"
STRANGERS: list[tuple[Behaviour, str, str]] = [
    (speaks_http, "looks like an HTTP server, not a Kafka broker", "check the port"),
    (expects_tls, "the peer responded with a TLS alert", "set security_protocol"),
    (hangs_up, "hung up during the Kafka handshake", IS_IT_KAFKA),
    (hangs_up_at_once, "hung up during the Kafka handshake", IS_IT_KAFKA),
    (
        is_silent,
        f"did not respond to the Kafka handshake within {REQUEST_TIMEOUT_MS} ms",
        IS_IT_KAFKA,
    ),
    (announces_a_huge_response, "a frame of 100000000 bytes was announced", "in a handshake"),
    (sends_random_bytes, "was announced", "receive_max_bytes"),
]


@pytest.mark.parametrize(
    ("journey", "behaviour", "what", "cure"),
    [
        *((administer, *stranger) for stranger in STRANGERS),
        (produce, *STRANGERS[0]),
        (consume, *STRANGERS[0]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_port_that_is_not_kafka_is_reported_with_place_reason_and_cure(
    journey: Journey, behaviour: Behaviour, what: str, cure: str
) -> None:
    with LoopbackServer(behaviour) as server:
        text = text_of(server.address, journey)
        assert server.address in text
        assert what in text
        assert cure in text
        # It backs off: five attempts a second and broker are the most.
        assert server.connection_count <= 5 * (TIMEOUT_MS / 1000 + GRACE_S)


def test_a_port_that_does_not_respond_is_reported_before_its_time_is_over() -> None:
    with (
        LoopbackServer(is_silent) as server,
        Admin(bootstrap_servers=server.address) as admin,
        pytest.raises(KafkaTimeoutError) as raised,
    ):
        admin.list_topics(timeout=0.3)
    text = str(raised.value)
    assert f"{server.address} accepted the connection but has not responded to" in text
    assert IS_IT_KAFKA in text


@pytest.mark.promise("unreachable brokers are reported, each with its reason")
@pytest.mark.parametrize("journey", JOURNEYS)
def test_every_address_that_cannot_be_reached_is_named_in_time(journey: Journey) -> None:
    one, two = unused_address(), unused_address()
    text = text_of(f"{one},{two},no-host.invalid:9092", journey)
    assert f"cannot connect to {one}: connection refused" in text
    assert f"cannot connect to {two}: connection refused" in text
    assert "the host name 'no-host.invalid' cannot be resolved" in text
    assert str(TIMEOUT_MS) in text


@pytest.mark.promise("any bootstrap address may be down")
@pytest.mark.kafka
@pytest.mark.parametrize("behaviour", [speaks_http, expects_tls, hangs_up, is_silent])
def test_one_address_that_works_is_enough(
    behaviour: Behaviour, kafka_cluster: KafkaCluster
) -> None:
    with LoopbackServer(behaviour) as stranger:
        dead = f"{unused_address()},{stranger.address},no-host.invalid:1,{unused_address()}"
        servers = f"{dead},{kafka_cluster.bootstrap_servers}"
        topic = confluent_create_topic(kafka_cluster, "half-reachable")
        with ends_within(4):
            with Producer(bootstrap_servers=servers) as producer:
                assert producer.send(topic, b"v").result(timeout=5).offset == 0
            with Consumer(bootstrap_servers=servers) as consumer:
                partition = TopicPartition(topic, 0)
                assert consumer.end_offsets([partition]) == {partition: 1}


def test_a_resolver_that_hangs_is_reported_and_holds_no_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = threading.Event()

    def hang(host: str, port: int, **options: int) -> object:
        if options.get("flags"):
            raise socket.gaierror("not a number")
        assert gate.wait(60)
        raise socket.gaierror("too late")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        text = text_of("slow.example:9092")
        assert "bootstrap server slow.example:9092 has not accepted the connection yet" in text
    finally:
        gate.set()


@pytest.mark.parametrize("journey", JOURNEYS)
def test_a_broker_too_old_is_reported_at_once_with_the_version_it_takes(journey: Journey) -> None:
    with (
        LoopbackServer(is_kafka_before_2_1) as server,
        ends_within(0),
        pytest.raises(UnsupportedVersionError) as raised,
    ):
        journey(server.address)
    assert server.address in str(raised.value)
    assert "is older than Kafka 2.1" in str(raised.value)
    assert "use Kafka 2.1 or newer" in str(raised.value)


class ScriptedBroker:
    """A broker of our own versions, whose Metadata responses are made by a function."""

    def __init__(self, response: Callable[[int], bytes]) -> None:
        self._respond = response

    def __call__(self, connection: socket.socket) -> None:
        """Serve one connection."""
        stream = connection.makefile("rb")
        while size := stream.read(4):
            header = decode_request_header(stream.read(int.from_bytes(size)))
            if header.api_key == METADATA_KEY:
                connection.sendall(self._respond(header.correlation_id))
                continue
            versions = ApiVersionsResponse(api_keys=[ApiVersion(METADATA_KEY, 0, METADATA_VERSION)])
            frame = encode_response(versions, header.api_version, header.correlation_id)
            connection.sendall(frame)


def metadata_frame(message: Message, correlation_id: int) -> bytes:
    return bytes(encode_response(message, METADATA_VERSION, correlation_id))


@pytest.mark.parametrize(
    ("response", "what"),
    [
        (lambda number: metadata_frame(MetadataResponse(), number + 1), "is due; the stream"),
        (lambda number: b"\x00\x00\x00\x05" + number.to_bytes(4) + b"Z", "sent malformed data"),
        (lambda _: b"\xff\xff\xff\xff", "a frame of -1 bytes was announced"),
    ],
    ids=["wrong correlation id", "cut", "negative size"],
)
def test_a_broker_with_wrong_responses_is_reported_and_tried_again(
    response: Callable[[int], bytes], what: str
) -> None:
    with LoopbackServer(ScriptedBroker(response)) as server:
        text = text_of(server.address)
        assert what in text
        assert server.connection_count <= 5 * (TIMEOUT_MS / 1000 + GRACE_S)


def test_a_response_over_the_limit_is_refused_before_memory_is_taken_for_it() -> None:
    def announce(_: int) -> bytes:
        return (2**31 - 1).to_bytes(4) + bytes(1_000)

    with (
        LoopbackServer(ScriptedBroker(announce)) as server,
        takes_little_memory(),
    ):
        assert "the limit is 100000000" in text_of(server.address)


def test_a_flood_of_responses_without_requests_takes_no_memory() -> None:
    flood = metadata_frame(MetadataResponse(cluster_id="x" * 30_000), 99) * 100

    def serve(connection: socket.socket) -> None:
        while True:
            connection.sendall(flood)

    with LoopbackServer(serve) as server, takes_little_memory():
        text = text_of(server.address)
    assert "sent malformed data: the response to correlation id 99 came while" in text


# The probe.


def address_of(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host, int(port))


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (hangs_up, DisconnectedError),
        # Read as a size, "HTTP" is about 1.2 GB.
        (speaks_http, FrameTooLargeError),
        (sends_random_bytes, DecodeError),
        (is_kafka_before_2_1, UnsupportedVersionError),
    ],
)
def test_the_probe_names_what_is_no_kafka_of_ours(
    behaviour: Behaviour, error: type[Exception]
) -> None:
    with LoopbackServer(behaviour) as server, pytest.raises(error):
        fetch_metadata(address_of(server.address), timeout=PROBE_TIMEOUT_S)


def test_the_probe_names_a_port_without_a_listener() -> None:
    unused = unused_address()
    with pytest.raises(ConnectionFailedError, match=f"the broker at {unused}"):
        fetch_metadata(address_of(unused), timeout=PROBE_TIMEOUT_S)


def test_the_probe_ends_in_time() -> None:
    with LoopbackServer(is_silent) as server:
        before_s = time.monotonic()
        with pytest.raises(ConnectionFailedError):
            fetch_metadata(address_of(server.address), timeout=0.2)
        assert time.monotonic() - before_s < PROBE_TIMEOUT_S
