"""NetworkClient: carries every request of one client to the brokers and the answers back.

`send` queues; `poll` is prepare (connect, write, expire), wait (the port's I/O) and complete
(callbacks). It waits nowhere but in the port, calls nobody inside `send`, and calls each request's
`on_response` or `on_failure` exactly once.

Owner: the driver of the engine. Other threads may call `wakeup` only.
Source: Java class ``NetworkClient``; the queue of unsent requests is ``NetworkClientDelegate``'s.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors import (
    ConnectionFailedError,
    DisconnectedError,
    EncodeError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from pykclient.network.backoff import Backoff
from pykclient.network.connection import Connection, ConnectionState
from pykclient.network.manager import NEVER_MS
from pykclient.network.node_states import NodeState, NodeStates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Self

    from pykclient.config import ClientConfig
    from pykclient.network.manager import Request
    from pykclient.network.metadata import Metadata
    from pykclient.network.port import Port
    from pykclient.protocol.message import Message
    from pykclient.types import Node

__all__ = ["NetworkClient", "NetworkSettings"]

log = logging.getLogger("pykclient.network")

STAGGER_MS = 250
"""How long one address may keep us waiting before the next one is tried beside it, while a request
is for any node. Java waits for the whole set-up time-out."""


IN_FLIGHT_MAX = 100
"""Unanswered requests on one connection, where no setting limits them (consumer, admin)."""


class NetworkSettings(NamedTuple):
    """What the network client takes from a client's configuration; times in milliseconds."""

    client_id: str
    request_timeout_ms: int
    max_in_flight_requests_per_connection: int
    connections_max_idle_ms: int
    receive_max_bytes: int
    reconnect_backoff: Backoff
    setup_backoff: Backoff


