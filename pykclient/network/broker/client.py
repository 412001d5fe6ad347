"""NetworkClient: sends all requests of one client to the brokers and returns the responses.

`send` queues a request; `prepare` connects and writes; then the driver waits in the port;
`complete` processes responses, expires requests and calls back. `send` makes no callbacks. Each
request gets exactly one call of `on_response` or `on_failure`, unless the client is closed first.

Owner: the driver of the engine. Other threads may only call `wakeup`.
Source: Java class ``NetworkClient``.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from pykclient.errors import (
    AuthenticationError,
    ClusterMismatchError,
    DisconnectedError,
    EncodeError,
    KafkaError,
    TlsError,
    UnsupportedVersionError,
)
from pykclient.errors.tracebacks import without_frames
from pykclient.metrics import Windows
from pykclient.network.broker import errors as failures
from pykclient.network.broker.connection import SUSPECT_MS, Connection, ConnectionState
from pykclient.network.broker.fallback import ADDRESSES_MAX, ApiVersionsFallback
from pykclient.network.broker.handshake import FinalizedFeatures
from pykclient.network.broker.nodes import NodeSelection, NodeState, NodeStates
from pykclient.network.cluster.node import is_coordinator
from pykclient.network.interrupts import raise_of_signal_handler
from pykclient.network.log import ClientLog, RateLimitedLog
from pykclient.network.manager import ANY_NODE, NEVER_MS
from pykclient.network.metrics import NetworkMetrics
from pykclient.network.retry import Backoff
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.metadata import MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pykclient.config.client import ClientConfig
    from pykclient.config.setting import Address
    from pykclient.metrics import MetricName
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.io.port import Port
    from pykclient.network.manager import Request
    from pykclient.network.sasl.authenticator import Authenticator
    from pykclient.types import Node

IN_FLIGHT_MAX = 100
"""Maximum requests in flight on one connection, where no setting limits them (consumer, admin)."""

SUSPECT_INTERVAL_MS_MAX = 30_000
"""Maximum time between two metadata requests caused by a suspect broker."""

ABSENCE_CHARGED_MS = 1_000
"""Maximum time between two turns that counts against brokers. If none counted, requests to a broker
that never responds would not expire in a consumer that polls once a second and works in between."""


class NetworkClient:
    def __init__(
        self,
        config: ClientConfig,
        port: Port,
        metadata: Metadata,
        *,
        max_in_flight_requests_per_connection: int = IN_FLIGHT_MAX,
        random: Random | None = None,
    ) -> None:
        random = random or Random()  # noqa: S311 (for jitter)
        self._log = ClientLog("pykclient.network", config.client_id)
        self._repeated = RateLimitedLog(self._log)
        security_log = ClientLog("pykclient.security", config.client_id)
        for warning in config.security_warnings:
            security_log.warning(warning)
        self._port = port
        self._metadata = metadata
        self._config = config
        self._in_flight_max = max_in_flight_requests_per_connection
        self._connections: dict[int, Connection] = {}
        self._states = NodeStates(config, random)
        self._fallback = ApiVersionsFallback()
        self._may_require_sasl: set[Address] = set()
        """Addresses whose broker closed a connection as if it required SASL, which this client
        lacks."""
        self._selection = NodeSelection(
            config, metadata, self._states, self._connections, random=random
        )
        self._check_backoff = Backoff(SUSPECT_MS, SUSPECT_INTERVAL_MS_MAX, random=random)
        self._authenticator = self._authenticator_of(config, port, random)
        self._address_version = metadata.address_version
        windows = Windows(config.metrics_num_samples, config.metrics_sample_window_ms)
        self._metrics = NetworkMetrics(config.client, windows)
        self._pending = PendingRequests()
        self._completed: deque[Callable[[int], None]] = deque()
        self._needs_step = False
        """True if a step is needed that no event triggers: a connection was closed after the
        managers were polled, or an attempt to connect could not be started."""
        self._silent_ids: frozenset[int] = frozenset()
        """Nodes that have not responded for long, as of the last poll."""
        self._driven_ms = NEVER_MS
        """Time when `complete` last ended; before the first time nothing can be late."""
        self.features = FinalizedFeatures()
        """Features of the cluster, as listed by the broker with the newest epoch."""
        self.is_closed = False

    def _authenticator_of(
        self, config: ClientConfig, port: Port, random: Random
    ) -> Authenticator | None:
        if not config.is_authenticated:
            return None
        # Imported here: many clients do not need it.
        from pykclient.network.sasl.authenticator import Authenticator

        return Authenticator(config, port, random=random, log=self._log)

    # For managers.

    @property
    def has_completed(self) -> bool:
        return bool(self._completed)

    def send(self, request: Request, now_ms: int) -> None:
        """Queue a request for its node, or for the least loaded node.

        It fails if it is not written within its `timeout_ms` (None: `request_timeout_ms`), or gets
        no response within the same time after that, extended by the time for which the node may
        delay its response.
        """
        assert not self.is_closed
        request.deadline_ms = now_ms + self._timeout_ms(request)
        self._pending.add(request)

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        """Return whether a request sent now would be written at once."""
        return not self._pending.has(node_id) and self._takes_requests(node_id, now_ms)

    def connect(self, node_id: int, now_ms: int) -> None:
        node = self._metadata.node(node_id)
        if (
            node is not None
            and node_id not in self._connections
            and self._states.may_connect(node, now_ms)
        ):
            self._open(node, now_ms)

    def is_unavailable(self, node_id: int, now_ms: int) -> bool:
        return self._states.is_unavailable(node_id, now_ms)

    def suspect_ms(self, node_id: int) -> int:
        """Return the time when a node becomes suspect; `NEVER_MS` if no response is due."""
        connection = self._connections.get(node_id)
        return NEVER_MS if connection is None else connection.suspect_ms()

    def abandon(self, node_id: int, error: KafkaError, now_ms: int) -> None:
        """Drop the connection to a replaced node and fail its requests."""
        if node_id in self._connections:
            self._lose(node_id, error, now_ms)
        self._fail_all(self._pending.take_all(node_id), error)

    def next_ready_ms(self, node_id: int, now_ms: int) -> int:
        """Return the time to check the node again; `NEVER_MS` if I/O or metadata comes first."""
        connection = self._connections.get(node_id)
        if connection is None:
            node = self._metadata.node(node_id)
            return NEVER_MS if node is None else max(now_ms, self._states.retry_ms(node))
        if connection.throttled_until_ms > now_ms:
            return connection.throttled_until_ms
        return NEVER_MS

    def in_flight_count(self, node_id: int | None = None) -> int:
        """Return the number of requests queued or in flight, at one node or (None) at all."""
        if node_id is None:
            written_count = sum(c.in_flight_count for c in self._connections.values())
            return written_count + len(self._pending)
        connection = self._connections.get(node_id)
        written_count = 0 if connection is None else connection.in_flight_count
        return written_count + self._pending.count(node_id)

    def least_loaded_node(self, now_ms: int, avoided_id: int | None = None) -> Node | None:
        """Return the ready node with the fewest requests in flight; None if none is ready.

        Suspect nodes and `avoided_id` come last. A node with requests queued in this step counts as
        ready: a consumer that reads from it always has one there.
        """
        return self._selection.least_loaded(
            now_ms, self._takes_requests, self.in_flight_count, avoided_id=avoided_id
        )

    def last_error(self, node_id: int) -> KafkaError | None:
        return self._states.last_error(node_id)

    def silence(self, node_id: int) -> str:
        """Describe the overdue response of a node; empty if there is none."""
        return self._describe(node_id) if node_id in self._silent_ids else ""

    def describe_failures(self) -> str:
        """Describe the failures of nodes, for the text of a time-out; empty if there are none.

        Any thread may call it.
        """
        described = self._described_nodes()
        troubles = failures.grouped(described)
        error = self._metadata.last_error
        if error is not None and all(str(error) != text for _, text in described):
            # The error of a request that no node accepted has their failures already.
            reason = str(error)
            if troubles:
                reason = reason.replace(f": {failures.listed(troubles)}", "")
            troubles.append(f"the last metadata update failed: {reason}")
        return failures.with_cure(failures.listed(troubles))

    def refusal(self) -> KafkaError | None:
        """Return the error of a broker that refuses this client; None if none does.

        Any thread may call it.
        """
        return self._selection.any_verdict()

    def _described_nodes(self) -> list[tuple[Node, str]]:
        nodes = self._selection.candidates()
        # A coordinator has a connection of its own, which may be silent alone.
        coordinators = map(self._metadata.node, filter(is_coordinator, sorted(self._silent_ids)))
        nodes += [node for node in coordinators if node is not None]
        described = [(node, self._describe(node.id)) for node in nodes]
        return [(node, text) for node, text in described if text]

    def metrics(self, now_ms: int) -> dict[MetricName, float]:
        """Return the metrics of requests and connections. Any thread may call it."""
        connections = tuple(self._connections.copy().values())
        return self._metrics.snapshot(
            now_ms,
            connection_count=sum(c.state is not ConnectionState.CONNECTING for c in connections),
            in_flight_count=sum(c.in_flight_count for c in connections),
        )

    # For the engine and its driver.

    def wakeup(self) -> None:
        self._port.wakeup()

    def prepare(self, now_ms: int) -> int:
        credentials_ms = NEVER_MS
        if self._authenticator is not None:
            credentials_ms = self._authenticator.poll(now_ms)
        self._excuse_absence(now_ms)
        self._expire_pending(now_ms)
        self._follow_moves(now_ms)
        self._reauthenticate(now_ms)
        self._check_suspects(now_ms)
        self._write_for_any_node(now_ms)
        for node_id in self._pending.node_ids():
            self._write_for(node_id, now_ms)
        self._close_unused(now_ms)
        for connection in self._connections.values():
            self._complete_sent(connection)
        if self._completed or self._needs_step:
            self._needs_step = False
            return now_ms
        return min((credentials_ms, *self._deadlines_ms(now_ms)))

    def complete(self, now_ms: int) -> None:
        """Process the port's events, then call back for everything that has ended."""
        if self._authenticator is not None:
            self._authenticator.complete(now_ms)
        for node_id in list(self._connections):
            connection = self._connections.get(node_id)
            if connection is None:
                continue  # dropped because of an event on another connection
            self._complete_sent(connection)
            if connection.has_events:
                self._take_events(node_id, connection, now_ms)
        # Expire requests last, after everything that has arrived was processed.
        self._expire_connections(now_ms)
        self._report_silence(now_ms)
        self._driven_ms = now_ms
        for _ in range(len(self._completed)):
            self._completed.popleft()(now_ms)

    def metadata_due_ms(self) -> int:
        return self._metadata.next_poll_ms()

    def restart(self) -> None:
        """Drop every connection and request without calling back or failing any.

        It is called after an interrupt at any point, so it does not assume that the state is
        consistent.
        """
        self._port.restart()
        self._connections.clear()
        self._pending = PendingRequests()
        self._completed.clear()
        self._states.restart()
        if self._authenticator is not None:
            self._authenticator.restart()

    def close(self) -> None:
        """Close every connection. Unfinished requests get no callback."""
        self.is_closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Writing.

    def _takes_requests(self, node_id: int, now_ms: int) -> bool:
        connection = self._connections.get(node_id)
        return connection is not None and self._can_write(connection, now_ms)

    def _can_write(self, connection: Connection, now_ms: int) -> bool:
        return (
            connection.state is ConnectionState.READY
            and connection.failure is None
            and connection.throttled_until_ms <= now_ms
            and connection.in_flight_count < self._in_flight_max
        )

    def _write_for(self, node_id: int, now_ms: int) -> None:
        connection = self._connections.get(node_id)
        if connection is not None:
            while self._pending.has(node_id) and self._can_write(connection, now_ms):
                self._write(connection, self._pending.take_first(node_id), now_ms)
        elif self._metadata.node(node_id) is None:
            self._fail_all(self._pending.take_all(node_id), failures.unknown_node(node_id))
        else:
            self.connect(node_id, now_ms)

    def _write(self, connection: Connection, request: Request, now_ms: int) -> None:
        # The broker gets the full time of its setting, however long the request waited here.
        request.deadline_ms = now_ms + self._timeout_ms(request) + request.held_ms
        try:
            connection.send(request, now_ms)
        except (UnsupportedVersionError, EncodeError) as error:
            self._fail(request, error)

    def _write_for_any_node(self, now_ms: int) -> None:
        while self._pending.has(ANY_NODE):
            avoided_id = self._pending.first(ANY_NODE).avoided_id
            node = self.least_loaded_node(now_ms, avoided_id)
            if node is None or node.id == avoided_id or self._selection.is_suspect(node, now_ms):
                self._connect_any(now_ms)
                if node is None or self._selection.stagger_ms() > now_ms:
                    return  # another node may be ready soon
            self._write(self._connections[node.id], self._pending.take_first(ANY_NODE), now_ms)

    def _check_suspects(self, now_ms: int) -> None:
        """Look for replacements of suspect nodes, and move requests that can be moved."""
        for node_id, connection in list(self._connections.items()):
            if connection.suspect_ms() > now_ms:
                continue
            if connection.state is ConnectionState.DRAINING:
                self._lose(node_id, failures.suspect_and_moved(connection.node), now_ms)
                continue
            if self._metadata.node(node_id) is None:
                self._lose(node_id, failures.suspect_and_gone(connection.node), now_ms)
                continue
            if connection.check_ms() <= now_ms and not is_coordinator(node_id):
                connection.on_checked(now_ms, self._check_backoff)
                self._metadata.request_update()
            if connection.has_movable:
                self._move_from(connection, now_ms)

    def _move_from(self, suspect: Connection, now_ms: int) -> None:
        node = self.least_loaded_node(now_ms)
        if node is None or self._selection.is_suspect(node, now_ms):
            self._connect_any(now_ms)
            return
        for request in suspect.take_movable():
            self._pending.add(request)

    def _connect_any(self, now_ms: int) -> None:
        """Start to connect to one more candidate, unless an attempt began just now."""
        node = self._selection.next_to_connect(now_ms)
        if node is not None:
            self._open(node, now_ms)

    def _any_node_retry_ms(self, now_ms: int) -> int:
        stagger_ms = self._selection.stagger_ms()
        if stagger_ms > now_ms:
            return stagger_ms  # then another node is tried, or a suspect one that is ready
        candidates = self._selection.candidates()
        return min((self.next_ready_ms(node.id, now_ms) for node in candidates), default=NEVER_MS)

    def _deadlines_ms(self, now_ms: int) -> Iterator[int]:
        for node_id, connection in self._connections.items():
            yield self._check_ms(node_id, connection, now_ms)
            if connection.state is ConnectionState.CONNECTING:
                yield self._states.setup_deadline_ms(node_id)
                continue
            yield connection.next_deadline_ms()
            yield connection.reauthenticate_ms
            if self._is_unused(node_id, connection) and self._config.connections_max_idle_ms >= 0:
                yield connection.active_ms + self._config.connections_max_idle_ms
        for node_id in self._pending.node_ids():
            yield self.next_ready_ms(node_id, now_ms)
        if self._pending.has(ANY_NODE):
            yield self._any_node_retry_ms(now_ms)
        yield self._pending.next_deadline_ms(NEVER_MS)

    def _check_ms(self, node_id: int, connection: Connection, now_ms: int) -> int:
        check_ms = NEVER_MS
        if connection.state is ConnectionState.DRAINING:
            return connection.suspect_ms()
        if is_coordinator(node_id):
            check_ms = connection.suspect_ms()  # the manager of coordinators then looks it up
        elif connection.state in {ConnectionState.READY, ConnectionState.VERIFYING}:
            check_ms = connection.check_ms()
        return check_ms if check_ms > now_ms else NEVER_MS

    # Connections.

    def _open(self, node: Node, now_ms: int) -> None:
        self._log.debug("connecting to %s", node)
        connection = Connection(
            node,
            self._port,
            self._config,
            now_ms,
            authenticator=self._authenticator,
            metrics=self._metrics,
            cluster_id=self._cluster_id,
        )
        self._connections[node.id] = connection
        attempt = self._states.on_connecting(node, now_ms)
        try:
            connection.open(attempt)
        except Exception as error:  # noqa: BLE001 (out of memory, for example: this attempt failed)
            raise_of_signal_handler(error)
            connection.on_closed(failures.not_begun(node, error))
            self._needs_step = True

    def _cluster_id(self) -> str | None:
        """Return the id of the cluster that the client stays with; None for any."""
        return self._metadata.cluster_id if self._config.metadata_cluster_check_enable else None

    def _follow_moves(self, now_ms: int) -> None:
        if self._address_version == self._metadata.address_version:
            return
        self._address_version = self._metadata.address_version
        self._states.on_nodes_changed(self._metadata.node)
        for node_id, connection in list(self._connections.items()):
            node = self._metadata.node(node_id)
            if node is None or node.address == connection.node.address:
                continue
            if connection.state is ConnectionState.DRAINING:
                continue
            self._log.info("%s has moved to %s", connection.node, node)
            if connection.is_established:
                connection.drain()
            else:
                self._close(node_id, now_ms)

    def _reauthenticate(self, now_ms: int) -> None:
        for connection in self._connections.values():
            is_due = connection.reauthenticate_ms <= now_ms
            if is_due and connection.state is ConnectionState.READY and connection.failure is None:
                self._log.debug("reauthenticating at %s", connection.node)
                connection.reauthenticate(now_ms)

    def _close_unused(self, now_ms: int) -> None:
        idle_max_ms = self._config.connections_max_idle_ms
        for node_id, connection in list(self._connections.items()):
            is_drained = (
                connection.state is ConnectionState.DRAINING and connection.in_flight_count == 0
            )
            is_idle = 0 <= idle_max_ms <= now_ms - connection.active_ms
            if is_drained or (is_idle and self._is_unused(node_id, connection)):
                self._log.debug("closing the idle connection to %s", connection.node)
                self._close(node_id, now_ms)

    def _is_unused(self, node_id: int, connection: Connection) -> bool:
        return (
            connection.state is ConnectionState.READY
            and connection.in_flight_count == 0
            and not self._pending.has(node_id)
        )

    def _close(self, node_id: int, now_ms: int) -> None:
        connection = self._connections.pop(node_id)
        self._count_end(connection, now_ms)
        connection.close()
        self._states.on_closed(node_id)
        self._needs_step = True

    def _count_end(self, connection: Connection, now_ms: int) -> None:
        if connection.state is not ConnectionState.CONNECTING:
            self._metrics.on_closed(now_ms)

    def _take_events(self, node_id: int, connection: Connection, now_ms: int) -> None:
        if connection.state is ConnectionState.CONNECTING and connection.failure is None:
            address = connection.node.address
            self._metrics.on_opened(now_ms)
            connection.begin_handshake(
                now_ms + self._config.request_timeout_ms,
                self._fallback.version(address, now_ms),
                checks_sasl=address in self._may_require_sasl,
            )
            self._may_require_sasl.discard(address)
        if connection.state is not ConnectionState.CONNECTING:
            was_ready = connection.is_established
            self._take_responses(connection, now_ms)
            if not was_ready and connection.is_established and connection.failure is None:
                assert connection.versions is not None
                is_back = self._states.last_error(node_id) is not None
                level, again = (logging.INFO, " again") if is_back else (logging.DEBUG, "")
                self._log.log(level, "connected%s to %s", again, connection.node)
                self._states.on_ready(node_id)
                listed_max = connection.versions.listed_max(ApiKey.API_VERSIONS)
                self._fallback.on_accepted(connection.node.address, listed_max, now_ms)
                self.features = max(self.features, connection.versions.features, key=_epoch_of)
        if connection.failure is not None:
            self._lose(node_id, connection.failure, now_ms)

    def _take_responses(self, connection: Connection, now_ms: int) -> None:
        for request, response in connection.take_responses(now_ms):
            if isinstance(response, MetadataResponse):
                self._verify(connection, response, now_ms)
            if isinstance(connection.failure, ClusterMismatchError):
                # Responses of another cluster are ignored, this one and those after it.
                self._fail(request, failures.given_up(connection.node, connection.failure))
                continue
            self._states.on_served()
            self._metadata.on_served()
            self._completed.append(partial(request.on_response, response))

    def _verify(self, connection: Connection, response: MetadataResponse, now_ms: int) -> None:
        """Compare a broker's cluster with ours; its first response decides which cluster is ours.

        Connections made before that were not verified and reconnect.
        """
        known_id = self._cluster_id()
        is_own = self._metadata.is_of_cluster(response)
        cluster_id = self._cluster_id()
        if cluster_id is None:
            return
        if not is_own:
            assert response.cluster_id is not None
            connection.failure = failures.other_cluster(
                connection.node, cluster_id, response.cluster_id
            )
            return
        connection.on_verified()
        if known_id is not None:
            return
        for node_id, other in list(self._connections.items()):
            if other is not connection and other.is_established and not other.is_verified:
                self._lose(node_id, failures.unverified(other.node), now_ms)

    def _fall_back(self, connection: Connection) -> int | None:
        """Return the older ApiVersions version that the next attempt starts with, if any."""
        version = connection.hung_up_on
        if version is None:
            return None
        return self._fallback.on_hung_up(connection.node.address, version)

    def _complete_sent(self, connection: Connection) -> None:
        for request in connection.take_sent():
            self._completed.append(partial(request.on_response, None))

    def _lose(self, node_id: int, error: KafkaError, now_ms: int) -> None:
        connection = self._connections.pop(node_id)
        node = connection.node
        is_old_address = connection.state is ConnectionState.DRAINING
        was_ready = self._states.state(node_id) is NodeState.READY
        older_version = self._fall_back(connection)
        is_news = was_ready or older_version is not None
        level = logging.INFO if is_news else logging.WARNING
        key = node, was_ready, type(error)
        if was_ready:
            self._repeated.log(level, now_ms, key, "lost the connection to %s: %s", node, error)
        else:
            why = failures.without_place(node, error)
            self._repeated.log(level, now_ms, key, "could not connect to %s: %s", node, why)
        if older_version is None:
            self._states.on_lost(node_id, error, now_ms)
        else:
            self._states.on_fallen_back(node_id, error, now_ms)
        if connection.may_require_sasl and len(self._may_require_sasl) < ADDRESSES_MAX:
            self._may_require_sasl.add(node.address)
        self._count_end(connection, now_ms)
        if isinstance(error, AuthenticationError | TlsError):
            self._metrics.on_refused(now_ms)
        connection.close()
        given_up = failures.given_up(node, error)
        for request in connection.take_in_flight():
            is_late = request.deadline_ms <= now_ms
            waited_ms = self._timeout_ms(request) + request.held_ms
            late = failures.without_response(request, node, waited_ms)
            self._fail(request, late if is_late else given_up)
        if not is_old_address:  # otherwise the requests wait for the new address
            self._fail_all(self._pending.take_all(node_id), given_up)
        if self._pending.has(ANY_NODE):
            self._report_verdict(self._selection.verdict())
        # The lost broker may have been a leader: find the current leaders.
        self._metadata.request_update()

    # Time-outs.

    def _excuse_absence(self, now_ms: int) -> None:
        """Extend deadlines by the time without a driver, except for its first second.

        A consumer may be away from `poll` for minutes with a fetch in flight: the response waits
        unread in the sockets' buffers, and its rest at the broker.
        """
        excused_ms = now_ms - self._driven_ms - ABSENCE_CHARGED_MS
        if excused_ms > 0:
            for connection in self._connections.values():
                connection.extend_deadlines(excused_ms)
            self._states.extend_deadlines(excused_ms)
            self._pending.extend_deadlines(excused_ms)
            self._driven_ms = now_ms  # only once, however often `prepare` runs before `complete`

    def _expire_pending(self, now_ms: int) -> None:
        for request in self._pending.take_overdue(now_ms):
            if request.node_id is ANY_NODE:
                # Leave out the last metadata update: it may have failed with this very text.
                troubles = failures.listed(failures.grouped(self._described_nodes()))
                self._report_verdict(self._selection.any_verdict())
            else:
                troubles = self._describe(request.node_id)
            self._fail(request, failures.untaken(request, self._timeout_ms(request), troubles))

    def _expire_connections(self, now_ms: int) -> None:
        for node_id, connection in list(self._connections.items()):
            error = self._overdue(node_id, connection, now_ms)
            if error is not None:
                self._lose(node_id, error, now_ms)

    def _report_silence(self, now_ms: int) -> None:
        """Log nodes that keep a connection but have not responded for long, at intervals."""
        silent_ids = []
        for node_id, connection in self._connections.items():
            silence_ms = connection.silence_ms(now_ms)
            if not silence_ms:
                continue
            silent_ids.append(node_id)
            key = ("silent", node_id)
            if self._repeated.is_due(now_ms, key):
                line = failures.silent(connection.describe_wait(), silence_ms)
                self._repeated.log(logging.WARNING, now_ms, key, "%s", line)
        if silent_ids or self._silent_ids:
            self._silent_ids = frozenset(silent_ids)

    def _overdue(self, node_id: int, connection: Connection, now_ms: int) -> KafkaError | None:
        node = connection.node
        if connection.state is ConnectionState.CONNECTING:
            if now_ms < self._states.setup_deadline_ms(node_id):
                return None
            return failures.not_accepted(node, now_ms - self._states.started_ms(node_id))
        if now_ms < connection.next_deadline_ms():
            return None
        is_late = now_ms >= connection.handshake_deadline_ms
        timeout_ms = self._config.request_timeout_ms
        if is_late and (error := connection.authentication_timed_out(timeout_ms)) is not None:
            return error
        if connection.versions is None:
            return failures.handshake_timed_out(node, timeout_ms)
        return DisconnectedError(f"{node} did not respond to a request in time")

    def _timeout_ms(self, request: Request) -> int:
        if request.timeout_ms is None:
            return self._config.request_timeout_ms
        return request.timeout_ms

    # Failing.

    def _describe(self, node_id: int) -> str:
        connection = self._connections.get(node_id)
        is_silent = node_id in self._silent_ids
        waits_for = "" if connection is None else connection.describe_wait(is_silent=is_silent)
        error = self._states.setback(node_id) or self._states.last_error(node_id)
        # During a new attempt, the reason of the last failure says more.
        return waits_for if error is None else str(error)

    def _report_verdict(self, error: KafkaError | None) -> None:
        """Make waiting calls raise a fatal error. The requests keep waiting for a node."""
        if error is not None:
            self._completed.append(partial(self._on_verdict, error, self._states.served_count))

    def _on_verdict(self, error: KafkaError, served_count: int, now_ms: int) -> None:
        del now_ms
        if self._states.served_count == served_count:  # else a broker has responded meanwhile
            self._metadata.on_verdict(error)

    def _fail_all(self, requests: Iterable[Request], error: KafkaError) -> None:
        for request in requests:
            self._fail(request, error)

    def _fail(self, request: Request, error: KafkaError) -> None:
        self._completed.append(partial(request.on_failure, without_frames(error)))


