"""TokenEndpoint: requests tokens from an address and converts its responses.

A refusal is an `AuthenticationError` with the server's reason. A server that is unreachable, slow
or overloaded is a `ConnectionFailedError`, after which the client retries. No error contains any
part of a secret or of a token, neither in its text nor in a variable of its traceback.

Owner: no state but settings; called on a background thread.
Source: RFC 6749, RFC 6750; Java classes ``HttpJwtRetriever``, ``JwtResponseParser``.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from pykclient.config.setting import Password
from pykclient.errors import AuthenticationError, ConnectionFailedError, DecodeError
from pykclient.network.io.http_proxy import proxy_of
from pykclient.network.io.https import HttpEndpoint
from pykclient.network.log import ClientLog
from pykclient.network.sasl.redaction import masked
from pykclient.network.sasl.token import (
    TIME_S_MAX,
    OAuthToken,
    jwt_claims,
    jwt_expiry_ms,
    wall_ms,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pykclient.config.client import ClientConfig
    from pykclient.config.oidc import OidcTokenConfig
    from pykclient.network.io.https import HttpRequest, HttpResponse

CONNECT_TIMEOUT_MS: Final = 10_000

TIMEOUT_SHARE: Final = 0.9
"""Fraction of `request_timeout_ms` after which a fetch fails, early enough to report its reason."""

RETRIABLE_STATUSES: Final = frozenset({408, 425, 429})
"""Retriable statuses, besides those from 500 on."""

ADDRESS_STATUSES: Final = frozenset({404, 405, 410})
"""Statuses that mean that the address is not that of a token endpoint."""

_REASON_LENGTH_MAX: Final = 300


class TokenEndpoint:
    """The address in the settings. `retriable` are further statuses that mean "not ready".

    Raises:
        ConfigError: a certificate file, or the proxy of the environment, cannot be used.
    """

    def __init__(
        self,
        config: ClientConfig,
        oidc: OidcTokenConfig,
        *,
        retriable: Iterable[int] = (),
    ) -> None:
        self._subject = config.sasl_oauthbearer_sub_claim_name
        self._extensions = oidc.extensions
        self._retriable = RETRIABLE_STATUSES | frozenset(retriable)
        context = None
        if oidc.url.startswith("https:"):
            # Imported here: TLS takes its share of the import budget, and http does not need it.
            from pykclient.network.io.ssl_factory import HttpsFactory

            context = HttpsFactory(
                oidc.files, ClientLog("pykclient.network", config.client_id)
            ).context
        self._endpoint = HttpEndpoint(oidc.url, context, proxy=proxy_of(oidc.url))
        self.name = self._endpoint.name
        """The address, for messages."""
        # As in Java, 0 means no separate limit; the total time-out always applies.
        self._timeout_ms = max(1, int(config.request_timeout_ms * TIMEOUT_SHARE))
        self._connect_timeout_ms = CONNECT_TIMEOUT_MS
        if config.sasl_login_connect_timeout_ms is not None:
            self._connect_timeout_ms = config.sasl_login_connect_timeout_ms or self._timeout_ms
        if config.sasl_login_read_timeout_ms:
            of_both_ms = self._connect_timeout_ms + config.sasl_login_read_timeout_ms
            self._timeout_ms = min(self._timeout_ms, of_both_ms)

    def fetch(
        self, request: HttpRequest, secrets: Iterable[Password] = (), *, is_get: bool = False
    ) -> OAuthToken:
        """Send a request and return the token of the response. No error shows the `secrets`.

        Raises:
            AuthenticationError: the server refused, or did not issue a valid token.
            ConnectionFailedError: the server is unreachable, slow or overloaded, or hung up.
            TlsError: its certificate is not trusted, or it does not speak TLS.
        """
        send = self._endpoint.get if is_get else self._endpoint.post
        try:
            response = send(
                request,
                connect_timeout_ms=self._connect_timeout_ms,
                timeout_ms=self._timeout_ms,
            )
        except DecodeError as error:
            raise AuthenticationError(str(error)) from error
        if response.status != 200:
            self._refuse(response, secrets)
        return self._read(response, secrets)

    def _refuse(self, response: HttpResponse, secrets: Iterable[Password]) -> None:
        reason = _shown(masked(_reason(response), secrets))
        text = f"the server responded with status {response.status}{reason and f': {reason}'}"
        if 300 <= response.status < 400:
            raise AuthenticationError(
                f"{text}; redirects are not followed: give the final address in "
                f"sasl_oauthbearer_token_endpoint_url"
            )
        if response.status >= 500 or response.status in self._retriable:
            raise ConnectionFailedError(text)
        raise AuthenticationError("; ".join(filter(None, (text, self._cure(response.status)))))

    def _cure(self, status: int) -> str:
        """Return what to check after a refusal; empty if the server's reason must do."""
        if status in ADDRESS_STATUSES:
            return (
                "the server has no token endpoint there: check host and path of "
                "sasl_oauthbearer_token_endpoint_url, which is token_endpoint in the server's "
                "/.well-known/openid-configuration"
            )
        if status == HTTPStatus.UNAUTHORIZED:
            return "check the client's id, and its secret or assertion"
        return ""

    def _read(self, response: HttpResponse, secrets: Iterable[Password]) -> OAuthToken:
        try:
            text, lifetime_s = _issued(response)
        except ValueError as error:
            reason = _shown(masked(str(error), secrets))
        else:
            return token_of(text, lifetime_s, self._subject, self._extensions)
        raise AuthenticationError(reason)


