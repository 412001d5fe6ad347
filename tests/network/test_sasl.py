"""SASL mechanisms, compared with the examples in their RFCs, and untrustworthy servers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from itertools import count
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.admin.config import AdminConfig
from pykclient.config.setting import Password
from pykclient.errors import AuthenticationError
from pykclient.network.log import ClientLog
from pykclient.network.sasl.authenticator import Authenticator, make_mechanism
from pykclient.network.sasl.plain import Plain
from pykclient.network.sasl.scram import DELEGATION_TOKEN, ITERATIONS_MAX, ITERATIONS_MIN, Scram
from tests.network.scripted_port import ScriptedPort

RFC_7677 = "SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram(nonce: str = "abc", user: str = "user", password: str = "pencil") -> Scram:
    return Scram("SCRAM-SHA-256", user, Password(password), nonce)


def test_plain_sends_name_and_password_once() -> None:
    plain = Plain("tim", Password("tanstaaftanstaaf"))
    assert plain.begin() == b"\0tim\0tanstaaftanstaaf"  # the example of RFC 4616
    assert plain.respond(b"") is None  # type: ignore[func-returns-value]


def test_scram_says_what_the_example_of_rfc_7677_has() -> None:
    name, user, password, nonce = RFC_7677
    mechanism = Scram(name, user, Password(password), nonce)
    assert mechanism.begin() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert mechanism.respond(SERVER_FIRST) == CLIENT_FINAL
    assert mechanism.respond(SERVER_FINAL) is None


def test_a_user_name_is_escaped() -> None:
    assert scram(user="a=b,c").begin() == b"n,,n=a=3Db=2Cc,r=abc"


@pytest.mark.parametrize(
    ("option", "sent"),
    [
        *(("", b""), ("tokenauth=false", b"")),
        *(('tokenauth="true"', b",tokenauth=true"), ("tokenauth=TRUE", b",tokenauth=true")),
    ],
)
def test_a_delegation_token_is_announced_as_java_does(option: str, sent: bytes) -> None:
    """Without the extension a broker looks for a user with that name, and rejects the password."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    config = AdminConfig.from_settings(
        bootstrap_servers="h:9092",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_jaas_config=f'{module} required username="id" password="hmac" {option};',
    )
    first = make_mechanism(config, "h").begin()
    assert re.fullmatch(rb"n,,n=id,r=[0-9a-f]+" + re.escape(sent), first)


class Server:
    """The server's side of SCRAM, implemented independently."""

    def __init__(self, hash_name: str, password: str, iterations: int) -> None:
        self._hash = hash_name
        self._iterations = iterations
        self._salt = b"salt of the server"
        self._salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), self._salt, iterations)
        self._so_far = ""

    def first(self, client_first: bytes) -> bytes:
        bare = client_first.decode().removeprefix("n,,")
        nonce = bare.rpartition(",r=")[2] + "SERVER"
        salt = base64.b64encode(self._salt).decode()
        first = f"r={nonce},s={salt},i={self._iterations}"
        self._so_far = f"{bare},{first}"
        return first.encode()

    def final(self, client_final: bytes) -> bytes:
        without_proof, _, proof = client_final.decode().rpartition(",p=")
        message = f"{self._so_far},{without_proof}".encode()
        client_key = self._hmac(self._salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = self._hmac(stored_key, message)
        found = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        assert hashlib.new(self._hash, found).digest() == stored_key, "wrong password"
        server_key = self._hmac(self._salted, b"Server Key")
        return b"v=" + base64.b64encode(self._hmac(server_key, message))

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


@given(
    name=st.sampled_from(["SCRAM-SHA-256", "SCRAM-SHA-512"]),
    user=st.text(min_size=1, max_size=20),
    password=st.text(min_size=1, max_size=20),
)
def test_client_and_server_agree(name: str, user: str, password: str) -> None:
    server = Server("sha" + name[-3:], password, ITERATIONS_MIN)
    mechanism = Scram(name, user, Password(password), "a nonce")
    final = mechanism.respond(server.first(mechanism.begin()))
    assert final is not None
    assert mechanism.respond(server.final(final)) is None


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (b"r=other,s=c2FsdA==,i=4096", "its nonce does not begin with the client's"),
        (b"r=abc,s=c2FsdA==,i=4096", "its nonce does not begin with the client's"),
        (b"r=abcd,s=c2FsdA==,i=4095", "4096 to 1000000 are supported"),
        (b"r=abcd,s=c2FsdA==,i=1000001", "4096 to 1000000 are supported"),
        (b"r=abcd,s=c2FsdA==,i=-5", "4096 to 1000000 are supported"),
        (b"r=abcd,s=c2FsdA==,i=99999999999999999999", "4096 to 1000000 are supported"),
        (b"r=abcd,s=!!,i=4096", "invalid base64"),
        (b"r=abcd,s=,i=4096", "invalid base64"),
        (b"m=ext,r=abcd,s=c2FsdA==,i=4096", "lacks the fields r, s, i"),
        (b"r=abcd,i=4096", "lacks the fields r, s, i"),
        (b"", "lacks the fields r, s, i"),
        (b"\xff\xfe", "not text"),
    ],
)
def test_a_first_message_that_must_not_be_is_refused(challenge: bytes, reason: str) -> None:
    with pytest.raises(AuthenticationError, match=reason):
        scram().respond(challenge)


