"""When a node may be connected to: back-off, at most five attempts a second, set-up time."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.admin.config import AdminConfig
from pykclient.errors import AuthenticationError, ConnectionFailedError
from pykclient.network.broker.nodes import (
    CONNECT_INTERVAL_MIN_MS,
    REFUSED_PAUSE_MS,
    NodeState,
    NodeStates,
)
from pykclient.types import Node
from tests.network.scripted_network import Steady

NODE = Node(1, "broker", 9092)
TWIN = Node(-1, "broker", 9092)
MOVED = Node(1, "elsewhere", 9092)
REFUSED = ConnectionFailedError("refused")
START_MS = 5_000_000


@pytest.fixture
def states() -> NodeStates:
    return NodeStates(AdminConfig.from_settings(bootstrap_servers="boot:9092"), Steady())


def test_a_failure_makes_it_wait_and_keeps_the_reason(states: NodeStates) -> None:
    states.on_connecting(NODE, START_MS)
    states.on_lost(1, REFUSED, START_MS + 1_000)
    assert states.state(1) is NodeState.BACKING_OFF
    assert states.last_error(1) is REFUSED
    assert states.retry_ms(NODE) == START_MS + 1_050
    assert states.is_unavailable(1, START_MS + 1_049)
    assert not states.may_connect(NODE, START_MS + 1_049)
    assert states.may_connect(NODE, START_MS + 1_050)
    assert not states.is_unavailable(1, START_MS + 1_050)


def test_a_node_that_refused_is_left_alone_for_a_second(states: NodeStates) -> None:
    """Goal: not to lock an account by many attempts with a wrong password."""
    states.on_connecting(NODE, START_MS)
    states.on_lost(1, AuthenticationError("wrong password"), START_MS)
    assert states.retry_ms(NODE) == START_MS + REFUSED_PAUSE_MS == START_MS + 1_000


def test_the_wait_grows_until_a_handshake_succeeds(states: NodeStates) -> None:
    waits_ms = []
    now_ms = START_MS
    for _ in range(7):
        states.on_connecting(NODE, now_ms)
        now_ms += 1_000  # longer than the least interval, so that the back-off alone shows
        states.on_lost(1, REFUSED, now_ms)
        waits_ms.append(states.retry_ms(NODE) - now_ms)
        now_ms += 10_000
    assert waits_ms == [50, 100, 200, 400, 800, 1_000, 1_000]
    states.on_connecting(NODE, now_ms)
    states.on_ready(1)
    assert states.last_error(1) is None
    states.on_lost(1, REFUSED, now_ms + 1_000)
    assert states.retry_ms(NODE) == now_ms + 1_050


def test_set_up_may_take_longer_after_each_failure(states: NodeStates) -> None:
    allowed_ms = []
    now_ms = START_MS
    for _ in range(4):
        states.on_connecting(NODE, now_ms)
        assert states.started_ms(1) == now_ms
        allowed_ms.append(states.setup_deadline_ms(1) - now_ms)
        states.on_lost(1, REFUSED, now_ms)
        now_ms += 10_000
    assert allowed_ms == [10_000, 20_000, 30_000, 30_000]


class Storm:
    """Two nodes at one address, like a bootstrap address and its broker, tried continuously."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        config = AdminConfig.from_settings(
            bootstrap_servers="boot:9092", reconnect_backoff_ms=0, reconnect_backoff_max_ms=0
        )
        self.states = NodeStates(config, self.random)
        self.attempts_ms: list[int] = []

    def act(self, node: Node, now_ms: int) -> None:
        state = self.states.state(node.id)
        if self.states.may_connect(node, now_ms):
            self.states.on_connecting(node, now_ms)
            self.attempts_ms.append(now_ms)
        elif state is NodeState.CONNECTING and self.random.random() < 0.3:
            self.states.on_ready(node.id)
        elif state in {NodeState.CONNECTING, NodeState.READY}:
            if self.random.random() < 0.8:
                self.states.on_lost(node.id, REFUSED, now_ms)
            else:
                self.states.on_closed(node.id)


@given(seed=st.integers(0, 2**32), pause_max_ms=st.sampled_from([0, 1, 20, 300, 2_000]))
def test_an_address_is_tried_at_most_five_times_a_second_whatever_happens(
    seed: int, pause_max_ms: int
) -> None:
    storm = Storm(seed)
    now_ms = START_MS
    for _ in range(300):
        storm.act(storm.random.choice([NODE, TWIN]), now_ms)
        now_ms += storm.random.randint(0, pause_max_ms) or storm.random.randint(0, 1)
    tried_ms = storm.attempts_ms
    assert len(tried_ms) >= 1
    assert max(sum(at <= other < at + 1_000 for other in tried_ms) for at in tried_ms) <= 5


def test_a_broker_is_not_made_to_wait_for_its_bootstrap_address(states: NodeStates) -> None:
    states.on_connecting(TWIN, START_MS)
    assert states.may_connect(NODE, START_MS)
    states.on_ready(TWIN.id)
    assert states.may_connect(NODE, START_MS + 1)


def test_nodes_at_one_address_take_turns_once_a_connection_ended(states: NodeStates) -> None:
    states.on_connecting(TWIN, START_MS)
    states.on_lost(TWIN.id, REFUSED, START_MS)
    assert not states.may_connect(NODE, START_MS + CONNECT_INTERVAL_MIN_MS - 1)
    assert states.may_connect(NODE, START_MS + CONNECT_INTERVAL_MIN_MS)
    states.on_connecting(NODE, START_MS + CONNECT_INTERVAL_MIN_MS)
    assert states.retry_ms(TWIN) == START_MS + 2 * CONNECT_INTERVAL_MIN_MS


def test_a_node_that_is_gone_is_forgotten(states: NodeStates) -> None:
    states.on_connecting(NODE, START_MS)
    states.on_lost(1, REFUSED, START_MS + 1_000)
    states.on_nodes_changed(lambda _: NODE)
    assert states.last_error(1) is REFUSED
    states.on_nodes_changed(lambda _: None)
    assert states.last_error(1) is None
    assert states.may_connect(NODE, START_MS + 1_000)


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_node_with_a_connection_is_not_forgotten(states: NodeStates, is_ready: bool) -> None:
    states.on_connecting(NODE, START_MS)
    if is_ready:
        states.on_ready(1)
    states.on_nodes_changed(lambda _: None)
    states.on_lost(1, REFUSED, START_MS)
    assert states.state(1) is NodeState.BACKING_OFF
