"""SASL mechanisms: what a client sends in each round, and what the broker must have proven.

A mechanism is made for one authentication. No text of its errors has a part of a credential.

Owner: the driver of the engine.
Source: RFC 4616 (PLAIN), RFC 5802 and 7677 (SCRAM); KIP-43, KIP-84; Java classes
``ScramSaslClient``, ``PlainSaslClient``. As Java, and unlike RFC 5802, SCRAM takes names and
passwords as they are, without SASLprep.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from functools import lru_cache
from secrets import token_hex
from typing import TYPE_CHECKING, Final, Protocol

from pykclient.config.security import SCRAM_MECHANISMS
from pykclient.errors import AuthenticationError

if TYPE_CHECKING:
    from pykclient.config.client import ClientConfig
    from pykclient.config.setting import Password

ITERATIONS_MIN: Final = 4_096
"""Fewer make a password that was listened to cheap to guess (RFC 7677)."""

ITERATIONS_MAX: Final = 1_000_000
"""More are no protection but an attack on the client's CPU."""

NONCE_BYTES: Final = 24

_GS2_HEADER: Final = "n,,"
"""No channel binding, no other identity."""


class Mechanism(Protocol):
    """One authentication by one SASL mechanism."""

    @property
    def name(self) -> str:
        """As Kafka has it."""

    @property
    def user(self) -> str:
        """Who authenticates, for messages."""

    def begin(self) -> bytes:
        """Return what to send first."""

    def respond(self, challenge: bytes) -> bytes | None:
        """Return what to send next; None when that was the end.

        Raises:
            AuthenticationError: the broker's bytes are not what they must be, or it has not proven
                what the mechanism wants of it.
        """


def mechanism_of(config: ClientConfig) -> Mechanism | None:
    """Return the mechanism for one authentication; None where the settings want none."""
    if not config.is_authenticated:
        return None
    assert config.credentials is not None, "checked when the config was made"
    user, password = config.credentials
    if config.sasl_mechanism in SCRAM_MECHANISMS:
        return Scram(config.sasl_mechanism, user, password, token_hex(NONCE_BYTES))
    return Plain(user, password)


class Plain:
    """PLAIN. It proves nothing of the broker, and its password can be read on the way."""

    name = "PLAIN"

    def __init__(self, user: str, password: Password) -> None:
        self.user = user
        self._password = password

    def begin(self) -> bytes:
        return b"\0".join((b"", self.user.encode(), self._password.value.encode()))

    def respond(self, challenge: bytes) -> None:
        """Nothing more is sent, whatever the broker adds."""


class Scram:
    """SCRAM by the hash function that `name` has."""

    def __init__(self, name: str, user: str, password: Password, nonce: str) -> None:
        self.name = name
        self.user = user
        self._password = password
        self._hash = "sha" + name.rpartition("-")[2]
        self._nonce = nonce
        self._first_bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._server_signature: bytes | None = None

    def begin(self) -> bytes:
        return f"{_GS2_HEADER}{self._first_bare}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        if self._server_signature is None:
            return self._final(challenge)
        self._verify(challenge, self._server_signature)
        return None

    def _final(self, challenge: bytes) -> bytes:
        first = _text(challenge)
        fields = _fields(first, ("r", "s", "i"))
        nonce = fields["r"]
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationError("its nonce does not begin with the client's")
        iterations = _iterations(fields["i"])
        salted = _salted(self._hash, self._password, _decoded(fields["s"]), iterations)
        without_proof = f"c={b64encode(_GS2_HEADER.encode()).decode()},r={nonce}"
        message = f"{self._first_bare},{first},{without_proof}".encode()
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), message)
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        proof = bytes(key ^ sign for key, sign in zip(client_key, signature, strict=True))
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def _verify(self, challenge: bytes, expected: bytes) -> None:
        if not challenge:
            raise AuthenticationError(
                "it accepted the password without proving that it has it itself; whoever responds "
                "there may be another"
            )
        text = _text(challenge)
        if text.startswith("e="):
            raise AuthenticationError(f"it refused: {text[2:]!r}")
        signature = _decoded(_fields(text, ("v",))["v"])
        if not hmac.compare_digest(signature, expected):
            raise AuthenticationError(
                "its proof that it has the password is wrong; whoever responds there may be another"
            )

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


@lru_cache(maxsize=64)
def _salted(hash_name: str, password: Password, salt: bytes, iterations: int) -> bytes:
    """Return the salted password. It is kept: all brokers of a cluster have the same salt."""
    return hashlib.pbkdf2_hmac(hash_name, password.value.encode(), salt, iterations)


def _text(challenge: bytes) -> str:
    try:
        return challenge.decode()
    except UnicodeDecodeError:
        raise AuthenticationError("its SCRAM message is no text") from None


def _fields(text: str, names: tuple[str, ...]) -> dict[str, str]:
    """Return the fields of a message, which must be these, first and in this order.

    More may follow, as extensions. One that must be understood stands first, as ``m=``.
    """
    found = text.split(",")
    fields = dict(zip(names, (field[2:] for field in found), strict=False))
    if [field[:2] for field in found[: len(names)]] != [f"{name}=" for name in names]:
        raise AuthenticationError(f"its SCRAM message has not the fields {', '.join(names)}")
    return fields


def _iterations(text: str) -> int:
    count = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not ITERATIONS_MIN <= count <= ITERATIONS_MAX:
        raise AuthenticationError(
            f"it wants {text[:20]!r} iterations of SCRAM, and {ITERATIONS_MIN} to {ITERATIONS_MAX} "
            f"are done; the user's credentials must be made anew with as many"
        )
    return count


def _decoded(text: str) -> bytes:
    try:
        data = b64decode(text, validate=True)
    except (Base64Error, ValueError):
        data = b""
    if not data:
        raise AuthenticationError("its SCRAM message has what is no base64")
    return data