def token_of(
    text: Password, lifetime_s: float | None, subject: str, extensions: Mapping[str, str]
) -> OAuthToken:
    """Convert a text to a token.

    Raises:
        AuthenticationError: the text looks like a JWT but cannot be read.
    """
    claims = jwt_claims(text.value) or {}
    if not claims and text.value.count(".") == 2:
        raise AuthenticationError("the token is not a JWT: its claims cannot be read")
    expires_ms = jwt_expiry_ms(text.value)
    if expires_ms is None and lifetime_s is not None:
        expires_ms = wall_ms() + round(lifetime_s * 1000)
    principal = claims.get(subject)
    return OAuthToken(text, expires_ms, principal if isinstance(principal, str) else "", extensions)


def _issued(response: HttpResponse) -> tuple[Password, float | None]:
    """Return the token in the server's response, and its lifetime in seconds if known.

    Raises:
        ValueError: the response has no token.
    """
    found = _json(response.body)
    if found is None:
        content = response.content_type or "an unknown type"
        raise ValueError(
            f"the server responded with status 200 and {content}, not a JSON object; check "
            f"sasl_oauthbearer_token_endpoint_url"
        )
    kind = found.get("token_type", "bearer")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise ValueError(f"the server issued a token of type {str(kind)!r}, not bearer")
    text = found.get("access_token")
    if not isinstance(text, str) or not text:
        names = ", ".join(sorted(found)[:10]) or "nothing"
        raise ValueError(f"the server's response has no access_token; it has {names}")
    return Password(text), _lifetime_s(found.get("expires_in"))


def _lifetime_s(lifetime: object) -> float | None:
    if lifetime is None:
        return None
    if isinstance(lifetime, str) and lifetime.isascii() and lifetime.isdigit():
        lifetime = int(lifetime[:20])
    is_number = isinstance(lifetime, (int, float)) and not isinstance(lifetime, bool)
    if not is_number or not 0 <= lifetime < TIME_S_MAX:  # type: ignore[operator]
        raise ValueError("the server's response has an expires_in that is not a number of seconds")
    return float(lifetime)  # type: ignore[arg-type]


def _reason(response: HttpResponse) -> str:
    """Return the server's reason for a refusal; empty if it gave none."""
    found = _json(response.body) or {}
    words = [found.get(name) for name in ("error", "error_description")]
    said = ": ".join(word for word in words if isinstance(word, str) and word)
    return said


def _shown(text: str) -> str:
    """Return the part of a text that an error shows. Secrets must be hidden already."""
    return "".join(sign if sign.isprintable() else " " for sign in text[:_REASON_LENGTH_MAX])


def _json(body: bytes) -> dict[str, object] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
