"""A client belongs to one cluster: connections are verified, another cluster's word is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.errors import ClusterMismatchError, DisconnectedError
from pykclient.network.cluster.node import CoordinatorNode
from pykclient.protocol.api_keys import ApiKey
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
    return ScriptedNetwork(*BROKERS)


@pytest.fixture
def bound(network: ScriptedNetwork) -> ScriptedNetwork:
    """A client that has reached its cluster by broker 1."""
    peer = network.make_ready(1)
    network.write(1)
    network.respond(peer, OWN)
    assert network.metadata.cluster_id == "own"
    return network


def test_the_first_connection_needs_no_round_trip_more(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    assert network.client.is_ready(1, network.now_ms)
    assert not peer.requests


@pytest.mark.promise("nothing is sent to another cluster at the address of a client's own")
@pytest.mark.parametrize("node_id", [2, CoordinatorNode.of(BROKERS[1]).id])
def test_a_new_connection_carries_nothing_before_its_cluster_is_known(
    bound: ScriptedNetwork, node_id: int
) -> None:
    """Goal: one round trip more, in which only Metadata without topics is sent."""
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
    """Also on a connection that was verified, and with all that comes behind it."""
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
    """Goal: a list of bootstrap servers of two clusters gives nothing of the second one."""
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
