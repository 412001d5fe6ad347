"""OidcTokens: tokens that an identity server issues by OpenID Connect, or that are in a file.

What the server refuses is an `AuthenticationError` with its own reason; that it is away, slow or
overloaded, a `ConnectionFailedError`, after which a client tries again. No error has a part of a
secret or of a token, neither in its text nor in a variable of its traceback.

Owner: no state but settings; called on a thread of the background.
Source: RFC 6749 (client credentials), RFC 7523 (assertions), RFC 6750; KIP-768, KIP-1139, KIP-1258;
Java classes ``ClientCredentialsJwtRetriever``, ``JwtBearerJwtRetriever``, ``FileJwtRetriever``.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote, quote_plus, unquote, urlencode, urlsplit

from pykclient.config.oidc import CLIENT_CREDENTIALS, FILE, JWT_BEARER
from pykclient.config.setting import Password
from pykclient.config.setting_text import HIDDEN
from pykclient.errors import AuthenticationError, ConfigError, ConnectionFailedError, DecodeError
from pykclient.network.io.http_proxy import proxy_of
from pykclient.network.io.https import HttpEndpoint, HttpRequest
from pykclient.network.log import ClientLog
from pykclient.network.sasl.assertion import assertion_source, read_jwt
from pykclient.network.sasl.token import (
    TIME_S_MAX,
    OAuthToken,
    jwt_claims,
    jwt_expiry_ms,
    wall_ms,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.config.client import ClientConfig
    from pykclient.config.oidc import OidcTokenConfig
    from pykclient.network.io.https import HttpResponse
    from pykclient.network.sasl.assertion import AssertionSource

CLIENT_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
"""The type of an assertion that authenticates a client (RFC 7523, section 2.2)."""

CONNECT_TIMEOUT_MS: Final = 10_000

TIMEOUT_SHARE: Final = 0.9
"""Of `request_timeout_ms`, after which the fetch is given up: before that, so that the reason is
known."""

RETRIABLE_STATUSES: Final = frozenset({408, 425, 429})
"""Beside those from 500 on."""

_REASON_LENGTH_MAX: Final = 300


class OidcSource(Protocol):
    """Where tokens come from."""

    name: str

    def fetch(self) -> OAuthToken: ...


def oidc_source(config: ClientConfig) -> OidcSource:
    """Return the source that the settings of OIDC have.

    Raises:
        ConfigError: a file cannot be used, or a package is missing.
    """
    oidc = config.oidc
    assert oidc is not None, "the config has such a source"
    return TokenFile(config, oidc) if oidc.grant == FILE else OidcTokens(config, oidc)


class TokenFile:
    """A token in a file that something else renews."""

    def __init__(self, config: ClientConfig, oidc: OidcTokenConfig) -> None:
        self.name = oidc.url
        self._place = unquote(urlsplit(oidc.url).path)
        self._subject = config.sasl_oauthbearer_sub_claim_name
        self._extensions = oidc.extensions

    def fetch(self) -> OAuthToken:
        try:
            found = read_jwt(self._place, "sasl.oauthbearer.token.endpoint.url")
        except ConfigError as error:
            raise AuthenticationError(str(error)) from error
        return _token(found, None, self._subject, self._extensions)


class OidcTokens:
    """Tokens of an identity server.

    Raises:
        ConfigError: a file cannot be used, or a package is missing.
    """

    def __init__(self, config: ClientConfig, oidc: OidcTokenConfig) -> None:
        self._config = config
        self._oidc = oidc
        context = None
        if oidc.url.startswith("https:"):
            # Imported here: TLS takes its share of the import budget, and http has no need of it.
            from pykclient.network.io.ssl_factory import HttpsFactory

            context = HttpsFactory(
                oidc.files, ClientLog("pykclient.network", config.client_id)
            ).context
        self._endpoint = HttpEndpoint(oidc.url, context, proxy=proxy_of(oidc.url))
        self.name = self._endpoint.name
        self._assertions: AssertionSource | None = None
        if oidc.assertion is not None:
            self._assertions = assertion_source(oidc.assertion)
        # As in Java, 0 is no limit of its own; there is always that of all of it.
        self._timeout_ms = max(1, int(config.request_timeout_ms * TIMEOUT_SHARE))
        self._connect_timeout_ms = CONNECT_TIMEOUT_MS
        if config.sasl_login_connect_timeout_ms is not None:
            self._connect_timeout_ms = config.sasl_login_connect_timeout_ms or self._timeout_ms
        if config.sasl_login_read_timeout_ms:
            of_both_ms = self._connect_timeout_ms + config.sasl_login_read_timeout_ms
            self._timeout_ms = min(self._timeout_ms, of_both_ms)

    def fetch(self) -> OAuthToken:
        """Return a new token.

        Raises:
            AuthenticationError: the server refused, or issued what is no token.
            ConnectionFailedError: the server is away, slow, overloaded or hung up.
            TlsError: its certificate is not to be trusted, or it does not speak TLS.
        """
        secret = self._secret()
        try:
            response = self._endpoint.post(
                self._request(secret),
                connect_timeout_ms=self._connect_timeout_ms,
                timeout_ms=self._timeout_ms,
            )
        except DecodeError as error:
            raise AuthenticationError(str(error)) from error
        if response.status != 200:
            self._refuse(response, secret)
        return self._read(response, secret)

    # What is sent.

    def _secret(self) -> Password | None:
        """Return what the server is shown: the client's secret, or an assertion."""
        if self._assertions is not None:
            try:
                return self._assertions.assertion(wall_ms() // 1000)
            except ConfigError as error:  # a file that was there when the client was made
                raise AuthenticationError(str(error)) from error
        secret = self._oidc.client_secret
        return None if secret is None else secret.current()

    def _request(self, secret: Password | None) -> HttpRequest:
        # No part of this is a variable of its own: tracebacks may show those.
        is_assertion = self._oidc.assertion is not None
        return HttpRequest(
            urlencode(
                {
                    "grant_type": self._oidc.grant,
                    **(self._assertion_fields(secret) if is_assertion and secret else {}),
                    **({} if secret else {"client_id": self._oidc.client_id}),
                    **({"scope": self._oidc.scope} if self._oidc.scope else {}),
                }
            ).encode(),
            {
                "Accept": "application/json",
                "Cache-Control": "no-cache, no-store",
                "Content-Type": "application/x-www-form-urlencoded",
                **({} if is_assertion or secret is None else self._authorization(secret)),
            },
        )

    def _assertion_fields(self, secret: Password) -> dict[str, str]:
        if self._oidc.grant == JWT_BEARER:
            return {"assertion": secret.value}
        client_id = self._oidc.client_id
        return {
            "client_assertion_type": CLIENT_ASSERTION,
            "client_assertion": secret.value,
            **({"client_id": client_id} if client_id else {}),
        }

    def _authorization(self, secret: Password) -> dict[str, str]:
        assert self._oidc.grant == CLIENT_CREDENTIALS
        encode = quote_plus if self._config.sasl_oauthbearer_header_urlencode else str
        name = encode(self._oidc.client_id).encode()
        pair = b64encode(b":".join((name, Password(encode(secret.value)).encoded())))
        return {"Authorization": f"Basic {pair.decode()}"}

    # What comes.

    def _refuse(self, response: HttpResponse, secret: Password | None) -> None:
        reason = _shown(self._masked(_reason(response), secret))
        text = f"the server responded with status {response.status}{reason and f': {reason}'}"
        if 300 <= response.status < 400:
            raise AuthenticationError(
                f"{text}; redirects are not followed: give the address itself in "
                f"sasl_oauthbearer_token_endpoint_url"
            )
        if response.status >= 500 or response.status in RETRIABLE_STATUSES:
            raise ConnectionFailedError(text)
        raise AuthenticationError(text)

    def _masked(self, text: str, secret: Password | None) -> str:
        """Hide the secret in what a server says, which may send back what it was sent.

        It is hidden in each form in which it was sent. The whole text is taken, before any of it
        is cut: a part of a secret could not be found.
        """
        if secret is None or not secret.value:
            return text
        forms = {secret.value, quote_plus(secret.value), quote(secret.value)}
        if self._oidc.assertion is None:
            forms.add(self._authorization(secret)["Authorization"].partition(" ")[2])
        for form in sorted(forms, key=len, reverse=True):
            text = text.replace(form, HIDDEN)
        return text

    def _read(self, response: HttpResponse, secret: Password | None) -> OAuthToken:
        try:
            text, lifetime_s = _issued(response)
        except ValueError as error:
            reason = _shown(self._masked(str(error), secret))
        else:
            subject = self._config.sasl_oauthbearer_sub_claim_name
            return _token(text, lifetime_s, subject, self._oidc.extensions)
        raise AuthenticationError(reason)


def _issued(response: HttpResponse) -> tuple[Password, float | None]:
    """Return the token in the server's response, and its lifetime in seconds, where that is known.

    Raises:
        ValueError: there is none.
    """
    found = _json(response.body)
    if found is None:
        content = response.content_type or "an unknown type"
        raise ValueError(
            f"the server responded with status 200 and no JSON object, but {content}; check "
            f"sasl_oauthbearer_token_endpoint_url"
        )
    kind = found.get("token_type", "bearer")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise ValueError(f"the server issued a token of type {str(kind)!r}, and no bearer")
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
        raise ValueError("the server's response has an expires_in that is no number of seconds")
    return float(lifetime)  # type: ignore[arg-type]


def _token(
    text: Password, lifetime_s: float | None, subject: str, extensions: Mapping[str, str]
) -> OAuthToken:
    """Return the token that a text is. Raises `AuthenticationError`: it cannot be read."""
    claims = jwt_claims(text.value) or {}
    if not claims and text.value.count(".") == 2:
        raise AuthenticationError("the token is no JWT: its claims cannot be read")
    expires_ms = jwt_expiry_ms(text.value)
    if expires_ms is None and lifetime_s is not None:
        expires_ms = wall_ms() + round(lifetime_s * 1000)
    principal = claims.get(subject)
    return OAuthToken(text, expires_ms, principal if isinstance(principal, str) else "", extensions)


def _reason(response: HttpResponse) -> str:
    """Return why the server refused, in its own words; empty if it did not say."""
    found = _json(response.body) or {}
    words = [found.get(name) for name in ("error", "error_description")]
    said = ": ".join(word for word in words if isinstance(word, str) and word)
    return said


def _shown(text: str) -> str:
    """Return what an error shows of a text, whose secrets are hidden already."""
    return "".join(sign if sign.isprintable() else " " for sign in text[:_REASON_LENGTH_MAX])


def _json(body: bytes) -> dict[str, object] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
