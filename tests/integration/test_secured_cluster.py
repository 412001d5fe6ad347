"""A secured cluster, reached by librdkafka and Python's own TLS: its clients are not yet tested."""

from __future__ import annotations

import socket
import ssl
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from pykclient.errors.base import UsageError
from pykclient.protocol.message import M, decode_response, encode_request
from pykclient.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pykclient.testing import Acl, ClusterSecurity
from pykclient.testing.cluster.certificates import HOSTNAMES
from pykclient.testing.cluster.jars import KAFKA_VERSIONS
from tests.integration.confluent_tools import confluent_settings
from tests.integration.conftest import FORBIDDEN, REAUTH_MS, SECURITY, SECURITY_CONFIG
from tests.integration.identity_server import Signer
from tests.integration.java_tools import Record, java_produce
from tests.soak import OWN_BROKERS
from tests.testing.test_processes import await_true

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from confluent_kafka import KafkaError

    from pykclient.protocol.message import Request
    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

pytestmark = [pytest.mark.kafka, OWN_BROKERS]


TIMEOUT_S = 30.0
POLL_S = 0.1
SASL_LISTENERS = ("SASL_SSL", "SASL_PLAINTEXT")
PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def write_and_read(settings: dict[str, str]) -> None:
    """Send a record and read it again, each with a client of its own."""
    topic, found = f"secured-{uuid.uuid4().hex}", confluent_settings(settings)
    producer = Producer(found)
    producer.produce(topic, b"lamp", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**found, "group.id": topic})
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        (message,) = consumer.consume(1, TIMEOUT_S)
        assert (message.error(), message.value()) == (None, b"lamp")
    finally:
        consumer.close()


def refusal(settings: dict[str, str]) -> str:
    """Return librdkafka's first error for a listener that rejects it."""
    return refusal_of(confluent_settings(settings))


def refusal_of(settings: Mapping[str, object]) -> str:
    """Return the same settings as librdkafka names them."""
    errors: list[KafkaError] = []
    config: dict[str, Any] = {**settings, "error_cb": errors.append}
    admin = AdminClient({**config, "log_level": 0})
    admin.describe_cluster()

    def is_refused() -> bool:
        admin.poll(POLL_S)
        return bool(errors)

    await_true(is_refused, "librdkafka is refused")
    return errors[0].str()


@pytest.mark.parametrize("listener", ["SSL", "MTLS"])
def test_a_record_goes_over_tls(secured_kafka_cluster: KafkaCluster, listener: str) -> None:
    write_and_read(secured_kafka_cluster.client_settings(listener))


@pytest.mark.parametrize("mechanism", SECURITY.mechanisms)
@pytest.mark.parametrize("listener", SASL_LISTENERS)
def test_a_record_goes_over_sasl(
    secured_kafka_cluster: KafkaCluster, listener: str, mechanism: str
) -> None:
    # librdkafka has no way to write a principal with a space into an unsecured token.
    for user in SECURITY.users if mechanism != "OAUTHBEARER" else ["alice"]:
        settings = secured_kafka_cluster.client_settings(listener, mechanism=mechanism, user=user)
        write_and_read(settings)


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "mallory"])
def test_a_wrong_password_and_an_unknown_user_are_refused(
    secured_kafka_cluster: KafkaCluster, mechanism: str, user: str
) -> None:
    settings = secured_kafka_cluster.client_settings(
        "SASL_SSL", mechanism=mechanism, user=user, password="wrong"
    )
    assert "Authentication failed" in refusal(settings)


def test_javas_client_takes_the_same_settings_with_dots(
    each_secured_kafka_cluster: KafkaCluster,
) -> None:
    topic = f"java-{uuid.uuid4().hex}"
    ways_in = [("SSL", None), ("MTLS", None), *(("SASL_SSL", each) for each in SECURITY.mechanisms)]
    for listener, mechanism in ways_in:
        settings = each_secured_kafka_cluster.client_settings(
            listener, mechanism=mechanism, user=None if mechanism is None else "bob smith"
        )
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        java_produce(each_secured_kafka_cluster, topic, [Record(b"lamp")], settings=dotted)
    (offset,) = end_offsets(each_secured_kafka_cluster.client_settings("SSL"), topic)
    assert offset == len(ways_in)


def end_offsets(settings: dict[str, str], topic: str) -> list[int]:
    """Return the end offset of a topic's only partition."""
    consumer = Consumer({**confluent_settings(settings), "group.id": topic})
    try:
        return [consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)[1]]
    finally:
        consumer.close()


