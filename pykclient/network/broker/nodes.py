"""Nodes: to which of them a connection may be opened, and which gets a request for any node.

`NodeStates` keeps the back-off of nodes, and keeps attempts at one address apart. `NodeSelection`
chooses: known brokers before bootstrap addresses, which count while no broker can be reached
(KIP-899); one attempt to connect after the other, a moment apart; suspect brokers last.

Owner: the driver of the engine.
Source: Java class ``ClusterConnectionStates``, method ``NetworkClient.leastLoadedNode``; KIP-144
(reconnect back-off), KIP-601 (set-up time-out); the moment between attempts is ours.
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
"""Least time between two attempts at an address where a connection ended: with the two that a
bootstrap address and its broker may begin before any ended, at most five a second. Back-off alone
does not promise that, since a peer that hangs up right after the handshake resets it each time."""


REFUSED_PAUSE_MS: Final = 1_000
"""Least time before a broker is connected to again whose last connection ended in a refusal, such
as that of a wrong password: brokers lock users out, and identity servers limit requests."""

STAGGER_MS: Final = 250
"""How long one address may take before the next one is tried beside it, while a request
is for any node. Java waits for the whole set-up time-out."""


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
    """Failures since a handshake last succeeded."""
    attempt_count: int = 0
    """Attempts in all: which of a host's addresses comes first."""
    started_ms: int = 0
    retry_ms: int = 0
    setup_deadline_ms: int = 0
    last_error: KafkaError | None = None
    setback: KafkaError | None = None
    """The end of the last attempt, if the next one begins with an older version."""
    served_count: int = 0
    """How many good responses there had been when that error came."""


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
        self._served_count = 0
        self._started_ms: dict[tuple[str, int], int] = {}
        """When an attempt last began, by addresses where a connection ended not long ago."""

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
        """Return how the last attempt ended, if the next one begins with an older version.

        It is no failure to reach the node yet, but the best explanation while nothing responds.
        """
        known = self._nodes.get(node_id)
        return None if known is None else known.setback

    def has_verdict(self, node_id: int) -> bool:
        """Return whether the last error of a node is a refusal, and newer than `on_served`."""
        known = self._nodes.get(node_id)
        return (
            known is not None
            and known.last_error is not None
            and known.last_error.is_refusal
            and known.served_count == self._served_count
        )

    def on_served(self) -> None:
        """Note a good response: the errors of nodes before it may not hold any more."""
        self._served_count += 1

    def on_connecting(self, node: Node, now_ms: int) -> int:
        """Note that an attempt begins; return its number, counted from 0."""
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
        """Note that an attempt failed or the connection ended; the next one has to wait."""
        known = self._nodes[node_id]
        self._to(known, NodeState.BACKING_OFF)
        self._note_end(known)
        pause_ms = self._reconnect_backoff.delay_ms(known.failure_count)
        known.retry_ms = now_ms + max(pause_ms, REFUSED_PAUSE_MS if error.is_refusal else 0)
        known.failure_count += 1
        known.last_error, known.setback = error, None
        known.served_count = self._served_count

    def on_fallen_back(self, node_id: int, error: KafkaError, now_ms: int) -> None:
        """Record that the peer hung up on a version of the handshake, and the next attempt begins
        with an older one: that is no failure to reach it yet.
        """
        known = self._nodes[node_id]
        self._to(known, NodeState.BACKING_OFF)
        self._note_end(known)
        known.retry_ms = now_ms
        known.setback = error

    def on_closed(self, node_id: int) -> None:
        """Note that we closed the connection ourselves, which is no reason to back off."""
        known = self._nodes[node_id]
        self._to(known, NodeState.DISCONNECTED)
        self._note_end(known)

    def extend_deadlines(self, extra_ms: int) -> None:
        for known in self._nodes.values():
            if known.state is NodeState.CONNECTING:
                known.setup_deadline_ms += extra_ms

    def on_nodes_changed(self, node_of: Callable[[int], Node | None]) -> None:
        """Forget nodes without a connection that are gone (`node_of` gives None) or have moved."""
        for node_id, known in list(self._nodes.items()):
            if known.state in {NodeState.CONNECTING, NodeState.READY}:
                continue
            node = node_of(node_id)
            if node is None or node.address != known.node.address:
                del self._nodes[node_id]

    def restart(self) -> None:
        """Note that there are no connections any more, by no fault of the nodes."""
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
        self._random.shuffle(ready)  # or the first broker would carry what every client sends
        return min(ready, key=rank, default=None)

    def is_suspect(self, node: Node, now_ms: int) -> bool:
        """Return whether either of a broker's connections has waited too long for a response."""
        ids = (node.id, coordinator_id(node.id))
        connections = (self._connections.get(node_id) for node_id in ids)
        return any(each is not None and each.suspect_ms() <= now_ms for each in connections)

    def next_to_connect(self, now_ms: int) -> Node | None:
        if self.stagger_ms() > now_ms:
            return None
        free = [node for node in self.candidates() if self._states.may_connect(node, now_ms)]
        # Known brokers before bootstrap addresses; among equals any, to spread the clients.
        known = [node for node in free if node.id >= 0]
        return self._random.choice(known or free) if free else None

    def stagger_ms(self) -> int:
        """Return until when the attempt that began last has its chance before another begins."""
        return max(
            (
                self._states.started_ms(node.id) + STAGGER_MS
                for node in self.candidates()
                if self._states.state(node.id) is NodeState.CONNECTING
            ),
            default=0,
        )

    def verdict(self) -> KafkaError | None:
        """Return the refusal, if every node refused since the last good response; else None."""
        ids = [node.id for node in self.candidates()]
        return self.any_verdict() if all(map(self._states.has_verdict, ids)) else None

    def any_verdict(self) -> KafkaError | None:
        """Return the refusal of the first node that has one; None if none has."""
        for node in self.candidates():
            if self._states.has_verdict(node.id):
                return self._states.last_error(node.id)
        return None
