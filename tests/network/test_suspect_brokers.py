"""Brokers that stay connected but do not respond, and requests that are moved to other brokers."""

from __future__ import annotations

import logging
from itertools import pairwise

import pytest

from pykclient.errors import DisconnectedError
from pykclient.network.broker.client import SUSPECT_INTERVAL_MS_MAX
from pykclient.network.broker.connection import SUSPECT_MS
from pykclient.network.broker.nodes import STAGGER_MS
from pykclient.network.cluster.node import CoordinatorNode
from pykclient.network.log import REPEAT_MS
from pykclient.network.manager import SILENT_MS
from pykclient.protocol.messages.fetch import FetchRequest
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.protocol.messages.join_group import JoinGroupRequest
from pykclient.protocol.messages.metadata import MetadataResponse
from tests.network.scripted_network import BROKERS, ScriptedNetwork


@pytest.fixture
def updates_ms(network: ScriptedNetwork, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Provide the times at which a metadata update was requested."""
    times_ms: list[int] = []
    monkeypatch.setattr(network.metadata, "request_update", lambda: times_ms.append(network.now_ms))
    return times_ms


def test_a_request_for_any_node_moves_to_another_one(network: ScriptedNetwork) -> None:
    suspect = network.make_ready(1)
    movable = network.write(is_movable=True)
    assert suspect.requests
    network.turn(SUSPECT_MS - 1)
    assert len(network.port.peers) == 1
    network.turn(1)
    other = network.peer
    assert other is not suspect
    network.shake_hands()
    assert len(other.requests) == 1
    network.turn(1)
    assert network.client.last_error(1) is None
    network.respond(suspect, MetadataResponse(controller_id=1))
    assert not movable.is_done()
    network.respond(other, MetadataResponse(controller_id=2))
    assert isinstance(movable.response, MetadataResponse)
    assert movable.response.controller_id == 2


def test_with_no_other_node_the_response_may_come_late(network: ScriptedNetwork) -> None:
    network.update_brokers(BROKERS[0])
    suspect = network.make_ready(1)
    movable = network.write(is_movable=True)
    for _ in range(10):
        network.turn(SUSPECT_MS)
    assert len(suspect.requests) == 1
    network.respond(suspect)
    assert movable.response is not None


def test_a_request_for_one_broker_moves_to_no_other(network: ScriptedNetwork) -> None:
    suspect, other = network.make_ready(1), network.make_ready(2)
    network.write(1)
    network.turn(SUSPECT_MS)
    assert suspect.requests
    assert not other.requests


def test_a_coordinator_that_is_suspect_makes_its_broker_the_last_choice(
    network: ScriptedNetwork,
) -> None:
    hung = CoordinatorNode.of(BROKERS[0])
    network.metadata.learn_coordinator(hung)
    first, _, other = network.make_ready(1), network.make_ready(hung.id), network.make_ready(2)
    network.write(hung.id)
    network.turn(SUSPECT_MS)
    for _ in range(4):
        network.write()
    assert not first.requests
    assert len(other.requests) == 4


def test_a_suspect_node_gets_the_request_when_the_only_other_one_keeps_us_waiting(
    network: ScriptedNetwork,
) -> None:
    network.update_brokers(*BROKERS[:2])
    hung = CoordinatorNode.of(BROKERS[0])
    network.metadata.learn_coordinator(hung)
    first, _ = network.make_ready(1), network.make_ready(hung.id)
    network.write(hung.id)
    network.turn(SUSPECT_MS)
    network.send()
    assert network.turn() == network.now_ms + STAGGER_MS
    other = network.peer
    assert (other.host, other.is_accepted) == (BROKERS[1].host, False)
    network.turn(STAGGER_MS - 1)
    assert not first.requests
    network.turn(1)
    assert len(first.requests) == 1


@pytest.mark.parametrize("held_ms", [0, 10_000])
def test_the_leader_instead_of_a_suspect_broker_is_looked_up_now_and_then(
    network: ScriptedNetwork, updates_ms: list[int], held_ms: int
) -> None:
    network.make_ready(1)
    network.write(1, timeout_ms=600_000, held_ms=held_ms)
    started_ms = network.now_ms + held_ms
    assert network.turn() == started_ms + SUSPECT_MS
    while network.now_ms < started_ms + 200_000:
        network.turn(100)
    assert updates_ms[0] == started_ms + SUSPECT_MS
    delays_ms = [later - sooner for sooner, later in pairwise(updates_ms)]
    # At the same rate while it may be replaced; then less often, at random times per client.
    assert all(0.8 * SUSPECT_MS <= delay_ms <= 1.2 * SUSPECT_MS + 100 for delay_ms in delays_ms[:5])
    assert all(delay_ms >= 0.8 * SUSPECT_INTERVAL_MS_MAX for delay_ms in delays_ms[9:])
    assert len(set(delays_ms)) > 3


def test_a_broker_that_is_slow_each_time_is_checked_less_and_less(
    network: ScriptedNetwork, updates_ms: list[int]
) -> None:
    peer = network.make_ready(1)
    for _ in range(100):
        network.send(1, timeout_ms=60_000)
        network.turn(SUSPECT_MS + 500)
        network.turn()
        peer.serve()
        network.turn()
    assert len(updates_ms) < 20


def test_a_suspect_broker_that_is_no_member_of_the_cluster_is_given_up(
    network: ScriptedNetwork,
) -> None:
    suspect = network.make_ready(1)
    owed = network.write(1)
    network.update_brokers(*BROKERS[1:])
    network.turn(SUSPECT_MS - 1)
    assert not owed.is_done()
    network.turn(1)
    assert isinstance(owed.error, DisconnectedError)
    assert "continues without it" in str(owed.error)
    assert suspect.is_closed()


def silences(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines about brokers that do not respond."""
    texts = (each.getMessage() for each in caplog.records if each.levelno == logging.WARNING)
    return [text for text in texts if "no response for" in text]


def test_a_coordinator_that_does_not_respond_is_logged_and_named_in_errors(
    network: ScriptedNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: name the coordinator, the request and the time, now and then, not in each turn."""
    hung = CoordinatorNode.of(BROKERS[0])
    network.metadata.learn_coordinator(hung)
    peer = network.make_ready(hung.id)
    network.write(hung.id, message=HeartbeatRequest(), timeout_ms=600_000)
    network.turn(SILENT_MS - 1)
    assert not silences(caplog)
    assert network.client.describe_failures() == ""
    network.turn(1)
    text = f"{hung} has not responded to HEARTBEAT yet"
    assert silences(caplog) == [
        f"[test] no response for {SILENT_MS} ms: {text}; it is overloaded, hangs or cannot be "
        f"reached, and the client keeps trying"
    ]
    assert network.client.describe_failures() == text
    assert network.client.silence(hung.id) == text
    for _ in range(REPEAT_MS // 1_000 - 1):
        network.turn(1_000)
    assert len(silences(caplog)) == 1
    network.turn(1_000)
    assert f"no response for {SILENT_MS + REPEAT_MS} ms" in silences(caplog)[1]
    network.respond(peer, HeartbeatResponse())
    assert network.client.describe_failures() == ""
    assert network.client.silence(hung.id) == ""


def test_a_coordinator_that_accepts_a_connection_and_sends_nothing_is_logged(
    network: ScriptedNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    hung = CoordinatorNode.of(BROKERS[0])
    network.metadata.learn_coordinator(hung)
    network.write(hung.id, message=HeartbeatRequest(), timeout_ms=600_000)
    network.peer.accept()
    network.turn()
    network.turn(SILENT_MS)
    [line] = silences(caplog)
    text = f"{hung} accepted the connection but has not responded to the Kafka handshake yet"
    assert text in line
    assert text in network.client.describe_failures()


def test_a_leader_that_holds_a_fetch_is_silent_only_afterwards(
    network: ScriptedNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    network.make_ready(1)
    network.write(1, message=FetchRequest(), held_ms=10_000, timeout_ms=600_000)
    network.turn(10_000 + SILENT_MS - 1)
    assert not silences(caplog)
    assert network.client.describe_failures() == "", "it is to hold it"
    network.turn(1)
    assert f"{BROKERS[0]} has not responded to FETCH yet" in silences(caplog)[0]
    assert "has not responded to FETCH yet" in network.client.describe_failures()


def test_parts_of_a_long_response_are_no_silence(
    network: ScriptedNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    peer = network.make_ready(1)
    network.write(1, timeout_ms=600_000)
    for part in (b"\0\0", b"\0\x10", b"\0"):
        peer.feed(part)
        network.turn(SILENT_MS - 1_000)
    assert not silences(caplog)
    network.turn(SILENT_MS)
    assert len(silences(caplog)) == 1


def test_a_request_that_waits_for_others_has_its_own_time(
    network: ScriptedNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    network.make_ready(1)
    network.write(1, message=JoinGroupRequest(), timeout_ms=600_000, silent_ms=60_000)
    network.turn(59_999)
    assert not silences(caplog)
    network.turn(1)
    assert "has not responded to JOIN_GROUP yet" in silences(caplog)[0]
