"""Which node serves a request for any node, and how brokers that move or idle are handled."""

from __future__ import annotations

import logging

import pytest

from pykclient.errors import DisconnectedError, KafkaTimeoutError, UnsupportedVersionError
from pykclient.network.broker.connection import SUSPECT_MS
from pykclient.network.broker.nodes import STAGGER_MS
from pykclient.network.manager import NEVER_MS
from pykclient.protocol.messages.metadata import MetadataResponse
from pykclient.types import Node
from tests.network.scripted_network import BOOTSTRAP, BROKERS, ScriptedNetwork

TOO_OLD = {3: (0, 1)}


# Any node.


def test_any_node_means_the_least_loaded(network: ScriptedNetwork) -> None:
    peers = [network.make_ready(node.id) for node in BROKERS]
    network.send(1)
    network.write(2)
    assert network.client.least_loaded_node(network.now_ms) == BROKERS[2]
    for _ in range(7):
        network.send()
    network.turn()
    assert [len(peer.requests) for peer in peers] == [3, 3, 3]


def test_a_request_for_any_node_waits_for_none_that_is_queued_for_a_node() -> None:
    # A consumer that reads from the only broker sends it a Fetch request in each step.
    network = ScriptedNetwork(BROKERS[0])
    peer = network.make_ready(BROKERS[0].id)
    network.send(BROKERS[0].id)
    network.send()
    network.client.prepare(network.now_ms)
    assert len(peer.requests) == 2


def test_a_node_that_owes_a_response_for_long_comes_after_all_others(
    network: ScriptedNetwork,
) -> None:
    hung, busy = network.make_ready(1), network.make_ready(2)
    network.send(1)
    network.turn(SUSPECT_MS)
    for _ in range(3):
        network.write(2)
    network.write()
    assert (len(hung.requests), len(busy.requests)) == (1, 4)
    network.respond(hung)
    network.write()
    assert (len(hung.requests), len(busy.requests)) == (1, 4)


def test_another_node_is_connected_to_before_a_hung_one_gets_the_request(
    network: ScriptedNetwork,
) -> None:
    hung = network.make_ready(1)
    network.send(1)
    network.turn(SUSPECT_MS)
    network.write()
    assert len(hung.requests) == 1
    other = network.peer
    assert other is not hung
    network.shake_hands()
    assert len(other.requests) == 1
    assert len(hung.requests) == 1


def test_a_hung_node_gets_the_request_when_there_is_no_other() -> None:
    network = ScriptedNetwork(BROKERS[0])
    hung = network.make_ready(1)
    network.send(1)
    network.turn(SUSPECT_MS)
    network.write()
    assert len(hung.requests) == 2


def test_time_without_a_driver_makes_no_node_hung(network: ScriptedNetwork) -> None:
    away, busy = network.make_ready(1), network.make_ready(2)
    for node_id in (1, 2, 2):
        network.write(node_id)
    network.now_ms += 60_000
    network.write()
    assert (len(away.requests), len(busy.requests)) == (2, 2)


@pytest.mark.promise("any bootstrap address may be down")
def test_bootstrap_addresses_are_tried_beside_each_other_while_one_keeps_us_waiting() -> None:
    network = ScriptedNetwork(bootstrap=BOOTSTRAP)
    completion = network.send()
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
    assert completion.response is not None


@pytest.mark.promise("any bootstrap address may be down")
def test_a_refused_bootstrap_address_gives_way_to_the_next_at_once() -> None:
    network = ScriptedNetwork(bootstrap=BOOTSTRAP)
    network.send()
    for count in range(1, 4):
        network.turn()
        assert len(network.port.peers) == count
        network.refuse()
    assert {peer.host for peer in network.port.peers} == {node.host for node in BOOTSTRAP}


def test_known_brokers_serve_any_node_and_bootstrap_addresses_do_not(
    network: ScriptedNetwork,
) -> None:
    network.send()
    for _ in range(4):
        network.turn(STAGGER_MS)
    assert {peer.host for peer in network.port.peers} == {node.host for node in BROKERS}


