"""Clients on secured listeners: settings of every make, and cures. Who is let in: the matrix."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin
from pykclient.errors import TlsError
from pykclient.testing.cluster.certificates import CertificateAuthority
from tests.integration.conftest import SECURITY
from tests.pages.programs import BLOCK, DOCS
from tests.soak import OWN_BROKERS

if TYPE_CHECKING:
    from pathlib import Path

    from pykclient.testing import KafkaCluster

pytestmark = [pytest.mark.kafka, OWN_BROKERS]


def test_a_client_is_the_same_for_java_librdkafka_and_kafka_python(
    secured_kafka_cluster: KafkaCluster,
) -> None:
    """Common settings for one listener."""
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
