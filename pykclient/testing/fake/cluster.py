"""FakeCluster: in-process Kafka brokers, sans-IO.

It takes requests and the time and returns responses, some at once, some after an event or a
timeout. It has no thread, no socket and no clock: `advance` sets the time, and `next_deadline_ms`
tells when to call it. It shares the message and record formats with the client, but none of its
state machines, so that one mistake cannot hide in both.

Owner: the caller; one thread at a time.
Source: Java class ``KafkaApis``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pykclient.errors.base import DecodeError, UnsupportedVersionError
from pykclient.errors.broker import IllegalSaslStateError
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.message import RequestHeader, decode_request, decode_request_header
from pykclient.testing.fake.authentication import Authentication, AuthenticationState, Session
from pykclient.testing.fake.call import Call, CallState
from pykclient.testing.fake.handlers import HANDLERS
from pykclient.testing.fake.handlers.api_versions import respond_with_versions
from pykclient.testing.fake.sasl import SaslRefusal
from pykclient.testing.fake.state import ClusterState

if TYPE_CHECKING:
    from pykclient.protocol.message import Request
    from pykclient.testing.fake.faults import Fault


class FakeCluster(ClusterState):
    """A cluster of fake brokers with ids from 0.

    `replication_delay_ms` is how long followers take to copy; with 0 they copy at once.
    `min_insync_replicas` and `default_partition_count` are defaults for topics. With `racks`, one
    for each broker, consumers read from followers in their own rack (KIP-392). For
    `group_settings` and `transaction_settings`, None means the defaults. `profile` is the service
    that the brokers imitate: "kafka", "event-hubs", "redpanda" or "warpstream"
    (`pykclient.testing.fake.profiles`). `epoch_ms` is the wall clock at time 0. Topic ids depend
    on `cluster_id`: clusters with different ids share no topic ids.

    `security` adds listeners with SASL, and users; TLS needs sockets and is not done here.
    `connections_max_reauth_ms` is Kafka's: the lifetime of an authenticated session, 0 for no
    limit.

    There are no quotas and no ACLs. Old records, producers, transactional ids, offsets and groups
    expire within five minutes of their time. A group changes between the classic protocol and
    KIP-848 only while it has no members.
    """

    api_versions: ClassVar = {key: handler.versions for key, handler in HANDLERS.items()}
    unstable_versions: ClassVar = {
        key: handler.unstable_version
        for key, handler in HANDLERS.items()
        if handler.unstable_version is not None
    }

    def session(self, client_host: str = "fake", listener: str | None = None) -> Session:
        """Begin a session for a client's connection.

        `listener` is None without security; any request is then allowed.
        """
        authentication = None
        security = self.security
        if security is not None and listener and security.listener(listener).has_sasl:
            authentication = Authentication(
                self.users, security.mechanisms, self.connections_max_reauth_ms
            )
        session = Session(client_host, listener, authentication)
        self.sessions.add(session)
        return session

    def handle(
        self,
        broker_id: int,
        frame: bytes | memoryview,
        now_ms: int,
        *,
        session: Session | None = None,
    ) -> Call:
        """Handle a request's frame, without its size prefix, and return its `Call`.

        No frame raises: input that Kafka cannot respond to closes the connection.
        """
        self.advance(now_ms)
        session = session or Session()
        authentication = session.authentication
        if authentication is not None and authentication.takes_tokens:
            return self._take_token(broker_id, bytes(frame), session, authentication)
        try:
            header = decode_request_header(frame)
        except DecodeError:
            return self._closed_call(broker_id, now_ms)
        call = Call(broker_id, header, session=session, timers=self.timers)
        size_bytes = len(frame)
        if authentication and not authentication.admits(header.api_key, size_bytes, now_ms):
            self._refuse_stranger(call, frame, authentication.state)
            return call
        if not self._is_spoken(call):
            closes = self.profile.closes_on_unknown_versions
            if header.api_key == ApiKey.API_VERSIONS and not closes:
                respond_with_versions(self, call)
            else:
                call.close(now_ms)
            return call
        try:
            _, request = decode_request(frame, passes_surplus=True)
        except (DecodeError, UnsupportedVersionError):
            call.close(now_ms)
            return call
        self._dispatch(call, request)
        return call

    def handle_request(
        self,
        broker_id: int,
        request: Request,
        now_ms: int,
        *,
        version: int | None = None,
        client_id: str | None = "test",
    ) -> Call:
        """Handle a request object without encoding it; `version` None means the newest."""
        self.advance(now_ms)
        api_version = request.max_version if version is None else version
        header = RequestHeader(request.api_key, api_version, 0, client_id)
        call = Call(broker_id, header, session=Session(), timers=self.timers)
        self._dispatch(call, request)
        return call

    ask = handle_request  # former name

    def _is_spoken(self, call: Call) -> bool:
        try:
            low, high = self.versions(call.broker_id)[ApiKey(call.header.api_key)]
        except (ValueError, KeyError):
            return False
        return low <= call.version <= high

    def _closed_call(self, broker_id: int, now_ms: int) -> Call:
        nothing = RequestHeader(-1, -1, -1, None)
        call = Call(broker_id, nothing, session=Session(), timers=self.timers)
        call.close(now_ms)
        return call

    def _take_token(
        self, broker_id: int, token: bytes, session: Session, authentication: Authentication
    ) -> Call:
        """Continue a SASL exchange without headers; such a refusal has no error message."""
        if not self.brokers[broker_id].is_alive:
            return self._closed_call(broker_id, self.now_ms)
        try:
            challenge, _ = authentication.evaluate(token, self.now_ms, self.wall_ms)
        except SaslRefusal:
            return self._closed_call(broker_id, self.now_ms)
        nothing = RequestHeader(-1, -1, -1, None)
        call = Call(broker_id, nothing, session=session, timers=self.timers)
        call.respond_with_token(challenge, self.now_ms)
        return call

    def _refuse_stranger(
        self, call: Call, frame: bytes | memoryview, awaited: AuthenticationState
    ) -> None:
        """Close the connection, with an error response if a SASL token was expected."""
        if awaited is AuthenticationState.TOKENS and self._is_spoken(call):
            try:
                _, request = decode_request(frame, passes_surplus=True)
            except (DecodeError, UnsupportedVersionError):
                pass
            else:
                handler = HANDLERS[request.api_key]
                call.closes_connection = True
                refused = handler.refuse(self, request, IllegalSaslStateError.code)
                call.respond(refused, self.now_ms)
                return
        call.close(self.now_ms)

    def _dispatch(self, call: Call, request: Request) -> None:
        if not self.brokers[call.broker_id].is_alive:
            call.close(self.now_ms)
            return
        handler = HANDLERS[request.api_key]
        fault = self.faults.take(call.broker_id, request.api_key, request)
        if fault is not None and not self._prepare(call, request, fault):
            return
        response = handler.handle(self, call, request)
        if response is not None:
            call.respond(response, self.now_ms)

    def _prepare(self, call: Call, request: Request, fault: Fault) -> bool:
        """Apply a fault before the broker acts; return whether the broker should act."""
        if fault.is_lost:
            call.ending = CallState.SILENT
        elif fault.closes:
            call.ending = CallState.CLOSED
        call.response_delay_ms = fault.delay_ms
        if fault.acts:
            return True
        if fault.closes:
            call.close(self.now_ms)
        elif fault.response is not None:
            call.respond(fault.response(request), self.now_ms)
        elif fault.error is not None:
            refused = HANDLERS[request.api_key].refuse(self, request, fault.error.code)
            call.respond(refused, self.now_ms)
        else:
            call.silence(self.now_ms)
        return False
