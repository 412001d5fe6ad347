"""A secured cluster, reached by librdkafka and Python's own TLS: its clients are not yet tested."""

from __future__ import annotations

import socket
import ssl
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.integration.confluent_tools import confluent_settings
from tests.integration.conftest import SECURITY
from tests.soak import OWN_BROKERS
from tests.testing.test_processes import await_true

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from pykclient.testing import KafkaCluster

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
    """What librdkafka first reports of a listener that does not let it in."""
    errors: list[KafkaError] = []
    found: dict[str, Any] = {**confluent_settings(settings), "error_cb": errors.append}
    admin = AdminClient({**found, "log_level": 0})
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
