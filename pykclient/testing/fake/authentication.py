"""What the client of one connection has shown of itself, on a listener with SASL.

It begins with the client's request for versions or for a mechanism, and goes on as the table says.
Until it is done, no other request is served: the connection is closed, as Kafka does. A session
may have a lifetime (KIP-368): the client then authenticates again on the same connection, or is
closed at its next request after the session has ended.

Owner: the connection.
Source: Java classes ``SaslServerAuthenticator`` and ``KafkaChannel``; KIP-43, KIP-152 (tokens in
SaslAuthenticate requests; before, they have no header), KIP-368.
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
"""Kafka's ``sasl.server.max.receive.size``: of a request before the client is authenticated."""

REAUTHENTICATION_INTERVAL_MS: Final = 1_000
"""The client may not begin to authenticate again any sooner."""

_HEADERS_FROM_VERSION = 1
"""Of SaslHandshake: from then on tokens come in SaslAuthenticate requests."""


class AuthenticationState(Enum):
    """How far a client is."""

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
    """The authentication of one connection; `lifetime_ms` 0 is a session without an end."""

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
        """Whether the client may send any request."""
        return self.state is AuthenticationState.DONE

    @property
    def takes_tokens(self) -> bool:
        """Whether what comes next is a token without a header."""
        return self.state is AuthenticationState.TOKENS and not self._has_headers

    def admits(self, api_key: int, size_bytes: int, now_ms: int) -> bool:
        """Whether a request is served; else the connection is to be closed.

        The one that begins another authentication is noted.
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
            return True  # too early, it is served as on a listener without SASL: refused
        return now_ms <= self._expires_ms

    def on_versions(self) -> None:
        """Note that the client has the versions of APIs, which it gets once."""
        if self.state is AuthenticationState.VERSIONS:
            self._to(AuthenticationState.MECHANISM)

    def choose(self, mechanism: str, version: int) -> bool:
        """Begin an exchange by this mechanism; return whether there is one of that name."""
        if mechanism not in self.mechanisms:
            self.fail()
            return False
        self._has_headers = version >= _HEADERS_FROM_VERSION
        if self.user is not None and mechanism != self._mechanism:
            self._exchange = None  # Kafka responds as if it were good, and closes at what follows
        else:
            self._exchange = EXCHANGES[mechanism](self._users)
            self._mechanism = mechanism
        self._to(AuthenticationState.TOKENS)
        return True

    def evaluate(self, token: bytes, now_ms: int, wall_ms: int) -> tuple[bytes, int]:
        """Go on with a token; return the challenge and, at the end, the session's lifetime in ms.

        The lifetime is 0 for one without an end.

        Raises:
            SaslRefusal: the client is refused, and the connection is to be closed.
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
        """Have the session end now."""
        if self.is_done:
            self._expires_ms = now_ms - 1

    def fail(self) -> None:
        """Note that the client was refused."""
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
    """A client's connection as its requests are served.

    `listener` is the name of the listener that it came to, None for that of a cluster without
    security; `authentication` is None on a listener without SASL.
    """

    client_host: str = "fake"
    listener: str | None = None
    authentication: Authentication | None = None
