"""Brokers that have TLS change its keys in the middle of the work, as Java does for much data.

Goal: what passes a connection is what was sent, across changes of the keys in both directions.
Method: a broker whose JVM changes keys after each 64 KiB, and after 128 GiB otherwise
(``jdk.tls.keyLimits``); it requires as much of the client each time. OpenSSL reports both.

Source: RFC 8446, section 4.6.3.
"""

from __future__ import annotations

import random
import ssl
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Consumer, Producer, TopicPartition
from pykclient.testing import ClusterSecurity
from tests.soak import OWN_BROKERS

if TYPE_CHECKING:
    from pathlib import Path

    from pykclient.testing.fixtures import KafkaClusterFactory

pytestmark = [pytest.mark.kafka, OWN_BROKERS]

TIMEOUT_S = 60.0
KEY_LIMITS = "AES/GCM/NoPadding KeyUpdate 2^16, ChaCha20-Poly1305 KeyUpdate 2^16"
VALUES = [random.Random(number).randbytes(100_000) for number in range(20)]


def noting(context: ssl.SSLContext, seen: Counter[str]) -> ssl.SSLContext:
    """Count the changes of keys: "read" are those of the broker, "write" the client's."""

    def note(
        _connection: object, direction: str, _version: object, _kind: object, message: Any, _: bytes
    ) -> None:
        if getattr(message, "name", "") == "KEY_UPDATE":
            seen[direction] += 1

    context._msg_callback = note  # type: ignore[attr-defined]
    return context


@pytest.mark.soak
def test_data_go_on_through_changes_of_keys_in_both_directions(
    kafka_cluster_factory: KafkaClusterFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = tmp_path / "security.properties"
    properties.write_text(f"jdk.tls.keyLimits={KEY_LIMITS}\n")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.properties={properties}")
    with kafka_cluster_factory(security=ClusterSecurity(listeners=("SSL",))) as cluster:
        given = cluster.client_settings()
        seen: Counter[str] = Counter()
        context = ssl.create_default_context(cafile=given["ssl_truststore_location"])
        settings: dict[str, Any] = {
            "bootstrap_servers": given["bootstrap_servers"],
            "security_protocol": "SSL",
            "ssl_context": noting(context, seen),
        }
        with Producer(settings, linger_ms=0) as producer:
            deliveries = [producer.send("t", value, partition=0) for value in VALUES]
            offsets = [delivery.result(timeout=TIMEOUT_S).offset for delivery in deliveries]
        assert offsets == [*range(len(VALUES))]
        of_producing = seen.copy()
        with Consumer(settings, fetch_max_bytes=200_000) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek_to_beginning()
            read: list[object] = []
            while len(read) < len(VALUES):
                read += [record.value for record in consumer.poll(TIMEOUT_S)]
        assert read == VALUES
        of_consuming = seen - of_producing
    for found in (of_producing, of_consuming):
        assert found["read"] >= 10
        assert found["write"] >= 10
