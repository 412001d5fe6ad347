"""A client stays with one cluster: it verifies connections and drops other clusters' responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.errors import ClusterMismatchError, DisconnectedError, RebootstrapRequiredError
from pykclient.network.cluster.node import CoordinatorNode
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.init_producer_id import InitProducerIdRequest
from pykclient.protocol.messages.metadata import MetadataResponse
from tests.network.scripted_network import BROKERS, ScriptedNetwork

if TYPE_CHECKING:
    from tests.network.scripted_port import ScriptedPeer

OWN = MetadataResponse(cluster_id="own")
OTHER = MetadataResponse(cluster_id="other")
NONE = MetadataResponse(cluster_id=None)


def apis(peer: ScriptedPeer) -> list[ApiKey]:
    return [ApiKey(request.header.api_key) for request in peer.requests]


@pytest.fixture
def network() -> ScriptedNetwork:
    """Provide a client of brokers before Kafka 4.4, which do not compare ids with the request's."""
    return ScriptedNetwork(*BROKERS, is_before_4_4=True)


@pytest.fixture
def bound_newest() -> ScriptedNetwork:
    """Provide a client of Kafka 4.4 brokers that has reached its cluster through broker 1."""
    network = ScriptedNetwork(*BROKERS)
    peer = network.make_ready(1)
    network.write(1)
    network.respond(peer, OWN)
    return network


@pytest.fixture
def bound(network: ScriptedNetwork) -> ScriptedNetwork:
    """Provide a client that has reached its cluster through broker 1."""
    peer = network.make_ready(1)
    network.write(1)
    network.respond(peer, OWN)
    assert network.metadata.cluster_id == "own"
    return network


@pytest.mark.promise("nothing is sent to another cluster that took over a broker's address")
@pytest.mark.parametrize("node_id", [2, CoordinatorNode.of(BROKERS[1]).id])
def test_a_broker_of_kafka_4_4_compares_itself_with_the_one_that_is_meant(
    bound_newest: ScriptedNetwork, node_id: int
) -> None:
    """Goal: no extra round trip, and the broker's own id on its coordinator connection."""
    network = bound_newest
    network.metadata.learn_coordinator(CoordinatorNode.of(BROKERS[1]))
    network.write(node_id, message=InitProducerIdRequest())
    peer = network.peer
    peer.accept()
    network.turn()
    (received,) = peer.requests
    assert isinstance(received.message, ApiVersionsRequest)
    assert (received.message.cluster_id, received.message.node_id) == ("own", 2)
    peer.respond_versions()
    network.turn()
    assert apis(peer) == [ApiKey.INIT_PRODUCER_ID]


def test_a_bootstrap_server_is_verified_by_metadata(bound_newest: ScriptedNetwork) -> None:
    """Goal: verify it by metadata, since its broker id is unknown and cannot be compared."""
    bound_newest.client.connect(-1, bound_newest.now_ms)
    peer = bound_newest.peer
    peer.accept()
    bound_newest.turn()
    (received,) = peer.requests
    assert isinstance(received.message, ApiVersionsRequest)
    assert received.message.cluster_id is None
    peer.respond_versions()
    bound_newest.turn()
    assert apis(peer) == [ApiKey.METADATA]


@pytest.mark.promise("nothing is sent to another cluster that took over a broker's address")
def test_a_misrouted_connection_carries_nothing(bound_newest: ScriptedNetwork) -> None:
    """Goal: ask the verified brokers for the address, then the bootstrap servers."""
    network = bound_newest
    held = network.write(2, message=InitProducerIdRequest())
    peer = network.peer
    peer.accept()
    network.turn()
    peer.respond_versions({}, error_code=RebootstrapRequiredError.code)
    network.turn()
    assert peer.is_closed()
    assert isinstance(held.error, DisconnectedError)
    assert isinstance(held.error.__cause__, ClusterMismatchError)
    assert "nothing is sent to it" in str(held.error)
    assert held.error.__cause__.expected_cluster_id == "own"
    assert network.metadata.poll(network.now_ms + 10_000).requests
    assert network.client.is_ready(1, network.now_ms)


