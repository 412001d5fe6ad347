"""Clients of other makers produce to fake brokers and read from them.

Goal: whatever a user tests against `fake_kafka` behaves as with Kafka. Method: each client writes
in a codec of its own and reads what it wrote, and a witness of another make reads it too; leaders
move meanwhile. Here partitions are assigned; groups are in `test_fake_groups`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pykclient import Consumer, Producer, TopicPartition
from pykclient.errors import ClosedError, KafkaError
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.message import encode_request
from pykclient.protocol.messages.api_versions import ApiVersionsRequest
from pykclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykclient.testing import FakeKafka, faults
from pykclient.testing.cluster.jars import KAFKA_VERSIONS
from pykclient.testing.fake import server
from pykclient.testing.fake.connection import OUTPUT_BYTES_MAX, FakeConnection
from tests.integration import java_tools
from tests.integration.confluent_tools import confluent_consume, confluent_produce
from tests.integration.java_tools import Record
from tests.soak import NEWEST_FIRST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pykclient.testing import KafkaCluster

COUNT = 300
PARTITION_COUNT = 2
TIMEOUT_S = 20.0
VERSIONS = bytes(encode_request(ApiVersionsRequest(), 0, 1, "test"))
VALUES = [b"value %d" % number for number in range(COUNT)]


@pytest.fixture
def servers(fake_kafka: FakeKafka) -> str:
    with fake_kafka.control() as cluster:
        cluster.create_topic("t", PARTITION_COUNT)
    return fake_kafka.bootstrap_servers


def first_address(servers: str) -> tuple[str, int]:
    """Host and port of broker 0."""
    host, port = servers.split(",")[0].split(":")
    return host, int(port)


def is_served(address: tuple[str, int]) -> bool:
    """Return whether a broker responds at the address."""
    with (
        contextlib.suppress(ConnectionError),
        socket.create_connection(address, TIMEOUT_S) as stranger,
    ):
        stranger.sendall(VERSIONS)
        return bool(stranger.recv(1))
    return False


def wait_until_served(address: tuple[str, int]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not is_served(address):
        assert time.monotonic() < deadline_s, f"no broker responds at {address}"


def cluster_at(servers: str, version: str = KAFKA_VERSIONS[0]) -> KafkaCluster:
    """Return the fake brokers as other clients' tools take a cluster."""
    return cast("KafkaCluster", SimpleNamespace(version=version, bootstrap_servers=servers))


def write_pykclient(servers: str) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        deliveries = [producer.send("t", value, key=value) for value in VALUES]
        producer.flush()
    assert all(delivery.exception() is None for delivery in deliveries)


def read_pykclient(servers: str) -> list[bytes]:
    values: list[bytes] = []
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", number) for number in range(PARTITION_COUNT)])
        while len(values) < COUNT:
            records = consumer.poll(TIMEOUT_S)
            assert records, "nothing more came"
            values += [record.value for record in records if isinstance(record.value, bytes)]
    return values


def write_confluent(servers: str) -> None:
    confluent_produce(cluster_at(servers), "t", map(Record, VALUES), "zstd")


def read_confluent(servers: str) -> list[bytes]:
    return [record.value or b"" for record in confluent_consume(cluster_at(servers), "t", COUNT)]


def write_kafka_python(servers: str) -> None:
    kafka = pytest.importorskip("kafka")
    producer = kafka.KafkaProducer(bootstrap_servers=servers.split(","), compression_type="gzip")
    futures = [producer.send("t", value) for value in VALUES]
    producer.flush(TIMEOUT_S)
    assert all(future.get(TIMEOUT_S).offset >= 0 for future in futures)
    producer.close()


def read_kafka_python(servers: str) -> list[bytes]:
    kafka = pytest.importorskip("kafka")
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers.split(","),
        auto_offset_reset="earliest",
        group_id=None,
        consumer_timeout_ms=TIMEOUT_S * 1000,
    )
    consumer.assign([kafka.TopicPartition("t", number) for number in range(PARTITION_COUNT)])
    values = _first(consumer)
    consumer.close()
    return values


def _first(consumer: Iterable[Any]) -> list[bytes]:
    values: list[bytes] = []
    for record in consumer:
        values.append(record.value)
        if len(values) == COUNT:
            break
    return values


def write_aiokafka(servers: str) -> None:
    aiokafka = pytest.importorskip("aiokafka")

    async def write() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, enable_idempotence=True, compression_type="lz4"
        ) as producer:
            sent = [await producer.send("t", value) for value in VALUES]
            await asyncio.wait_for(asyncio.gather(*sent), TIMEOUT_S)

    asyncio.run(write())


