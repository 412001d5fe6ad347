"""ScriptedNetwork: a network client over a scripted port, and a clock that the test advances.

The test sets the cluster with `update_brokers`, and polls `Metadata` itself.

Owner: the test that created it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from pykclient.admin.config import AdminConfig
from pykclient.errors import BrokerUnsupportedVersionError
from pykclient.network.broker.client import NetworkClient
from pykclient.network.cluster.cluster import Cluster
from pykclient.network.cluster.metadata import Metadata
from pykclient.network.manager import SILENT_MS, Request
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.types import Node
from tests.network.scripted_port import ScriptedPort

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pykclient.errors import KafkaError
    from pykclient.protocol.message import Message
    from pykclient.protocol.message import Request as RequestMessage
    from tests.network.scripted_port import ScriptedPeer

BOOTSTRAP = (Node(-1, "boot-a", 9092), Node(-2, "boot-b", 9092), Node(-3, "boot-c", 9092))
BROKERS = (Node(1, "broker-1", 9092), Node(2, "broker-2", 9092), Node(3, "broker-3", 9092))


class Steady(Random):
    """A random source that returns the middle of each range: a back-off without jitter."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


class Completion:
    """The result of a request. A second callback is an error."""

    def __init__(self) -> None:
        self.response: Message | None = None
        self.error: KafkaError | None = None
        self.done_ms: int | None = None

    def is_done(self) -> bool:
        return self.done_ms is not None

    def on_response(self, response: Message | None, now_ms: int) -> None:
        self._end(now_ms)
        self.response = response

    def on_failure(self, error: KafkaError, now_ms: int) -> None:
        self._end(now_ms)
        self.error = error

    def _end(self, now_ms: int) -> None:
        assert not self.is_done(), "called back twice"
        self.done_ms = now_ms


class ScriptedNetwork:
    """A client of a cluster of `brokers`, with all it needs. Times are in milliseconds.

    Brokers with `is_before_4_4` do not know the newest version of ApiVersions.
    """

    def __init__(
        self,
        *brokers: Node,
        bootstrap: Sequence[Node] = BOOTSTRAP[:1],
        request_timeout_ms: int = 30_000,
        in_flight_max: int = 5,
        idle_max_ms: int = 540_000,
        receive_max_bytes: int = 1_000_000,
        falls_back_to_bootstrap: bool = True,
        security: Mapping[str, object] | None = None,
        is_before_4_4: bool = False,
    ) -> None:
        self.now_ms = 1_000_000
        self._is_before_4_4 = is_before_4_4
        self.port = ScriptedPort()
        self.random = Random(1)
        config = AdminConfig.from_settings(
            bootstrap_servers=[node.address for node in bootstrap],
            client_id="test",
            request_timeout_ms=request_timeout_ms,
            connections_max_idle_ms=idle_max_ms,
            receive_max_bytes=receive_max_bytes,
            metadata_recovery_strategy="rebootstrap" if falls_back_to_bootstrap else "none",
            **security or {},
        )
        self.metadata = Metadata(config, allow_auto_topic_creation=True, random=self.random)
        self.client = NetworkClient(
            config,
            self.port,
            self.metadata,
            max_in_flight_requests_per_connection=in_flight_max,
            random=self.random,
        )
        if brokers:
            self.update_brokers(*brokers)

    @property
    def peer(self) -> ScriptedPeer:
        """The peer of the latest connection."""
        return self.port.peers[-1]

    def update_brokers(self, *nodes: Node) -> None:
        """Make the cluster consist of these brokers."""
        self.metadata.cluster = Cluster(version=self.metadata.cluster.version + 1, nodes=nodes)

    def turn(self, elapsed_ms: int = 0) -> int:
        """Make one turn as a driver does, advance the clock in its wait, and start the next one.

        Returns the deadline of the next turn.
        """
        deadline_ms = self.client.prepare(self.now_ms)
        self.now_ms += elapsed_ms
        self.port.wait(max(0, deadline_ms - self.now_ms))
        self.client.complete(self.now_ms)
        deadline_ms = self.client.prepare(self.now_ms)
        if self.client.has_completed:
            self.client.complete(self.now_ms)
        return deadline_ms

    def serve(self) -> None:
        """Make every peer and the client do all they can, until nothing is left to do."""
        for _ in range(10):
            for peer in self.port.peers:
                if not peer.is_closed():
                    peer.serve()
            self.turn()

    def send(
        self,
        node_id: int | None = None,
        *,
        message: RequestMessage | None = None,
        timeout_ms: int | None = None,
        max_version: int | None = None,
        expects_response: bool = True,
        check: Callable[[Message], None] | None = None,
        is_movable: bool = False,
        held_ms: int = 0,
        silent_ms: int = SILENT_MS,
    ) -> Completion:
        """Send a request, by default a Metadata request; return its completion."""
        completion = Completion()
        request = Request(
            MetadataRequest() if message is None else message,
            node_id,
            completion.on_response,
            completion.on_failure,
            timeout_ms=timeout_ms,
            max_version=max_version,
            expects_response=expects_response,
            check=check,
            is_movable=is_movable,
            held_ms=held_ms,
            silent_ms=silent_ms,
        )
        self.client.send(request, self.now_ms)
        return completion

    def write(self, node_id: int | None = None, **options: Any) -> Completion:
        """Send a request, and make the turn that writes it or starts a connection."""
        completion = self.send(node_id, **options)
        self.turn()
        return completion

    def respond(self, peer: ScriptedPeer, message: Message | None = None) -> None:
        """Respond to the oldest request, by default with an empty Metadata response."""
        peer.respond(MetadataResponse() if message is None else message)
        self.turn()

    def shake_hands(self, ranges: dict[int, tuple[int, int]] | None = None) -> ScriptedPeer:
        """Accept the latest connection, and respond to ApiVersions."""
        peer = self.peer
        peer.accept()
        self.turn()
        if self._is_before_4_4:
            known = {int(ApiKey.API_VERSIONS): (0, 4)}
            code = BrokerUnsupportedVersionError.code
            peer.respond_versions(known, error_code=code, respond_version=0)
            self.turn()
        peer.respond_versions(ranges)
        self.turn()
        return peer

    def refuse(self) -> None:
        """Refuse the latest connection."""
        self.peer.refuse()
        self.turn()

    def make_ready(self, node_id: int) -> ScriptedPeer:
        """Connect to a node, including the handshake."""
        self.client.connect(node_id, self.now_ms)
        peer = self.shake_hands()
        assert self.client.is_ready(node_id, self.now_ms)
        return peer
