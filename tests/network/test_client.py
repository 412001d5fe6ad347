"""The client writes only what and when it may, and calls back once for every request."""

from __future__ import annotations

import pytest

from pykclient.errors import (
    ConnectionFailedError,
    DisconnectedError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from pykclient.network.manager import NEVER_MS
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.protocol.messages.produce import ProduceRequest
from tests.network.scripted_network import BROKERS, ScriptedNetwork

# Steps of a request.


def test_a_request_to_a_node_connects_shakes_hands_and_has_its_response(
    network: ScriptedNetwork,
) -> None:
    completion = network.write(2)
    assert (network.peer.host, network.peer.port) == BROKERS[1].address
    network.shake_hands()
    network.turn()
    network.peer.respond(MetadataResponse(cluster_id="c"))
    network.turn(5)
    assert isinstance(completion.response, MetadataResponse)
    assert completion.response.cluster_id == "c"
    assert completion.done_ms == network.now_ms


def test_requests_to_one_node_are_written_in_order(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    messages = [MetadataRequest(include_topic_authorized_operations=n % 2 == 0) for n in range(4)]
    for message in messages:
        network.write(1, message=message)
    assert [received.message for received in peer.requests] == messages


def test_a_request_to_an_unknown_node_fails_with_the_reason(network: ScriptedNetwork) -> None:
    completion = network.send(77)
    assert not completion.is_done()
    network.turn()
    assert isinstance(completion.error, ConnectionFailedError)
    assert completion.error.retriable
    assert "broker 77 is not in the metadata" in str(completion.error)


def test_a_version_that_the_broker_lacks_fails_the_request_alone(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    bad = network.send(1, max_version=-1)
    good = network.write(1)
    assert isinstance(bad.error, UnsupportedVersionError)
    network.respond(peer)
    assert good.response is not None


def test_a_cap_on_the_version_holds(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    network.write(1, max_version=10)
    assert peer.requests[0].header.api_version == 10


# acks=0.


def test_a_request_without_a_response_is_done_without_any_event(network: ScriptedNetwork) -> None:
    network.make_ready(1)
    completion = network.send(1, message=ProduceRequest(acks=0), expects_response=False)
    deadline_ms = network.client.prepare(network.now_ms)
    assert deadline_ms == network.now_ms, "nothing would ever end a wait"
    network.client.complete(network.now_ms)
    assert completion.is_done()
    assert completion.response is None
    assert completion.error is None


def test_a_request_without_a_response_is_done_once_the_system_took_it(
    network: ScriptedNetwork,
) -> None:
    peer = network.make_ready(1)
    peer.takes_bytes = False
    completion = network.write(1, expects_response=False)
    assert not completion.is_done()
    peer.unsent_bytes = 0
    network.turn()
    assert completion.is_done()
    assert completion.error is None


def test_a_request_without_a_response_fails_with_its_stream(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    peer.takes_bytes = False
    completion = network.write(1, expects_response=False)
    peer.hang_up()
    network.turn()
    assert isinstance(completion.error, DisconnectedError)


# Ready nodes.


def test_readiness_follows_the_connection(network: ScriptedNetwork) -> None:
    client = network.client
    assert not client.is_ready(1, network.now_ms)
    client.connect(1, network.now_ms)
    assert not client.is_ready(1, network.now_ms)
    peer = network.peer
    peer.accept()
    network.turn()
    assert not client.is_ready(1, network.now_ms)
    peer.respond_versions()
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
    network = ScriptedNetwork(*BROKERS, in_flight_max=2)
    peer = network.make_ready(1)
    completions = [network.send(1) for _ in range(3)]
    network.turn()
    assert len(peer.requests) == 2
    assert network.client.in_flight_count(1) == network.client.in_flight_count() == 3
    assert network.client.next_ready_ms(1, network.now_ms) == NEVER_MS
    network.respond(peer)
    network.turn()
    assert len(peer.requests) == 2
    assert [completion.is_done() for completion in completions] == [True, False, False]


def test_connecting_twice_opens_once_and_an_unknown_node_waits_for_metadata(
    network: ScriptedNetwork,
) -> None:
    network.client.connect(77, network.now_ms)
    assert network.client.next_ready_ms(77, network.now_ms) == NEVER_MS
    network.client.connect(1, network.now_ms)
    network.client.connect(1, network.now_ms)
    network.make_ready(2)
    network.client.connect(2, network.now_ms)
    assert len(network.port.peers) == 2


# Throttling (KIP-219).


def test_a_throttled_node_gets_nothing_until_its_time_is_over(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    network.write(1)
    network.respond(peer, MetadataResponse(throttle_time_ms=700))
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
    network.write(1)
    network.respond(peer, MetadataResponse(throttle_time_ms=2**31 - 1))
    completion = network.send(1, timeout_ms=400)
    assert network.turn() == network.now_ms + 400
    network.turn(400)
    assert isinstance(completion.error, KafkaTimeoutError)
    assert str(completion.error) == (
        "broker 1 did not accept the METADATA request within 400 ms: the connection is busy or "
        "throttled"
    )


# Closing.


@pytest.mark.promise("closing leaves no connection, thread or descriptor open")
def test_closing_closes_every_connection_and_calls_nothing_back(network: ScriptedNetwork) -> None:
    peers = [network.make_ready(1), network.make_ready(2)]
    completion = network.write(1)
    network.client.close()
    assert all(peer.is_closed() for peer in peers)
    network.client.complete(network.now_ms)
    assert not completion.is_done()
    network.client.close()
