"""Which node serves a request for any, and what becomes of brokers that move or idle."""

from __future__ import annotations

import pytest

from pykclient.errors import (
    UnsupportedVersionError,
)
from pykclient.network.any_node import STAGGER_MS
from pykclient.network.connection import SILENT_MS
from pykclient.network.manager import NEVER_MS
from pykclient.protocol.messages.metadata import MetadataResponse
from pykclient.types import Node
from tests.network.scripted_network import BOOTSTRAP, BROKERS, ScriptedNetwork

TOO_OLD = {3: (0, 1)}


@pytest.fixture
def network() -> ScriptedNetwork:
    """One bootstrap address, three brokers."""
    network = ScriptedNetwork()
    network.know(*BROKERS)
    return network


# Any node.


def test_any_node_means_the_least_loaded(network: ScriptedNetwork) -> None:
    peers = [network.make_ready(node.id) for node in BROKERS]
    network.send(1)
    network.send(2)
    network.turn()
    assert network.client.least_loaded_node(network.now_ms) == BROKERS[2]
    network.send()
    network.turn()
    assert [len(peer.requests) for peer in peers] == [1, 1, 1]


def test_requests_for_any_node_are_spread(network: ScriptedNetwork) -> None:
    peers = [network.make_ready(node.id) for node in BROKERS]
    for _ in range(9):
        network.send()
    network.turn()
    assert [len(peer.requests) for peer in peers] == [3, 3, 3]


def test_a_node_that_owes_an_answer_for_long_is_asked_after_all_others(
    network: ScriptedNetwork,
) -> None:
    hung, busy = network.make_ready(1), network.make_ready(2)
    network.send(1)
    network.turn(SILENT_MS)
    for _ in range(3):
        network.send(2)
    network.turn()
    network.send()
    network.turn()
    assert (len(hung.requests), len(busy.requests)) == (1, 4)
    hung.answer(MetadataResponse())
    network.turn()
    network.send()
    network.turn()
    assert (len(hung.requests), len(busy.requests)) == (1, 4)


def test_another_node_is_connected_to_before_a_hung_one_is_asked(
    network: ScriptedNetwork,
) -> None:
    hung = network.make_ready(1)
    network.send(1)
    network.turn(SILENT_MS)
    network.send()
    network.turn()
    assert len(hung.requests) == 1
    other = network.peer
    assert other is not hung
    other.accept()
    network.turn()
    other.answer_versions()
    network.turn()
    assert len(other.requests) == 1
    assert len(hung.requests) == 1


def test_a_hung_node_is_asked_when_there_is_no_other() -> None:
    network = ScriptedNetwork()
    network.know(BROKERS[0])
    hung = network.make_ready(1)
    network.send(1)
    network.turn(SILENT_MS)
    network.send()
    network.turn()
    assert len(hung.requests) == 2


def test_time_in_which_nobody_drove_makes_no_node_hung(network: ScriptedNetwork) -> None:
    away, busy = network.make_ready(1), network.make_ready(2)
    for node_id in (1, 2, 2):
        network.send(node_id)
    network.turn()
    network.now_ms += 60_000
    network.send()
    network.turn()
    assert (len(away.requests), len(busy.requests)) == (2, 2)


def test_bootstrap_addresses_are_tried_beside_each_other_while_one_keeps_us_waiting() -> None:
    network = ScriptedNetwork(bootstrap=BOOTSTRAP)
    outcome = network.send()
    assert network.turn() == network.now_ms + STAGGER_MS
    network.turn(STAGGER_MS - 1)
    assert len(network.port.peers) == 1
    network.turn(1)
    assert len(network.port.peers) == 2
    network.turn(STAGGER_MS)
    assert {peer.host for peer in network.port.peers} == {node.host for node in BOOTSTRAP}
    network.turn(10_000)
    assert len(network.port.peers) == 3
    network.serve()
    assert outcome.response is not None


def test_a_refused_bootstrap_address_gives_way_to_the_next_at_once() -> None:
    network = ScriptedNetwork(bootstrap=BOOTSTRAP)
    network.send()
    for count in range(1, 4):
        network.turn()
        assert len(network.port.peers) == count
        network.peer.refuse()
        network.turn()
    assert {peer.host for peer in network.port.peers} == {node.host for node in BOOTSTRAP}


def test_known_brokers_serve_any_node_and_bootstrap_addresses_do_not(
    network: ScriptedNetwork,
) -> None:
    network.send()
    network.turn(STAGGER_MS)
    network.turn(STAGGER_MS)
    network.turn(STAGGER_MS)
    network.turn(STAGGER_MS)
    assert {peer.host for peer in network.port.peers} == {node.host for node in BROKERS}


def test_when_every_known_broker_is_gone_the_bootstrap_addresses_are_tried_again(
    network: ScriptedNetwork,
) -> None:
    network.send()
    for _ in BROKERS:
        network.turn()
        network.peer.refuse()
        network.turn()
    network.turn()
    assert {peer.host for peer in network.port.peers[:3]} == {node.host for node in BROKERS}
    assert network.port.peers[3].host == BOOTSTRAP[0].host


def test_known_brokers_come_before_bootstrap_addresses_each_time(network: ScriptedNetwork) -> None:
    network.send()
    while len(network.port.peers) < len(BROKERS) + 1:
        network.turn()
        network.peer.refuse()
    network.turn()
    for peer in network.port.peers:
        peer.refuse()
    tried_count = len(network.port.peers)
    network.turn(5_000)
    for _ in BROKERS:
        network.turn()
        network.peer.refuse()
    again = network.port.peers[tried_count : tried_count + len(BROKERS)]
    assert {peer.host for peer in again} == {node.host for node in BROKERS}