class NetworkClient:
    """Connections to all brokers of a cluster over one port."""

    def __init__(self, port: Port, metadata: Metadata, settings: NetworkSettings) -> None:
        self._port = port
        self._metadata = metadata
        self._settings = settings
        self._connections: dict[int, Connection] = {}
        self._states = NodeStates(
            reconnect_backoff=settings.reconnect_backoff, setup_backoff=settings.setup_backoff
        )
        self._queues: dict[int, deque[Request]] = {}
        self._any_node_queue: deque[Request] = deque()
        self._completed: deque[_Callback] = deque()
        self._is_closed = False

    @classmethod
    def from_config(
        cls,
        config: ClientConfig,
        port: Port,
        metadata: Metadata,
        *,
        max_in_flight_requests_per_connection: int = IN_FLIGHT_MAX,
    ) -> Self:
        """Build one as a client's configuration says. The default in-flight limit is Java's."""
        settings = NetworkSettings(
            client_id=config.client_id,
            request_timeout_ms=config.request_timeout_ms,
            max_in_flight_requests_per_connection=max_in_flight_requests_per_connection,
            connections_max_idle_ms=config.connections_max_idle_ms,
            receive_max_bytes=config.receive_max_bytes,
            reconnect_backoff=Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
            setup_backoff=Backoff(
                config.socket_connection_setup_timeout_ms,
                config.socket_connection_setup_timeout_max_ms,
            ),
        )
        return cls(port, metadata, settings)

    # Asked by managers.

    @property
    def has_completed(self) -> bool:
        """Whether `complete` has callbacks to make without any I/O."""
        return bool(self._completed)

    def send(self, request: Request, now_ms: int) -> None:
        """Queue a request for its node, or for whichever node is least loaded.

        It ends by its `timeout_ms` (None = `request_timeout_ms`), counted from now.
        """
        timeout_ms = request.timeout_ms
        if timeout_ms is None:
            timeout_ms = self._settings.request_timeout_ms
        request.deadline_ms = now_ms + timeout_ms
        if request.node_id is None:
            self._any_node_queue.append(request)
        else:
            self._queues.setdefault(request.node_id, deque()).append(request)

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        """Return whether a request sent now would be written now."""
        connection = self._connections.get(node_id)
        return (
            connection is not None
            and not self._queues.get(node_id)
            and self._can_write(connection, now_ms)
        )

    def connect(self, node_id: int, now_ms: int) -> None:
        """Begin to connect to a node that will be wanted, unless that is under way or too early."""
        if node_id in self._connections or not self._states.may_connect(node_id, now_ms):
            return
        node = self._metadata.node(node_id)
        if node is not None:
            self._open(node, now_ms)

    def is_unavailable(self, node_id: int, now_ms: int) -> bool:
        """Return whether a node waits out its back-off after a failure."""
        return self._states.is_unavailable(node_id, now_ms)

    def next_ready_ms(self, node_id: int, now_ms: int) -> int:
        """Return when to look at the node again; `NEVER_MS` when I/O will tell."""
        connection = self._connections.get(node_id)
        if connection is None:
            return max(now_ms, self._states.retry_ms(node_id))
        if connection.throttled_until_ms > now_ms:
            return connection.throttled_until_ms
        return NEVER_MS

    def in_flight_count(self, node_id: int | None = None) -> int:
        """Return how many requests are queued or in flight, at one node or (None) in all."""
        if node_id is not None:
            connection = self._connections.get(node_id)
            written_count = 0 if connection is None else connection.in_flight_count
            return written_count + len(self._queues.get(node_id, ()))
        queued_count = sum(len(queue) for queue in self._queues.values())
        written_count = sum(c.in_flight_count for c in self._connections.values())
        return written_count + queued_count + len(self._any_node_queue)

    def supported_versions(self, node_id: int, message: type[Message]) -> tuple[int, int] | None:
        """Return the versions of an API that a node and we share; None if none, or not known."""
        connection = self._connections.get(node_id)
        if connection is None or connection.versions is None:
            return None
        return connection.versions.common_range(message)

    def describe_failures(self) -> str:
        """Return why nodes cannot be reached, for the text of a time-out; empty if all can."""
        return "; ".join(
            f"{node}: {error}"
            for node in self._all_nodes()
            if (error := self._states.last_error(node.id)) is not None
        )

    def least_loaded_node(self, now_ms: int) -> Node | None:
        """Return the ready node with the fewest requests in flight; None if none is ready."""
        ready = [node for node in self._candidates(now_ms) if self.is_ready(node.id, now_ms)]
        return min(ready, key=lambda node: self.in_flight_count(node.id), default=None)

    # Asked by the engine and its driver.

    def wakeup(self) -> None:
        """Make the driver's wait return. Safe from any thread."""
        self._port.wakeup()

    def poll(self, timeout_ms: int, clock: Callable[[], int]) -> None:
        """Prepare, wait up to `timeout_ms`, complete: one turn without an engine."""
        now_ms = clock()
        deadline_ms = min(self.prepare(now_ms), now_ms + timeout_ms)
        self._port.wait(max(0, deadline_ms - now_ms))
        self.complete(clock())

    def prepare(self, now_ms: int) -> int:
        """Expire, connect and write what is due; return the earliest deadline."""
        self._expire(now_ms)
        self._refresh_connections(now_ms)
        self._write_for_any_node(now_ms)
        waiting = [node_id for node_id, queue in self._queues.items() if queue]
        deadlines_ms = [self._write_queue(node_id, now_ms) for node_id in waiting]
        if self._completed:
            return now_ms
        if self._any_node_queue:
            deadlines_ms.append(self._any_node_retry_ms(now_ms))
        deadlines_ms.extend(self._deadlines_ms())
        return min(deadlines_ms, default=NEVER_MS)

    def complete(self, now_ms: int) -> None:
        """Take what the port brought, then call back for everything that has ended."""
        for node_id, connection in list(self._connections.items()):
            if connection.has_events:
                self._take_events(node_id, connection, now_ms)
        for _ in range(len(self._completed)):
            self._completed.popleft()(now_ms)

    def close(self) -> None:
        """Close every connection. Requests that are not done are not called back."""
        self._is_closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Writing.

    def _can_write(self, connection: Connection, now_ms: int) -> bool:
        return (
            connection.state is ConnectionState.READY
            and connection.failure is None
            and connection.throttled_until_ms <= now_ms
            and connection.in_flight_count < self._settings.max_in_flight_requests_per_connection
        )

    def _write_queue(self, node_id: int, now_ms: int) -> int:
        """Write a node's queue as far as it goes; return when to look again."""
        queue = self._queues[node_id]
        connection = self._connections.get(node_id)
        if connection is None:
            node = self._metadata.node(node_id)
            if node is None:
                self._fail_queue(node_id, _unknown_node(node_id))
                return now_ms
            self.connect(node_id, now_ms)
            return max(now_ms, self._states.retry_ms(node_id))
        while queue and self._can_write(connection, now_ms):
            self._write(connection, queue.popleft(), now_ms)
        return connection.throttled_until_ms if connection.throttled_until_ms > now_ms else NEVER_MS

    def _write(self, connection: Connection, request: Request, now_ms: int) -> None:
        try:
            connection.send(request, now_ms)
        except (UnsupportedVersionError, EncodeError) as error:
            self._fail(request, error)

    def _write_for_any_node(self, now_ms: int) -> None:
        while self._any_node_queue:
            node = self.least_loaded_node(now_ms)
            if node is None:
                self._connect_any(now_ms)
                return
            self._write(self._connections[node.id], self._any_node_queue.popleft(), now_ms)

    def _connect_any(self, now_ms: int) -> None:
        candidates = self._candidates(now_ms)
        for node in candidates:
            if (
                self._states.state(node.id) is NodeState.CONNECTING
                and now_ms < self._states.started_ms(node.id) + STAGGER_MS
            ):
                return  # give it its chance before the next one
        for node in candidates:
            if node.id not in self._connections and self._states.may_connect(node.id, now_ms):
                self._open(node, now_ms)
                return

    def _any_node_retry_ms(self, now_ms: int) -> int:
        """Return when another node may be tried for a request that any node can serve."""
        retries_ms = []
        for node in self._candidates(now_ms):
            state = self._states.state(node.id)
            if state is NodeState.CONNECTING:
                stagger_ms = self._states.started_ms(node.id) + STAGGER_MS
                if stagger_ms > now_ms:
                    return stagger_ms
            elif state is NodeState.READY:
                retries_ms.append(self.next_ready_ms(node.id, now_ms))
            else:
                retries_ms.append(max(now_ms, self._states.retry_ms(node.id)))
        return min(retries_ms, default=NEVER_MS)

    # Nodes and connections.

    def _all_nodes(self) -> Iterator[Node]:
        yield from self._metadata.cluster.nodes.values()
        yield from self._metadata.bootstrap

    def _candidates(self, now_ms: int) -> list[Node]:
        """Return the nodes that may serve a request for any node.

        They are the brokers of the cluster. While none of them can be reached, the bootstrap
        addresses count as well: all brokers may have moved meanwhile (KIP-899).
        """
        nodes = list(self._metadata.cluster.nodes.values())
        # Otherwise the first broker of every client's list would carry them all.
        self._settings.reconnect_backoff.random.shuffle(nodes)
        if all(self._states.last_error(node.id) is not None for node in nodes):
            nodes.extend(self._metadata.bootstrap)
        return nodes

    def _open(self, node: Node, now_ms: int) -> None:
        log.debug("connecting to %s", node)
        connection = Connection(
            node,
            self._port,
            client_id=self._settings.client_id,
            receive_max_bytes=self._settings.receive_max_bytes,
            now_ms=now_ms,
        )
        self._connections[node.id] = connection
        connection.open(self._states.on_connecting(node.id, now_ms))

    def _refresh_connections(self, now_ms: int) -> None:
        """Close connections that idle, or whose broker has another address by now."""
        for node_id, connection in list(self._connections.items()):
            node = self._metadata.node(node_id)
            has_moved = node is not None and node[1:3] != connection.node[1:3]
            idle_ms = self._settings.connections_max_idle_ms
            is_idle = 0 <= idle_ms <= now_ms - connection.active_ms
            if connection.state is ConnectionState.READY and (has_moved or is_idle):
                log.debug("closing the connection to %s, which idles or has moved", node)
                connection.drain()
            if connection.state is ConnectionState.DRAINING and connection.in_flight_count == 0:
                self._connections.pop(node_id).close()
                self._states.on_closed(node_id)

    def _take_events(self, node_id: int, connection: Connection, now_ms: int) -> None:
        if connection.state is ConnectionState.CONNECTING and connection.failure is None:
            connection.begin_handshake(now_ms + self._settings.request_timeout_ms)
        was_handshaking = connection.state is ConnectionState.HANDSHAKING
        for entry, response in connection.take_completed(now_ms):
            callback = entry.request.on_response
            self._completed.append(_Callback(callback, response))
        if was_handshaking and connection.state is ConnectionState.READY:
            log.debug("connected to %s", connection.node)
            self._states.on_ready(node_id)
        if connection.failure is not None:
            self._lose(node_id, connection.failure, now_ms)

    def _lose(self, node_id: int, error: KafkaError, now_ms: int) -> None:
        """Drop a connection; fail what was in flight and what was waiting for it."""
        connection = self._connections.pop(node_id)
        was_ready = self._states.state(node_id) is NodeState.READY
        level = logging.INFO if was_ready else logging.WARNING
        log.log(level, "lost the connection to %s: %s", connection.node, error)
        self._states.on_lost(node_id, error, now_ms)
        connection.close()
        for entry in connection.take_in_flight():
            self._fail(entry.request, error)
        self._fail_queue(node_id, error)
        if error.fatal:
            self._fail_all(self._any_node_queue, error)
        # The broker that we lost may have been a leader: learn who leads now.
        self._metadata.request_update()

    # Failing.

    def _expire(self, now_ms: int) -> None:
        for node_id, connection in list(self._connections.items()):
            error = self._overdue(node_id, connection, now_ms)
            if error is not None:
                self._lose(node_id, error, now_ms)
        for queue in [self._any_node_queue, *self._queues.values()]:
            if any(request.deadline_ms <= now_ms for request in queue):
                self._expire_queue(queue, now_ms)

    def _overdue(self, node_id: int, connection: Connection, now_ms: int) -> KafkaError | None:
        if connection.state is ConnectionState.CONNECTING:
            if now_ms < self._states.setup_deadline_ms(node_id):
                return None
            waited_ms = now_ms - self._states.started_ms(node_id)
            return ConnectionFailedError(
                f"{connection.node} did not accept a connection within {waited_ms} ms; check the "
                f"address and the way there, or raise socket_connection_setup_timeout_ms"
            )
        if now_ms < connection.next_deadline_ms():
            return None
        what = "the Kafka handshake" if connection.versions is None else "a request"
        return DisconnectedError(
            f"{connection.node} did not answer {what} within its time-out (request_timeout_ms is "
            f"{self._settings.request_timeout_ms}); the connection is given up"
        )

    def _expire_queue(self, queue: deque[Request], now_ms: int) -> None:
        for _ in range(len(queue)):
            request = queue.popleft()
            if request.deadline_ms > now_ms:
                queue.append(request)
                continue
            reasons = self.describe_failures() or "no connection failed; the brokers are busy"
            self._fail(
                request,
                KafkaTimeoutError(
                    f"no broker took the {request.message.api_key.name} request within its "
                    f"time-out: {reasons}"
                ),
            )

    def _fail_queue(self, node_id: int, error: KafkaError) -> None:
        self._fail_all(self._queues.get(node_id, deque()), error)

    def _fail_all(self, queue: deque[Request], error: KafkaError) -> None:
        while queue:
            self._fail(queue.popleft(), error)

    def _fail(self, request: Request, error: KafkaError) -> None:
        self._completed.append(_Callback(request.on_failure, error))

    def _deadlines_ms(self) -> Iterable[int]:
        for node_id, connection in self._connections.items():
            if connection.state is ConnectionState.CONNECTING:
                yield self._states.setup_deadline_ms(node_id)
                continue
            yield connection.next_deadline_ms()
            if self._settings.connections_max_idle_ms >= 0 and connection.in_flight_count == 0:
                yield connection.active_ms + self._settings.connections_max_idle_ms
        for queue in [self._any_node_queue, *self._queues.values()]:
            yield from (request.deadline_ms for request in queue)


def _unknown_node(node_id: int) -> ConnectionFailedError:
    return ConnectionFailedError(
        f"broker {node_id} is not in the metadata; it left the cluster, or is not known yet"
    )


class _Callback(NamedTuple):
    """One call to make in `complete`."""

    function: Callable[..., None]
    argument: object

    def __call__(self, now_ms: int) -> None:
        self.function(self.argument, now_ms)
