"""A bootstrap list with an address that can never serve: a short outage of the others ends nothing.

The list is "controller:9093,broker:9092". What the controller says is fatal is its own matter.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, Producer, TopicPartition
from pykclient.errors import AuthenticationError, UnsupportedVersionError
from pykclient.network.broker import handshake
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.message import decode_request_header, encode_response
from pykclient.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from pykclient.testing import FakeKafka
from tests.integration.loopback_server import LoopbackServer

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

OUTAGE_S = 2.0
TIMEOUT_S = 20.0
AT_ONCE_S = 5.0
BROKER = 0


def is_controller(connection: socket.socket) -> None:
    """Tell the versions of a listener that serves no clients."""
    stream = connection.makefile("rb")
    while size := stream.read(4):
        header = decode_request_header(stream.read(int.from_bytes(size)))
        versions = ApiVersionsResponse(api_keys=[ApiVersion(int(ApiKey.API_VERSIONS), 0, 4)])
        connection.sendall(encode_response(versions, header.api_version, header.correlation_id))


@pytest.fixture
def controller() -> Iterator[LoopbackServer]:
    with LoopbackServer(is_controller) as server:
        yield server


@pytest.fixture
def fake() -> Iterator[FakeKafka]:
    with FakeKafka() as fake:
        yield fake


@pytest.fixture
def servers(controller: LoopbackServer, fake: FakeKafka) -> str:
    return f"{controller.address},{fake.bootstrap_servers}"


def stop(fake: FakeKafka) -> None:
    with fake.control() as cluster:
        cluster.stop_broker(BROKER)


def start(fake: FakeKafka) -> None:
    with fake.control() as cluster:
        cluster.start_broker(BROKER)


def await_talk(controller: LoopbackServer, count: int) -> None:
    """Wait until the client was refused by the controller once more."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while controller.connection_count <= count:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_producer_loses_no_record(
    servers: str, fake: FakeKafka, controller: LoopbackServer
) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        deliveries = [producer.send("t", b"before")]
        deliveries[0].result(TIMEOUT_S)
        before = controller.connection_count
        stop(fake)
        deliveries.append(producer.send("t", b"meanwhile"))
        await_talk(controller, before)
        time.sleep(OUTAGE_S)
        deliveries.append(producer.send("t", b"meanwhile"))
        start(fake)
        deliveries.append(producer.send("t", b"after"))
        assert [delivery.result(TIMEOUT_S).offset for delivery in deliveries] == [0, 1, 2, 3]


def test_a_consumer_reads_on(servers: str, fake: FakeKafka, controller: LoopbackServer) -> None:
    with (
        Producer(bootstrap_servers=fake.bootstrap_servers) as producer,
        Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
    ):
        producer.send("t", b"before").result(TIMEOUT_S)
        consumer.assign([TopicPartition("t", 0)])
        assert len(consumer.poll(TIMEOUT_S)) == 1
        stop(fake)
        end_s = time.monotonic() + OUTAGE_S
        while time.monotonic() < end_s:
            assert not consumer.poll(OUTAGE_S / 4)
        start(fake)
        producer.send("t", b"after").result(TIMEOUT_S)
        assert len(consumer.poll(TIMEOUT_S)) == 1


def test_an_admin_goes_on(servers: str, fake: FakeKafka) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.list_topics()
        stop(fake)
        with pytest.raises(TimeoutError, match="has no Metadata API"):
            admin.list_topics(OUTAGE_S)
        start(fake)
        admin.list_topics()


@pytest.fixture
def wrong_password(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let every broker refuse who we are, as SASL will."""

    monkeypatch.setattr(handshake, "METADATA_VERSION_MIN", 1_000)
    monkeypatch.setattr(handshake, "UnsupportedVersionError", AuthenticationError)
    return monkeypatch


def test_what_every_broker_refuses_is_raised_at_once_each_time_until_one_does_not(
    wrong_password: pytest.MonkeyPatch,
) -> None:
    with FakeKafka(brokers=3) as fake:
        servers = fake.bootstrap_servers
        with (
            Producer(bootstrap_servers=servers) as producer,
            Consumer(bootstrap_servers=servers) as consumer,
            Admin(bootstrap_servers=servers) as admin,
        ):
            consumer.assign([TopicPartition("t", 0)])
            for _ in range(2):
                for call in (
                    lambda: producer.send("t", b"v"),
                    lambda: consumer.poll(TIMEOUT_S),
                    lambda: admin.list_topics(),
                ):
                    began_s = time.monotonic()
                    with pytest.raises(AuthenticationError):
                        call()
                    assert time.monotonic() - began_s < AT_ONCE_S
            wrong_password.undo()
            producer.send("t", b"v").result(TIMEOUT_S)
            admin.list_topics()
            consumer.seek_to_beginning()
            assert len(consumer.poll(TIMEOUT_S)) == 1


def test_an_address_that_can_never_serve_is_fatal_alone(controller: LoopbackServer) -> None:
    with (
        Producer(bootstrap_servers=controller.address) as producer,
        pytest.raises(UnsupportedVersionError, match="use a broker's"),
    ):
        producer.send("t", b"v")
