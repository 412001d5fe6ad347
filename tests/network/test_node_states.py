"""Who may be connected to, and when: back-off, at most five attempts a second, set-up time."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.errors import ConnectionFailedError
from pykclient.network.backoff import Backoff
from pykclient.network.node_states import CONNECT_INTERVAL_MIN_MS, NEXT, NodeState, NodeStates
from pykclient.types import Node

NODE = Node(1, "broker", 9092)
TWIN = Node(-1, "broker", 9092)
MOVED = Node(1, "elsewhere", 9092)
REFUSED = ConnectionFailedError("refused")
START_MS = 5_000_000


@pytest.fixture
def states() -> NodeStates:
    return NodeStates(
        reconnect_backoff=Backoff(50, 1_000, jitter=0),
        setup_backoff=Backoff(10_000, 30_000, jitter=0),
    )


def test_a_node_never_tried_may_be_tried_at_once(states: NodeStates) -> None:
    assert states.state(1) is NodeState.DISCONNECTED
    assert states.may_connect(NODE, START_MS)
    assert not states.is_unavailable(1, START_MS)
    assert states.last_error(1) is None


def test_one_attempt_at_a_time(states: NodeStates) -> None:
    states.on_connecting(NODE, START_MS)
    assert states.state(1) is NodeState.CONNECTING
    assert not states.may_connect(NODE, START_MS + 1_000_000)


def test_a_failure_makes_it_wait_and_tells_why(states: NodeStates) -> None:
    states.on_connecting(NODE, START_MS)
    states.on_lost(1, REFUSED, START_MS + 1_000)
    assert states.state(1) is NodeState.BACKING_OFF
    assert states.last_error(1) is REFUSED
    assert states.retry_ms(NODE) == START_MS + 1_050
    assert states.is_unavailable(1, START_MS + 1_049)
    assert not states.may_connect(NODE, START_MS + 1_049)
    assert states.may_connect(NODE, START_MS + 1_050)
    assert not states.is_unavailable(1, START_MS + 1_050)


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


def test_attempts_are_counted_so_that_each_address_of_a_host_comes_first_once(
    states: NodeStates,
) -> None:
    assert states.on_connecting(NODE, START_MS) == 0
    states.on_ready(1)
    states.on_lost(1, REFUSED, START_MS)
    assert states.on_connecting(NODE, START_MS + 10_000) == 1


def test_closing_it_ourselves_is_no_reason_to_back_off(states: NodeStates) -> None:
    states.on_connecting(NODE, START_MS)
    states.on_ready(1)
    states.on_closed(1)
    assert states.state(1) is NodeState.DISCONNECTED
    assert states.may_connect(NODE, START_MS + CONNECT_INTERVAL_MIN_MS)


@given(
    seed=st.integers(0, 2**32),
    lives_ms=st.lists(st.integers(0, 400), min_size=20, max_size=60),
    handshakes=st.lists(st.booleans(), min_size=20, max_size=60),
)
def test_an_address_is_tried_at_most_five_times_a_second_whatever_happens(
    seed: int, lives_ms: list[int], handshakes: list[bool]
) -> None:
    # Two nodes at one address, as a bootstrap address and its broker are; each attempt fails or
    # succeeds, and every connection ends soon.
    random = Random(seed)
    states = NodeStates(
        reconnect_backoff=Backoff(0, 0, random=random),
        setup_backoff=Backoff(10_000, 30_000, random=random),
    )
    now_ms = START_MS
    attempts_ms = []
    for life_ms, succeeds in zip(lives_ms, handshakes, strict=False):
        node = random.choice([NODE, TWIN])
        now_ms = max(now_ms, states.retry_ms(node))
        assert states.may_connect(node, now_ms)
        states.on_connecting(node, now_ms)
        attempts_ms.append(now_ms)
        now_ms += life_ms
        if succeeds:
            states.on_ready(node.id)
        states.on_lost(node.id, REFUSED, now_ms)
    assert all(later - earlier >= 200 for earlier, later in pairwise(attempts_ms))


def test_a_node_that_is_gone_is_forgotten(states: NodeStates) -> None:
    states.on_connecting(NODE, START_MS)
    states.on_lost(1, REFUSED, START_MS + 1_000)
    states.on_nodes_changed(lambda _: None)
    assert states.last_error(1) is None
    assert states.may_connect(NODE, START_MS + 1_000)


def test_a_node_that_has_moved_need_not_wait_out_its_old_address(states: NodeStates) -> None:
    states.on_connecting(NODE, START_MS)
    states.on_lost(1, REFUSED, START_MS)
    states.on_nodes_changed(lambda _: MOVED)
    assert states.may_connect(MOVED, START_MS)


def test_a_node_that_stays_is_remembered(states: NodeStates) -> None:
    states.on_connecting(NODE, START_MS)
    states.on_lost(1, REFUSED, START_MS)
    states.on_nodes_changed(lambda _: NODE)
    assert states.last_error(1) is REFUSED


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_node_with_a_connection_is_not_forgotten(states: NodeStates, is_ready: bool) -> None:
    states.on_connecting(NODE, START_MS)
    if is_ready:
        states.on_ready(1)
    states.on_nodes_changed(lambda _: None)
    states.on_lost(1, REFUSED, START_MS)
    assert states.state(1) is NodeState.BACKING_OFF


def test_every_state_can_be_left() -> None:
    assert set(NEXT) == set(NodeState)
    assert all(NEXT.values())