def test_when_every_known_broker_is_gone_the_bootstrap_addresses_are_tried_again(
    network: ScriptedNetwork,
) -> None:
    network.send()
    for _ in BROKERS:
        network.turn()
        network.refuse()
    network.turn()
    assert {peer.host for peer in network.port.peers[:3]} == {node.host for node in BROKERS}
    assert network.port.peers[3].host == BOOTSTRAP[0].host


def test_known_brokers_come_before_bootstrap_addresses_each_time(network: ScriptedNetwork) -> None:
    network.send()
    while len(network.port.peers) < len(BROKERS) + 1:
        network.turn()
        network.refuse()
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
    network = ScriptedNetwork(*BROKERS, falls_back_to_bootstrap=False)
    network.send()
    for _ in range(100):
        network.turn(50)
        network.peer.refuse()
    assert {peer.host for peer in network.port.peers} == {node.host for node in BROKERS}


def test_one_old_broker_does_not_end_it_while_another_may_do() -> None:
    network = ScriptedNetwork(bootstrap=BOOTSTRAP[:2])
    completion = network.write()
    network.shake_hands(TOO_OLD)
    assert not completion.is_done()
    network.turn()
    network.serve()
    assert completion.response is not None


def test_what_every_address_fails_with_is_fatal_at_once_and_attempts_go_on() -> None:
    network = ScriptedNetwork(bootstrap=BOOTSTRAP[:2])
    completion = network.write()
    network.shake_hands(TOO_OLD)
    assert network.metadata.fatal_error is None
    network.turn()
    network.shake_hands(TOO_OLD)
    assert "is older than Kafka 2.1" in str(network.metadata.fatal_error)
    assert not completion.is_done()
    network.turn(1_000)
    network.serve()
    assert completion.response is not None


@pytest.mark.parametrize("old_comes_first", [True, False])
def test_what_one_address_fails_with_while_another_is_away_is_fatal_when_the_time_is_up(
    old_comes_first: bool,
) -> None:
    network = ScriptedNetwork(bootstrap=BOOTSTRAP[:2], request_timeout_ms=5_000)
    completion = network.send()
    for is_old in (old_comes_first, not old_comes_first):
        network.turn()
        if is_old:
            network.shake_hands(TOO_OLD)
        else:
            network.refuse()
    assert network.metadata.fatal_error is None
    network.turn(5_000)
    network.turn()
    assert "is older than Kafka 2.1" in str(network.metadata.fatal_error)
    assert "is older than Kafka 2.1" in str(completion.error)
    assert isinstance(completion.error, KafkaTimeoutError)


def test_what_failed_before_a_good_response_does_not_count() -> None:
    network = ScriptedNetwork(bootstrap=BOOTSTRAP[:2])
    network.random.choice = lambda nodes: nodes[0]  # type: ignore[method-assign, assignment]
    served = network.write()
    network.shake_hands(TOO_OLD)  # a controller's address, say
    network.turn()
    network.serve()
    assert served.response is not None
    serving = network.peer
    serving.hang_up()
    network.turn(1_000)
    network.write()
    assert network.peer.host != serving.host
    network.shake_hands(TOO_OLD)
    assert network.metadata.fatal_error is None, "the other one may still serve"


def test_an_old_broker_fails_what_is_meant_for_it_which_may_be_tried_again(
    network: ScriptedNetwork,
) -> None:
    completion = network.write(1)
    network.shake_hands(TOO_OLD)
    assert isinstance(completion.error, DisconnectedError)
    assert isinstance(completion.error.__cause__, UnsupportedVersionError)


# Brokers that move, and idle connections.


MOVED = Node(1, "elsewhere", 9093)


def test_a_broker_that_moved_is_left_once_its_responses_are_in(network: ScriptedNetwork) -> None:
    old = network.make_ready(1)
    before = network.write(1)
    network.update_brokers(MOVED)
    network.turn()
    after = network.write(1)
    assert not network.client.is_ready(1, network.now_ms)
    assert not old.is_closed()
    network.respond(old)
    assert before.response is not None
    network.turn()
    assert old.is_closed()
    network.turn()
    assert (network.peer.host, network.peer.port) == MOVED.address
    assert not after.is_done()


