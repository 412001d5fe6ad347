"""Authentication at fake brokers without sockets: the RFC's example, expiring sessions, users."""

from __future__ import annotations

import base64
import secrets
from typing import Any

import pytest

from pykclient.errors import UsageError
from pykclient.protocol.message import decode_response, encode_request
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pykclient.testing import Acl, ClusterSecurity, FakeCluster
from pykclient.testing.fake.authentication import REAUTHENTICATION_INTERVAL_MS
from pykclient.testing.fake.connection import FakeConnection
from pykclient.testing.fake.sasl import ScramExchange, Users

LIFETIME_MS = 5_000
SECURITY = ClusterSecurity(
    listeners=("SASL_PLAINTEXT", "PLAINTEXT"), users={"alice": "canary-3f"}, mechanisms=("PLAIN",)
)


class Client:
    """A client on a listener, which sends requests one by one at chosen times."""

    def __init__(self, cluster: FakeCluster, listener: str = "SASL_PLAINTEXT") -> None:
        self._connection = FakeConnection(cluster, 0, listener=listener, on_change=lambda: None)

    def send(self, request: Any, kind: Any, now_ms: int) -> Any:
        data = bytes(encode_request(request, 1, 0, "test"))
        self._connection.get_buffer()[: len(data)] = data
        self._connection.buffer_updated(len(data), now_ms)
        frame = b"".join(self._connection.take_output())
        return decode_response(kind, 1, frame[4:]) if frame else None

    def authenticate(self, now_ms: int, password: str = "canary-3f") -> Any:
        handshake = SaslHandshakeRequest(mechanism="PLAIN")
        offered = self.send(handshake, SaslHandshakeResponse, now_ms)
        if offered is None or offered.error_code:
            return offered
        token = f"\0alice\0{password}".encode()
        request = SaslAuthenticateRequest(auth_bytes=token)
        return self.send(request, SaslAuthenticateResponse, now_ms)

    def is_served(self, now_ms: int) -> bool:
        return self.send(MetadataRequest(topics=[]), MetadataResponse, now_ms) is not None


def test_scram_is_served_as_in_the_example_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    users = Users({"user": "pencil"})
    credential = users.scram("SCRAM-SHA-256", "user")
    assert credential is not None
    credential.salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    exchange = ScramExchange("SCRAM-SHA-256", users)
    assert exchange.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", 0) == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert exchange.user is None
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert exchange.evaluate(final, 0) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert exchange.user == "user"


def test_a_session_ends_unless_the_client_authenticates_again() -> None:
    cluster = FakeCluster(1, security=SECURITY, connections_max_reauth_ms=LIFETIME_MS)
    lazy, dutiful = Client(cluster), Client(cluster)
    for client in (lazy, dutiful):
        assert client.authenticate(0).session_lifetime_ms == LIFETIME_MS
    assert dutiful.authenticate(LIFETIME_MS).session_lifetime_ms == LIFETIME_MS
    assert [lazy.is_served(now_ms) for now_ms in (LIFETIME_MS, LIFETIME_MS + 1)] == [True, False]
    assert dutiful.is_served(2 * LIFETIME_MS)
    late_ms = 2 * LIFETIME_MS + 1
    assert dutiful.authenticate(late_ms).error_code == 0, "late, but before any other request"
    assert dutiful.is_served(late_ms)


def test_a_client_may_not_authenticate_again_and_again() -> None:
    cluster = FakeCluster(1, security=SECURITY, connections_max_reauth_ms=LIFETIME_MS)
    client = Client(cluster)
    client.authenticate(0)
    assert client.authenticate(1).error_code == 0
    illegal = client.authenticate(REAUTHENTICATION_INTERVAL_MS)
    assert (illegal.error_code, illegal.mechanisms) == (34, [])
    assert client.is_served(REAUTHENTICATION_INTERVAL_MS)
    assert client.authenticate(REAUTHENTICATION_INTERVAL_MS + 1).error_code == 0


def test_a_password_changes_and_a_user_goes() -> None:
    cluster = FakeCluster(1, security=SECURITY)
    before = cluster.users.scram("SCRAM-SHA-256", "alice")
    cluster.users.set_password("alice", "new")
    assert cluster.users.scram("SCRAM-SHA-256", "alice") is not before
    assert Client(cluster).authenticate(0).error_code == 58
    assert Client(cluster).authenticate(0, "new").error_code == 0
    cluster.users.remove("alice")
    assert Client(cluster).authenticate(0, "new").error_code == 58
    assert cluster.users.scram("SCRAM-SHA-256", "alice") is None
    with pytest.raises(UsageError, match="there is no user 'alice'"):
        cluster.users.remove("alice")
    with pytest.raises(UsageError, match="give both"):
        cluster.users.set_password("bob", "")


def test_users_show_no_password() -> None:
    assert repr(Users(SECURITY.users)) == "Users(alice)"


def test_a_listener_without_sasl_serves_anyone_and_clients_are_sent_to_its_own_address() -> None:
    cluster = FakeCluster(1, security=SECURITY)
    assert Client(cluster, "PLAINTEXT").is_served(0)
    assert not Client(cluster).is_served(0)


@pytest.mark.parametrize(
    ("security", "reason"),
    [
        (ClusterSecurity(acls=[Acl("User:alice", "ALL", topic="t")]), "no ACLs; leave out acls"),
        (ClusterSecurity(super_users=["User:alice"]), "no ACLs"),
        (ClusterSecurity(jwks_url="https://example.com/keys"), "verify no token signatures"),
    ],
)
def test_what_fake_brokers_have_not_is_refused(security: ClusterSecurity, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        FakeCluster(1, security=security)