def produce_error(settings: Mapping[str, object], topic: str) -> str | None:
    """Return the name of the error with which a record fails, None for one that arrives."""
    names: list[str | None] = []
    config: dict[str, Any] = {**settings, "log_level": 0}
    producer = Producer(config)
    producer.produce(
        topic,
        b"lamp",
        on_delivery=lambda error, _: names.append(None if error is None else error.name()),
    )
    producer.flush(TIMEOUT_S)
    (name,) = names
    return name


@pytest.mark.parametrize(
    ("listener", "mechanism"), [("MTLS", None), ("SASL_SSL", "PLAIN"), ("SASL_SSL", "OAUTHBEARER")]
)
def test_acls_hold_for_the_principals_of_certificates_users_and_tokens(
    secured_kafka_cluster: KafkaCluster, listener: str, mechanism: str | None
) -> None:
    settings = confluent_settings(
        secured_kafka_cluster.client_settings(listener, mechanism=mechanism, user="alice")
    )
    assert produce_error(settings, f"{FORBIDDEN}1") == "TOPIC_AUTHORIZATION_FAILED"
    topic = f"acls-{uuid.uuid4().hex}"
    assert produce_error(settings, topic) is None
    secured_kafka_cluster.create_acls(Acl("User:bob smith", "READ", topic=topic))
    assert produce_error(settings, topic) == "TOPIC_AUTHORIZATION_FAILED"
    secured_kafka_cluster.create_acls(Acl("User:alice", "ALL", topic=topic))
    assert produce_error(settings, topic) is None


def test_a_certificate_is_replaced_while_the_broker_runs(
    secured_kafka_cluster: KafkaCluster,
) -> None:
    authority = secured_kafka_cluster.certificates
    (server,) = secured_kafka_cluster.client_settings("RENEWED")["bootstrap_servers"].split(",")
    host, _, port = server.rpartition(":")
    presented = [ssl.get_server_certificate((host, int(port)))]
    now, day = datetime.now(UTC), timedelta(days=1)
    for end in (now - day, now + day):  # Of the same name, so in the same file.
        certificate = authority.issue(
            "renewed", hostnames=HOSTNAMES, not_before=now - 2 * day, not_after=end
        )
        secured_kafka_cluster.replace_certificate("RENEWED", certificate)
        presented.append(ssl.get_server_certificate((host, int(port))))
        assert presented[-1].encode() == certificate.chain_pem
    assert len(set(presented)) == 3


def test_sessions_have_a_lifetime_on_the_listener_that_is_set_up_so(
    secured_kafka_cluster: KafkaCluster,
) -> None:
    lifetimes = {}
    for listener in ("SASL_PLAINTEXT", "REAUTH"):
        server = secured_kafka_cluster.client_settings(listener)["bootstrap_servers"]
        host, _, port = server.rpartition(":")
        with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
            hello = SaslHandshakeRequest(mechanism="PLAIN")
            offered = send_request(connection, hello, SaslHandshakeResponse)
            assert set(offered.mechanisms) == set(SECURITY.mechanisms)
            login = SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret")
            response = send_request(connection, login, SaslAuthenticateResponse)
            assert response.error_code == 0
            lifetimes[listener] = response.session_lifetime_ms
    assert lifetimes == {"SASL_PLAINTEXT": 0, "REAUTH": REAUTH_MS}


def send_request(connection: socket.socket, request: Request, kind: type[M]) -> M:
    """Send a request of version 1 before others are allowed, and return the response."""
    connection.sendall(encode_request(request, 1, 0, "test"))
    with connection.makefile("rb") as stream:
        size_bytes = int.from_bytes(stream.read(4), "big")
        return decode_response(kind, 1, stream.read(size_bytes))


def test_what_the_cluster_has_not_is_refused(
    secured_kafka_cluster: KafkaCluster, kafka_cluster: KafkaCluster
) -> None:
    certificate = secured_kafka_cluster.certificates.issue("unused")
    with pytest.raises(UsageError, match="has protocol SASL_PLAINTEXT, without TLS"):
        secured_kafka_cluster.replace_certificate("SASL_PLAINTEXT", certificate)
    for use in (
        lambda: kafka_cluster.certificates,
        kafka_cluster.client_settings,
        lambda: kafka_cluster.create_acls(Acl("User:alice", "READ", topic="t")),
    ):
        with pytest.raises(UsageError, match="this cluster is not secured"):
            use()


