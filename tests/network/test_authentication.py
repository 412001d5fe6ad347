"""SASL authentication advances from state to state, or fails with the broker's reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pykclient.errors import AuthenticationError, ConnectionFailedError, DecodeError
from pykclient.errors.text import TEXT_LENGTH_MAX
from pykclient.network.broker.authentication import (
    ROUNDS_MAX,
    Authentication,
    AuthenticationState,
)
from pykclient.network.broker.handshake import ApiVersions
from pykclient.network.sasl.mechanism import SaslMechanism
from pykclient.protocol.message import encode_response
from pykclient.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pykclient.types import Node
from tests.network.scripted_port import ALL_RANGES

if TYPE_CHECKING:
    from pykclient.protocol.message import Message

NODE = Node(1, "broker", 9092)
SIZE_BYTES = 4


class Echo(SaslMechanism):
    """A mechanism that ends when the broker responds with "end"."""

    name = "ECHO"
    user = "alice"
    is_quick = True
    cure = "check the echo"

    def begin(self) -> bytes:
        return b"first"

    def respond(self, challenge: bytes) -> bytes | None:
        if challenge == b"lie":
            raise AuthenticationError("its proof is wrong")
        return None if challenge == b"end" else b"to " + challenge


def frame_of(message: Message, version: int) -> memoryview:
    return memoryview(encode_response(message, version, 7))[SIZE_BYTES:]


def authenticating(
    *, error_code: int = 0, mechanisms: tuple[str, ...] = ("ECHO",)
) -> Authentication:
    authentication = Authentication(NODE, ApiVersions(NODE, ALL_RANGES), "ECHO")
    assert isinstance(authentication.message, SaslHandshakeRequest)
    assert (authentication.message.mechanism, authentication.version) == ("ECHO", 1)
    message = SaslHandshakeResponse(error_code=error_code, mechanisms=list(mechanisms))
    authentication.on_frame(frame_of(message, 1))
    assert authentication.state is AuthenticationState.CREDENTIALS
    authentication.begin(Echo())
    authentication.work_at_once()
    return authentication


def respond(authentication: Authentication, **fields: Any) -> None:
    message = SaslAuthenticateResponse(**fields)
    authentication.on_frame(frame_of(message, authentication.version))
    authentication.work_at_once()


def test_it_goes_on_until_its_mechanism_has_ended() -> None:
    authentication = authenticating()
    assert isinstance(authentication.message, SaslAuthenticateRequest)
    assert (authentication.message.auth_bytes, authentication.version) == (b"first", 2)
    respond(authentication, auth_bytes=b"more")
    assert authentication.message.auth_bytes == b"to more"
    respond(authentication, auth_bytes=b"end", session_lifetime_ms=5_000)
    assert authentication.state is AuthenticationState.DONE
    assert authentication.session_lifetime_ms == 5_000


@pytest.mark.parametrize(
    ("error_code", "reason"),
    [
        (33, r"does not offer it; it offers 'PLAIN', 'GSSAPI': set sasl_mechanism to one"),
        (34, r"has no SASL on this listener; check security_protocol, and the port"),
        (31, r"refused it: ClusterAuthorizationFailedError"),
    ],
)
def test_a_mechanism_that_is_refused_is_an_error_with_the_cure(
    error_code: int, reason: str
) -> None:
    with pytest.raises(
        AuthenticationError, match=f"authentication by ECHO failed: the broker {reason}"
    ):
        authenticating(error_code=error_code, mechanisms=("PLAIN", "GSSAPI"))


def test_a_list_of_long_mechanisms_makes_a_short_error() -> None:
    """Characters with the longest escapes, which `repr` doubles."""
    with pytest.raises(AuthenticationError, match="does not offer it") as caught:
        authenticating(error_code=33, mechanisms=("\U000e0001" * 8_000,) * 3_000)
    assert len(str(caught.value)) < TEXT_LENGTH_MAX + 500


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"error_code": 58, "error_message": "no such user"},
            "the broker refused the user 'alice': no such user",
        ),
        (
            {"error_code": 58, "error_message": None},
            "the broker refused the user 'alice': SASL_AUTHENTICATION_FAILED; check the echo$",
        ),
        ({"auth_bytes": b"lie"}, "ECHO failed: its proof is wrong"),
    ],
)
def test_an_authentication_that_fails_is_an_error_with_the_brokers_reason(
    fields: dict[str, Any], reason: str
) -> None:
    authentication = authenticating()
    with pytest.raises(AuthenticationError, match=reason) as caught:
        respond(authentication, **fields)
    assert caught.value.is_refusal
    assert authentication.state is AuthenticationState.FAILED


@pytest.mark.parametrize(
    ("cause", "error", "text"),
    [
        (KeyError("password"), AuthenticationError, "failed: KeyError: 'password'"),
        (ConnectionFailedError("no thread"), ConnectionFailedError, "failed: no thread"),
    ],
)
def test_what_a_mechanism_raises_is_the_cause(
    cause: Exception, error: type[Exception], text: str
) -> None:
    authentication = authenticating()
    message = SaslAuthenticateResponse(auth_bytes=b"more")
    authentication.on_frame(frame_of(message, authentication.version))
    with pytest.raises(error, match=text) as caught:
        authentication.on_worked(cause)
    assert caught.value.__cause__ is cause


def test_a_broker_that_goes_on_without_an_end_is_given_up() -> None:
    authentication = authenticating()
    for _ in range(ROUNDS_MAX - 1):
        respond(authentication, auth_bytes=b"more")
    with pytest.raises(AuthenticationError, match=f"did not finish after {ROUNDS_MAX} rounds"):
        respond(authentication, auth_bytes=b"more")


def test_a_response_cut_anywhere_is_a_decode_error() -> None:
    message = SaslAuthenticateResponse(auth_bytes=b"more", error_message="text")
    for size in range(len(frame_of(message, 2))):
        authentication = authenticating()
        with pytest.raises(DecodeError):
            authentication.on_frame(frame_of(message, 2)[:size])
