"""Failures that end no client, from unusable addresses to errors in the application's logging.

The bootstrap list is "controller:9093,broker:9092". The controller's own errors are fatal for it
matter.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, Producer, TopicPartition
from pykclient.errors import AuthenticationError, UnsupportedVersionError
from pykclient.network.broker import handshake
from pykclient.network.log import ClientLog
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.message import decode_request_header, encode_response
from pykclient.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from pykclient.testing import FakeKafka
from pykclient.testing.fake.faults import Fault, delay_response, drop
from tests.integration.loopback_server import LoopbackServer

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

OUTAGE_S = 2.0
TIMEOUT_S = 20.0
AT_ONCE_S = 5.0
BROKER = 0
DELIVERY_TIMEOUT_MS = 15_000
HELD_MS = 800


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


def await_requests(controller: LoopbackServer, count: int) -> None:
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
        await_requests(controller, before)
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
    """Make every broker reject authentication, as with SASL."""
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


# Brokers that get another address while they owe a response.


class MoveLog(logging.Handler):
    """A log handler that records moves of brokers."""

    def __init__(self) -> None:
        super().__init__()
        self.has_come = threading.Event()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        if "has moved to" in record.getMessage():
            self.count += 1
            self.has_come.set()


@contextmanager
def moves_logged() -> Iterator[MoveLog]:
    """Collect the log lines about moves of brokers."""
    handler, log = MoveLog(), logging.getLogger("pykclient.network")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield handler
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def send_around_a_move(fault: Fault) -> list[int | None]:
    """Send a record, move its broker while the response is due, send another; return offsets."""
    with (
        moves_logged() as log,
        FakeKafka(brokers=2) as fake,
        Producer(
            bootstrap_servers=fake.bootstrap_servers,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            request_timeout_ms=DELIVERY_TIMEOUT_MS - 1_000,
        ) as producer,
    ):
        producer.send("t", b"first").result(TIMEOUT_S)
        leader_id = producer.partitions_for("t")[0].leader_id
        assert leader_id is not None
        with fake.control() as cluster:
            handle = cluster.faults.add(fault, ApiKey.PRODUCE)
        deliveries = [producer.send("t", b"in flight")]
        while not handle.used_count:
            with fake.control():
                pass
        with fake.control() as cluster:
            cluster.brokers[leader_id].host = "localhost"  # the same listener, by another address
        producer.partitions_for("other")  # has the metadata requested
        assert log.has_come.wait(TIMEOUT_S)
        deliveries.append(producer.send("t", b"after the move"))
        offsets = [delivery.result(TIMEOUT_S).offset for delivery in deliveries]
        producer.partitions_for("more")
        assert log.count == 1, "each move is logged once"
    return offsets


def test_what_is_sent_after_the_move_goes_out_as_soon_as_the_old_connection_is_drained() -> None:
    assert send_around_a_move(delay_response(HELD_MS)) == [1, 2]


def test_an_old_address_that_stops_responding_holds_nothing_back() -> None:
    assert send_around_a_move(drop()) == [1, 2]


# What the system refuses, or logging raises.


def exchange(servers: str) -> None:
    """Send a record and read it."""
    with (
        Producer(bootstrap_servers=servers) as producer,
        Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
    ):
        producer.send("t", b"v").result(TIMEOUT_S)
        consumer.assign([TopicPartition("t", 0)])
        assert consumer.poll(TIMEOUT_S)


def test_a_thread_that_cannot_be_started_for_a_look_up_costs_one_attempt(
    fake_kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start
    refused: list[str] = []

    def limited(thread: threading.Thread) -> None:
        if thread.name.startswith("pykclient-resolve") and len(refused) < 3:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    exchange(fake_kafka.bootstrap_servers.replace("127.0.0.1", "localhost"))
    assert len(refused) == 3


def test_a_log_filter_that_raises_ends_no_client(
    fake_kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: logging.LogRecord) -> bool:
        raise ZeroDivisionError

    monkeypatch.setattr(ClientLog, "failure_count", 0)
    for name in ("network", "producer", "consumer"):
        log = logging.getLogger(f"pykclient.{name}")
        monkeypatch.setattr(log, "filters", [broken])
        monkeypatch.setattr(log, "level", logging.DEBUG)
        log.manager._clear_cache()  # type: ignore[attr-defined]
    exchange(fake_kafka.bootstrap_servers)
    assert ClientLog.failure_count > 1
    assert "A filter or handler of logger 'pykclient." in capsys.readouterr().err