def test_without_that_strategy_only_known_brokers_are_tried() -> None:
    network = ScriptedNetwork(falls_back_to_bootstrap=False)
    network.know(*BROKERS)
    network.send()
    for _ in range(100):
        network.turn(50)
        network.peer.refuse()
    assert {peer.host for peer in network.port.peers} == {node.host for node in BROKERS}


def test_one_old_broker_does_not_end_it_while_another_may_do() -> None:
    network = ScriptedNetwork(bootstrap=BOOTSTRAP[:2])
    outcome = network.send()
    network.turn()
    network.peer.accept()
    network.turn()
    network.peer.answer_versions(TOO_OLD)
    network.turn()
    assert not outcome.is_done()
    network.turn()
    network.serve()
    assert outcome.response is not None


@pytest.mark.parametrize("old_comes_first", [True, False])
def test_an_old_broker_and_no_other_to_try_is_told_at_once(old_comes_first: bool) -> None:
    network = ScriptedNetwork(bootstrap=BOOTSTRAP[:2])
    outcome = network.send()
    for is_old in (old_comes_first, not old_comes_first):
        network.turn()
        peer = network.peer
        if is_old:
            peer.accept()
            network.turn()
            peer.answer_versions(TOO_OLD)
        else:
            peer.refuse()
        network.turn()
    assert isinstance(outcome.error, UnsupportedVersionError)
    assert "is older than Kafka 2.1" in str(outcome.error)


def test_an_old_broker_fails_what_is_meant_for_it(network: ScriptedNetwork) -> None:
    outcome = network.send(1)
    network.turn()
    network.peer.accept()
    network.turn()
    network.peer.answer_versions(TOO_OLD)
    network.turn()
    assert isinstance(outcome.error, UnsupportedVersionError)


# Brokers that move, and connections that idle.


MOVED = Node(1, "elsewhere", 9093)


def test_a_broker_that_moved_is_left_once_its_answers_are_in(network: ScriptedNetwork) -> None:
    old = network.make_ready(1)
    before = network.send(1)
    network.turn()
    network.know(MOVED)
    network.turn()
    after = network.send(1)
    network.turn()
    assert not network.client.is_ready(1, network.now_ms)
    assert not old.is_closed()
    old.answer(MetadataResponse())
    network.turn()
    assert before.response is not None
    network.turn()
    assert old.is_closed()
    network.turn()
    assert (network.peer.host, network.peer.port) == MOVED.address
    assert not after.is_done()


@pytest.mark.parametrize("is_accepted", [False, True])
def test_an_attempt_at_an_old_address_is_dropped_for_the_new_one(
    network: ScriptedNetwork, is_accepted: bool
) -> None:
    outcome = network.send(1)
    network.turn()
    old = network.peer
    if is_accepted:
        old.accept()
        network.turn()
    network.know(MOVED)
    network.turn()
    assert old.is_closed()
    assert network.peer.host == MOVED.host
    assert not outcome.is_done()


def test_a_broker_that_moved_while_it_was_down_is_tried_at_once(network: ScriptedNetwork) -> None:
    network.client.connect(1, network.now_ms)
    network.peer.refuse()
    network.turn()
    assert network.client.is_unavailable(1, network.now_ms)
    network.know(MOVED)
    network.send(1)
    network.turn()
    assert network.peer.host == MOVED.host


def test_a_broker_that_stays_keeps_its_connection(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    network.know(*BROKERS, Node(4, "broker-4", 9092))
    network.turn()
    assert not peer.is_closed()
    assert network.client.is_ready(1, network.now_ms)


def test_an_idle_connection_is_closed_and_opened_again_when_wanted() -> None:
    network = ScriptedNetwork(idle_max_ms=60_000)
    network.know(*BROKERS)
    peer = network.make_ready(1)
    assert network.turn() == network.now_ms + 60_000
    network.turn(59_999)
    assert not peer.is_closed()
    network.turn(1)
    assert peer.is_closed()
    network.send(1)
    network.turn()
    assert len(network.port.peers) == 2


def test_a_connection_with_an_answer_due_does_not_idle() -> None:
    network = ScriptedNetwork(idle_max_ms=1_000)
    network.know(*BROKERS)
    peer = network.make_ready(1)
    network.send(1)
    network.turn(999)
    network.turn(20_000)
    assert not peer.is_closed()


def test_a_connection_with_a_request_waiting_does_not_idle() -> None:
    network = ScriptedNetwork(idle_max_ms=1_000)
    network.know(*BROKERS)
    peer = network.make_ready(1)
    network.send(1)
    network.turn()
    peer.answer(MetadataResponse(throttle_time_ms=5_000))
    network.turn()
    outcome = network.send(1)
    network.turn(4_999)
    assert not peer.is_closed()
    network.turn(1)
    network.serve()
    assert outcome.response is not None


def test_connections_may_be_kept_for_ever() -> None:
    network = ScriptedNetwork(idle_max_ms=-1)
    network.know(*BROKERS)
    peer = network.make_ready(1)
    assert network.turn() == NEVER_MS
    network.turn(10**9)
    assert not peer.is_closed()


def test_no_idle_time_at_all_still_lets_requests_through() -> None:
    network = ScriptedNetwork(idle_max_ms=0)
    network.know(*BROKERS)
    for node_id in (None, 1, 1):
        outcome = network.send(node_id)
        network.turn(1_000)
        network.serve()
        assert outcome.response is not None
        assert all(peer.is_closed() for peer in network.port.peers)
