"""The client writes what it may, when it may, and calls back for every request once."""

from __future__ import annotations

import pytest

from pykclient.errors import (
    ConnectionFailedError,
    DisconnectedError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from pykclient.network.broker.client import NetworkClient
from pykclient.network.cluster.metadata import Metadata
from pykclient.network.manager import NEVER_MS
from pykclient.producer.config import ProducerConfig
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.protocol.messages.produce import ProduceRequest
from tests.network.scripted_network import BROKERS, ScriptedNetwork
from tests.network.scripted_port import ScriptedPort

TOO_OLD = {3: (0, 1)}


@pytest.fixture
def network() -> ScriptedNetwork:
    """One bootstrap address, three brokers."""
    network = ScriptedNetwork()
    network.know(*BROKERS)
    return network


# The way of a request.


@pytest.mark.promise("`NetworkClient.send` only queues, and runs no callback")
def test_a_request_to_a_node_connects_shakes_hands_and_is_answered(
    network: ScriptedNetwork,
) -> None:
    outcome = network.send(2)
    network.turn()
    assert (network.peer.host, network.peer.port) == BROKERS[1].address
    network.peer.accept()
    network.turn()
    network.peer.answer_versions()
    network.turn()
    network.turn()
    network.peer.answer(MetadataResponse(cluster_id="c"))
    network.turn(5)
    assert isinstance(outcome.response, MetadataResponse)
    assert outcome.response.cluster_id == "c"
    assert outcome.done_ms == network.now_ms


@pytest.mark.promise("`NetworkClient.send` only queues, and runs no callback")
def test_send_calls_nobody_back(network: ScriptedNetwork) -> None:
    outcome = network.send(77)
    assert not outcome.is_done()
    network.turn()
    assert outcome.is_done()


def test_requests_to_one_node_are_written_in_order(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    messages = [MetadataRequest(include_topic_authorized_operations=n % 2 == 0) for n in range(4)]
    for message in messages:
        network.send(1, message=message)
    network.turn()
    assert [received.message for received in peer.requests] == messages


def test_a_request_to_an_unknown_node_fails_and_says_so(network: ScriptedNetwork) -> None:
    outcome = network.send(77)
    network.turn()
    assert isinstance(outcome.error, ConnectionFailedError)
    assert outcome.error.retriable
    assert "broker 77 is not in the metadata" in str(outcome.error)


def test_a_version_that_the_broker_lacks_fails_the_request_alone(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    bad = network.send(1, max_version=-1)
    good = network.send(1)
    network.turn()
    assert isinstance(bad.error, UnsupportedVersionError)
    peer.answer(MetadataResponse())
    network.turn()
    assert good.response is not None


def test_a_cap_on_the_version_holds(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    network.send(1, max_version=10)
    network.turn()
    assert peer.requests[0].header.api_version == 10


# acks=0.


def test_a_request_without_an_answer_is_done_without_any_event(network: ScriptedNetwork) -> None:
    network.make_ready(1)
    outcome = network.send(1, message=ProduceRequest(acks=0), expects_response=False)
    deadline_ms = network.client.prepare(network.now_ms)
    assert deadline_ms == network.now_ms, "nothing would ever end a wait"
    network.client.complete(network.now_ms)
    assert outcome.is_done()
    assert outcome.response is None
    assert outcome.error is None


def test_a_request_without_an_answer_is_done_once_the_system_took_it(
    network: ScriptedNetwork,
) -> None:
    peer = network.make_ready(1)
    peer.takes_bytes = False
    outcome = network.send(1, expects_response=False)
    network.turn()
    assert not outcome.is_done()
    peer.unsent_bytes = 0
    network.turn()
    assert outcome.is_done()
    assert outcome.error is None


def test_a_request_without_an_answer_fails_with_its_stream(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    peer.takes_bytes = False
    outcome = network.send(1, expects_response=False)
    network.turn()
    peer.hang_up()
    network.turn()
    assert isinstance(outcome.error, DisconnectedError)


# Being ready.


def test_readiness_follows_the_connection(network: ScriptedNetwork) -> None:
    client = network.client
    assert not client.is_ready(1, network.now_ms)
    client.connect(1, network.now_ms)
    assert not client.is_ready(1, network.now_ms)
    peer = network.peer
    peer.accept()
    network.turn()
    assert not client.is_ready(1, network.now_ms)
    peer.answer_versions()
    network.turn()
    assert client.is_ready(1, network.now_ms)
    peer.hang_up()
    network.turn()
    assert not client.is_ready(1, network.now_ms)
    assert client.is_unavailable(1, network.now_ms)


def test_a_queued_request_makes_a_node_busy_for_others(network: ScriptedNetwork) -> None:
    network.make_ready(1)
    network.send(1)
    assert not network.client.is_ready(1, network.now_ms)


def test_the_in_flight_limit_holds_and_the_rest_waits() -> None:
    network = ScriptedNetwork(in_flight_max=2)
    network.know(*BROKERS)
    peer = network.make_ready(1)
    outcomes = [network.send(1) for _ in range(3)]
    network.turn()
    assert len(peer.requests) == 2
    assert network.client.in_flight_count(1) == network.client.in_flight_count() == 3
    assert network.client.next_ready_ms(1, network.now_ms) == NEVER_MS
    peer.answer(MetadataResponse())
    network.turn()
    network.turn()
    assert len(peer.requests) == 2
    assert [outcome.is_done() for outcome in outcomes] == [True, False, False]


def test_connecting_twice_opens_once(network: ScriptedNetwork) -> None:
    network.client.connect(1, network.now_ms)
    network.client.connect(1, network.now_ms)
    network.make_ready(2)
    network.client.connect(2, network.now_ms)
    assert len(network.port.peers) == 2


def test_connecting_to_an_unknown_node_does_nothing_and_metadata_will_tell(
    network: ScriptedNetwork,
) -> None:
    network.client.connect(77, network.now_ms)
    assert network.port.peers == []
    assert network.client.next_ready_ms(77, network.now_ms) == NEVER_MS


def test_the_versions_of_a_node_are_known_after_the_handshake(network: ScriptedNetwork) -> None:
    assert network.client.supported_versions(1, MetadataRequest) is None
    network.make_ready(1)
    assert network.client.supported_versions(1, MetadataRequest) == (
        MetadataRequest.min_version,
        MetadataRequest.max_version,
    )


# Throttling (KIP-219).


def test_a_throttled_node_gets_nothing_until_its_time_is_over(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    network.send(1)
    network.turn()
    peer.answer(MetadataResponse(throttle_time_ms=700))
    network.turn()
    until_ms = network.now_ms + 700
    network.send(1)
    assert network.turn() == until_ms
    assert peer.requests == type(peer.requests)()
    assert not network.client.is_ready(1, network.now_ms)
    assert network.client.next_ready_ms(1, network.now_ms) == until_ms
    network.turn(700)
    assert len(peer.requests) == 1


def test_throttling_without_end_does_not_hold_a_request_beyond_its_time(
    network: ScriptedNetwork,
) -> None:
    peer = network.make_ready(1)
    network.send(1)
    network.turn()
    peer.answer(MetadataResponse(throttle_time_ms=2**31 - 1))
    network.turn()
    outcome = network.send(1, timeout_ms=400)
    assert network.turn() == network.now_ms + 400
    network.turn(400)
    assert isinstance(outcome.error, KafkaTimeoutError)
    assert str(outcome.error) == (
        "broker 1 did not take the METADATA request within 400 ms: the connection is busy or "
        "throttled"
    )


# Its end, and how it is built.


@pytest.mark.promise("closing leaves no connection, thread or descriptor open")
def test_closing_closes_every_connection_and_calls_nobody_back(network: ScriptedNetwork) -> None:
    peers = [network.make_ready(1), network.make_ready(2)]
    outcome = network.send(1)
    network.turn()
    network.client.close()
    assert all(peer.is_closed() for peer in peers)
    network.client.complete(network.now_ms)
    assert not outcome.is_done()
    network.client.close()


def test_waking_goes_to_the_port(network: ScriptedNetwork) -> None:
    network.client.wakeup()
    assert network.port.wakeup_count == 1


@pytest.mark.promise("`NetworkClient.send` only queues, and runs no callback")
def test_poll_is_one_turn(network: ScriptedNetwork) -> None:
    times_ms = iter([network.now_ms, network.now_ms + 3])
    outcome = network.send(77)
    network.client.poll(500, lambda: next(times_ms))
    assert network.port.waits_ms == [0]
    assert outcome.done_ms == network.now_ms + 3


def test_poll_waits_no_longer_than_it_is_told(network: ScriptedNetwork) -> None:
    network.client.poll(500, lambda: network.now_ms)
    assert network.port.waits_ms == [500]


def test_the_configuration_is_followed() -> None:
    config = ProducerConfig.from_settings(
        bootstrap_servers="a:1",
        client_id="me",
        request_timeout_ms=1_234,
        connections_max_idle_ms=-1,
        socket_connection_setup_timeout_ms=5_000,
        socket_connection_setup_timeout_max_ms=5_000,
        delivery_timeout_ms=10_000,
    )
    port = ScriptedPort()
    metadata = Metadata.from_config(config, allow_auto_topic_creation=True)
    client = NetworkClient(config, port, metadata, max_in_flight_requests_per_connection=1)
    client.connect(-1, 0)
    assert 4_000 <= client.prepare(0) <= 5_000
    port.peers[0].accept()
    port.wait(0)
    client.complete(0)
    assert port.peers[0].requests[0].header.client_id == "me"
    assert client.prepare(0) == 1_234
