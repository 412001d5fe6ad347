"""OAuthToken: the bearer token of OAUTHBEARER, and functions that read JWTs.

Owner: none, a token is immutable.
Source: RFC 6750 (bearer tokens), RFC 7519 (JWT); KIP-255, KIP-342 (SASL extensions); Java classes
``OAuthBearerToken``, ``OAuthBearerClientInitialResponse``.
"""

from __future__ import annotations

import json
import re
import time
from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pykclient.config.setting import Password
from pykclient.errors import AuthenticationError

if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN_BYTES_MAX: Final = 256 * 1024
"""Maximum size of a token. Brokers accept no larger request before authentication:
``sasl.server.max.receive.size`` is 524,288 bytes by default."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_RESERVED_NAME: Final = "auth"


@dataclass(frozen=True, slots=True, init=False)
class OAuthToken:
    """A bearer token.

    `value` is the text to send. `expires_ms` is the time when it expires, in milliseconds since
    1970; None if unknown, and then the token is used for new authentications for a minute.
    `principal` is the user it identifies, for messages; empty if unknown. `extensions` are SASL
    extensions sent with it (KIP-342), such as ``logicalCluster`` and ``identityPoolId`` for
    Confluent Cloud.
    """

    value: Password
    expires_ms: int | None
    principal: str
    extensions: Mapping[str, str]

    def __init__(
        self,
        value: str | Password,
        expires_ms: int | None = None,
        principal: str = "",
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        """Wrap the text in a `Password`, which never shows it."""
        text = value if isinstance(value, Password) else Password(value)
        object.__setattr__(self, "value", text)
        object.__setattr__(self, "expires_ms", expires_ms)
        object.__setattr__(self, "principal", principal)
        object.__setattr__(self, "extensions", MappingProxyType(dict(extensions or {})))


def check_token(token: OAuthToken, now_ms: int) -> None:
    """Check a token before it is sent. `now_ms` is the time since 1970.

    Raises:
        AuthenticationError: the token is malformed or has expired. The text shows no part of it.
    """
    length = len(token.value.value)
    if not length:
        raise AuthenticationError("the token is empty")
    if length > TOKEN_BYTES_MAX:
        raise AuthenticationError(
            f"the token has {length} characters; brokers accept at most {TOKEN_BYTES_MAX}"
        )
    if not _TOKEN.fullmatch(token.value.value):
        raise AuthenticationError(
            "the token has characters that a bearer token must not have (RFC 6750), such as spaces "
            "or line breaks; give it as the identity server issued it"
        )
    if token.expires_ms is not None and token.expires_ms <= now_ms:
        raise AuthenticationError(
            f"the token expired {(now_ms - token.expires_ms) / 1000:.1f} seconds ago; it was "
            f"fetched too late, or the clock of this machine is wrong"
        )
    for name, value in token.extensions.items():
        if not _EXTENSION_NAME.fullmatch(name) or name == _RESERVED_NAME:
            raise AuthenticationError(
                f"the SASL extension {name!r} has an invalid name: use letters only, and not "
                f"{_RESERVED_NAME!r}"
            )
        if not _EXTENSION_VALUE.fullmatch(value):
            raise AuthenticationError(
                f"the value of the SASL extension {name!r} is empty, or has characters that cannot "
                f"be sent"
            )


def jwt_claims(text: str) -> dict[str, object] | None:
    """Return the claims of a JWT without verifying its signature; None if it is not a JWT."""
    parts = text.split(".")
    if len(parts) != 3:
        return None
    try:
        decoded = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (Base64Error, ValueError, RecursionError):
        return None
    return decoded if isinstance(decoded, dict) else None


def jwt_expiry_ms(text: str) -> int | None:
    """Return the expiry of a JWT in milliseconds since 1970; None if it has none."""
    expiry = (jwt_claims(text) or {}).get("exp")
    is_time = isinstance(expiry, (int, float)) and not isinstance(expiry, bool)
    if not is_time or not abs(expiry) < TIME_S_MAX:  # type: ignore[arg-type]
        return None
    return round(expiry * 1000)  # type: ignore[operator]


def jwt_principal(text: str) -> str:
    """Return the user of a JWT, its claim ``sub``; empty if it has none."""
    subject = (jwt_claims(text) or {}).get("sub")
    return subject if isinstance(subject, str) else ""


TIME_S_MAX: Final = 2**40
"""Upper limit of a valid time in seconds."""


def wall_ms() -> int:
    """Return the wall clock in milliseconds since 1970, the clock of tokens."""
    return time.time_ns() // 1_000_000
