"""NetworkMetrics: requests, bytes and connections, of a client and of each broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.errors import DisconnectedError, TlsError
from pykclient.metrics import MetricName
from pykclient.network.cluster.node import coordinator_id
from pykclient.network.metrics import NetworkMetrics
from pykclient.protocol.messages.metadata import MetadataResponse
from tests.metrics_table import documented

if TYPE_CHECKING:
    from tests.network.scripted_network import ScriptedNetwork

ALL = "admin-client-metrics"
NODE = "admin-client-node-metrics"


def of(network: ScriptedNetwork, name: str, node: str | None = None) -> float | None:
    metrics = network.client.metrics(network.now_ms)
    if node is None:
        return metrics.get(MetricName(name, ALL))
    return metrics.get(MetricName(name, NODE, (("node-id", node),)))


@pytest.mark.promise("metrics, including lag by partition, match `docs/metrics.md`")
def test_requests_and_responses_are_counted_in_all_and_by_broker(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    other = network.make_ready(2)
    assert other is not peer
    handshakes = of(network, "request-total", "node-1")
    assert handshakes == of(network, "response-total", "node-1") == 1
    assert of(network, "request-latency-avg") is None
    network.write(1)
    assert of(network, "requests-in-flight") == 1
    peer.respond(MetadataResponse(cluster_id="c"))
    network.turn(7)
    assert of(network, "requests-in-flight") == 0
    assert of(network, "request-total", "node-1") == of(network, "response-total", "node-1") == 2
    assert of(network, "request-total", "node-2") == 1
    assert of(network, "request-total") == 3
    assert of(network, "request-latency-max") == of(network, "request-latency-max", "node-1") == 7
    assert of(network, "request-latency-max", "node-2") is None
    sent, received = (of(network, f"{way}-byte-total") for way in ("outgoing", "incoming"))
    assert sent is not None
    assert received is not None
    assert sent == sum(of(network, "outgoing-byte-total", f"node-{n}") or 0 for n in (1, 2))
    assert sent > 3 * 15
    assert received > 3 * 10
    metrics = network.client.metrics(network.now_ms)
    assert {(metric.group, metric.name) for metric in metrics} == documented("admin-client")


def test_connections_are_counted_as_they_come_and_end(network: ScriptedNetwork) -> None:
    network.make_ready(1)
    peer = network.make_ready(2)
    assert of(network, "connection-count") == of(network, "connection-creation-total") == 2
    peer.end(DisconnectedError("gone"))
    network.turn()
    assert of(network, "connection-count") == of(network, "connection-close-total") == 1
    assert of(network, "connection-creation-total") == 2
    assert of(network, "failed-authentication-total") == 0


def test_an_attempt_that_no_broker_accepts_is_no_connection(network: ScriptedNetwork) -> None:
    network.send(1)
    network.turn()
    network.peer.end(TlsError("no certificate"))
    network.turn()
    assert of(network, "connection-creation-total") == of(network, "connection-close-total") == 0
    assert of(network, "failed-authentication-total") == 1


def test_the_connection_to_a_coordinator_has_a_name_of_its_own() -> None:
    metrics = NetworkMetrics("consumer")
    metrics.traffic(coordinator_id(3)).sent_bytes.add(50, 0)
    metrics.traffic(-1).sent_bytes.add(70, 0)
    reported = metrics.snapshot(0, connection_count=2, in_flight_count=0)
    group, name = "consumer-node-metrics", "outgoing-byte-total"
    assert reported[MetricName(name, group, (("node-id", "coordinator-3"),))] == 50
    assert reported[MetricName(name, group, (("node-id", "node--1"),))] == 70
