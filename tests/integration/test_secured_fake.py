"""Clients of all makes on fake brokers with TLS and SASL: no Java is needed to test settings."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Admin, Consumer, Delivery, NewTopic, Producer, TopicPartition
from pykclient.cli import main
from pykclient.errors import (
    AuthenticationError,
    ClosedError,
    DeliveryTimeoutError,
    IllegalSaslStateError,
    KafkaTimeoutError,
    TlsError,
    UsageError,
)
from pykclient.network.sasl.scram import ITERATIONS_MAX
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeResponse
from pykclient.testing import CertificateAuthority, ClusterSecurity, FakeKafka
from pykclient.testing.fake.faults import fail_with, lose_response, respond_with
from tests.integration.confluent_tools import confluent_settings
from tests.integration.test_fake_kafka import first_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.testing.fake.cluster import FakeCluster

TIMEOUT_S = 20.0
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SECURITY = ClusterSecurity(
    listeners=("SASL_SSL", "SASL_PLAINTEXT", "SSL", "MTLS", "PLAINTEXT"),
    mechanisms=MECHANISMS,
    users={"alice": "alice-secret", "bob smith": 'w"\\ö, =]'},
)
WAYS = [
    *((listener, None) for listener in ("SSL", "MTLS", "PLAINTEXT")),
    *((listener, name) for listener in ("SASL_SSL", "SASL_PLAINTEXT") for name in MECHANISMS),
]
VALUE = bytes(range(256)) * 4_000


@pytest.fixture(scope="module")
def secured_fake() -> Iterator[FakeKafka]:
    """Two fake brokers, each with every listener."""
    with FakeKafka(2, security=SECURITY) as fake:
        yield fake


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_this_client_writes_and_reads_on_each_listener(
    secured_fake: FakeKafka, listener: str, mechanism: str | None
) -> None:
    """To both brokers: metadata and coordinators lead to the same listener."""
    for user in SECURITY.users if mechanism else [None]:
        settings: dict[str, Any] = dict(
            secured_fake.client_settings(listener, mechanism=mechanism, user=user)
        )
        topic = f"t-{listener}-{mechanism}-{len(user or '')}"
        with Admin(settings) as admin:
            admin.create_topics([NewTopic(topic, 2, 1)])
        with Producer(settings) as producer:
            for number in range(2):
                producer.send(topic, VALUE, partition=number).result(timeout=TIMEOUT_S)
        with Consumer(settings, group_id=topic, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([topic])
            values: list[object] = []
            while len(values) < 2:
                values += [record.value for record in consumer.poll(TIMEOUT_S)]
            assert values == [VALUE, VALUE]
            consumer.commit()


def confluent(settings: dict[str, str], topic: str) -> list[bytes | None]:
    from confluent_kafka import OFFSET_BEGINNING
    from confluent_kafka import Consumer as TheirConsumer
    from confluent_kafka import Producer as TheirProducer
    from confluent_kafka import TopicPartition as TheirPartition

    found = confluent_settings(settings)
    producer = TheirProducer(found)
    producer.produce(topic, b"lamp", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = TheirConsumer({**found, "group.id": topic})
    try:
        consumer.assign([TheirPartition(topic, 0, OFFSET_BEGINNING)])
        return [message.value() for message in consumer.consume(1, TIMEOUT_S)]
    finally:
        consumer.close()


def kafka_python(settings: dict[str, str], topic: str) -> list[bytes | None]:
    kafka = pytest.importorskip("kafka")
    theirs = plain_names(settings)
    producer = kafka.KafkaProducer(**theirs)
    producer.send(topic, b"lamp", partition=0).get(TIMEOUT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        **theirs, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000
    )
    consumer.assign([kafka.TopicPartition(topic, 0)])
    record = next(iter(consumer))
    consumer.close()
    return [record.value]


def aiokafka(settings: dict[str, str], topic: str) -> list[bytes | None]:
    aiokafka = pytest.importorskip("aiokafka")
    theirs = plain_names(settings)
    if "ssl_cafile" in theirs:
        context = ssl.create_default_context(cafile=theirs.pop("ssl_cafile"))
        if "ssl_certfile" in theirs:
            context.load_cert_chain(theirs.pop("ssl_certfile"), theirs.pop("ssl_keyfile"))
        theirs["ssl_context"] = context

    async def run() -> list[bytes | None]:
        async with aiokafka.AIOKafkaProducer(**theirs) as producer:
            await producer.send_and_wait(topic, b"lamp", partition=0)
        consumer = aiokafka.AIOKafkaConsumer(**theirs, auto_offset_reset="earliest")
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        await consumer.start()
        try:
            return [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value]
        finally:
            await consumer.stop()

    return asyncio.run(run())


def plain_names(settings: dict[str, str]) -> dict[str, Any]:
    """Return the settings by the names that kafka-python and aiokafka share."""
    found = confluent_settings(settings)
    names = {
        "bootstrap.servers": "bootstrap_servers",
        "security.protocol": "security_protocol",
        "sasl.mechanism": "sasl_mechanism",
        "sasl.username": "sasl_plain_username",
        "sasl.password": "sasl_plain_password",
        "ssl.ca.location": "ssl_cafile",
        "ssl.certificate.location": "ssl_certfile",
        "ssl.key.location": "ssl_keyfile",
    }
    return {names[name]: value for name, value in found.items()}


@pytest.mark.parametrize("write_and_read", [confluent, kafka_python, aiokafka])
@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [("MTLS", None), ("SASL_SSL", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512"),
     ("SASL_PLAINTEXT", "SCRAM-SHA-256")],
)  # fmt: skip
def test_other_clients_write_and_read(
    secured_fake: FakeKafka,
    listener: str,
    mechanism: str | None,
    write_and_read: Callable[[dict[str, str], str], list[bytes | None]],
) -> None:
    topic = f"{write_and_read.__name__}-{listener}-{mechanism}"
    with secured_fake.control() as cluster:
        cluster.create_topic(topic, 1)
    settings = secured_fake.client_settings(listener, mechanism=mechanism)
    assert write_and_read(settings, topic) == [b"lamp"]


def test_a_client_is_refused_and_goes_on_with_the_new_password(secured_fake: FakeKafka) -> None:
    settings = secured_fake.client_settings(mechanism="SCRAM-SHA-256", user="carol", password="x1")
    with Admin(dict(settings)) as admin:
        with pytest.raises(AuthenticationError, match="refused the user 'carol'"):
            admin.list_topics()
        with secured_fake.control() as cluster:
            cluster.users.set_password("carol", "x1")
        admin.list_topics()


def test_a_million_iterations_hold_up_no_other_connection() -> None:
    """While one connection computes, as long as that takes, the other one goes on and on."""
    security = ClusterSecurity(mechanisms=("SCRAM-SHA-256",), listeners=("SASL_PLAINTEXT",))
    with FakeKafka(2, security=security) as fake:
        with fake.control() as cluster:
            cluster.create_topic("t", assignments=[[0], [1]])
        with Producer(dict(fake.client_settings()), linger_ms=0) as producer:
            producer.send("t", b"", partition=0).result(timeout=TIMEOUT_S)
            with fake.control() as cluster:
                cluster.users.scram_iterations = ITERATIONS_MAX
                cluster.users.set_password(*next(iter(security.users.items())))
                credential = cluster.users.scram("SCRAM-SHA-256", next(iter(security.users)))
                assert credential is not None
                assert credential.stored_key  # computed here, and not while the client waits
                cluster.stop_broker(1)  # so that it has no connection yet
                cluster.start_broker(1)
            computing = producer.send("t", b"", partition=1)
            count = 0
            while not computing.done():
                producer.send("t", b"", partition=0).result(timeout=TIMEOUT_S)
                count += 1
            assert computing.result(timeout=TIMEOUT_S).offset == 0
    assert count >= 20


def test_a_password_that_is_refused_later_is_named_by_whatever_waits() -> None:
    """Records wait for it to be cured, and say why when their time is up."""
    security = ClusterSecurity(mechanisms=("PLAIN",), listeners=("SASL_PLAINTEXT",))
    with FakeKafka(3, security=security) as fake:
        with fake.control() as cluster:
            cluster.create_topic("t", assignments=[[0], [1], [2]])
        settings: dict[str, Any] = dict(fake.client_settings())
        quick: dict[str, Any] = {
            "delivery_timeout_ms": 2_000,
            "request_timeout_ms": 1_000,
            "linger_ms": 0,
        }
        with Admin(settings) as admin, Producer(settings, **quick) as producer:
            admin.list_topics()
            producer.send("t", b"", partition=0).result(timeout=TIMEOUT_S)
            with fake.control() as cluster:
                cluster.users.set_password("alice", "another")
                cluster.expire_sessions()
            waiting = [producer.send("t", b"", partition=number) for number in range(3)]
            with pytest.raises(AuthenticationError, match="refused the user 'alice'"):
                admin.list_topics()
            for delivery in waiting:
                error = delivery.exception(timeout=TIMEOUT_S)
                assert isinstance(error, DeliveryTimeoutError)
                assert str(error).count("refused the user 'alice'") == 1, error
            producer.send("t", b"", partition=0)
            with pytest.raises(KafkaTimeoutError) as caught:
                producer.flush(timeout=0.1)
            assert str(caught.value).count("refused the user 'alice'") == 1, caught.value
            with fake.control() as cluster:
                cluster.users.set_password("alice", security.users["alice"])
            producer.flush(timeout=TIMEOUT_S)


def expire(cluster: FakeCluster) -> None:
    """Every session has ended: the broker hangs up on the next request that is not SASL's."""
    cluster.expire_sessions()