def with_token(settings: Mapping[str, object], token: str) -> dict[str, object]:
    """Return settings with a token that librdkafka need not fetch again."""
    return {**settings, "oauth_cb": lambda _: (token, time.time() + 60)}


@pytest.mark.soak
@pytest.mark.parametrize("version", KAFKA_VERSIONS)
def test_signed_tokens_are_checked_and_proxies_stand_before_each_listener(
    kafka_cluster_factory: KafkaClusterFactory, tmp_path: Path, version: str
) -> None:
    signer, rogue = Signer(tmp_path / "jwks.json"), Signer(tmp_path / "rogue.json")
    security = ClusterSecurity(
        listeners=("SASL_PLAINTEXT", "SASL_SSL"),
        mechanisms=("OAUTHBEARER",),
        jwks_url=signer.url,
        acls=[Acl("User:carol", "ALL", topic="tokens")],
    )
    with kafka_cluster_factory(version=version, security=security, proxied=True) as cluster:
        for listener in security.listeners:
            settings = cluster.client_settings(listener)
            assert settings["bootstrap_servers"] == str(cluster.proxy(1, listener).address)
            found = confluent_settings(settings)
            assert found.pop("enable.sasl.oauthbearer.unsecure.jwt")
            carol = with_token(found, signer.token("carol"))
            assert produce_error(carol, "tokens") is None
            dave = with_token(found, signer.token("dave"))
            assert produce_error(dave, "tokens") == "TOPIC_AUTHORIZATION_FAILED"
            assert "invalid_token" in refusal_of(with_token(found, rogue.token("carol")))
            cluster.proxy(1, listener).refuse_connections()
            assert "Connection refused" in refusal_of(carol)


@pytest.mark.soak
def test_three_old_brokers_are_secured_alike(kafka_cluster_factory: KafkaClusterFactory) -> None:
    with kafka_cluster_factory(3, KAFKA_VERSIONS[-1], SECURITY_CONFIG, security=SECURITY) as three:
        for listener in ("SSL", "MTLS"):
            write_and_read(three.client_settings(listener))
        for mechanism in SECURITY.mechanisms:
            write_and_read(three.client_settings("SASL_SSL", mechanism=mechanism))
        settings = three.client_settings("SASL_SSL")
        assert len(settings["bootstrap_servers"].split(",")) == 3
        assert produce_error(confluent_settings(settings), f"{FORBIDDEN}1") == (
            "TOPIC_AUTHORIZATION_FAILED"
        )


def handshake(settings: dict[str, str], hostname: str, context: ssl.SSLContext) -> str | None:
    """Do a TLS handshake as a client that expects `hostname`; the version that was agreed on.

    With TLS 1.3 a broker refuses a client's certificate after the handshake, so it is read once.
    """
    host, _, port = settings["bootstrap_servers"].rpartition(":")
    with (
        socket.create_connection((host, int(port)), TIMEOUT_S) as connection,
        context.wrap_socket(connection, server_hostname=hostname) as secured,
    ):
        # A request of no length is none of Kafka's: the broker closes the connection for it.
        secured.sendall(bytes(4))
        secured.recv(1)
        return secured.version()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("hostname", ["localhost", "127.0.0.1", "::1"])
def test_the_brokers_certificate_is_good_for_this_machine(
    secured_kafka_cluster: KafkaCluster, hostname: str, version: ssl.TLSVersion
) -> None:
    settings = secured_kafka_cluster.client_settings("SSL")
    context = ssl.create_default_context(cafile=settings["ssl_truststore_location"])
    context.maximum_version = version
    assert handshake(settings, hostname, context) == version.name.replace("_", ".")


def test_the_brokers_certificate_is_no_other_hosts_and_no_other_authoritys(
    secured_kafka_cluster: KafkaCluster,
) -> None:
    settings = secured_kafka_cluster.client_settings("SSL")
    context = ssl.create_default_context(cafile=settings["ssl_truststore_location"])
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(settings, "kafka.example.com", context)
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        handshake(settings, "localhost", ssl.create_default_context())


def test_mutual_tls_takes_no_client_without_a_certificate(
    secured_kafka_cluster: KafkaCluster,
) -> None:
    settings = secured_kafka_cluster.client_settings("MTLS")
    context = ssl.create_default_context(cafile=settings["ssl_truststore_location"])
    with pytest.raises(ssl.SSLError, match=r"CERTIFICATE_REQUIRED|BAD_CERTIFICATE"):
        handshake(settings, "localhost", context)
    context.load_cert_chain(settings["ssl_keystore_location"])
    assert handshake(settings, "localhost", context) == "TLSv1.3"
