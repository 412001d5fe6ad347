"""AnyNode: who is to serve a request that any node can serve.

Known brokers before bootstrap addresses, which count while no broker can be reached (KIP-899); one
attempt to connect after the other, a moment apart; who owes an answer for too long comes last. It
opens nothing and writes nothing: the network client does, and gave it what it looks at.

Owner: the driver of the engine.
Source: Java method ``NetworkClient.leastLoadedNode``; the moment between attempts is ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.network.broker.nodes import NodeState
from pykclient.network.cluster.node import coordinator_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from pykclient.errors import KafkaError
    from pykclient.network.broker.connection import Connection
    from pykclient.network.broker.nodes import NodeStates
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.types import Node

__all__ = ["AnyNode"]

STAGGER_MS: Final = 250
"""How long one address may keep us waiting before the next one is tried beside it, while a request
is for any node. Java waits for the whole set-up time-out."""


class AnyNode:
    """Chooses among the nodes of one client."""

    def __init__(
        self,
        metadata: Metadata,
        states: NodeStates,
        connections: Mapping[int, Connection],
        *,
        falls_back_to_bootstrap: bool,
        random: Random,
    ) -> None:
        self._metadata = metadata
        self._states = states
        self._connections = connections
        self._falls_back_to_bootstrap = falls_back_to_bootstrap
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
        self, now_ms: int, is_ready: Callable[[int, int], bool], load: Callable[[int], int]
    ) -> Node | None:
        """Return the ready node with the least load; None if none is ready."""
        ready = [node for node in self.candidates() if is_ready(node.id, now_ms)]
        self._random.shuffle(ready)  # or the first broker would carry what every client sends
        return min(
            ready, key=lambda node: (self.is_silent(node, now_ms), load(node.id)), default=None
        )

    def is_silent(self, node: Node, now_ms: int) -> bool:
        """Return whether a broker owes an answer for too long, on either of its connections."""
        ids = (node.id, coordinator_id(node.id))
        connections = (self._connections.get(node_id) for node_id in ids)
        return any(each is not None and each.silent_ms() <= now_ms for each in connections)

    def next_to_connect(self, now_ms: int) -> Node | None:
        """Return whom to connect to next; None if all are, or one attempt began a moment ago."""
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
        """Return what is fatal, if every node has said so since one last served us; else None."""
        ids = [node.id for node in self.candidates()]
        return self.any_verdict() if all(map(self._states.has_verdict, ids)) else None

    def any_verdict(self) -> KafkaError | None:
        """Return what is fatal, as the first node says that has said so; None if none has."""
        for node in self.candidates():
            if self._states.has_verdict(node.id):
                return self._states.last_error(node.id)
        return None
