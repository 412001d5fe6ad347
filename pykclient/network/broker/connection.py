"""One connection to one broker: handshake, correlation ids, requests in flight, throttling.

If the client knows its cluster, a new connection first *verifies* that the broker belongs to it,
with a Metadata request without topics: the address may belong to another cluster by now.

The connection records the port's events without acting on them: the client takes the frames and the
failure in its next step. While *draining*, it accepts no new requests but still receives responses.
While *reauthenticating*, it does the same: the SASL requests go after those in flight, whose
responses come first, and when SASL is complete the connection is ready again.

Owner: the driver of the engine.
Source: Java classes ``KafkaChannel``, ``InFlightRequests``; KIP-219 (the client throttles itself),
KIP-368 (reauthentication).
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors import (
    AuthenticationError,
    DecodeError,
    DisconnectedError,
    FrameTooLargeError,
    KafkaError,
    TlsError,
)
from pykclient.errors.tracebacks import without_frames
from pykclient.network.broker import errors as failures
from pykclient.network.broker.authentication import Authentication, AuthenticationState
from pykclient.network.broker.fallback import NEWEST
from pykclient.network.broker.handshake import Handshake, HandshakeState, check_reached
from pykclient.network.cluster.node import wire_id
from pykclient.network.interrupts import raise_of_signal_handler
from pykclient.network.log import ClientLog
from pykclient.network.manager import NEVER_MS, SILENT_MS, Request, check_sent_back
from pykclient.network.metrics import NetworkMetrics
from pykclient.protocol.framing import RECEIVE_BYTES_MAX, FrameBuffer
from pykclient.protocol.message import (
    decode_response,
    encode_request_parts,
    peek_correlation_id,
)
from pykclient.protocol.messages.api_versions import ApiVersionsResponse
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.protocol.reader import ELEMENTS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.config.client import ClientConfig
    from pykclient.network.broker.handshake import ApiVersions
    from pykclient.network.io.port import Port
    from pykclient.network.metrics import Traffic
    from pykclient.network.retry import Backoff
    from pykclient.network.sasl.authenticator import Authenticator
    from pykclient.protocol.message import Message
    from pykclient.protocol.message import Request as RequestMessage
    from pykclient.types import Node

SUSPECT_MS = 2_000
"""Time after which a broker without its due response is suspect: it may hang."""

BRISK_CHECKS = 5
"""Number of quick checks of a suspect broker before the interval grows. They last longer than a
controller waits for a broker's heartbeat, 9 seconds by default."""

THROTTLE_MS_MAX = 60_000
"""Maximum throttle time of one response, which is otherwise unlimited. A broker's quotas look back
11 seconds by default."""

HANDSHAKE_BYTES_MAX = 512 * 1024
"""Maximum size of a response before the peer has proven to be a broker, and of SASL responses at
any time. The list of all APIs takes a kilobyte."""

UNREAD_IDS_MAX = 1_000
"""Maximum number of remembered requests without a response (acks=0). A peer may respond all the
same, as Azure Event Hubs does."""

CORRELATION_ID_LIMIT = 2**31
"""Limit of correlation ids, which use 31 bits here and start over long after the earlier ones
ended."""


class ConnectionState(Enum):
    CONNECTING = "connecting"
    HANDSHAKING = "handshaking"
    VERIFYING = "verifying"
    READY = "ready"
    REAUTHENTICATING = "reauthenticating"
    DRAINING = "draining"
    CLOSED = "closed"


NEXT: dict[ConnectionState, frozenset[ConnectionState]] = {
    ConnectionState.CONNECTING: frozenset({ConnectionState.HANDSHAKING, ConnectionState.CLOSED}),
    ConnectionState.HANDSHAKING: frozenset(
        {ConnectionState.VERIFYING, ConnectionState.READY, ConnectionState.CLOSED}
    ),
    ConnectionState.VERIFYING: frozenset({ConnectionState.READY, ConnectionState.CLOSED}),
    ConnectionState.READY: frozenset(
        {
            ConnectionState.REAUTHENTICATING,
            ConnectionState.DRAINING,
            ConnectionState.CLOSED,
        }
    ),
    ConnectionState.REAUTHENTICATING: frozenset(
        {ConnectionState.READY, ConnectionState.DRAINING, ConnectionState.CLOSED}
    ),
    ConnectionState.DRAINING: frozenset({ConnectionState.CLOSED}),
    ConnectionState.CLOSED: frozenset(),
}