def read_aiokafka(servers: str) -> list[bytes]:
    aiokafka = pytest.importorskip("aiokafka")

    async def read() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, auto_offset_reset="earliest"
        )
        consumer.assign([aiokafka.TopicPartition("t", n) for n in range(PARTITION_COUNT)])
        await consumer.start()
        try:
            return [
                (await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in range(COUNT)
            ]
        finally:
            await consumer.stop()

    return asyncio.run(read())


READERS = (read_pykclient, read_confluent, read_kafka_python, read_aiokafka)
WRITERS = (write_pykclient, write_confluent, write_kafka_python, write_aiokafka)


@pytest.mark.promise("any client produces to and consumes from the loopback server, `fake_kafka`")
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("write", WRITERS)
def test_what_one_client_writes_every_client_reads(
    write: Callable[[str], None], read: Callable[[str], list[bytes]], servers: str
) -> None:
    write(servers)
    assert sorted(read(servers)) == sorted(VALUES)


def test_each_request_and_response_is_logged_at_debug_without_its_contents(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "pykclient.network")
    with Producer(bootstrap_servers=servers, client_id="me") as producer:
        producer.send("t", b"SECRET").result(TIMEOUT_S)
    exchanged = [
        re.fullmatch(
            r"\[me\] \S+ .*: (sent|received) (\w+) version \d+, correlation id (\d+), \d+ bytes"
            r"(, after \d+ ms)?",
            message,
        )
        for message in caplog.messages
        if " sent " in message or " received " in message
    ]
    assert None not in exchanged, caplog.messages
    sent = [each[2] for each in exchanged if each and each[1] == "sent"]
    received = [each[2] for each in exchanged if each and each[1] == "received"]
    assert sorted(sent) == sorted(received)
    assert {"API_VERSIONS", "METADATA", "INIT_PRODUCER_ID", "PRODUCE"} <= set(sent)
    assert "SECRET" not in caplog.text


@pytest.mark.promise("any client produces to and consumes from the loopback server, `fake_kafka`")
@pytest.mark.parametrize("kind", ["Producer", "Consumer", "AdminClient"])
def test_every_client_of_confluent_kafka_lists_all_topics(kind: str, servers: str) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    settings = {"bootstrap.servers": servers}
    if kind == "Consumer":
        settings["group.id"] = "g"
    module = pytest.importorskip("confluent_kafka.admin") if kind == "AdminClient" else confluent
    client = getattr(module, kind)(settings)
    assert "t" in client.list_topics(timeout=TIMEOUT_S).topics
    assert len(client.list_topics("t", timeout=TIMEOUT_S).topics["t"].partitions) == 2


@pytest.mark.promise("any client produces to and consumes from the loopback server, `fake_kafka`")
@pytest.mark.kafka
@pytest.mark.parametrize("version", NEWEST_FIRST)
def test_javas_producers_write_and_its_console_consumer_reads(
    version: str, fake_kafka: FakeKafka
) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic("java", 1)
    kafka = cluster_at(fake_kafka.bootstrap_servers, version)
    by_api, by_console = VALUES[: COUNT // 2], VALUES[COUNT // 2 :]
    records = [Record(value) for value in by_api]
    written = java_tools.java_produce(kafka, "java", records, "lz4")
    assert [record.offset for record in written] == list(range(len(by_api)))
    java_tools.java_write_lines(version, kafka.bootstrap_servers, "java", by_console)
    output = java_tools.run_tool(
        version,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", kafka.bootstrap_servers, "--topic", "java"),
        *("--partition", "0", "--offset", "earliest", "--max-messages", str(COUNT)),
        *("--timeout-ms", str(int(TIMEOUT_S * 1000))),
    )
    assert output.splitlines() == VALUES


@pytest.mark.parametrize("write", [write_pykclient, write_confluent, write_aiokafka])
def test_idempotent_clients_survive_lost_responses_and_moved_leaders(
    write: Callable[[str], None], fake_kafka: FakeKafka, servers: str
) -> None:
    with fake_kafka.control() as cluster:
        lost = cluster.faults.add(faults.lose_response(closes=True), ApiKey.PRODUCE, times=2)
        for number in range(PARTITION_COUNT):
            cluster.move_leader(TopicPartition("t", number))
    write(servers)
    assert lost.used_count == 2
    assert sorted(read_pykclient(servers)) == sorted(VALUES)


def test_a_leader_that_moved_is_followed_by_the_hint_of_the_old_one(
    fake_kafka: FakeKafka, servers: str
) -> None:
    """KIP-951. Every other way to find the new leader waits for a back-off of a minute here."""
    patient = {"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000}
    partition = TopicPartition("t", 0)
    with (
        Producer(patient, bootstrap_servers=servers) as producer,
        Consumer(patient, bootstrap_servers=servers) as consumer,
    ):
        consumer.assign([partition])
        consumer.seek(partition, 0)
        for offset in range(3):
            delivery = producer.send("t", b"v", partition=0)
            assert delivery.result(timeout=TIMEOUT_S).offset == offset
            (record,) = consumer.poll(TIMEOUT_S)
            assert record.offset == offset
            with fake_kafka.control() as cluster:
                cluster.move_leader(partition)


@pytest.fixture
def without_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKafka]:
    """Fake brokers whose thread does nothing until the test has ended: the slowest there can be."""
    go = threading.Event()
    turn = FakeKafka._turn

    def turn_late(fake: FakeKafka) -> None:
        go.wait(TIMEOUT_S)
        turn(fake)

    monkeypatch.setattr(FakeKafka, "_turn", turn_late)
    fake = FakeKafka(brokers=2)
    try:
        yield fake
    finally:
        go.set()
        fake.close()


def test_every_port_listens_before_the_brokers_are_given_out(without_thread: FakeKafka) -> None:
    for address in without_thread.bootstrap_servers.split(","):
        socket.create_connection(first_address(address), TIMEOUT_S).close()


def test_a_port_listens_or_refuses_as_soon_as_control_is_left(without_thread: FakeKafka) -> None:
    address = first_address(without_thread.bootstrap_servers)
    with without_thread.control() as cluster:
        cluster.stop_broker(0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, TIMEOUT_S)
    with without_thread.control() as cluster:
        cluster.start_broker(0)
    socket.create_connection(address, TIMEOUT_S).close()


def test_a_stopped_broker_refuses_and_listens_again_at_the_same_port(
    fake_kafka: FakeKafka, servers: str
) -> None:
    address = first_address(servers)
    with socket.create_connection(address, TIMEOUT_S) as connected:
        connected.sendall(VERSIONS)
        while len(connected.recv(4096)) == 4096:
            pass
        with fake_kafka.control() as cluster:
            cluster.stop_broker(0)
        assert connected.recv(1) == b"", "the broker has closed it"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, TIMEOUT_S)
    write_pykclient(servers)
    with fake_kafka.control() as cluster:
        cluster.start_broker(0)
    wait_until_served(address)
    assert fake_kafka.bootstrap_servers == servers
    assert sorted(read_pykclient(servers)) == sorted(VALUES)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x7f\xff\xff\xff", b"\0\0\0\1x"])
def test_garbage_on_a_socket_closes_it_and_serves_the_others(data: bytes, servers: str) -> None:
    with socket.create_connection(first_address(servers), TIMEOUT_S) as stranger:
        stranger.sendall(data)
        assert stranger.recv(1) == b""
    write_pykclient(servers)


def test_a_client_that_sends_and_never_reads_holds_little_memory_and_others_are_served(
    fake_kafka: FakeKafka, servers: str
) -> None:
    """Method: 60 fetches of a megabyte each on one connection whose responses are not read."""
    megabyte = 1_000_000
    with Producer(bootstrap_servers=servers) as producer:
        producer.send("t", bytes(megabyte), partition=0).result(timeout=TIMEOUT_S)
    with fake_kafka.control() as cluster:
        leader = cluster.brokers[cluster.partition(TopicPartition("t", 0)).leader_id]
    partition = FetchPartition(partition_max_bytes=megabyte)
    request = FetchRequest(
        max_wait_ms=0, max_bytes=megabyte, topics=[FetchTopic(topic="t", partitions=[partition])]
    )
    with socket.create_connection((leader.host, leader.port), TIMEOUT_S) as greedy:
        greedy.sendall(bytes(encode_request(request, 9, 1, "greedy")) * 60)
        with Consumer(bootstrap_servers=servers) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek(TopicPartition("t", 0), 0)
            assert [each.serialized_value_size for each in consumer.poll(TIMEOUT_S)] == [megabyte]
        with fake_kafka.control() as cluster:
            (responded,) = (
                sum(map(len, each.take_output()))
                for each in leader.connections
                if isinstance(each, FakeConnection) and each.has_output
            )
        assert responded < 2 * OUTPUT_BYTES_MAX


def test_more_connections_than_there_may_be_are_closed_until_others_have_gone(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LINK_COUNT_MAX", 1)
    address = first_address(servers)
    with socket.create_connection(address, TIMEOUT_S) as first:
        first.sendall(VERSIONS)
        assert first.recv(1)
        assert not is_served(address)
    wait_until_served(address)


def test_what_fails_in_its_thread_is_raised_by_control_and_close() -> None:
    def fail(_: int) -> None:
        raise ZeroDivisionError("a timer of a test")

    fake = FakeKafka()
    with fake.control() as cluster:
        cluster.timers.add(cluster.now_ms, fail)
    with (
        contextlib.suppress(ConnectionError),
        socket.create_connection(first_address(fake.bootstrap_servers), TIMEOUT_S) as connected,
    ):
        assert connected.recv(1) == b""
    with pytest.raises(KafkaError, match="ZeroDivisionError"), fake.control():
        pass
    with pytest.raises(KafkaError, match="ZeroDivisionError"):
        fake.close()


def test_a_closed_fake_cannot_be_controlled() -> None:
    fake = FakeKafka()
    fake.close()
    fake.close()
    with pytest.raises(ClosedError), fake.control():
        pass


def test_control_may_be_taken_within_control_and_is_given_back_after_an_error(
    fake_kafka: FakeKafka, servers: str
) -> None:
    def fail_within_it() -> None:
        with fake_kafka.control(), fake_kafka.control() as cluster:
            cluster.delete_topic("t")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_within_it()
    with fake_kafka.control() as cluster:
        assert "t" not in cluster.topics