def test_a_broker_that_is_another_one_later_ends_the_connection(
    bound_newest: ScriptedNetwork,
) -> None:
    """Goal: a request for versions on an open connection, as by a group that chooses."""
    network = bound_newest
    asked = network.write(1, message=ApiVersionsRequest())
    (peer,) = network.port.peers
    peer.respond(ApiVersionsResponse(error_code=RebootstrapRequiredError.code))
    network.turn()
    assert peer.is_closed()
    assert asked.response is None
    assert isinstance(asked.error, DisconnectedError)
    assert isinstance(asked.error.__cause__, ClusterMismatchError)
    assert isinstance(network.client.last_error(1), ClusterMismatchError)


def lone_before_4_4() -> ScriptedNetwork:
    """Return a client that has reached its cluster, which has one broker and no other address."""
    network = ScriptedNetwork(BROKERS[0], falls_back_to_bootstrap=False, is_before_4_4=True)
    peer = network.make_ready(1)
    network.write(1)
    network.respond(peer, OWN)
    return network


def lead_astray(network: ScriptedNetwork, peer: ScriptedPeer) -> None:
    """Refuse the next connection as another cluster, while a request for any node waits."""
    if not peer.is_closed():
        peer.end(DisconnectedError("gone"))
    network.turn()
    network.send()
    network.turn(2_000)
    network.shake_hands()
    network.respond(network.peer, OTHER)


def test_each_call_raises_a_new_error_while_it_is_true() -> None:
    """Goal: no error has the tracebacks of two calls, and none outlives its cause."""
    network = lone_before_4_4()
    (peer,) = network.port.peers
    raised = []
    for _ in range(2):
        lead_astray(network, peer)
        error = network.metadata.take_fatal_error()
        assert isinstance(error, ClusterMismatchError)
        assert (error.expected_cluster_id, error.found_cluster_id) == ("own", "other")
        raised.append(error)
    assert raised[0] is not raised[1]
    assert str(raised[0]) == str(raised[1])
    lead_astray(network, peer)
    count = network.metadata.fatal_count - 1
    first, second = network.metadata.fatal_since(count), network.metadata.fatal_since(count)
    assert first is not second
    network.turn(2_000)
    back = network.shake_hands()
    network.respond(back, OWN)
    assert network.metadata.fatal_error is None, "its own cluster is back"
    assert network.metadata.fatal_since(count) is None


def test_the_error_of_a_misrouted_connection_has_the_cure_for_a_broker_that_is_the_right_one(
    bound_newest: ScriptedNetwork,
) -> None:
    bound_newest.write(2, message=InitProducerIdRequest())
    bound_newest.peer.accept()
    bound_newest.turn()
    bound_newest.peer.respond_versions({}, error_code=RebootstrapRequiredError.code)
    bound_newest.turn()
    text = str(bound_newest.client.last_error(2))
    assert "says that it is not broker 2 of cluster 'own'" in text
    assert "If it is that broker all the same" in text
    assert "set metadata_cluster_check_enable to False" in text


def test_bootstrap_servers_are_asked_where_every_broker_is_misrouted() -> None:
    network = ScriptedNetwork(BROKERS[0])
    peer = network.make_ready(1)
    network.write(1)
    network.respond(peer, OWN)
    peer.end(DisconnectedError("gone"))
    network.turn()
    for _ in range(3):
        network.turn(2_000)
        held = network.write(1)
        network.peer.accept()
        network.turn()
        network.peer.respond_versions({}, error_code=RebootstrapRequiredError.code)
        network.turn()
        assert isinstance(held.error, DisconnectedError)
        assert any(node.id < 0 for node in network.client._selection.candidates())


def test_without_the_check_a_client_follows_its_addresses() -> None:
    network = ScriptedNetwork(*BROKERS, security={"metadata_cluster_check_enable": False})
    peer = network.make_ready(1)
    network.write(1)
    network.respond(peer, OWN)
    request = network.write(2)
    other = network.shake_hands()
    network.respond(other, OTHER)
    assert isinstance(request.response, MetadataResponse)
    assert not other.is_closed()