def refuse_as_unauthenticated(cluster: FakeCluster) -> None:
    cluster.faults.add(fail_with(IllegalSaslStateError), ApiKey.PRODUCE)


def act_and_end_the_session(cluster: FakeCluster) -> None:
    """Write the records and close the connection instead of sending the response."""
    cluster.faults.add(lose_response(closes=True), ApiKey.PRODUCE)


def respond_with_mechanisms(cluster: FakeCluster) -> None:
    """Respond as to SaslHandshake, as if the client were about to authenticate."""
    response = SaslHandshakeResponse(error_code=34, mechanisms=["PLAIN"])
    cluster.faults.add(respond_with(response), ApiKey.PRODUCE)


@pytest.mark.parametrize(
    "demand", [expire, refuse_as_unauthenticated, act_and_end_the_session, respond_with_mechanisms]
)
def test_a_broker_that_demands_authentication_amid_requests_loses_and_doubles_nothing(
    demand: Callable[[FakeCluster], None],
) -> None:
    """Acknowledged records are in the log once; each other record has an error of its own."""
    security = ClusterSecurity(mechanisms=("PLAIN",), listeners=("SASL_PLAINTEXT",))
    with FakeKafka(security=security) as fake:
        settings: dict[str, Any] = dict(fake.client_settings())
        with fake.control() as cluster:
            cluster.create_topic("t", 1)
        with Producer(settings, linger_ms=0) as producer:
            deliveries: list[Delivery[Any]] = []
            for number in range(200):
                if number in (50, 100, 150):
                    deliveries[-1].exception(timeout=TIMEOUT_S)
                    with fake.control() as cluster:
                        demand(cluster)
                deliveries.append(producer.send("t", b"%d" % number))
            producer.flush(timeout=TIMEOUT_S)
            errors = [each.exception(timeout=TIMEOUT_S) for each in deliveries]
        sent = [b"%d" % number for number, error in enumerate(errors) if error is None]
        assert len(sent) >= 50
        assert all(isinstance(error, IllegalSaslStateError) for error in errors if error)
        assert len(sent) == 200 or demand is refuse_as_unauthenticated
        with Consumer(settings) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek_to_beginning()
            values: list[object] = []
            while len(values) < len(sent):
                values += [record.value for record in consumer.poll(TIMEOUT_S)]
            assert consumer.end_offsets([TopicPartition("t", 0)]) == {
                TopicPartition("t", 0): len(sent)
            }
        assert values == sent


