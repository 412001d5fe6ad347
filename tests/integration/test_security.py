"""Clients on every secured listener of a real broker: who is let in, and who is not."""

from __future__ import annotations

import logging
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Admin, Consumer, NewTopic, Producer
from pykclient.errors import AuthenticationError, KafkaError, TlsError
from pykclient.testing.cluster.certificates import CertificateAuthority
from tests.integration.conftest import SECURITY
from tests.pages.programs import BLOCK, DOCS
from tests.soak import OWN_BROKERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pykclient.testing import KafkaCluster

pytestmark = [pytest.mark.kafka, OWN_BROKERS]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
REFUSED_WITHIN_S = 15.0
"""It takes a third of a second, and the call's own time is a minute. The rest is for a machine that
is busy: how long each takes stands in benchmarks/RESULTS.md."""
CANARY = "canary-5d1e"

WAYS = [
    ("SSL", None),
    ("MTLS", None),
    *[(way, mechanism) for way in ("SASL_SSL", "SASL_PLAINTEXT") for mechanism in MECHANISMS],
]


def write_and_read(settings: dict[str, Any]) -> None:
    """Make a topic, send to it, and read it as a group: each by a client of its own."""
    topic = f"secured-{uuid.uuid4().hex}"
    with Admin(settings) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    values = [b"%d" % number for number in range(100)]
    with Producer(settings, compression_type="lz4") as producer:
        deliveries = [producer.send(topic, value) for value in [*values, bytes(900_000)]]
        assert [delivery.result(timeout=30).offset for delivery in deliveries] == [*range(101)]
    with Consumer(settings, group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        read: list[Any] = []
        while len(read) < 101:
            read.extend(record.value for record in consumer.poll(timeout=30))
        assert read == [*values, bytes(900_000)]
        consumer.commit()


@pytest.mark.promise("producer, consumer and admin work over TLS and SASL")
@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_clients_work_on_each_listener(
    secured_kafka_cluster: KafkaCluster, listener: str, mechanism: str | None
) -> None:
    for user in SECURITY.users if mechanism else [None]:
        write_and_read(
            dict(secured_kafka_cluster.client_settings(listener, mechanism=mechanism, user=user))
        )


def call(settings: dict[str, Any], make: Callable[..., Any]) -> None:
    """Make a client, and one call that needs a broker."""
    with make(settings) as client:
        if isinstance(client, Producer):
            client.send("topic", b"")
        elif isinstance(client, Consumer):
            client.subscribe(["topic"])
            client.poll(timeout=60)
        else:
            client.list_topics()


def refusal(settings: dict[str, Any], make: Callable[..., Any]) -> KafkaError:
    """The error of a client's first call, which does not wait for the end of its time."""
    begun_s = time.monotonic()
    with pytest.raises(KafkaError) as caught:
        call(settings, make)
    assert time.monotonic() - begun_s < REFUSED_WITHIN_S
    assert CANARY not in str(caught.value)
    return caught.value


def of_group(settings: dict[str, Any]) -> Consumer[Any, Any]:
    return Consumer(settings, group_id="refused")


CLIENTS = [pytest.param(make, id=make.__name__) for make in (Producer, of_group, Admin)]


@pytest.mark.promise("a refused password is an AuthenticationError at once")
@pytest.mark.parametrize("make", CLIENTS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "mallory"])
def test_wrong_passwords_and_unknown_users_are_refused(
    secured_kafka_cluster: KafkaCluster,
    caplog: pytest.LogCaptureFixture,
    make: Callable[..., Any],
    mechanism: str,
    user: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = secured_kafka_cluster.client_settings(
        "SASL_SSL", mechanism=mechanism, user=user, password=CANARY
    )
    error = refusal(dict(settings), make)
    assert isinstance(error, AuthenticationError)
    assert f"authentication by {mechanism} failed: the broker refused the user {user!r}: " in str(
        error
    )
    assert CANARY not in caplog.text


def plain_of(settings: dict[str, str], **changes: object) -> dict[str, object]:
    return {"bootstrap_servers": settings["bootstrap_servers"], **changes}


@pytest.mark.promise("a TLS connection that is not to be trusted is a TlsError at once")
@pytest.mark.parametrize("make", CLIENTS)
def test_what_tls_refuses_is_an_error_with_the_cure(
    secured_kafka_cluster: KafkaCluster, tmp_path: Path, make: Callable[..., Any]
) -> None:
    tls = secured_kafka_cluster.client_settings("SSL")
    mutual = secured_kafka_cluster.client_settings("MTLS")
    stranger = CertificateAuthority(tmp_path)
    other = stranger.issue("alice").path
    without = {name: value for name, value in mutual.items() if "keystore" not in name}
    cases: list[tuple[dict[str, Any], str]] = [
        (plain_of(tls, security_protocol="SSL"), "give its authority in ssl_truststore_location"),
        (
            {**tls, "ssl_truststore_location": stranger.path},
            "give its authority in ssl_truststore_location",
        ),
        (without, "it wants a certificate of the client's"),
        ({**mutual, "ssl_keystore_location": other}, "refused the connection"),
        (plain_of(tls), "its listener is SSL or SASL_SSL; set security_protocol"),
    ]
    for settings, reason in cases:
        error = refusal(settings, make)
        assert isinstance(error, TlsError)
        assert reason in str(error)


@pytest.mark.parametrize("make", CLIENTS)
def test_a_mechanism_that_is_not_offered_and_a_listener_without_sasl_are_named(
    secured_kafka_cluster: KafkaCluster, kafka_cluster: KafkaCluster, make: Callable[..., Any]
) -> None:
    sasl = secured_kafka_cluster.client_settings("SASL_PLAINTEXT", mechanism="PLAIN")
    error = refusal({**sasl, "bootstrap_servers": kafka_cluster.bootstrap_servers}, make)
    assert isinstance(error, AuthenticationError)
    assert "the broker has no SASL on this listener; check security_protocol" in str(error)


def test_a_client_is_the_same_for_java_librdkafka_and_kafka_python(
    secured_kafka_cluster: KafkaCluster,
) -> None:
    """Settings as people have them, for one listener."""
    java = secured_kafka_cluster.client_settings("SASL_SSL", mechanism="SCRAM-SHA-512")
    where = {"bootstrap.servers": java["bootstrap_servers"]}
    authority, password = java["ssl_truststore_location"], SECURITY.users["alice"]
    for settings in (
        {name.replace("_", "."): value for name, value in java.items()},
        {
            **where,
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": authority,
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": password,
        },
        {
            "bootstrap_servers": java["bootstrap_servers"],
            "security_protocol": "SASL_SSL",
            "ssl_cafile": authority,
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "alice",
            "sasl_plain_password": password,
        },
    ):
        with Admin(settings) as admin:
            admin.list_topics()


def test_the_program_of_the_page_sends(secured_kafka_cluster: KafkaCluster) -> None:
    settings = secured_kafka_cluster.client_settings("SASL_SSL", mechanism="SCRAM-SHA-512")
    (program,) = BLOCK.findall((DOCS / "security.md").read_text())
    text = program[1]
    for word, other in {
        "kafka.example.com:9093": settings["bootstrap_servers"],
        "authority.pem": settings["ssl_truststore_location"],
        "greetings": f"secured-{uuid.uuid4().hex}",
    }.items():
        assert word in text
        text = text.replace(word, other)
    exec(compile(text, "docs/security.md", "exec"), {})


def test_a_client_goes_on_after_its_refusal_is_cured(
    secured_kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """A new certificate works without a new client."""
    settings = dict(secured_kafka_cluster.client_settings("MTLS"))
    good = settings["ssl_keystore_location"]
    place = tmp_path / "client.pem"
    stranger = CertificateAuthority(tmp_path)
    place.write_bytes(stranger.issue("alice").path.read_bytes())
    with Admin({**settings, "ssl_keystore_location": place}) as admin:
        with pytest.raises(TlsError):
            admin.list_topics()
        with open(good, "rb") as file:
            place.write_bytes(file.read())
        admin.list_topics()
