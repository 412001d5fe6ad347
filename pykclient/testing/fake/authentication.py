"""Authentication of a client on a listener with SASL.

It begins with the client's request for API versions or a mechanism, and follows the table below.
Until it is done, any other request closes the connection, as in Kafka. A session may have a
lifetime (KIP-368): the client then re-authenticates on the same connection, or is closed at its
next request after the session has expired.

Owner: the connection.
Source: Java classes ``SaslServerAuthenticator`` and ``KafkaChannel``; KIP-43, KIP-152 (tokens in
SaslAuthenticate requests; earlier they have no header), KIP-368.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake.sasl import EXCHANGES, SaslRefusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.testing.fake.sasl import Exchange, Users

RECEIVE_BYTES_MAX: Final = 524_288
"""Maximum request size before authentication: Kafka's ``sasl.server.max.receive.size``."""

REAUTHENTICATION_INTERVAL_MS: Final = 1_000
"""Minimum time between two re-authentications."""

_HEADERS_FROM_VERSION = 1
"""First SaslHandshake version after which tokens are sent in SaslAuthenticate requests."""


class AuthenticationState(Enum):
    """Progress of a client's authentication."""

    VERSIONS = "versions"
    MECHANISM = "mechanism"
    TOKENS = "tokens"
    DONE = "done"
    FAILED = "failed"


NEXT: dict[AuthenticationState, frozenset[AuthenticationState]] = {
    AuthenticationState.VERSIONS: frozenset(
        {AuthenticationState.MECHANISM, AuthenticationState.TOKENS, AuthenticationState.FAILED}
    ),
    AuthenticationState.MECHANISM: frozenset(
        {AuthenticationState.TOKENS, AuthenticationState.FAILED}
    ),
    AuthenticationState.TOKENS: frozenset({AuthenticationState.DONE, AuthenticationState.FAILED}),
    AuthenticationState.DONE: frozenset({AuthenticationState.MECHANISM}),
    AuthenticationState.FAILED: frozenset(),
}

_ADMITTED: dict[AuthenticationState, frozenset[int]] = {
    AuthenticationState.VERSIONS: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
    AuthenticationState.MECHANISM: frozenset({ApiKey.SASL_HANDSHAKE}),
    AuthenticationState.TOKENS: frozenset({ApiKey.SASL_AUTHENTICATE}),
    AuthenticationState.FAILED: frozenset(),
}


class Authentication:
    """The authentication of a connection; a `lifetime_ms` of 0 means sessions do not expire."""

    def __init__(self, users: Users, mechanisms: Sequence[str], lifetime_ms: int) -> None:
        self.state = AuthenticationState.VERSIONS
        self.mechanisms = tuple(mechanisms)
        self.user: str | None = None
        """None before the first authentication."""
        self._users = users
        self._lifetime_ms = lifetime_ms
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._has_headers = False
        self._expires_ms: int | None = None
        self._began_again_ms: int | None = None

    @property
    def is_done(self) -> bool:
        """True if the client may send any request."""
        return self.state is AuthenticationState.DONE

    @property
    def takes_tokens(self) -> bool:
        """True if the next frame is a token without a header."""
        return self.state is AuthenticationState.TOKENS and not self._has_headers

    def admits(self, api_key: int, size_bytes: int, now_ms: int) -> bool:
        """Return whether to serve a request; otherwise the connection must be closed.

        A request that begins a re-authentication changes the state.
        """
        if self.state is AuthenticationState.TOKENS and self._exchange is None:
            self.fail()
        if not self.is_done:
            return api_key in _ADMITTED[self.state] and size_bytes <= RECEIVE_BYTES_MAX
        if self._expires_ms is None:
            return True
        if api_key == ApiKey.SASL_HANDSHAKE:
            began_ms = self._began_again_ms
            if began_ms is None or now_ms - began_ms >= REAUTHENTICATION_INTERVAL_MS:
                self._began_again_ms = now_ms
                self._to(AuthenticationState.MECHANISM)
            return True  # if too early, the handler refuses it, as on a listener without SASL
        return now_ms <= self._expires_ms

    def on_versions(self) -> None:
        """Handle an ApiVersions request, which a client sends at most once."""
        if self.state is AuthenticationState.VERSIONS:
            self._to(AuthenticationState.MECHANISM)

    def choose(self, mechanism: str, version: int) -> bool:
        """Begin an exchange with this mechanism; return False if it does not exist."""
        if mechanism not in self.mechanisms:
            self.fail()
            return False
        self._has_headers = version >= _HEADERS_FROM_VERSION
        if self.user is not None and mechanism != self._mechanism:
            self._exchange = None  # Kafka responds with success, and closes at the next request
        else:
            self._exchange = EXCHANGES[mechanism](self._users)
            self._mechanism = mechanism
        self._to(AuthenticationState.TOKENS)
        return True

    def evaluate(self, token: bytes, now_ms: int, wall_ms: int) -> tuple[bytes, int]:
        """Process a token; return the challenge and, at the end, the session lifetime in ms.

        A lifetime of 0 means the session does not expire.

        Raises:
            SaslRefusal: authentication failed, and the connection must be closed.
        """
        exchange = self._exchange
        assert exchange is not None, "a mechanism was chosen, and the request admitted"
        try:
            challenge = exchange.evaluate(token, wall_ms)
            if exchange.user is None:
                return challenge, 0
            if self.user not in (None, exchange.user):
                raise SaslRefusal(
                    f"Cannot change principals during re-authentication from User.{self.user}: "
                    f"User.{exchange.user}"
                )
        except SaslRefusal as refusal:
            self.fail()
            again = "authentication" if self.user is None else "re-authentication"
            raise SaslRefusal(
                refusal.reason
                or f"Authentication failed during {again} due to invalid credentials with SASL "
                f"mechanism {self._mechanism}"
            ) from None
        self.user = exchange.user
        self._exchange = None
        self._to(AuthenticationState.DONE)
        return challenge, self._begin_session(exchange.expires_ms, now_ms, wall_ms)

    def expire(self, now_ms: int) -> None:
        """Expire the session now."""
        if self.is_done:
            self._expires_ms = now_ms - 1

    def fail(self) -> None:
        """Refuse the client for good."""
        self._to(AuthenticationState.FAILED)

    def _begin_session(self, expires_ms: int | None, now_ms: int, wall_ms: int) -> int:
        ends = [] if expires_ms is None else [max(0, expires_ms - wall_ms)]
        if self._lifetime_ms > 0:
            ends.append(self._lifetime_ms)
        lifetime_ms = min(ends, default=0)
        self._expires_ms = now_ms + lifetime_ms if ends else None
        return lifetime_ms

    def _to(self, state: AuthenticationState) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state


@dataclass(slots=True, eq=False, weakref_slot=True)
class Session:
    """A client's connection, as request handlers see it.

    `listener` is the name of its listener, None without security; `authentication` is None on a
    listener without SASL.
    """

    client_host: str = "fake"
    listener: str | None = None
    authentication: Authentication | None = None