def test_a_certificate_is_replaced_and_others_are_signed(
    secured_fake: FakeKafka, tmp_path: Path
) -> None:
    settings: dict[str, Any] = dict(secured_fake.client_settings("SSL"))
    authority = secured_fake.certificates
    stranger = CertificateAuthority(tmp_path)
    try:
        secured_fake.replace_certificate("SSL", stranger.issue("b", hostnames=["127.0.0.1"]))
        with Admin(settings) as admin:
            with pytest.raises(TlsError, match="give the authority in ssl_truststore_location"):
                admin.list_topics()
            good = authority.issue("b", hostnames=["127.0.0.1"], key_password="word")
            secured_fake.replace_certificate("SSL", good)
            admin.list_topics()
    finally:
        hosts = ["127.0.0.1", "localhost"]
        secured_fake.replace_certificate("SSL", authority.issue("broker", hostnames=hosts))


def test_what_these_brokers_have_not_is_refused(
    secured_fake: FakeKafka, fake_kafka: FakeKafka
) -> None:
    certificate = secured_fake.certificates.issue("unused")
    with pytest.raises(UsageError, match="has protocol PLAINTEXT, without TLS"):
        secured_fake.replace_certificate("PLAINTEXT", certificate)
    with pytest.raises(UsageError, match=r"there is no listener 'SLS'.*SSL"):
        secured_fake.client_settings("SLS")
    with pytest.raises(UsageError, match="this cluster is not secured"):
        fake_kafka.client_settings()
    for use in (
        lambda: fake_kafka.certificates,
        lambda: fake_kafka.replace_certificate("SSL", certificate),
    ):
        with pytest.raises(UsageError, match="no listener has TLS"):
            use()