def test_closing_a_drained_connection_leads_to_another_step_now(network: ScriptedNetwork) -> None:
    # A manager that found the node busy waits for I/O; closing is not I/O.
    old = network.make_ready(1)
    network.write(1)
    network.update_brokers(MOVED)
    network.turn()
    assert network.client.next_ready_ms(1, network.now_ms) == NEVER_MS
    old.respond(MetadataResponse())
    network.port.wait(0)
    network.client.complete(network.now_ms)
    assert network.client.prepare(network.now_ms) == network.now_ms
    assert old.is_closed()
    assert network.client.next_ready_ms(1, network.now_ms) == network.now_ms


@pytest.mark.parametrize("is_accepted", [False, True])
def test_an_attempt_at_an_old_address_is_dropped_for_the_new_one_in_another_step_now(
    network: ScriptedNetwork, is_accepted: bool
) -> None:
    completion = network.write(1)
    old = network.peer
    if is_accepted:
        old.accept()
        network.turn()
    network.update_brokers(MOVED)
    assert network.client.prepare(network.now_ms) == network.now_ms
    assert old.is_closed()
    network.turn()
    assert network.peer.host == MOVED.host
    assert not completion.is_done()


def test_an_old_address_that_is_suspect_is_left_at_once(network: ScriptedNetwork) -> None:
    old = network.make_ready(1)
    owed = network.write(1)
    network.update_brokers(MOVED)
    assert network.turn() == network.now_ms + SUSPECT_MS
    waiting = network.send(1)
    network.turn(SUSPECT_MS - 1)
    assert not owed.is_done()
    network.turn(1)
    assert isinstance(owed.error, DisconnectedError)
    assert "has another address now" in str(owed.error)
    assert old.is_closed()
    network.turn(1_000)
    assert network.peer.host == MOVED.host
    assert not waiting.is_done(), "it waits for the new address"


def test_a_move_is_logged_once(network: ScriptedNetwork, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    network.make_ready(1)
    network.write(1)
    other = network.make_ready(2)
    for _ in range(3):
        network.update_brokers(MOVED, *BROKERS[1:])
        network.turn()
    assert sum("has moved to" in message for message in caplog.messages) == 1
    assert not other.is_closed(), "it has not moved"


def test_a_broker_that_moved_while_it_was_down_is_tried_at_once(network: ScriptedNetwork) -> None:
    network.client.connect(1, network.now_ms)
    network.refuse()
    assert network.client.is_unavailable(1, network.now_ms)
    network.update_brokers(MOVED)
    network.write(1)
    assert network.peer.host == MOVED.host


def test_an_idle_connection_is_closed_and_opened_again_when_wanted() -> None:
    network = ScriptedNetwork(*BROKERS, idle_max_ms=60_000)
    peer = network.make_ready(1)
    assert network.turn() == network.now_ms + 60_000
    network.turn(59_999)
    assert not peer.is_closed()
    network.turn(1)
    assert peer.is_closed()
    network.write(1)
    assert len(network.port.peers) == 2


def test_a_connection_with_a_request_in_flight_or_waiting_does_not_idle() -> None:
    network = ScriptedNetwork(*BROKERS, idle_max_ms=1_000)
    peer = network.make_ready(1)
    network.write(1)
    network.turn(20_000)
    network.respond(peer, MetadataResponse(throttle_time_ms=5_000))
    completion = network.send(1)
    network.turn(4_999)
    assert not peer.is_closed()
    network.turn(1)
    network.serve()
    assert completion.response is not None


def test_connections_may_be_kept_for_ever() -> None:
    network = ScriptedNetwork(*BROKERS, idle_max_ms=-1)
    network.make_ready(1)
    assert network.turn() == NEVER_MS


def test_no_idle_time_at_all_still_lets_requests_through() -> None:
    network = ScriptedNetwork(*BROKERS, idle_max_ms=0)
    for node_id in (None, 1, 1):
        completion = network.send(node_id)
        network.turn(1_000)
        network.serve()
        assert completion.response is not None
        assert all(peer.is_closed() for peer in network.port.peers)