def _epoch_of(features: FinalizedFeatures) -> int:
    return features.epoch


class PendingRequests:
    """Requests that no connection has taken yet, queued by node id (None: any node)."""

    def __init__(self) -> None:
        self._queues: dict[int | None, deque[Request]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, request: Request) -> None:
        self._queues.setdefault(request.node_id, deque()).append(request)

    def has(self, node_id: int | None) -> bool:
        return node_id in self._queues

    def count(self, node_id: int | None) -> int:
        return len(self._queues.get(node_id, ()))

    def node_ids(self) -> list[int]:
        return [node_id for node_id in self._queues if node_id is not ANY_NODE]

    def first(self, node_id: int | None) -> Request:
        return self._queues[node_id][0]

    def take_first(self, node_id: int | None) -> Request:
        queue = self._queues[node_id]
        request = queue.popleft()
        if not queue:
            del self._queues[node_id]
        return request

    def take_all(self, node_id: int | None) -> Iterable[Request]:
        return self._queues.pop(node_id, ())

    def take_overdue(self, now_ms: int) -> list[Request]:
        if self.next_deadline_ms(now_ms + 1) > now_ms:
            return []
        overdue = [r for r in self._all() if r.deadline_ms <= now_ms]
        waiting = [r for r in self._all() if r.deadline_ms > now_ms]
        self._queues.clear()
        for request in waiting:
            self.add(request)
        return overdue

    def extend_deadlines(self, extra_ms: int) -> None:
        for request in self._all():
            request.deadline_ms += extra_ms

    def next_deadline_ms(self, default_ms: int) -> int:
        if not self._queues:  # the usual case
            return default_ms
        return min(request.deadline_ms for request in self._all())

    def _all(self) -> Iterator[Request]:
        for queue in self._queues.values():
            yield from queue
