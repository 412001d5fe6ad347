"""The broker side of SASL: PLAIN, SCRAM, AWS_MSK_IAM, and OAUTHBEARER with unsigned tokens.

An exchange *continues*, then is *complete*, or has *failed* with a `SaslRefusal`. Refusals, and the
reasons sent to the client, follow Kafka: they do not reveal whether a user exists.

Owner: the connection of an exchange; the cluster, for the users.
Source: RFC 4616 (PLAIN), RFC 5802 and 7677 (SCRAM), RFC 7628 and 7515 (OAUTHBEARER); Java classes
``PlainSaslServer``, ``ScramSaslServer``, ``OAuthBearerSaslServer``. Second-hand: AWS Signature
Version 4, and AWS_MSK_IAM as ``aws-msk-iam-auth`` describes it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from base64 import b64decode, b64encode, urlsafe_b64decode
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeGuard
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from pykclient.errors.base import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS: Final = 4_096
"""Kafka's default number of SCRAM iterations."""

_SALT_BYTES = 16
_NONCE_BYTES = 16
_PLAIN_PARTS = 3
_ERROR_WAS_READ = b"\x01"
"""Client message that acknowledges an error of OAUTHBEARER."""
_CLIENT_FIRST = re.compile(
    r"(?P<gs2>[ny],(?:a=(?P<authorization>[^,]*))?,)n=(?P<user>[^,]+),r=(?P<nonce>[!-+\--~]+)"
    r"(?:,[A-Za-z]+=[^,]*)*"
)
_CLIENT_FINAL = re.compile(
    r"(?P<without_proof>c=(?P<gs2>[^,]+),r=(?P<nonce>[!-+\--~]+)(?:,[A-Za-z]+=[^,]*)*?)"
    r",p=(?P<proof>[^,]+)"
)
_MSK_VERSION = "2020_10_22"
_SIGNATURE_MS = 900_000
_CLOCK_MS = 60_000
"""Allowed difference between the clocks of client and broker."""
_SIGNED = (
    *("Action", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires"),
    *("X-Amz-Security-Token", "X-Amz-SignedHeaders"),
)
_ESCAPED = re.compile(r"=(2C|3D)|=")
_BEARER = re.compile(
    r"n,(?:a=(?P<authorization>[^,]*))?,\x01(?:[A-Za-z]+=[^\x01]*\x01)*?"
    r"auth=[Bb]earer +(?P<token>[-_.~+/A-Za-z0-9]+=*)\x01(?:[A-Za-z]+=[^\x01]*\x01)*\x01"
)


class SaslRefusal(Exception):
    """Failed authentication; `reason` is sent to the client, None for no reason."""

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason


class ScramCredential:
    """Salted hash of a password, computed at first use because the iterations take time."""

    def __init__(self, hash_name: str, password: str, iterations: int) -> None:
        self.iterations = iterations
        self.salt = secrets.token_bytes(_SALT_BYTES)
        self._hash = hash_name
        self._password = password

    @cached_property
    def stored_key(self) -> bytes:
        return hashlib.new(self._hash, self._keyed(b"Client Key")).digest()

    @cached_property
    def server_key(self) -> bytes:
        return self._keyed(b"Server Key")

    @cached_property
    def _salted(self) -> bytes:
        return hashlib.pbkdf2_hmac(self._hash, self._password.encode(), self.salt, self.iterations)

    def _keyed(self, text: bytes) -> bytes:
        return hmac.digest(self._salted, text, self._hash)


class Users:
    """Users and passwords, which are never shown; for AWS_MSK_IAM, key ids and secret keys."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self.scram_iterations = ITERATIONS
        """Iterations of new credentials."""
        self._passwords = dict(passwords)
        self._credentials: dict[tuple[str, str], ScramCredential] = {}

    def __repr__(self) -> str:
        return f"Users({', '.join(self._passwords)})"

    def set_password(self, user: str, password: str) -> None:
        """Set the password of a user; create the user if needed."""
        if not user or not password:
            raise UsageError("the name of the user or the password is empty; give both")
        self._passwords[user] = password
        self._forget(user)

    def remove(self, user: str) -> None:
        """Remove a user. Raises `UsageError` if the user does not exist."""
        if self._passwords.pop(user, None) is None:
            raise UsageError(f"there is no user {user!r}; there are {', '.join(self._passwords)}")
        self._forget(user)

    def has(self, user: str, password: str) -> bool:
        """Return whether the password is right."""
        found = self._passwords.get(user)
        return found is not None and hmac.compare_digest(found.encode(), password.encode())

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return the credential of a user for a SCRAM mechanism; None if the user is unknown."""
        password = self._passwords.get(user)
        if password is None:
            return None
        key = mechanism, user
        if key not in self._credentials:
            made = ScramCredential(SCRAM_HASHES[mechanism], password, self.scram_iterations)
            self._credentials[key] = made
        return self._credentials[key]

    def sign_v4(self, user: str, scope: Sequence[str], text: str) -> str:
        """Sign a text with the user's AWS secret key; for an unknown user, with a random one."""
        password = self._passwords.get(user)
        key = secrets.token_bytes() if password is None else f"AWS4{password}".encode()
        for part in (*scope, text):
            key = hmac.digest(key, part.encode(), "sha256")
        return key.hex()

    def _forget(self, user: str) -> None:
        for mechanism in SCRAM_HASHES:
            self._credentials.pop((mechanism, user), None)


class Exchange(Protocol):
    """An authentication by one mechanism."""

    @property
    def user(self) -> str | None:
        """User of the client; None until the exchange is complete."""

    @property
    def expires_ms(self) -> int | None:
        """Expiry time of the client's credentials in ms since 1970; None for never."""

    def evaluate(self, response: bytes, wall_ms: int) -> bytes:
        """Process a message of the client and return the challenge. Raises `SaslRefusal`."""


class PlainExchange:
    """PLAIN: user and password in one message."""

    expires_ms = None

    def __init__(self, users: Users) -> None:
        self.user: str | None = None
        self._users = users

    def evaluate(self, response: bytes, _: int) -> bytes:
        parts = response.decode(errors="replace").split("\0")
        if len(parts) != _PLAIN_PARTS:
            raise SaslRefusal(
                f"Invalid SASL/PLAIN response: expected {_PLAIN_PARTS} tokens, got "
                f"{min(len(parts), _PLAIN_PARTS + 1)}"
            )
        authorization, user, password = parts
        for what, given in (("username", user), ("password", password)):
            if not given:
                raise SaslRefusal(f"Authentication failed: {what} not specified")
        if not self._users.has(user, password):
            raise SaslRefusal("Authentication failed: Invalid username or password")
        _check_authorization(authorization, user)
        self.user = user
        return b""


class ScramExchange:
    """SCRAM with one hash function, without channel binding."""

    expires_ms = None

    def __init__(self, mechanism: str, users: Users) -> None:
        self.user: str | None = None
        self._mechanism = mechanism
        self._hash = SCRAM_HASHES[mechanism]
        self._users = users
        self._credential: ScramCredential | None = None
        self._name = self._gs2 = self._nonce = self._so_far = ""

    def evaluate(self, response: bytes, _: int) -> bytes:
        text = response.decode(errors="replace")
        if self._credential is None:
            return self._first(text)
        return self._final(text, self._credential)

    def _first(self, text: str) -> bytes:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None:
            raise SaslRefusal
        self._name = _ESCAPED.sub(_unescaped, found["user"])
        credential = self._users.scram(self._mechanism, self._name)
        if credential is None:
            raise SaslRefusal
        _check_authorization(found["authorization"] or "", self._name)
        self._credential = credential
        self._gs2 = found["gs2"]
        self._nonce = found["nonce"] + secrets.token_hex(_NONCE_BYTES)
        salt = b64encode(credential.salt).decode()
        first = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._so_far = f"{text.removeprefix(self._gs2)},{first}"
        return first.encode()

    def _final(self, text: str, credential: ScramCredential) -> bytes:
        found = _CLIENT_FINAL.fullmatch(text)
        if found is None or found["nonce"] != self._nonce:
            raise SaslRefusal
        if _decoded(found["gs2"]) != self._gs2.encode():
            raise SaslRefusal
        message = f"{self._so_far},{found['without_proof']}".encode()
        signature = hmac.digest(credential.stored_key, message, self._hash)
        proof = _decoded(found["proof"])
        if len(proof) != len(signature):
            raise SaslRefusal
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        stored_key = hashlib.new(self._hash, client_key).digest()
        if not hmac.compare_digest(stored_key, credential.stored_key):
            raise SaslRefusal
        self.user = self._name
        return b"v=" + b64encode(hmac.digest(credential.server_key, message, self._hash))


class BearerExchange:
    """OAUTHBEARER: accepts any complete, unexpired token without a signature.

    It also accepts tokens of AWS credentials, whose users are key ids, and of Google's service
    accounts, which have an access token in place of the signature.
    """

    def __init__(self, users: Users) -> None:
        self._users = users
        self.user: str | None = None
        self.expires_ms: int | None = None
        self._error: str | None = None

    def evaluate(self, response: bytes, wall_ms: int) -> bytes:
        if self._error is not None:
            raise SaslRefusal(self._error if response == _ERROR_WAS_READ else None)
        found = _BEARER.fullmatch(response.decode(errors="replace"))
        if found is None:
            raise SaslRefusal
        token = _claims(found["token"]) or _signed_claims(found["token"], self._users, wall_ms)
        if token is None or not _is_valid(token, wall_ms):
            self._error = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
            return self._error.encode()
        user = str(token["sub"])
        authorization = found["authorization"] or ""
        if authorization not in ("", user):
            raise SaslRefusal(
                f"Authentication failed: Client requested an authorization id ({authorization}) "
                f"that is different from the token's principal name ({user})"
            )
        self.user = user
        self.expires_ms = int(token["exp"] * 1000)
        return b""


class MskIamExchange:
    """AWS_MSK_IAM: a request signed with the user's secret key; the user is the key id."""

    expires_ms = None

    def __init__(self, users: Users) -> None:
        self.user: str | None = None
        self._users = users

    def evaluate(self, response: bytes, wall_ms: int) -> bytes:
        request = _object(response)
        if request.get("version") != _MSK_VERSION:
            raise SaslRefusal("Invalid request")
        self.user = _signing_user(request, self._users, wall_ms)
        answer = {"version": _MSK_VERSION, "request-id": secrets.token_hex(_NONCE_BYTES)}
        return json.dumps(answer).encode()


EXCHANGES: Final[Mapping[str, Callable[[Users], Exchange]]] = {
    "PLAIN": PlainExchange,
    "SCRAM-SHA-256": lambda users: ScramExchange("SCRAM-SHA-256", users),
    "SCRAM-SHA-512": lambda users: ScramExchange("SCRAM-SHA-512", users),
    "OAUTHBEARER": BearerExchange,
    "AWS_MSK_IAM": MskIamExchange,
}
"""Exchange of each mechanism that fake brokers support."""


def _check_authorization(authorization: str, user: str) -> None:
    if authorization not in ("", user):
        raise SaslRefusal(
            "Authentication failed: Client requested an authorization id that is different from "
            "username"
        )


def _unescaped(found: re.Match[str]) -> str:
    if found[1] is None:
        raise SaslRefusal
    return "," if found[1] == "2C" else "="


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise SaslRefusal from None


def _signing_user(request: Mapping[str, str], users: Users, wall_ms: int) -> str:
    """Return the user whose secret key signed a request. Raises `SaslRefusal`."""
    credential = request.get("x-amz-credential", "").split("/")
    if len(credential) != 5:
        raise SaslRefusal("Invalid request")
    user, *scope = credential
    signed_ms = _signed_ms(request.get("x-amz-date", ""))
    if not 0 <= wall_ms - signed_ms + _CLOCK_MS < _SIGNATURE_MS:
        raise SaslRefusal("Signature expired")
    query = urlencode(
        [(name, request[name.lower()]) for name in sorted(_SIGNED) if name.lower() in request],
        quote_via=quote,
        safe="-_.~",
    )
    empty = hashlib.sha256().hexdigest()
    canonical = f"GET\n/\n{query}\nhost:{request.get('host')}\n\nhost\n{empty}"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{request.get('x-amz-date')}\n{'/'.join(scope)}\n{digest}"
    expected = users.sign_v4(user, scope, text)
    if not hmac.compare_digest(expected.encode(), request.get("x-amz-signature", "").encode()):
        raise SaslRefusal("Access denied")
    return user


def _signed_claims(token: str, users: Users, wall_ms: int) -> dict[str, Any] | None:
    """Return the claims of an AWS credentials token, a signed URL; None for any other token.

    Raises:
        SaslRefusal: the signature is not that of a known user.
    """
    try:
        address = urlsplit(urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    except ValueError:
        return None
    if address.scheme != "https" or not address.query:
        return None
    request = {name.lower(): value for name, value in parse_qsl(address.query)}
    user = _signing_user({**request, "host": address.netloc}, users, wall_ms)
    expires_ms = _signed_ms(request["x-amz-date"]) + _SIGNATURE_MS
    return {"sub": user, "exp": expires_ms / 1000}


def _object(text: bytes) -> dict[str, str]:
    """Return the string values of a JSON object; empty if it is invalid."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    is_object = isinstance(found, dict)
    return {name: value for name, value in found.items() if type(value) is str} if is_object else {}


def _signed_ms(text: str) -> int:
    try:
        found = datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return 0
    return int(found.timestamp() * 1000)


def _claims(token: str) -> dict[str, Any] | None:
    """Return the claims of an unsigned token; None for any other token."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        head, claims = (json.loads(urlsafe_b64decode(each + "=" * (-len(each) % 4)))
                        for each in parts[:2])  # fmt: skip
    except (ValueError, RecursionError):
        return None
    if not isinstance(head, dict) or not isinstance(claims, dict):
        return None
    algorithm = "GOOG_OAUTH2_TOKEN" if parts[2] else "none"
    return claims if head.get("alg") == algorithm else None


def _is_valid(claims: Mapping[str, object], wall_ms: int) -> bool:
    subject, expires_s, issued_s = (claims.get(name) for name in ("sub", "exp", "iat"))
    if not isinstance(subject, str) or not subject or not _is_time(expires_s):
        return False
    if issued_s is not None and not (_is_time(issued_s) and issued_s * 1000 <= wall_ms):
        return False
    return expires_s * 1000 > wall_ms


def _is_time(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12
