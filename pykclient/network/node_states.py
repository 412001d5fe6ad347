"""Reachability of each node: may we connect, and if not, when.

A failed attempt, and a connection that ends, put the node into back-off, which grows until a
handshake succeeds: a port that accepts and then hangs up must not be tried at full speed.

Owner: the driver of the engine.
Source: Java class ``ClusterConnectionStates``; KIP-144 (reconnect back-off), KIP-601 (set-up
time-out).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykclient.errors import KafkaError
    from pykclient.network.backoff import Backoff

__all__ = ["NodeState", "NodeStates"]


class NodeState(Enum):
    """What is known of the way to one node."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    READY = "ready"
    BACKING_OFF = "backing_off"


NEXT: dict[NodeState, frozenset[NodeState]] = {
    NodeState.DISCONNECTED: frozenset({NodeState.CONNECTING}),
    NodeState.CONNECTING: frozenset(
        {NodeState.READY, NodeState.BACKING_OFF, NodeState.DISCONNECTED}
    ),
    NodeState.READY: frozenset({NodeState.BACKING_OFF, NodeState.DISCONNECTED}),
    NodeState.BACKING_OFF: frozenset({NodeState.CONNECTING}),
}


@dataclass(slots=True)
class _Reachability:
    state: NodeState = NodeState.DISCONNECTED
    attempt_count: int = 0
    """Attempts since a handshake last succeeded."""
    connect_count: int = 0
    """Attempts in all: which of a host's addresses comes first."""
    started_ms: int = 0
    retry_ms: int = 0
    setup_deadline_ms: int = 0
    last_error: KafkaError | None = None


class NodeStates:
    """The states of all nodes that were ever tried, by node id."""

    def __init__(self, *, reconnect_backoff: Backoff, setup_backoff: Backoff) -> None:
        self._reconnect_backoff = reconnect_backoff
        self._setup_backoff = setup_backoff
        self._nodes: dict[int, _Reachability] = {}

    def state(self, node_id: int) -> NodeState:
        """Return a node's state; one never tried is disconnected."""
        node = self._nodes.get(node_id)
        return NodeState.DISCONNECTED if node is None else node.state

    def may_connect(self, node_id: int, now_ms: int) -> bool:
        """Return whether an attempt may begin now."""
        node = self._nodes.get(node_id)
        if node is None or node.state is NodeState.DISCONNECTED:
            return True
        return node.state is NodeState.BACKING_OFF and now_ms >= node.retry_ms

    def is_unavailable(self, node_id: int, now_ms: int) -> bool:
        """Return whether the node waits out its back-off after a failure."""
        node = self._nodes.get(node_id)
        return node is not None and node.state is NodeState.BACKING_OFF and now_ms < node.retry_ms

    def retry_ms(self, node_id: int) -> int:
        """Return when the next attempt may begin; in the past when it may begin now."""
        node = self._nodes.get(node_id)
        return 0 if node is None or node.state is not NodeState.BACKING_OFF else node.retry_ms

    def started_ms(self, node_id: int) -> int:
        """Return when the present attempt began."""
        return self._nodes[node_id].started_ms

    def setup_deadline_ms(self, node_id: int) -> int:
        """Return when the present attempt is given up."""
        return self._nodes[node_id].setup_deadline_ms

    def last_error(self, node_id: int) -> KafkaError | None:
        """Return why the node was last lost; None once it is ready."""
        node = self._nodes.get(node_id)
        return None if node is None else node.last_error

    def on_connecting(self, node_id: int, now_ms: int) -> int:
        """Note that an attempt begins; return its number, counted from 0."""
        node = self._nodes.setdefault(node_id, _Reachability())
        self._to(node, NodeState.CONNECTING)
        node.started_ms = now_ms
        node.setup_deadline_ms = now_ms + self._setup_backoff.delay_ms(node.attempt_count)
        node.connect_count += 1
        return node.connect_count - 1

    def on_ready(self, node_id: int) -> None:
        """Note that the handshake succeeded."""
        node = self._nodes[node_id]
        self._to(node, NodeState.READY)
        node.attempt_count = 0
        node.last_error = None

    def on_lost(self, node_id: int, error: KafkaError, now_ms: int) -> None:
        """Note that an attempt failed or the connection ended; the next one has to wait."""
        node = self._nodes[node_id]
        self._to(node, NodeState.BACKING_OFF)
        node.retry_ms = now_ms + self._reconnect_backoff.delay_ms(node.attempt_count)
        node.attempt_count += 1
        node.last_error = error

    def on_closed(self, node_id: int) -> None:
        """Note that we closed the connection ourselves, which is no reason to wait."""
        self._to(self._nodes[node_id], NodeState.DISCONNECTED)

    @staticmethod
    def _to(node: _Reachability, state: NodeState) -> None:
        assert state in NEXT[node.state], f"{node.state} -> {state}"
        node.state = state
