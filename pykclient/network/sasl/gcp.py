"""GcpTokens: tokens of a service account, for Google's Managed Service for Apache Kafka.

The access token comes from the machine's metadata service (Compute Engine, GKE, Cloud Run,
Dataproc), or is issued for the service account key in the file that
``GOOGLE_APPLICATION_CREDENTIALS`` names. Brokers expect it in the signature part of a JWT, beside
the account's name.

Owner: no state but settings; called on a background thread.
Source: ``com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler``; Google's guides for the
metadata server and for service accounts (RFC 7523).
"""

from __future__ import annotations

import json
import os
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from urllib.parse import quote, urlencode

from pykclient.config.assertion import Assertion
from pykclient.config.oidc import JWT_BEARER, endpoint_config, url
from pykclient.config.setting import Password
from pykclient.errors import AuthenticationError, ConfigError, ConnectionFailedError, DecodeError
from pykclient.network.io.https import HttpEndpoint, HttpRequest
from pykclient.network.sasl.assertion import SignedAssertions, read_file
from pykclient.network.sasl.token import OAuthToken, wall_ms
from pykclient.network.sasl.token_endpoint import TokenEndpoint

if TYPE_CHECKING:
    from pykclient.config.client import ClientConfig

KEY_VARIABLE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
HOST_VARIABLE: Final = "GCE_METADATA_HOST"
METADATA_HOST: Final = "metadata.google.internal"
SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
LIFETIME_S: Final = 3_600
"""Lifetime of a key's assertion, the maximum at Google."""

EMAIL_TIMEOUT_MS: Final = 10_000

_HEADERS: Final = {"Metadata-Flavor": "Google"}
_HEADER: Final = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}


class AccountSource(Protocol):
    """A source of access tokens of one service account."""

    def fetch(self) -> tuple[str, OAuthToken]:
        """Return the account's name and an access token. Raises the errors of `TokenEndpoint`."""


class GcpTokens:
    """Tokens of the service account named by the environment, or of the machine's.

    Raises:
        ConfigError: the key file cannot be used, or a package is missing.
    """

    name = "the service account of Google Cloud"

    def __init__(self, config: ClientConfig) -> None:
        place = os.environ.get(KEY_VARIABLE)
        self._account: AccountSource = _Machine(config) if not place else _Key(config, place)

    def fetch(self) -> OAuthToken:
        email, token = self._account.fetch()
        if token.expires_ms is None:
            raise AuthenticationError("the server's response has no expires_in")
        return wrapped(email, token.value, token.expires_ms, wall_ms())


def wrapped(email: str, access_token: Password, expires_ms: int, now_ms: int) -> OAuthToken:
    """Return the token in the form that brokers expect. Times are since 1970."""
    claims = {
        "exp": expires_ms // 1000,
        "iat": now_ms // 1000,
        "iss": "Google",
        "scope": "kafka",
        "sub": email,
    }
    # No part of this is a variable of its own: tracebacks may show those.
    text = Password(
        ".".join(
            urlsafe_b64encode(part).rstrip(b"=").decode()
            for part in (
                json.dumps(_HEADER).encode(),
                json.dumps(claims).encode(),
                access_token.encoded(),
            )
        )
    )
    return OAuthToken(text, expires_ms, email)


class _Machine:
    """The machine's metadata service."""

    def __init__(self, config: ClientConfig) -> None:
        host = os.environ.get(HOST_VARIABLE) or METADATA_HOST
        place = f"http://{host}/computeMetadata/v1/instance/service-accounts/default"
        query = urlencode({"scopes": SCOPE})
        self._tokens = TokenEndpoint(config, endpoint_config(f"{place}/token?{query}"))
        self._email = HttpEndpoint(f"{place}/email", None)

    def fetch(self) -> tuple[str, OAuthToken]:
        request = HttpRequest(b"", _HEADERS)
        try:
            response = self._email.get(
                request, connect_timeout_ms=EMAIL_TIMEOUT_MS, timeout_ms=EMAIL_TIMEOUT_MS
            )
        except DecodeError as error:
            raise AuthenticationError(str(error)) from error
        except ConnectionFailedError as error:
            raise ConnectionFailedError(
                f"{error}; outside Google Cloud, name a key file in {KEY_VARIABLE}"
            ) from error
        if response.status != 200:
            raise AuthenticationError(
                f"the metadata service responded with status {response.status}; does the machine "
                f"have a service account?"
            )
        email = response.body.decode("ascii", "replace").strip()
        return email, self._tokens.fetch(request, is_get=True)


class _Key:
    """A service account key in a file, which is read again for each token."""

    def __init__(self, config: ClientConfig, place: str) -> None:
        self._config = config
        self._place = place
        self._signed(0)

    def fetch(self) -> tuple[str, OAuthToken]:
        try:
            email, address, assertion = self._signed(wall_ms() // 1000)
        except ConfigError as error:  # the file was readable when the client was made
            raise AuthenticationError(str(error)) from error
        endpoint = TokenEndpoint(self._config, endpoint_config(address))
        # No part of this is a variable of its own: tracebacks may show those.
        request = HttpRequest(
            f"grant_type={quote(JWT_BEARER)}&assertion={assertion.value}".encode(),
            {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"},
        )
        return email, endpoint.fetch(request, [assertion])

    def _signed(self, now_s: int) -> tuple[str, str, Password]:
        """Return the account's name, the address that issues its tokens, and an assertion."""
        setting = f"{KEY_VARIABLE}={self._place!r}"
        key = _read_key(Password(read_file(self._place, setting).decode("utf-8", "replace")))
        if key.kind != "service_account":
            raise ConfigError(
                f"{setting} is not a service account key, but of the type {key.kind!r}; for "
                f"other types, set sasl_oauth_token_provider with the package google-auth."
            )
        try:
            address = url().parse(key.token_uri)
        except ValueError:
            raise ConfigError(f"{setting} has no valid token_uri, which is a URL.") from None
        claims = {"iss": key.email, "sub": key.email, "aud": address, "scope": SCOPE}
        source = Assertion(None, None, key.pem, None, "RS256", claims, LIFETIME_S, 0, False, None)
        return key.email, address, SignedAssertions(source).assertion(now_s)


class _KeyFile(NamedTuple):
    kind: str
    email: str
    pem: Password
    token_uri: str


def _read_key(content: Password) -> _KeyFile:
    """Parse a key file. It raises nothing, since a traceback would show the key."""
    try:
        found = json.loads(content.value)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        found = {}
    kind, email, token_uri = (str(found.get(n)) for n in ("type", "client_email", "token_uri"))
    return _KeyFile(kind, email, Password(str(found.get("private_key"))), token_uri)
