"""SCRAM: both sides prove that they know the password, and neither sends it.

Deriving the key from the password takes up to `ITERATIONS_MAX` rounds of a hash function, half a
second of CPU time, so the mechanism may block.

Owner: the connection that authenticates; its calls run on a background thread.
Source: RFC 5802 and 7677; KIP-84, KIP-48; Java class ``ScramSaslClient``. Like Java, and unlike
RFC 5802, it uses names and passwords as they are, without SASLprep.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from secrets import token_bytes
from typing import TYPE_CHECKING, Final, NoReturn

from pykclient.errors import AuthenticationError
from pykclient.errors.text import printable
from pykclient.network.sasl.mechanism import SaslMechanism

if TYPE_CHECKING:
    from pykclient.config.setting import Password, PasswordSource

ITERATIONS_MIN: Final = 4_096
"""Minimum iterations. With fewer, a password is cheap to guess from a recorded exchange (RFC
7677)."""

ITERATIONS_MAX: Final = 1_000_000
"""Maximum iterations. More would protect nothing but attack the client's CPU."""

MESSAGE_BYTES_MAX: Final = 16 * 1024
"""Maximum size of a server message: a nonce, a salt and a number. Kafka's has about 100 bytes. The
client sends the nonce back, so a long one would cost twice."""

FREE_ITERATIONS: Final = 4 * ITERATIONS_MAX
"""Iterations that a client computes at once, a few seconds of CPU time."""

ITERATIONS_PER_SECOND: Final = 50_000
"""Further iterations of a client, a few hundredths of a core."""

KEYS_MAX: Final = 64
"""Salted passwords that a process keeps."""

NONCE_BYTES: Final = 24

DELEGATION_TOKEN: Final = ",tokenauth=true"  # noqa: S105 - no secret
"""Extension that marks user and password as a delegation token (KIP-48)."""

CURE: Final = (
    "check sasl_username and sasl_password, and that the user has credentials for {0}: "
    "kafka-configs --describe --entity-type users shows them"
)
DELEGATION_CURE: Final = (
    "check the id and the HMAC of the delegation token, and that it has not expired: "
    "kafka-delegation-tokens --describe shows it"
)

_GS2_HEADER: Final = "n,,"
"""No channel binding, no authorization identity."""


class Scram(SaslMechanism):
    """SCRAM with the hash function that `name` contains.

    `extension` follows the nonce. `work` limits the iterations of one client.
    """

    def __init__(
        self,
        name: str,
        user: str,
        password: Password | PasswordSource,
        nonce: str,
        *,
        extension: str = "",
        work: KeyBudget | None = None,
    ) -> None:
        self.name = name
        self.user = user
        self._password = password
        self._hash = "sha" + name.rpartition("-")[2]
        self._nonce = nonce
        self._work = work or KeyBudget()
        self._first_bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}{extension}"
        self._server_signature: bytes | None = None
        self.cure = DELEGATION_CURE if extension else CURE.format(name)

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
            _distrust("its nonce does not begin with the client's")
        iterations = _iterations(fields["i"])
        salt = _decoded(fields["s"])
        salted = self._work.salted(self._hash, self._password.current(), salt, iterations)
        without_proof = f"c={b64encode(_GS2_HEADER.encode()).decode()},r={nonce}"
        message = f"{self._first_bare},{first},{without_proof}".encode()
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), message)
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        proof = bytes(key ^ sign for key, sign in zip(client_key, signature, strict=True))
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def _verify(self, challenge: bytes, expected: bytes) -> None:
        if not challenge:
            _distrust(
                "it accepted the password without proving that it knows it; another server may be "
                "responding"
            )
        text = _text(challenge)
        if text.startswith("e="):
            raise AuthenticationError(f"the broker refused: {printable(text[2:])!r}")
        signature = _decoded(_fields(text, ("v",))["v"])
        if not hmac.compare_digest(signature, expected):
            _distrust(
                "its proof that it has the password is wrong; whatever responds there may be "
                "another server"
            )

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