def test_the_first_connection_needs_no_round_trip_more(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    assert network.client.is_ready(1, network.now_ms)
    assert not peer.requests


@pytest.mark.promise("nothing is sent to another cluster that took over a broker's address")
@pytest.mark.parametrize("node_id", [2, CoordinatorNode.of(BROKERS[1]).id])
def test_a_new_connection_carries_nothing_before_its_cluster_is_known(
    bound: ScriptedNetwork, node_id: int
) -> None:
    """Goal: one extra round trip, which sends only Metadata without topics."""
    bound.metadata.learn_coordinator(CoordinatorNode.of(BROKERS[1]))
    held = bound.write(node_id, message=InitProducerIdRequest())
    peer = bound.shake_hands()
    assert apis(peer) == [ApiKey.METADATA]
    assert not bound.client.is_ready(node_id, bound.now_ms)
    bound.respond(peer, OWN)
    assert apis(peer) == [ApiKey.INIT_PRODUCER_ID]
    assert not held.is_done()


def test_a_connection_to_another_cluster_ends_with_what_waits_for_it(
    bound: ScriptedNetwork,
) -> None:
    held = bound.write(2, message=InitProducerIdRequest())
    peer = bound.shake_hands()
    bound.respond(peer, OTHER)
    assert peer.is_closed()
    assert isinstance(held.error, DisconnectedError)
    assert isinstance(held.error.__cause__, ClusterMismatchError)
    error = bound.client.last_error(2)
    assert isinstance(error, ClusterMismatchError)
    assert (error.expected_cluster_id, error.found_cluster_id) == ("own", "other")
    assert "make a new client" in str(error)
    assert bound.metadata.cluster_id == "own"


def test_a_response_that_names_another_cluster_is_dropped_whole(bound: ScriptedNetwork) -> None:
    """Also on a connection that was verified, and with everything received after it."""
    first, second = bound.write(1), bound.write(1)
    (peer,) = bound.port.peers
    peer.respond(OTHER)
    peer.respond(OWN)
    bound.turn()
    assert peer.is_closed()
    for lost in (first, second):
        assert lost.response is None
        assert isinstance(lost.error, DisconnectedError)


def test_brokers_that_name_no_cluster_are_not_compared(bound: ScriptedNetwork) -> None:
    bound.write(2, message=InitProducerIdRequest())
    peer = bound.shake_hands()
    bound.respond(peer, NONE)
    assert apis(peer) == [ApiKey.INIT_PRODUCER_ID]


def test_a_client_of_brokers_that_name_no_cluster_verifies_nothing(
    network: ScriptedNetwork,
) -> None:
    peer = network.make_ready(1)
    network.write(1)
    network.respond(peer, NONE)
    network.make_ready(2)
    assert network.client.is_ready(2, network.now_ms)


def test_what_was_connected_before_the_cluster_was_known_connects_again(
    network: ScriptedNetwork,
) -> None:
    """Goal: if bootstrap servers belong to two clusters, nothing of the second one is used."""
    first, second = network.make_ready(1), network.make_ready(2)
    request = network.write(2, message=InitProducerIdRequest())
    network.write(1)
    network.respond(first, OWN)
    assert second.is_closed()
    assert isinstance(request.error, DisconnectedError)
    assert network.client.is_ready(1, network.now_ms)


def test_a_verification_without_a_response_ends_like_any_request(bound: ScriptedNetwork) -> None:
    bound.write(2, message=InitProducerIdRequest())
    peer = bound.shake_hands()
    bound.turn(30_000)
    bound.turn(1)
    assert peer.is_closed()


def test_a_client_that_was_interrupted_still_knows_its_cluster(bound: ScriptedNetwork) -> None:
    bound.client.restart()
    bound.metadata.restart(bound.now_ms)
    bound.write(2, message=InitProducerIdRequest())
    assert apis(bound.shake_hands()) == [ApiKey.METADATA]