class _InFlight(NamedTuple):
    request: Request
    version: int
    correlation_id: int
    sent_ms: int


class Connection:
    """The client's end of one stream; a `Stream` to its port.

    With an `authenticator`, the client authenticates before the connection is ready. `cluster_id`
    returns the id of the client's cluster, or None while it is unknown.
    """

    def __init__(
        self,
        node: Node,
        port: Port,
        config: ClientConfig,
        now_ms: int,
        *,
        authenticator: Authenticator | None = None,
        metrics: NetworkMetrics | None = None,
        cluster_id: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.node = node
        self._cluster_id = cluster_id
        self._names_cluster = config.metadata_recovery_strategy != "none"
        """True if the handshake names the cluster. As in Java, a broker's refusal then triggers a
        rebootstrap."""
        self.is_verified = False
        """True if the broker is known to belong to the client's cluster."""
        self._metrics = NetworkMetrics("none") if metrics is None else metrics
        self._traffic: Traffic
        """Set with the first request."""
        self.state = ConnectionState.CONNECTING
        self.failure: KafkaError | None = None
        self.throttled_until_ms = 0
        self.active_ms = now_ms
        self.versions: ApiVersions | None = None
        """The broker's API versions; None before the connection was first ready."""
        self.handshake_deadline_ms = NEVER_MS
        """Deadline of the handshake or of an authentication."""
        self.reauthenticate_ms = NEVER_MS
        """Time of the next authentication."""
        self._waits_since_ms = now_ms
        self._received_bytes = self._seen_bytes = 0
        """Number of bytes received so far, and at the last look of `silence_ms`."""
        self._progress_ms = now_ms
        """Time of the last look that found more bytes."""
        self._check_ms = 0
        self._check_count = 0
        self._port = port
        self._client_id = config.client_id
        self._receive_max_bytes = config.receive_max_bytes
        self._elements_max = elements_max(config.receive_max_bytes)
        self._handshake_max_bytes = min(HANDSHAKE_BYTES_MAX, config.receive_max_bytes)
        self._reader = FrameBuffer(self._handshake_max_bytes)
        self._log = ClientLog("pykclient.network", config.client_id)
        self._frames: deque[memoryview] = deque()
        self._is_opened = False
        self._has_served = False
        self._request_timeout_ms = config.request_timeout_ms
        self._handshake = Handshake(node, config.security_protocol)
        self._is_hung_up_on_first_request = False
        self._authenticator = authenticator
        self._authentication: Authentication | None = None
        """The authentication under way."""
        self._authentication_sent_ms = now_ms
        self._ended_work: deque[bytes | BaseException | None] = deque()
        """Results of the mechanism, or of its credentials: an error, or None when they are
        available."""
        self._in_flight: deque[_InFlight] = deque()
        self._without_response: deque[_InFlight] = deque()
        self._unread_ids: deque[int] = deque(maxlen=UNREAD_IDS_MAX)
        self._next_correlation_id = 0
        self._handshake_correlation_id: int | None = None
        """Correlation id of the handshake or SASL request whose response is due, or None."""

    # A port's stream.

    def on_opened(self) -> None:
        self._is_opened = True

    def get_buffer(self) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, count: int) -> None:
        """Record received bytes; after a failure, drop them."""
        if self.failure is not None:
            return
        self._received_bytes += count
        try:
            self._frames.extend(self._reader.buffer_updated(count))
        except (FrameTooLargeError, TlsError) as error:
            self.failure = type(error)(f"{self.node}: {error}")

    def on_closed(self, error: KafkaError) -> None:
        """Record the end of the stream; the first failure counts."""
        if self.failure is not None:
            return
        self.failure = without_frames(error)
        if not self._is_opened or self._frames or not isinstance(error, DisconnectedError):
            return  # an earlier failure, such as one of TLS, says more
        if self._authentication is not None and not self._in_flight:
            self.failure = failures.authentication_hung_up(self.node, error)
        elif self.versions is None:
            self.failure = failures.handshake_hung_up(self.node, error)
        elif (
            self._in_flight
            and not (self._has_served or self.is_verified)
            and self._authenticator is None
        ):
            self._is_hung_up_on_first_request = True
            self.failure = failures.first_request_hung_up(self.node, error)

    # The client's side.

    @property
    def in_flight_count(self) -> int:
        return len(self._in_flight) + len(self._without_response)

    @property
    def has_events(self) -> bool:
        """True if the port has reported something that the client has not processed."""
        return (
            bool(self._frames)
            or bool(self._ended_work)
            or self.failure is not None
            or (self._is_opened and self.state is ConnectionState.CONNECTING)
        )

    def next_deadline_ms(self) -> int:
        deadline_ms = self.handshake_deadline_ms
        # Plain loops: each step runs this several times, whether anything is in flight or not.
        for entries in (self._in_flight, self._without_response):
            for entry in entries:
                deadline_ms = min(deadline_ms, entry.request.deadline_ms)
        return deadline_ms

    def suspect_ms(self) -> int:
        """Return the time when it becomes suspect, unless it responds or connects before.

        `NEVER_MS` if neither a response nor a connection is due.
        """
        if self._in_flight:
            return self._waits_since_ms + SUSPECT_MS + self._in_flight[0].request.held_ms
        if self._authentication is not None:
            is_due = self._authentication.awaits_broker
        else:
            is_due = self.versions is None
        return self._waits_since_ms + SUSPECT_MS if is_due else NEVER_MS

    def silence_ms(self, now_ms: int) -> int:
        """Return how long the broker has sent nothing, though a response is due.

        0 if none is due, or if the time of `Request.silent_ms` has not passed yet.
        """
        suspect_ms = self.suspect_ms()
        if suspect_ms > now_ms or self.state is ConnectionState.CONNECTING:
            return 0
        if self._seen_bytes != self._received_bytes:  # a part of a long response
            self._seen_bytes, self._progress_ms = self._received_bytes, now_ms
        waited_ms = now_ms - max(suspect_ms - SUSPECT_MS, self._progress_ms)
        limit_ms = self._in_flight[0].request.silent_ms if self._in_flight else SILENT_MS
        return waited_ms if waited_ms >= limit_ms else 0

    def _begin_wait(self, now_ms: int) -> None:
        """Measure the next response's time from now on."""
        self._waits_since_ms = now_ms
        self._seen_bytes = self._received_bytes

    def check_ms(self) -> int:
        return max(self.suspect_ms(), self._check_ms)

    def on_checked(self, now_ms: int, backoff: Backoff) -> None:
        """Record a check and set the time of the next.

        The first checks follow closely, since a broker that hangs is replaced soon, if at all. Then
        the pause grows: a slow broker is most likely in an overloaded cluster.
        """
        if now_ms - self._check_ms > 2 * backoff.max_ms:
            self._check_count = 0
        self._check_ms = now_ms + backoff.delay_ms(max(0, self._check_count - BRISK_CHECKS))
        self._check_count += 1

    def extend_deadlines(self, extra_ms: int) -> None:
        self._waits_since_ms += extra_ms
        self._progress_ms += extra_ms
        if self.handshake_deadline_ms != NEVER_MS:
            self.handshake_deadline_ms += extra_ms
        for entry in self._all_in_flight():
            entry.request.deadline_ms += extra_ms

    def describe_wait(self, *, is_silent: bool = True) -> str:
        """Describe what the broker has not done yet; empty if nothing is due. Any thread.

        Unless it `is_silent`, leave out requests that it is to hold, as it does a Fetch.
        """
        if self.state is ConnectionState.CONNECTING:
            return f"{self.node} has not accepted the connection yet"
        authentication, authenticator = self._authentication, self._authenticator
        if (
            authentication is not None
            and authenticator is not None
            and not authentication.awaits_broker
        ):
            return authentication.describe_wait(authenticator.awaited)
        if self.versions is None:
            return failures.handshake_wait(self.node)
        # Copies, each made in one step: the driver continues meanwhile.
        in_flight = (*self._without_response.copy(), *self._in_flight.copy())
        due = (each.request for each in in_flight if is_silent or not each.request.held_ms)
        names = dict.fromkeys(request.message.api_key.name for request in due)
        return f"{self.node} has not responded to {', '.join(names)} yet" if names else ""

    def open(self, attempt: int) -> None:
        self._port.open(self, self.node.host, self.node.port, attempt=attempt)

    def send(self, request: Request, now_ms: int) -> None:
        """Write a request. Requires that the connection is ready.

        Raises:
            UnsupportedVersionError: the broker has no suitable version of the API.
            EncodeError: the message has a value that cannot be encoded.
        """
        assert self.state in {ConnectionState.READY, ConnectionState.VERIFYING}
        assert self.versions is not None
        version = self.versions.choose(request.message, request.max_version)
        message = request.message if request.build is None else request.build(version)
        correlation_id = self._write(message, version, now_ms)
        entry = _InFlight(request, version, correlation_id, now_ms)
        if not self._in_flight:
            self._begin_wait(now_ms)
        if request.expects_response:
            self._in_flight.append(entry)
        else:
            self._without_response.append(entry)
            self._unread_ids.append(correlation_id)
        self.active_ms = now_ms

    @property
    def hung_up_on(self) -> int | None:
        """The version of ApiVersions on which the peer hung up; None if it did anything else."""
        is_hung_up = (
            isinstance(self.failure, DisconnectedError)
            and self.state is ConnectionState.HANDSHAKING
            and self._handshake.state is HandshakeState.VERSIONS
        )
        return self._handshake.version if is_hung_up else None

    @property
    def may_require_sasl(self) -> bool:
        """True if the listener requires SASL, or seems to, and this client has none."""
        return self._is_hung_up_on_first_request or self._handshake.requires_sasl

    def begin_handshake(
        self, deadline_ms: int, version: int = NEWEST, *, checks_sasl: bool = False
    ) -> None:
        """Send the first request, ApiVersions in `version`.

        With `checks_sasl`, check afterwards whether the listener requires SASL.
        """
        self._to(ConnectionState.HANDSHAKING)
        self._traffic = self._metrics.traffic(self.node.id)
        self.handshake_deadline_ms = deadline_ms
        self._handshake.version = version
        cluster_id, broker_id = self._cluster_id(), wire_id(self.node.id)
        if cluster_id is not None and broker_id >= 0 and self._names_cluster:
            self._handshake.expect(cluster_id, broker_id)
        self._handshake.checks_sasl = checks_sasl
        self._send_handshake(deadline_ms - self._request_timeout_ms)

    @property
    def has_movable(self) -> bool:
        """True if a request in flight can be sent to another node as well."""
        return any(entry.request.is_movable for entry in self._in_flight)

    def take_movable(self) -> list[Request]:
        """Take the movable requests; a later response of this node to them is dropped."""
        taken = [entry.request for entry in self._in_flight if entry.request.is_movable]
        self._in_flight = deque(
            entry._replace(request=_void(entry.request)) if entry.request.is_movable else entry
            for entry in self._in_flight
        )
        return taken

    def take_sent(self) -> list[Request]:
        """Take the requests without a response whose bytes the operating system has accepted.

        Requests on a failed stream count as not accepted.
        """
        if not self._without_response or self.failure is not None or self._port.unsent_bytes(self):
            return []
        taken = [entry.request for entry in self._without_response]
        self._without_response.clear()
        return taken

    def take_responses(self, now_ms: int) -> list[tuple[Request, Message]]:
        """Remove and return the requests that got a response, with the responses, in order.

        An invalid response ends the connection and sets `failure`.
        """
        ended: list[tuple[Request, Message]] = []
        while self._frames or self._ended_work:
            try:
                if self._ended_work:
                    self._take_work(self._ended_work.popleft(), now_ms)
                    continue
                frame = self._frames.popleft()
                self._traffic.received_bytes.add(len(frame), now_ms)
                if self.versions is not None and self._is_to_be_dropped(frame):
                    continue
                if self._authentication is not None and not self._in_flight:
                    self._take_authentication(frame, now_ms)
                elif self.versions is None:
                    self._take_handshake(frame, now_ms)
                else:
                    ended.append(self._take_response(frame, now_ms))
            except DecodeError as error:
                is_known_broker = self.versions is not None
                self._fail(failures.unreadable(self.node, error, is_known_broker=is_known_broker))
            except KafkaError as error:
                raise_of_signal_handler(error)
                self._fail(error)
        return ended

    def take_in_flight(self) -> list[Request]:
        taken = [entry.request for entry in self._all_in_flight()]
        self._without_response.clear()
        self._in_flight.clear()
        return taken

    def drain(self) -> None:
        """Accept no new requests; those in flight may still get their responses."""
        self._to(ConnectionState.DRAINING)

    def close(self) -> None:
        self._to(ConnectionState.CLOSED)
        if self._authenticator is not None:
            self._authenticator.forget(self._on_credentials)
            self._port.forget(self._on_worked)
        self._port.close(self)

    def _take_response(self, frame: memoryview, now_ms: int) -> tuple[Request, Message]:
        correlation_id = peek_correlation_id(frame)
        if not self._in_flight or self._in_flight[0].correlation_id != correlation_id:
            due = self._in_flight[0].correlation_id if self._in_flight else "none"
            raise DecodeError(
                f"the response to correlation id {correlation_id} came while {due} is due; the "
                f"stream is out of sync"
            )
        entry = self._in_flight[0]
        response = decode_response(
            entry.request.message.response_type, entry.version, frame, self._elements_max
        )
        if entry.request.check is not None:
            entry.request.check(response)
        if isinstance(response, MetadataResponse):
            check_sent_back("Metadata", "a cluster id", response.cluster_id)
        elif isinstance(response, ApiVersionsResponse):
            check_reached(self.node, response.error_code, self._cluster_id())
        # Remove it only now: a malformed or contradictory response leaves its request in flight, so
        # that it fails with all the others.
        self._has_served = True
        self._in_flight.popleft()
        self._begin_wait(now_ms)
        self.active_ms = now_ms
        self._traffic.latency_ms.add(now_ms - entry.sent_ms, now_ms)
        name = entry.request.message.api_key.name
        self._log_response(name, frame, entry.version, now_ms - entry.sent_ms)
        if self._authentication is not None and not self._in_flight:
            self._expect_authentication(now_ms)
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            until_ms = now_ms + min(throttle_ms, THROTTLE_MS_MAX)
            self.throttled_until_ms = max(self.throttled_until_ms, until_ms)
        return entry.request, response

    def _is_to_be_dropped(self, frame: memoryview) -> bool:
        """Return whether this is a response to a request that needs none."""
        if not self._unread_ids:
            return False
        correlation_id = peek_correlation_id(frame)
        if correlation_id not in self._unread_ids:
            return False
        # Responses come in the order of their requests: no earlier one is still due.
        while self._unread_ids.popleft() != correlation_id:
            pass
        return True

    def _take_handshake(self, frame: memoryview, now_ms: int) -> None:
        self._check_handshake(frame)
        sent_ms = self.handshake_deadline_ms - self._request_timeout_ms
        name = self._handshake.message.api_key.name
        self._log_response(name, frame, self._handshake.version, now_ms - sent_ms)
        if self._handshake.on_frame(frame):
            self._send_handshake(now_ms)
        elif self._authenticator is None:
            self._become_ready(now_ms)
        else:
            assert self._handshake.versions is not None
            self._begin_authentication(self._handshake.versions, now_ms)

    def _check_handshake(self, frame: memoryview) -> None:
        due, self._handshake_correlation_id = self._handshake_correlation_id, None
        correlation_id = peek_correlation_id(frame)
        if correlation_id != due:
            raise DecodeError(
                f"the response to correlation id {correlation_id} came while "
                f"{'none' if due is None else due} is due"
            )

    def _become_ready(self, now_ms: int) -> None:
        self.handshake_deadline_ms = NEVER_MS
        self._reader.receive_max_bytes = self._receive_max_bytes
        if self.versions is None:
            self.versions = self._handshake.versions
            self.active_ms = now_ms
            self.is_verified = self._handshake.is_verified
            if self._cluster_id() is not None and not self.is_verified:
                self._to(ConnectionState.VERIFYING)
                self._verify(now_ms)
                return
        if self.state is not ConnectionState.DRAINING:
            self._to(ConnectionState.READY)

    def _verify(self, now_ms: int) -> None:
        request = Request(
            MetadataRequest(topics=[], allow_auto_topic_creation=False),
            node_id=self.node.id,
            on_response=_ignore,
            on_failure=_ignore,
        )
        request.deadline_ms = now_ms + self._request_timeout_ms
        self.send(request, now_ms)

    def on_verified(self) -> None:
        """Record that the broker belongs to the client's cluster."""
        self.is_verified = True
        if self.state is ConnectionState.VERIFYING:
            self._to(ConnectionState.READY)

    @property
    def is_established(self) -> bool:
        """True if the connection has been ready before."""
        return self.versions is not None and self.state is not ConnectionState.VERIFYING

    # Authentication.

    def reauthenticate(self, now_ms: int) -> None:
        """Start to reauthenticate. Requires that the connection is ready."""
        assert self.versions is not None
        self._to(ConnectionState.REAUTHENTICATING)
        self.reauthenticate_ms = NEVER_MS
        if not self._in_flight:  # otherwise after the responses of earlier requests
            self._expect_authentication(now_ms)
        self._begin_authentication(self.versions, now_ms)

    def authentication_timed_out(self, timeout_ms: int) -> KafkaError | None:
        """Return the error of an authentication that timed out; None if none is under way."""
        if self._authentication is None or self._authenticator is None:
            return None
        return self._authentication.timed_out(timeout_ms, self._authenticator.awaited)

    def _begin_authentication(self, versions: ApiVersions, now_ms: int) -> None:
        assert self._authenticator is not None
        self._authentication = Authentication(self.node, versions, self._authenticator.name)
        self._send_authentication(self._authentication, now_ms)

    def _expect_authentication(self, now_ms: int) -> None:
        """Start the deadline and size limit of SASL responses on a connection that was ready."""
        self.handshake_deadline_ms = now_ms + self._request_timeout_ms
        self._reader.receive_max_bytes = self._handshake_max_bytes

    def _take_authentication(self, frame: memoryview, now_ms: int) -> None:
        assert self._authentication is not None
        if len(frame) > self._handshake_max_bytes:
            # It began to arrive before the limit was set, after the last response in flight.
            raise DecodeError(
                f"a SASL response has {len(frame)} bytes, and the limit is "
                f"{self._handshake_max_bytes}"
            )
        self._check_handshake(frame)
        try:
            self._authentication.on_frame(frame)
        except AuthenticationError:
            self._note_refusal()
            raise
        self._authenticate(now_ms)

    def _take_work(self, result: bytes | BaseException | None, now_ms: int) -> None:
        authentication = self._authentication
        assert authentication is not None
        if authentication.state is AuthenticationState.WORKING:
            authentication.on_worked(result)
        elif isinstance(result, BaseException):
            authentication.fail(result)
        self._authenticate(now_ms)

    def _authenticate(self, now_ms: int) -> None:
        """Continue until the broker, credentials, or work that may block are needed."""
        authentication, authenticator = self._authentication, self._authenticator
        assert authentication is not None
        assert authenticator is not None
        if authentication.state is AuthenticationState.CREDENTIALS:
            mechanism = authenticator.mechanism(self.node.host, self._on_credentials)
            if mechanism is None:
                return
            authentication.begin(mechanism)
        if authentication.state is AuthenticationState.WORKING:
            assert authentication.work is not None
            assert authentication.mechanism is not None
            if not authentication.mechanism.is_quick:
                name = f"sasl-{self.node.host}"
                self._port.call(authentication.work, self._on_worked, name=name)
                return
            authentication.work_at_once()
        if authentication.state is AuthenticationState.CHALLENGE:
            self._send_authentication(authentication, now_ms)
            return
        if authentication.mechanism is not None:
            authenticator.on_accepted(authentication.mechanism)
        self._authentication = None
        self._metrics.on_authenticated(now_ms)
        lifetime_ms = authentication.session_lifetime_ms
        self.reauthenticate_ms = self._authentication_sent_ms + authenticator.session_ms(
            lifetime_ms
        )
        self._become_ready(now_ms)

    def _send_authentication(self, authentication: Authentication, now_ms: int) -> None:
        self._authentication_sent_ms = now_ms
        if not self._in_flight:
            self._begin_wait(now_ms)
        self._handshake_correlation_id = self._write(
            authentication.message, authentication.version, now_ms
        )

    def _note_refusal(self) -> None:
        assert self._authentication is not None
        mechanism = self._authentication.mechanism
        if mechanism is not None and self._authenticator is not None:
            self._authenticator.on_refused(mechanism)

    def _on_credentials(self, error: BaseException | None) -> None:
        self._ended_work.append(error)

    def _on_worked(self, result: bytes | BaseException | None) -> None:
        self._ended_work.append(result)

    def _all_in_flight(self) -> Iterator[_InFlight]:
        yield from self._without_response
        yield from self._in_flight

    def _fail(self, error: KafkaError) -> None:
        self.failure = without_frames(error)
        self._frames.clear()
        self._ended_work.clear()

    def _send_handshake(self, now_ms: int) -> None:
        self._handshake_correlation_id = self._write(
            self._handshake.message, self._handshake.version, now_ms
        )

    def _write(self, message: RequestMessage, version: int, now_ms: int) -> int:
        correlation_id = self._next_correlation_id
        parts = encode_request_parts(message, version, correlation_id, self._client_id)
        self._next_correlation_id = (correlation_id + 1) % CORRELATION_ID_LIMIT
        self._port.write(self, parts)
        size_bytes = sum(map(len, parts))
        self._traffic.sent_bytes.add(size_bytes, now_ms)
        if self._log.isEnabledFor(logging.DEBUG):
            name = message.api_key.name
            text = "%s: sent %s version %d, correlation id %d, %d bytes"
            self._log.debug(text, self.node, name, version, correlation_id, size_bytes)
        return correlation_id

    def _log_response(self, name: str, frame: memoryview, version: int, latency_ms: int) -> None:
        """Log a response at DEBUG, without its contents."""
        if self._log.isEnabledFor(logging.DEBUG):
            text = "%s: received %s version %d, correlation id %d, %d bytes, after %d ms"
            correlation_id = peek_correlation_id(frame)
            self._log.debug(text, self.node, name, version, correlation_id, len(frame), latency_ms)

    def _to(self, state: ConnectionState) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state


def elements_max(receive_max_bytes: int) -> int:
    """Return the maximum number of elements of a response, which grows with the size limit."""
    return max(ELEMENTS_MAX, ELEMENTS_MAX * receive_max_bytes // RECEIVE_BYTES_MAX)


def _void(request: Request) -> Request:
    """Return a copy of the request without its callbacks."""
    void = replace(request, on_response=_ignore, on_failure=_ignore, check=None, is_movable=False)
    void.deadline_ms = request.deadline_ms
    return void


def _ignore(_outcome: object, _now_ms: int) -> None:
    """Do nothing: the request was moved to another node, or only the connection needs it."""
