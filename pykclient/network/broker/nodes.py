"""Nodes: select the node to connect to, and the node for a request that any node can serve.

`NodeStates` tracks the back-off of nodes, and spaces the attempts at one address. `NodeSelection`
chooses: known brokers before bootstrap addresses, which are candidates only while no broker can be
reached (KIP-899); one attempt to connect after the other, spaced by `STAGGER_MS`; suspect brokers
last.

Owner: the driver of the engine.
Source: Java class ``ClusterConnectionStates``, method ``NetworkClient.leastLoadedNode``; KIP-144
(reconnect back-off), KIP-601 (set-up time-out); the spacing of attempts is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from pykclient.network.cluster.node import coordinator_id
from pykclient.network.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from pykclient.config.client import ClientConfig
    from pykclient.errors import KafkaError
    from pykclient.network.broker.connection import Connection
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.types import Node

CONNECT_INTERVAL_MIN_MS = 250
"""Minimum time between two attempts at an address where a connection ended. With the two attempts
that a bootstrap address and its broker may start before any has ended, that is at most five a
second. Back-off alone does not guarantee this, since a peer that hangs up right after the handshake
resets it each time."""


REFUSED_PAUSE_MS: Final = 1_000
"""Minimum pause before reconnecting to a broker that refused the client, for example for a wrong
password: brokers lock users out, and identity servers limit requests."""

STAGGER_MS: Final = 250
"""Time that one address gets before the next one is tried in parallel, while a request waits for
any node. Java waits for the whole set-up time-out."""


class NodeState(Enum):
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
    node: Node
    state: NodeState = NodeState.DISCONNECTED
    failure_count: int = 0
    """Number of failures since the last successful handshake."""
    attempt_count: int = 0
    """Number of attempts so far; it decides which of a host's addresses comes first."""
    started_ms: int = 0
    retry_ms: int = 0
    setup_deadline_ms: int = 0
    last_error: KafkaError | None = None
    setback: KafkaError | None = None
    """The error of the last attempt, if the next one starts with an older version."""
    served_count: int = 0
    """Number of good responses at the time of that error."""


class NodeStates:
    def __init__(self, config: ClientConfig, random: Random) -> None:
        self._reconnect_backoff = Backoff(
            config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, random=random
        )
        self._setup_backoff = Backoff(
            config.socket_connection_setup_timeout_ms,
            config.socket_connection_setup_timeout_max_ms,
            random=random,
        )
        self._nodes: dict[int, _Reachability] = {}
        self.served_count = 0
        """Number of good responses so far."""
        self._started_ms: dict[tuple[str, int], int] = {}
        """Start of the last attempt, by addresses where a connection ended recently."""

    def state(self, node_id: int) -> NodeState:
        known = self._nodes.get(node_id)
        return NodeState.DISCONNECTED if known is None else known.state

    def may_connect(self, node: Node, now_ms: int) -> bool:
        return (
            self.state(node.id) in {NodeState.DISCONNECTED, NodeState.BACKING_OFF}
            and self.retry_ms(node) <= now_ms
        )

    def retry_ms(self, node: Node) -> int:
        started_ms = self._started_ms.get(node.address)
        allowed_ms = 0 if started_ms is None else started_ms + CONNECT_INTERVAL_MIN_MS
        known = self._nodes.get(node.id)
        if known is None or known.state is not NodeState.BACKING_OFF:
            return allowed_ms
        return max(allowed_ms, known.retry_ms)

    def is_unavailable(self, node_id: int, now_ms: int) -> bool:
        known = self._nodes.get(node_id)
        return (
            known is not None
            and known.state is NodeState.BACKING_OFF
            and now_ms < self.retry_ms(known.node)
        )

    def started_ms(self, node_id: int) -> int:
        return self._nodes[node_id].started_ms

    def setup_deadline_ms(self, node_id: int) -> int:
        return self._nodes[node_id].setup_deadline_ms

    def last_error(self, node_id: int) -> KafkaError | None:
        known = self._nodes.get(node_id)
        return None if known is None else known.last_error

    def setback(self, node_id: int) -> KafkaError | None:
        """Return the error of the last attempt, if the next one starts with an older version.

        It is not a failure to reach the node yet, but the best explanation while nothing responds.
        """
        known = self._nodes.get(node_id)
        return None if known is None else known.setback

    def has_verdict(self, node_id: int) -> bool:
        """Return whether the last error of a node is a refusal newer than the last `on_served`."""
        known = self._nodes.get(node_id)
        return (
            known is not None
            and known.last_error is not None
            and known.last_error.is_refusal
            and known.served_count == self.served_count
        )

    def on_served(self) -> None:
        """Record a good response: earlier errors of nodes may no longer hold."""
        self.served_count += 1

    def on_connecting(self, node: Node, now_ms: int) -> int:
        """Record that an attempt starts; return its number, counted from 0."""
        known = self._nodes.setdefault(node.id, _Reachability(node))
        self._to(known, NodeState.CONNECTING)
        known.node = node
        known.started_ms = now_ms
        known.setup_deadline_ms = now_ms + self._setup_backoff.delay_ms(known.failure_count)
        known.attempt_count += 1
        if node.address in self._started_ms:
            self._started_ms[node.address] = now_ms
        oldest_ms = now_ms - CONNECT_INTERVAL_MIN_MS
        self._started_ms = {a: ms for a, ms in self._started_ms.items() if ms > oldest_ms}
        return known.attempt_count - 1

    def on_ready(self, node_id: int) -> None:
        known = self._nodes[node_id]
        self._to(known, NodeState.READY)
        known.failure_count = 0
        known.last_error = None
        known.setback = None

    def on_lost(self, node_id: int, error: KafkaError, now_ms: int) -> None:
        """Record a failed attempt or a lost connection; the next attempt waits for the back-off."""
        known = self._nodes[node_id]
        self._to(known, NodeState.BACKING_OFF)
        self._note_end(known)
        pause_ms = self._reconnect_backoff.delay_ms(known.failure_count)
        known.retry_ms = now_ms + max(pause_ms, REFUSED_PAUSE_MS if error.is_refusal else 0)
        known.failure_count += 1
        known.last_error, known.setback = error, None
        known.served_count = self.served_count

    def on_fallen_back(self, node_id: int, error: KafkaError, now_ms: int) -> None:
        """Record that the peer hung up on a handshake, and that an older version comes next.

        It is not a failure to reach the node yet.
        """
        known = self._nodes[node_id]
        self._to(known, NodeState.BACKING_OFF)
        self._note_end(known)
        known.retry_ms = now_ms
        known.setback = error

    def on_closed(self, node_id: int) -> None:
        """Record that the client closed the connection, which needs no back-off."""
        known = self._nodes[node_id]
        self._to(known, NodeState.DISCONNECTED)
        self._note_end(known)

    def extend_deadlines(self, extra_ms: int) -> None:
        for known in self._nodes.values():
            if known.state is NodeState.CONNECTING:
                known.setup_deadline_ms += extra_ms

    def on_nodes_changed(self, node_of: Callable[[int], Node | None]) -> None:
        """Forget unconnected nodes that no longer exist (`node_of` returns None) or have moved."""
        for node_id, known in list(self._nodes.items()):
            if known.state in {NodeState.CONNECTING, NodeState.READY}:
                continue
            node = node_of(node_id)
            if node is None or node.address != known.node.address:
                del self._nodes[node_id]

    def restart(self) -> None:
        """Record that all connections are closed, through no fault of the nodes."""
        for known in self._nodes.values():
            known.state = NodeState.DISCONNECTED

    def _note_end(self, known: _Reachability) -> None:
        started_ms = self._started_ms.get(known.node.address, known.started_ms)
        self._started_ms[known.node.address] = max(started_ms, known.started_ms)

    @staticmethod
    def _to(known: _Reachability, state: NodeState) -> None:
        assert state in NEXT[known.state], f"{known.state} -> {state}"
        known.state = state