def test_the_largest_count_of_iterations_is_done() -> None:
    """It is bounded, so that no server can make a client compute for minutes."""
    final = scram().respond(b"r=abcd,s=c2FsdA==,i=%d" % ITERATIONS_MAX)
    assert final is not None
    assert final.startswith(b"c=biws,r=abcd,p=")


@pytest.mark.promise("whatever a broker sends, a call ends in time, with bounded memory and CPU")
def test_a_broker_with_another_salt_each_time_costs_a_bounded_number_of_iterations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sessions of one such broker end after a millisecond."""
    monkeypatch.setattr("pykclient.network.sasl.scram.FREE_ITERATIONS", 10 * ITERATIONS_MIN)
    monkeypatch.setattr("pykclient.network.sasl.scram.ITERATIONS_PER_SECOND", ITERATIONS_MIN)
    salts = map(str.encode, map(str, count()))
    reasons: list[str] = []

    def computed(attempts: int, salt: bytes | None = None) -> int:
        found = 0
        for _ in range(attempts):
            mechanism = authenticator.mechanism("h", lambda _: None)
            assert mechanism is not None
            nonce = mechanism.begin().rpartition(b"r=")[2]
            chosen = base64.b64encode(next(salts) if salt is None else salt)
            try:
                found += bool(mechanism.respond(b"r=%sx,s=%s,i=4096" % (nonce, chosen)))
            except AuthenticationError as error:
                reasons.append(str(error))
        return found

    authenticator = Authenticator(
        AdminConfig.from_settings(
            bootstrap_servers="h:9092",
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_username="u",
            sasl_password="another password",
        ),
        ScriptedPort(),
        random=Random(),
        log=ClientLog("pykclient.network", ""),
    )
    authenticator.poll(0)
    assert computed(1, b"of the cluster") == 1
    assert computed(20) == 9
    assert computed(5, b"of the cluster") == 5
    authenticator.poll(3_000)
    assert computed(5) == 3
    authenticator.poll(10**9)
    assert computed(20) == 10
    assert all("it requires 4096 iterations of SCRAM, each time" in each for each in reasons)


def test_a_refusal_says_what_to_check() -> None:
    assert "has credentials for SCRAM-SHA-256: kafka-configs --describe" in scram().cure
    token = Scram("SCRAM-SHA-512", "id", Password("hmac"), "n", extension=DELEGATION_TOKEN)
    assert "the delegation token, and that it has not expired" in token.cure
    assert Plain("u", Password("p")).cure == "check sasl_username and sasl_password"


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (b"", "without proving that it knows it"),
        (b"v=" + base64.b64encode(bytes(32)), "its proof that it has the password is wrong"),
        (b"v=" + SERVER_FINAL[2:-4] + b"AAA=", "its proof that it has the password is wrong"),
        (b"e=other-error", "the broker refused: 'other-error'"),
        (b"x=1", "lacks the fields v"),
    ],
)
def test_a_server_without_a_proof_is_refused(challenge: bytes, reason: str) -> None:
    name, user, password, nonce = RFC_7677
    mechanism = Scram(name, user, Password(password), nonce)
    mechanism.respond(SERVER_FIRST)
    with pytest.raises(AuthenticationError, match=reason):
        mechanism.respond(challenge)


@given(st.binary(max_size=100), st.booleans())
def test_no_bytes_of_a_server_raise_anything_else(challenge: bytes, is_second: bool) -> None:
    mechanism = scram()
    if is_second:
        mechanism.respond(b"r=abcd,s=c2FsdA==,i=4096")
    with pytest.raises(AuthenticationError) as caught:
        mechanism.respond(challenge)
    assert "pencil" not in str(caught.value)