class KeyBudget:
    """The iterations that one client computes for its brokers, which choose salt and count.

    `FREE_ITERATIONS` are available at once, and `ITERATIONS_PER_SECOND` more as time passes. A key
    that was computed before costs nothing: all brokers of a cluster share the salt. Without a
    limit a broker whose sessions are short costs a client a core, by another salt each time.

    Owner: the driver refills it; background threads spend. An update that is lost between threads
    lets through a little more work.
    """

    def __init__(self) -> None:
        self._free_iterations = float(FREE_ITERATIONS)
        self._filled_ms: int | None = None

    def refill(self, now_ms: int) -> None:
        """Add the iterations for the time since the last call."""
        elapsed_ms = 0 if self._filled_ms is None else max(0, now_ms - self._filled_ms)
        self._filled_ms = now_ms
        added = elapsed_ms * ITERATIONS_PER_SECOND / 1000
        self._free_iterations = min(self._free_iterations + added, FREE_ITERATIONS)

    def salted(self, hash_name: str, password: Password, salt: bytes, iterations: int) -> bytes:
        """Return the salted password.

        Raises:
            AuthenticationError: brokers have required too many iterations.
        """
        text = password.encoded()
        # No password is a key: a cache outlives the client.
        digest = hmac.digest(_CACHE_KEY, text, "sha256")
        key = hash_name, digest, salt, iterations
        found = _salted.get(key)
        if found is None:
            if self._free_iterations < iterations:
                _distrust(
                    f"it requires {iterations} iterations of SCRAM, each time with another salt, "
                    f"and a client computes {FREE_ITERATIONS} of them, then "
                    f"{ITERATIONS_PER_SECOND} per second; recreate the user's credentials with "
                    f"fewer iterations, if the broker is yours"
                )
            self._free_iterations -= iterations
            found = hashlib.pbkdf2_hmac(hash_name, text, salt, iterations)
            if len(_salted) >= KEYS_MAX:
                _salted.pop(next(iter(list(_salted))), None)
            _salted[key] = found
        return found


_CACHE_KEY: Final = token_bytes(32)
_salted: Final[dict[tuple[str, bytes, bytes, int], bytes]] = {}
"""Salted passwords of all clients, the oldest first."""


def _text(challenge: bytes) -> str:
    if len(challenge) > MESSAGE_BYTES_MAX:
        _distrust(
            f"its SCRAM message has {len(challenge)} bytes; the maximum is {MESSAGE_BYTES_MAX}"
        )
    try:
        return challenge.decode()
    except UnicodeDecodeError:
        _distrust("its SCRAM message is not text")


def _fields(text: str, names: tuple[str, ...]) -> dict[str, str]:
    """Return the fields of a message, which must begin with these names in this order.

    Extensions may follow. A mandatory extension comes first, as ``m=``.
    """
    found = text.split(",")
    fields = dict(zip(names, (field[2:] for field in found), strict=False))
    if [field[:2] for field in found[: len(names)]] != [f"{name}=" for name in names]:
        _distrust(f"its SCRAM message lacks the fields {', '.join(names)}")
    return fields


def _iterations(text: str) -> int:
    count = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not ITERATIONS_MIN <= count <= ITERATIONS_MAX:
        _distrust(
            f"it requires {text[:20]!r} iterations of SCRAM, but {ITERATIONS_MIN} to "
            f"{ITERATIONS_MAX} are supported; recreate the user's credentials with a valid count"
        )
    return count


def _decoded(text: str) -> bytes:
    try:
        data = b64decode(text, validate=True)
    except (Base64Error, ValueError):
        data = b""
    if not data:
        _distrust("its SCRAM message has invalid base64")
    return data


def _distrust(reason: str) -> NoReturn:
    raise AuthenticationError(f"the broker is not to be trusted: {reason}") from None
