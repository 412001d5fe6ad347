"""One SASL authentication of a connection: SaslHandshake, then rounds of SaslAuthenticate.

It is part of the handshake that opens a connection. It is repeated while the connection is in use,
before the session that the broker granted expires (KIP-368). It never blocks: the computation of a
mechanism is `work`, which the owner runs where it may take time.

Owner: the connection.
Source: KIP-43, KIP-152 (SASL in Kafka requests), KIP-368; Java class
``SaslClientAuthenticator``.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from pykclient.errors import (
    AuthenticationError,
    ConnectionFailedError,
    IllegalSaslStateError,
    TlsError,
    UnsupportedSaslMechanismError,
    error_for_code,
)
from pykclient.errors.text import printable
from pykclient.network.interrupts import raise_of_signal_handler
from pykclient.protocol.message import decode_response
from pykclient.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.network.broker.handshake import ApiVersions
    from pykclient.network.sasl.mechanism import SaslMechanism
    from pykclient.protocol.message import Request
    from pykclient.types import Node

ROUNDS_MAX: Final = 32
"""Maximum SaslAuthenticate requests of one authentication. SCRAM sends two, GSSAPI up to five."""


MECHANISMS_SHOWN_MAX: Final = 16
"""Maximum number of offered mechanisms in the text of an error."""


class AuthenticationState(Enum):
    MECHANISM = "mechanism"
    CREDENTIALS = "credentials"
    WORKING = "working"
    CHALLENGE = "challenge"
    DONE = "done"
    FAILED = "failed"


NEXT: dict[AuthenticationState, frozenset[AuthenticationState]] = {
    AuthenticationState.MECHANISM: frozenset(
        {AuthenticationState.CREDENTIALS, AuthenticationState.FAILED}
    ),
    AuthenticationState.CREDENTIALS: frozenset(
        {AuthenticationState.WORKING, AuthenticationState.FAILED}
    ),
    AuthenticationState.WORKING: frozenset(
        {AuthenticationState.CHALLENGE, AuthenticationState.DONE, AuthenticationState.FAILED}
    ),
    AuthenticationState.CHALLENGE: frozenset(
        {AuthenticationState.WORKING, AuthenticationState.FAILED}
    ),
    AuthenticationState.DONE: frozenset(),
    AuthenticationState.FAILED: frozenset(),
}


class Authentication:
    """One authentication with the mechanism `name`. `message` and `version` are sent next."""

    def __init__(self, node: Node, versions: ApiVersions, name: str) -> None:
        self.state = AuthenticationState.MECHANISM
        self.mechanism: SaslMechanism | None = None
        """The mechanism; None until its credentials are available."""
        self.work: Callable[[], bytes | None] | None = None
        """The mechanism's next computation, in state WORKING; may block unless the mechanism is
        quick."""
        self.session_lifetime_ms = 0
        """Time for which the broker accepts requests after this; 0 or less means no limit."""
        self._node = node
        self._versions = versions
        self._name = name
        self._round_count = 0
        self._request(SaslHandshakeRequest(mechanism=name))

    @property
    def awaits_broker(self) -> bool:
        return self.state in (AuthenticationState.MECHANISM, AuthenticationState.CHALLENGE)

    def describe_wait(self, awaited: str) -> str:
        """Describe the wait for the mechanism or for its credentials, named `awaited`."""
        what = awaited if self.state is AuthenticationState.CREDENTIALS else "the mechanism"
        return f"{self._place} waits for {what}"

    def on_frame(self, frame: memoryview) -> None:
        """Process the broker's response.

        Raises:
            DecodeError: the response is malformed.
            AuthenticationError: the broker refused the client, or its mechanism.
        """
        if self.state is AuthenticationState.MECHANISM:
            self._take_mechanisms(decode_response(SaslHandshakeResponse, self.version, frame))
        else:
            self._take_challenge(decode_response(SaslAuthenticateResponse, self.version, frame))

    def begin(self, mechanism: SaslMechanism) -> None:
        """Continue with a mechanism once its credentials are available."""
        self._to(AuthenticationState.WORKING)
        self.mechanism = mechanism
        self.work = mechanism.begin

    def on_worked(self, result: bytes | BaseException | None) -> None:
        """Process the result of `work`: the next bytes to send, None at the end, or an exception.

        Raises:
            AuthenticationError: the mechanism failed, or does not trust the broker.
            ConnectionFailedError: the work could not be started.
        """
        self.work = None
        if isinstance(result, BaseException):
            self.fail(result)
        if result is None:
            self._to(AuthenticationState.DONE)
            return
        self._round_count += 1
        if self._round_count > ROUNDS_MAX:
            self._refuse(f"the broker did not finish after {ROUNDS_MAX} rounds")
        self._to(AuthenticationState.CHALLENGE)
        self._request(SaslAuthenticateRequest(auth_bytes=result))

    def work_at_once(self) -> None:
        """Do the work of a quick mechanism. Raises the errors of `on_worked`."""
        assert self.work is not None
        result: bytes | BaseException | None
        try:
            result = self.work()
        except Exception as error:  # noqa: BLE001  # malformed broker bytes or credentials
            raise_of_signal_handler(error)
            result = error
        self.on_worked(result)

    def fail(self, cause: BaseException) -> NoReturn:
        """Raise the error for an exception of the mechanism or of its credentials.

        Raises:
            ConnectionFailedError, TlsError: the cause is one.
            AuthenticationError: for any other cause.
        """
        self._to(AuthenticationState.FAILED)
        error: AuthenticationError | ConnectionFailedError | TlsError
        if isinstance(cause, ConnectionFailedError):
            error = ConnectionFailedError(f"{self._failed}{cause}")
        elif isinstance(cause, TlsError):
            error = TlsError(f"{self._failed}{cause}")
        elif isinstance(cause, AuthenticationError):
            error = AuthenticationError(f"{self._failed}{cause}")
        else:
            error = AuthenticationError(f"{self._failed}{type(cause).__name__}: {cause}")
        error.__cause__ = cause.__cause__ if isinstance(cause, AuthenticationError) else cause
        raise error

    def timed_out(self, timeout_ms: int, awaited: str) -> AuthenticationError:
        """Return the error of an authentication that timed out."""
        if self.awaits_broker:
            return AuthenticationError(
                f"{self._failed}the broker did not respond within {timeout_ms} ms; it is "
                f"overloaded or unreachable; if it needs longer, raise request_timeout_ms"
            )
        what = awaited if self.state is AuthenticationState.CREDENTIALS else "the mechanism"
        return AuthenticationError(f"{self._failed}it waited for {what} for {timeout_ms} ms")

    # The broker's responses.

    def _take_mechanisms(self, response: SaslHandshakeResponse) -> None:
        if response.error_code == UnsupportedSaslMechanismError.code:
            listed = [repr(printable(name)) for name in response.mechanisms[:MECHANISMS_SHOWN_MAX]]
            if len(response.mechanisms) > len(listed):
                listed.append(f"and {len(response.mechanisms) - len(listed)} more")
            offered = printable(", ".join(listed)) or "none"
            self._refuse(
                f"the broker does not offer it; it offers {offered}: set sasl_mechanism to one"
            )
        if response.error_code == IllegalSaslStateError.code:
            self._refuse(
                "the broker has no SASL on this listener; check security_protocol, and the port"
            )
        if response.error_code != 0:
            refusal = error_for_code(response.error_code, "")
            self._refuse(f"the broker refused it: {refusal!r}")
        self._to(AuthenticationState.CREDENTIALS)

    def _take_challenge(self, response: SaslAuthenticateResponse) -> None:
        mechanism = self.mechanism
        assert mechanism is not None
        if response.error_code != 0:
            said = printable(mechanism.masked(response.error_message or ""))
            reason = said or error_for_code(response.error_code, "").name
            if mechanism.refusal:
                reason = f"{mechanism.refusal}; {reason}"
            user = f"user {mechanism.user!r}" if mechanism.user else "client"
            cure = f"; {mechanism.cure}" if mechanism.cure else ""
            self._refuse(f"the broker refused the {user}: {reason}{cure}")
        self.session_lifetime_ms = response.session_lifetime_ms
        self.work = partial(mechanism.respond, response.auth_bytes)
        self._to(AuthenticationState.WORKING)

    def _request(self, message: Request) -> None:
        self.message = message
        self.version = self._versions.choose(message, None)

    @property
    def _place(self) -> str:
        return f"{self._node}: authentication by {self._name}"

    @property
    def _failed(self) -> str:
        return f"{self._place} failed: "

    def _refuse(self, reason: str) -> NoReturn:
        self._to(AuthenticationState.FAILED)
        raise AuthenticationError(f"{self._failed}{reason}")

    def _to(self, state: AuthenticationState) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state
