"""Brokers that keep their connections and answer nothing: what others are asked instead."""

from __future__ import annotations

import pytest

from pykclient.errors import DisconnectedError
from pykclient.network.any_node import STAGGER_MS
from pykclient.network.connection import SILENT_MS
from pykclient.network.coordinator_node import CoordinatorNode
from pykclient.protocol.messages.metadata import MetadataResponse
from tests.network.scripted_network import BROKERS, ScriptedNetwork


@pytest.fixture
def network() -> ScriptedNetwork:
    """Three brokers, connected to the first."""
    network = ScriptedNetwork()
    network.know(*BROKERS)
    network.metadata.set_topics(["t"])
    return network


def test_a_question_for_anybody_is_asked_of_another_one(network: ScriptedNetwork) -> None:
    silent = network.make_ready(1)
    asked = network.send(is_movable=True)
    network.turn()
    assert silent.requests
    network.turn(SILENT_MS - 1)
    assert len(network.port.peers) == 1
    network.turn(1)
    other = network.peer
    assert other is not silent
    other.accept()
    network.turn()
    other.answer_versions()
    network.turn()
    assert len(other.requests) == 1
    silent.answer(MetadataResponse(cluster_id="late"))
    network.turn()
    assert not asked.is_done()
    other.answer(MetadataResponse(cluster_id="in time"))
    network.turn()
    assert isinstance(asked.response, MetadataResponse)
    assert asked.response.cluster_id == "in time"


def test_with_nobody_else_there_the_answer_may_come_late(network: ScriptedNetwork) -> None:
    network.know(BROKERS[0])
    silent = network.make_ready(1)
    asked = network.send(is_movable=True)
    network.turn()
    for _ in range(10):
        network.turn(SILENT_MS)
    assert len(silent.requests) == 1
    silent.answer(MetadataResponse())
    network.turn()
    assert asked.response is not None


def test_what_a_broker_does_is_asked_of_nobody_else(network: ScriptedNetwork) -> None:
    silent, other = network.make_ready(1), network.make_ready(2)
    network.send(1)
    network.turn()
    network.turn(SILENT_MS)
    assert silent.requests
    assert not other.requests


def test_a_coordinator_that_is_silent_makes_its_broker_the_last_choice(
    network: ScriptedNetwork,
) -> None:
    hung = CoordinatorNode.of(BROKERS[0])
    network.metadata.learn_coordinator(hung)
    first, _, other = network.make_ready(1), network.make_ready(hung.id), network.make_ready(2)
    network.send(hung.id)
    network.turn()
    network.turn(SILENT_MS)
    for _ in range(4):
        network.send()
    network.turn()
    assert not first.requests
    assert len(other.requests) == 4


def test_a_silent_node_is_asked_when_the_only_other_one_keeps_us_waiting(
    network: ScriptedNetwork,
) -> None:
    network.know(*BROKERS[:2])
    hung = CoordinatorNode.of(BROKERS[0])
    network.metadata.learn_coordinator(hung)
    first, _ = network.make_ready(1), network.make_ready(hung.id)
    network.send(hung.id)
    network.turn()
    network.turn(SILENT_MS)
    network.send()
    assert network.turn() == network.now_ms + STAGGER_MS
    other = network.peer
    assert (other.host, other.is_accepted) == (BROKERS[1].host, False)
    network.turn(STAGGER_MS - 1)
    assert not first.requests
    network.turn(1)
    assert len(first.requests) == 1


def test_who_leads_instead_of_a_silent_broker_is_asked_now_and_then(
    network: ScriptedNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    wishes_ms: list[int] = []
    monkeypatch.setattr(
        network.metadata, "request_update", lambda: wishes_ms.append(network.now_ms)
    )
    network.make_ready(1)
    network.send(1, timeout_ms=60_000)
    network.turn()
    assert network.turn() == network.now_ms + SILENT_MS
    started_ms = network.now_ms
    for _ in range(10):
        network.turn(SILENT_MS // 2)
    assert wishes_ms == [started_ms + SILENT_MS * count for count in range(1, 6)]


def test_a_broker_that_holds_an_answer_back_as_told_is_not_silent(
    network: ScriptedNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    wishes_ms: list[int] = []
    monkeypatch.setattr(
        network.metadata, "request_update", lambda: wishes_ms.append(network.now_ms)
    )
    network.make_ready(1)
    network.send(1, timeout_ms=60_000, held_ms=10_000)
    network.turn()
    started_ms = network.now_ms
    network.turn(10_000 + SILENT_MS - 1)
    assert not wishes_ms
    network.turn(1)
    assert wishes_ms == [started_ms + 10_000 + SILENT_MS]


def test_a_silent_broker_that_is_no_member_of_the_cluster_is_given_up(
    network: ScriptedNetwork,
) -> None:
    silent = network.make_ready(1)
    owed = network.send(1)
    network.turn()
    network.know(*BROKERS[1:])
    network.turn(SILENT_MS - 1)
    assert not owed.is_done()
    network.turn(1)
    assert isinstance(owed.error, DisconnectedError)
    assert "gone on without it" in str(owed.error)
    assert silent.is_closed()
