"""A client authenticates each connection before its requests, and again before the session ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.config.setting import Password
from pykclient.errors import AuthenticationError
from pykclient.network.sasl.token import OAuthToken, wall_ms
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.network.scripted_network import BROKERS, ScriptedNetwork

if TYPE_CHECKING:
    from tests.network.scripted_port import ScriptedPeer

PLAIN = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "secret",
}
NODE_ID = BROKERS[0].id
SESSION_MS = 60_000


class SecuredNetwork(ScriptedNetwork):
    """A client whose brokers require SASL."""

    def offer(self, peer: ScriptedPeer) -> None:
        """Respond to SaslHandshake."""
        assert isinstance(peer.requests[0].message, SaslHandshakeRequest)
        self.respond(peer, SaslHandshakeResponse(mechanisms=["PLAIN"]))

    def accept(
        self, peer: ScriptedPeer, challenge: bytes = b"", *, session_ms: int = SESSION_MS
    ) -> bytes:
        """Respond to SaslAuthenticate; return what it had."""
        message = peer.requests[0].message
        assert isinstance(message, SaslAuthenticateRequest)
        response = SaslAuthenticateResponse(auth_bytes=challenge, session_lifetime_ms=session_ms)
        self.respond(peer, response)
        return message.auth_bytes

    def connect(self, *, session_ms: int = SESSION_MS) -> ScriptedPeer:
        """Connect to the broker, SASL included."""
        self.client.connect(NODE_ID, self.now_ms)
        peer = self.shake_hands()
        self.offer(peer)
        self.accept(peer, session_ms=session_ms)
        assert self.client.is_ready(NODE_ID, self.now_ms)
        return peer


def network(**changes: object) -> SecuredNetwork:
    return SecuredNetwork(BROKERS[0], security={**PLAIN, **changes})


@pytest.mark.promise("SASL authenticates each connection before any other request")
def test_nothing_else_is_sent_before_the_client_is_authenticated() -> None:
    secured = network()
    completion = secured.write(NODE_ID)
    peer = secured.shake_hands()
    assert [type(each.message) for each in peer.requests] == [SaslHandshakeRequest]
    secured.offer(peer)
    assert [type(each.message) for each in peer.requests] == [SaslAuthenticateRequest]
    assert secured.accept(peer) == b"\0alice\0secret"
    assert [type(each.message) for each in peer.requests] == [MetadataRequest]
    secured.respond(peer)
    assert completion.response == MetadataResponse()


def tokens(**changes: object) -> dict[str, object]:
    def provide() -> OAuthToken:
        return OAuthToken(Password("a.b.c"), wall_ms() + 3_600_000, "alice")

    return {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": provide, **changes}


def test_a_connection_waits_for_its_token_and_not_the_driver() -> None:
    secured = network(**tokens(sasl_username=None, sasl_password=None))
    secured.port.calls.are_held = True
    secured.client.connect(NODE_ID, secured.now_ms)
    peer = secured.shake_hands()
    secured.offer(peer)
    secured.turn()
    assert len(secured.port.calls.under_way) == 1
    assert not peer.requests
    assert "waits for a token of sasl_oauth_token_provider" in secured.client.describe_failures()
    secured.port.calls.are_held = False
    secured.turn()
    secured.turn()
    assert secured.accept(peer) == b"n,,\x01auth=Bearer a.b.c\x01\x01"
    assert secured.client.is_ready(NODE_ID, secured.now_ms)


def test_a_token_that_cannot_be_fetched_is_an_error_with_its_cause() -> None:
    def fail() -> str:
        raise LookupError("no such client")

    secured = network(**tokens(sasl_oauth_token_provider=fail))
    secured.client.connect(NODE_ID, secured.now_ms)
    peer = secured.shake_hands()
    secured.offer(peer)
    for _ in range(3):
        secured.turn()
    error = secured.client.last_error(NODE_ID)
    assert isinstance(error, AuthenticationError)
    assert "no token of sasl_oauth_token_provider: LookupError: no such client" in str(error)
    assert isinstance(error.__cause__, LookupError)
    assert peer.is_closed()
