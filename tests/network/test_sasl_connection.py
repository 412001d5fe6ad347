"""A client authenticates each connection before its requests, and again before its session ends."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from pykclient.config.setting import Password
from pykclient.errors import AuthenticationError
from pykclient.metrics import MetricName
from pykclient.network.broker.connection import HANDSHAKE_BYTES_MAX
from pykclient.network.sasl.token import OAuthToken, wall_ms
from pykclient.protocol.message import encode_response
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.network.scripted_network import BOOTSTRAP, BROKERS, Completion, ScriptedNetwork

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.protocol.message import Message
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
        """Respond to SaslAuthenticate; return its bytes."""
        message = peer.requests[0].message
        assert isinstance(message, SaslAuthenticateRequest)
        response = SaslAuthenticateResponse(auth_bytes=challenge, session_lifetime_ms=session_ms)
        self.respond(peer, response)
        return message.auth_bytes

    def refuse_password(self, peer: ScriptedPeer) -> None:
        """Respond to SaslAuthenticate with an error."""
        assert isinstance(peer.requests[0].message, SaslAuthenticateRequest)
        self.respond(peer, SaslAuthenticateResponse(error_code=58, error_message="no such user"))

    def turn_down(self, peer: ScriptedPeer) -> bytes:
        """Complete the steps before the password, then reject it; return the bytes sent."""
        self.shake_hands()
        self.offer(peer)
        self.turn()  # a password may come from a call of the background
        message = peer.requests[0].message
        self.refuse_password(peer)
        assert isinstance(message, SaslAuthenticateRequest)
        return message.auth_bytes

    def connect(self, *, session_ms: int = SESSION_MS) -> ScriptedPeer:
        """Connect to the broker, including SASL."""
        self.client.connect(NODE_ID, self.now_ms)
        peer = self.shake_hands()
        self.offer(peer)
        self.accept(peer, session_ms=session_ms)
        assert self.client.is_ready(NODE_ID, self.now_ms)
        return peer


def network(**changes: object) -> SecuredNetwork:
    return SecuredNetwork(BROKERS[0], security={**PLAIN, **changes})


def kinds(peer: ScriptedPeer) -> list[type[Message]]:
    """Return the kinds of the requests that have no response yet."""
    return [type(each.message) for each in peer.requests]


def test_nothing_else_is_sent_before_the_client_is_authenticated() -> None:
    secured = network()
    completion = secured.write(NODE_ID)
    peer = secured.shake_hands()
    assert kinds(peer) == [SaslHandshakeRequest]
    secured.offer(peer)
    assert kinds(peer) == [SaslAuthenticateRequest]
    assert secured.accept(peer) == b"\0alice\0secret"
    assert kinds(peer) == [MetadataRequest]
    secured.respond(peer)
    assert completion.response == MetadataResponse()


def counted(secured: SecuredNetwork, way: str) -> float:
    name = f"{way}-authentication-total"
    return secured.client.metrics(secured.now_ms)[MetricName(name, "admin-client-metrics")]


def test_authentications_are_counted() -> None:
    secured = network()
    secured.connect()
    assert (counted(secured, "successful"), counted(secured, "failed")) == (1, 0)
    refused = network()
    refused.write(NODE_ID)
    refused.turn_down(refused.peer)
    assert (counted(refused, "successful"), counted(refused, "failed")) == (0, 1)


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


# Sessions that end (KIP-368).


def authenticating_again() -> tuple[SecuredNetwork, ScriptedPeer, Completion, Completion]:
    """Open a connection that reauthenticates after one request, while another one waits."""
    secured = network()
    peer = secured.connect()
    secured.turn(SESSION_MS * 3 // 4)
    before = secured.write(NODE_ID)
    assert kinds(peer) == [MetadataRequest]
    secured.turn(SESSION_MS // 5)
    after = secured.write(NODE_ID)
    assert kinds(peer) == [MetadataRequest, SaslHandshakeRequest]
    return secured, peer, before, after


def test_a_client_authenticates_again_behind_what_is_in_flight_and_before_what_is_not() -> None:
    secured, peer, before, after = authenticating_again()
    secured.respond(peer)
    assert before.response is not None
    secured.offer(peer)
    assert kinds(peer) == [SaslAuthenticateRequest]
    assert secured.accept(peer) == b"\0alice\0secret"
    assert kinds(peer) == [MetadataRequest]
    secured.respond(peer)
    assert after.response is not None
    assert len(secured.port.peers) == 1


def refuse_again(secured: SecuredNetwork, peer: ScriptedPeer) -> None:
    secured.respond(peer)
    secured.offer(peer)
    secured.refuse_password(peer)


def offer_another_mechanism(secured: SecuredNetwork, peer: ScriptedPeer) -> None:
    secured.respond(peer)
    secured.respond(peer, SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI"]))


def announce_a_large_refusal(secured: SecuredNetwork, peer: ScriptedPeer) -> None:
    secured.respond(peer)
    peer.feed((HANDSHAKE_BYTES_MAX + 1).to_bytes(4))
    secured.turn()


def send_a_large_refusal_with_the_response_before_it(
    secured: SecuredNetwork, peer: ScriptedPeer
) -> None:
    """Send a refusal that starts to arrive before the client sees that nothing is in flight."""
    served, refused = peer.requests.popleft(), peer.requests.popleft()
    response = MetadataResponse()
    refusal = SaslHandshakeResponse(error_code=33, mechanisms=["X" * 30_000] * 30)
    frames = [
        bytes(encode_response(message, each.header.api_version, each.header.correlation_id))
        for message, each in ((response, served), (refusal, refused))
    ]
    peer.feed(b"".join(frames))
    secured.turn()


def hang_up_on_it(secured: SecuredNetwork, peer: ScriptedPeer) -> None:
    secured.respond(peer)
    peer.hang_up()
    secured.turn()


def never_respond_to_it(secured: SecuredNetwork, peer: ScriptedPeer) -> None:
    secured.respond(peer)
    for _ in range(35):
        secured.turn(1_000)


def respond_out_of_turn(secured: SecuredNetwork, peer: ScriptedPeer) -> None:
    """Respond to the later request first: the earlier one would get its response."""
    peer.requests.rotate(-1)
    secured.respond(peer, SaslHandshakeResponse(mechanisms=["PLAIN"]))


def hang_up_at_once(secured: SecuredNetwork, peer: ScriptedPeer) -> None:
    peer.hang_up()
    secured.turn()


@pytest.mark.parametrize(
    ("misbehave", "is_served", "reason"),
    [
        (refuse_again, True, "the broker refused the user 'alice': no such user"),
        (offer_another_mechanism, True, "does not offer it; it offers 'GSSAPI'"),
        (announce_a_large_refusal, True, f"a frame of {HANDSHAKE_BYTES_MAX + 1} bytes"),
        (
            send_a_large_refusal_with_the_response_before_it,
            True,
            "a SASL response has 900",
        ),
        (hang_up_on_it, True, "hung up while the client authenticated"),
        (never_respond_to_it, True, "the broker did not respond within 30000 ms"),
        (respond_out_of_turn, False, "the stream is out of sync"),
        (hang_up_at_once, False, "closed the connection"),
    ],
)
def test_what_fails_while_a_client_authenticates_again_is_named_and_may_be_sent_again(
    misbehave: Callable[[SecuredNetwork, ScriptedPeer], None], is_served: bool, reason: str
) -> None:
    secured, peer, before, after = authenticating_again()
    misbehave(secured, peer)
    assert (before.response is not None) == is_served
    ended = [after] if is_served else [before, after]
    for completion in ended:
        assert completion.error is not None
        assert completion.error.retriable
        assert reason in str(completion.error)
    assert reason in str(secured.client.last_error(NODE_ID))
    # The request is sent on the next connection; the client itself retries nothing.
    secured.turn(2_000)
    again = secured.write(NODE_ID)
    peer = secured.shake_hands()
    secured.offer(peer)
    secured.accept(peer)
    assert kinds(peer) == [MetadataRequest]
    secured.respond(peer)
    assert again.response is not None
    assert not peer.requests


@pytest.mark.parametrize(
    ("lifetime_ms", "least_ms", "most_ms"),
    [
        (1, 1_000, 1_000),
        (1_100, 1_000, 1_045),
        (SESSION_MS, SESSION_MS * 85 // 100, SESSION_MS * 95 // 100),
    ],
)
def test_whatever_lifetime_a_broker_grants_a_client_authenticates_once_a_second_at_most(
    lifetime_ms: int, least_ms: int, most_ms: int
) -> None:
    secured = network()
    peer = secured.connect(session_ms=lifetime_ms)
    secured.turn(least_ms - 1)
    assert not peer.requests
    secured.turn(most_ms - least_ms + 1)
    assert kinds(peer) == [SaslHandshakeRequest]


@pytest.mark.parametrize("lifetime_ms", [0, -1, -(2**63), 2**63 - 1])
def test_a_session_without_an_end_is_not_renewed(lifetime_ms: int) -> None:
    secured = network()
    peer = secured.connect(session_ms=lifetime_ms)
    secured.turn(500_000)
    assert not peer.requests
    assert not peer.is_closed()


# Brokers that reject.


def test_a_refusal_is_not_tried_again_in_a_storm() -> None:
    """Whatever calls wait meanwhile, and however many addresses there are."""
    secured = SecuredNetwork(bootstrap=BOOTSTRAP, security=PLAIN)
    refused: list[tuple[str, int]] = []
    for _ in range(400):
        secured.send(timeout_ms=1_000)
        for peer in [each for each in secured.port.peers if not each.is_closed()]:
            secured.turn_down(peer)
            refused.append((peer.host, secured.now_ms))
        secured.turn(25)
    for node in BOOTSTRAP:
        times_ms = [time_ms for host, time_ms in refused if host == node.host]
        assert 5 <= len(times_ms) <= 10, "in ten seconds"
        assert all(later - sooner >= 1_000 for sooner, later in pairwise(times_ms))
    assert isinstance(secured.metadata.fatal_error, AuthenticationError)


def test_a_new_password_works_without_a_new_client() -> None:
    words = iter(["old", "new"])
    secured = network(sasl_password=lambda: next(words))
    secured.client.connect(NODE_ID, secured.now_ms)
    assert secured.turn_down(secured.peer) == b"\0alice\0old"
    assert not secured.client.is_ready(NODE_ID, secured.now_ms)
    secured.turn(1_500)
    completion = secured.write(NODE_ID)
    peer = secured.shake_hands()
    secured.offer(peer)
    secured.turn()
    assert secured.accept(peer) == b"\0alice\0new"
    secured.turn()
    secured.respond(peer)
    assert completion.response is not None


@pytest.mark.parametrize("refuses_first", [True, False])
def test_one_address_that_refuses_while_another_is_away_ends_nothing(refuses_first: bool) -> None:
    secured = SecuredNetwork(bootstrap=BOOTSTRAP[:2], security=PLAIN)
    completion = secured.write()
    wrong_host = ""
    for refuses in (refuses_first, not refuses_first):
        if refuses:
            wrong_host = secured.peer.host
            secured.turn_down(secured.peer)
        else:
            secured.refuse()
        secured.turn()
    for _ in range(10):
        assert secured.metadata.fatal_error is None
        secured.turn(500)
        peer = secured.peer
        if peer.is_closed() or peer.is_ended:
            continue
        if peer.host == wrong_host:
            secured.turn_down(peer)
            continue
        secured.shake_hands()  # it is there again
        secured.offer(peer)
        secured.accept(peer)
        secured.respond(peer)
        break
    assert completion.response is not None
    assert secured.metadata.fatal_error is None


# Listeners that require SASL, and a client without it.


def hung_up_on() -> SecuredNetwork:
    """Return a client without SASL, disconnected by a broker that only sent its versions."""
    plain = SecuredNetwork(bootstrap=BOOTSTRAP[:1])
    failed = plain.write()
    peer = plain.shake_hands()
    assert kinds(peer) == [MetadataRequest]
    peer.hang_up()
    plain.turn()
    assert failed.error is not None
    assert "hung up on the first request" in str(failed.error)
    plain.turn(500)
    plain.write()
    return plain


def test_a_listener_that_requires_sasl_is_named_and_found_out_each_time() -> None:
    plain = hung_up_on()
    for _ in range(3):
        peer = plain.shake_hands()
        assert kinds(peer) == [SaslHandshakeRequest]
        plain.respond(peer, SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI"]))
        error = plain.metadata.fatal_error
        assert isinstance(error, AuthenticationError)
        assert "set security_protocol=SASL_PLAINTEXT, sasl_mechanism to one of 'GSSAPI'" in str(
            error
        )
        assert peer.is_closed()
        plain.turn(1_500)


@pytest.mark.parametrize("hangs_up", [True, False])
def test_a_listener_that_does_not_require_sasl_is_gone_on_with(hangs_up: bool) -> None:
    """E.g. a broker that was shutting down, or a service without SaslHandshake."""
    plain = hung_up_on()
    peer = plain.shake_hands()
    assert kinds(peer) == [SaslHandshakeRequest]
    if hangs_up:
        peer.hang_up()
        plain.turn()
        plain.turn(1_500)
        peer = plain.shake_hands()
    else:
        plain.respond(peer, SaslHandshakeResponse(error_code=34))
    assert kinds(peer) == [MetadataRequest]
    plain.respond(peer)
    assert plain.metadata.fatal_error is None
    peer.hang_up()
    plain.turn()
    plain.turn(1_500)
    plain.write()
    assert kinds(plain.shake_hands()) == [MetadataRequest], "it has served, so it has no SASL"