def test_the_files_go_with_the_brokers_and_an_authority_of_ones_own_stays(tmp_path: Path) -> None:
    security = ClusterSecurity(listeners=("SSL",))
    authority = CertificateAuthority(tmp_path)
    with (
        FakeKafka(security=security) as fake,
        FakeKafka(security=security, certificates=authority) as other,
    ):
        made = fake.certificates.path
        assert made.exists()
        assert other.certificates is authority
        with Admin(dict(other.client_settings())) as admin:
            admin.list_topics()
    assert not made.parent.exists()
    assert authority.path.exists()
    with pytest.raises(ClosedError), fake.control():
        pass


def test_a_broker_stops_and_starts_on_all_its_listeners() -> None:
    security = ClusterSecurity(listeners=("SASL_PLAINTEXT", "PLAINTEXT"), mechanisms=("PLAIN",))
    with FakeKafka(2, security=security) as fake:
        stopped = [
            first_address(fake.client_settings(listener)["bootstrap_servers"])
            for listener in security.listeners
        ]
        assert len({*stopped, *map(first_address, fake.bootstrap_servers.split(","))}) == 3
        with fake.control() as cluster:
            cluster.stop_broker(0)
        for address in stopped:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address, TIMEOUT_S)
        with fake.control() as cluster:
            cluster.start_broker(0)
        for address in stopped:
            socket.create_connection(address, TIMEOUT_S).close()


def test_the_file_of_the_page_takes_its_password_from_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    (file,) = re.findall(r"```properties\n# client\.properties\n(.*?)```", page, re.DOTALL)
    (shell,) = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    *exports, command = shell.splitlines()
    for export in exports:
        name, _, value = export.removeprefix("export ").partition("=")
        monkeypatch.setenv(name, value)
    security = ClusterSecurity(
        listeners=("SASL_SSL",), mechanisms=("SCRAM-SHA-512",), users={"alice": "alice-secret"}
    )
    with FakeKafka(security=security) as fake:
        settings = fake.client_settings("SASL_SSL", mechanism="SCRAM-SHA-512")
        with Admin(settings) as admin:
            admin.create_topics([NewTopic("of-the-page")])
        for word, other in {
            "kafka.example.com:9093": str(settings["bootstrap_servers"]),
            "authority.pem": str(settings["ssl_truststore_location"]),
        }.items():
            assert word in file
            file = file.replace(word, other)
        (tmp_path / "client.properties").write_text(file)
        monkeypatch.chdir(tmp_path)
        program, *words = command.split()
        assert program == "pykclient"
        assert main(words) == 0
    assert "of-the-page" in capsys.readouterr().out