class NodeSelection:
    def __init__(
        self,
        config: ClientConfig,
        metadata: Metadata,
        states: NodeStates,
        connections: Mapping[int, Connection],
        *,
        random: Random,
    ) -> None:
        self._falls_back_to_bootstrap = config.metadata_recovery_strategy == "rebootstrap"
        self._metadata = metadata
        self._states = states
        self._connections = connections
        self._random = random

    def candidates(self) -> list[Node]:
        """Return the brokers and, while none can be reached, the bootstrap addresses.

        All brokers may have moved meanwhile (KIP-899).
        """
        nodes = list(self._metadata.cluster.nodes.values())
        if not nodes or (
            self._falls_back_to_bootstrap
            and all(self._states.last_error(node.id) is not None for node in nodes)
        ):
            nodes.extend(self._metadata.bootstrap)
        return nodes

    def least_loaded(
        self,
        now_ms: int,
        is_ready: Callable[[int, int], bool],
        load: Callable[[int], int],
        *,
        avoided_id: int | None = None,
    ) -> Node | None:
        def rank(node: Node) -> tuple[bool, int]:
            return node.id == avoided_id or self.is_suspect(node, now_ms), load(node.id)

        ready = [node for node in self.candidates() if is_ready(node.id, now_ms)]
        self._random.shuffle(ready)  # otherwise the first broker would get every client's requests
        return min(ready, key=rank, default=None)

    def is_suspect(self, node: Node, now_ms: int) -> bool:
        """Return whether a response is overdue on either of a broker's connections."""
        ids = (node.id, coordinator_id(node.id))
        connections = (self._connections.get(node_id) for node_id in ids)
        return any(each is not None and each.suspect_ms() <= now_ms for each in connections)

    def next_to_connect(self, now_ms: int) -> Node | None:
        if self.stagger_ms() > now_ms:
            return None
        free = [node for node in self.candidates() if self._states.may_connect(node, now_ms)]
        # Known brokers come before bootstrap addresses. Choose any among equals, to spread clients.
        known = [node for node in free if node.id >= 0]
        return self._random.choice(known or free) if free else None

    def stagger_ms(self) -> int:
        """Return the time until which the latest attempt runs alone."""
        return max(
            (
                self._states.started_ms(node.id) + STAGGER_MS
                for node in self.candidates()
                if self._states.state(node.id) is NodeState.CONNECTING
            ),
            default=0,
        )

    def verdict(self) -> KafkaError | None:
        """Return the refusal if every node has refused since the last good response, else None."""
        ids = [node.id for node in self.candidates()]
        return self.any_verdict() if all(map(self._states.has_verdict, ids)) else None

    def any_verdict(self) -> KafkaError | None:
        """Return the refusal of the first node that has one, else None."""
        for node in self.candidates():
            if self._states.has_verdict(node.id):
                return self._states.last_error(node.id)
        return None
