"""OidcTokens: tokens issued by an identity server (OpenID Connect), or read from a file.

Owner: no state but settings; called on a thread of the background.
Source: RFC 6749 (client credentials, refresh tokens), RFC 7523 (assertions), RFC 8705; KIP-768,
KIP-1139, KIP-1258; Java classes ``ClientCredentialsJwtRetriever``, ``JwtBearerJwtRetriever``,
``FileJwtRetriever``.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from pykclient.config.oidc import AZURE_IMDS, FILE, JWT_BEARER, REFRESH_TOKEN, TOKEN
from pykclient.config.setting import Password
from pykclient.errors import AuthenticationError, ConfigError
from pykclient.network.io.https import HttpRequest
from pykclient.network.sasl.assertion import assertion_source, read_file, read_jwt
from pykclient.network.sasl.token import OAuthToken, wall_ms
from pykclient.network.sasl.token_endpoint import TokenEndpoint, token_of

if TYPE_CHECKING:
    from pykclient.config.client import ClientConfig
    from pykclient.config.oidc import OidcTokenConfig
    from pykclient.network.sasl.assertion import AssertionSource

CLIENT_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
"""Type of an assertion that authenticates a client (RFC 7523, section 2.2)."""

IMDS_STATUSES: Final = (404, 410)
"""Statuses that mean Azure's metadata service is not ready."""


class OidcSource(Protocol):
    """A source of tokens."""

    name: str

    def fetch(self) -> OAuthToken: ...


def oidc_source(config: ClientConfig) -> OidcSource:
    """Return the source that the OIDC settings define.

    Raises:
        ConfigError: a file cannot be used, or a package is missing.
    """
    oidc = config.oidc
    assert oidc is not None, "the config has such a source"
    if oidc.grant == FILE:
        return TokenFile(config, oidc)
    if oidc.grant == TOKEN:
        return GivenToken(config, oidc)
    if oidc.grant == AZURE_IMDS:
        return AzureImdsTokens(config, oidc)
    return OidcTokens(config, oidc)


class TokenFile:
    """A token in a file that another program renews."""

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
        return token_of(found, None, self._subject, self._extensions)


class GivenToken:
    """A token given in the settings, which is never renewed."""

    name = "sasl.jaas.config"

    def __init__(self, config: ClientConfig, oidc: OidcTokenConfig) -> None:
        assert oidc.token is not None, "checked when the config was made"
        self._token = token_of(
            oidc.token, None, config.sasl_oauthbearer_sub_claim_name, oidc.extensions
        )

    def fetch(self) -> OAuthToken:
        return self._token


class AzureImdsTokens:
    """Tokens of a managed identity, issued by the metadata service of an Azure machine."""

    def __init__(self, config: ClientConfig, oidc: OidcTokenConfig) -> None:
        self._endpoint = TokenEndpoint(config, oidc, retriable=IMDS_STATUSES)
        self.name = self._endpoint.name

    def fetch(self) -> OAuthToken:
        return self._endpoint.fetch(HttpRequest(b"", {"Metadata": "true"}), is_get=True)


class Proofs(NamedTuple):
    """The secrets of one request; None for those that are not sent."""

    secret: Password | None
    assertion: Password | None
    refresh_token: Password | None


class OidcTokens:
    """Tokens of an identity server.

    Raises:
        ConfigError: a file cannot be used, or a package is missing.
    """

    def __init__(self, config: ClientConfig, oidc: OidcTokenConfig) -> None:
        self._config = config
        self._oidc = oidc
        self._endpoint = TokenEndpoint(config, oidc)
        self.name = self._endpoint.name
        self._assertions: AssertionSource | None = None
        if oidc.assertion is not None:
            self._assertions = assertion_source(oidc.assertion)

    def fetch(self) -> OAuthToken:
        """Return a new token. Raises the errors of `TokenEndpoint.fetch`."""
        try:
            proofs = self._proofs()
        except ConfigError as error:  # the file was readable when the client was made
            raise AuthenticationError(str(error)) from error
        return self._endpoint.fetch(self._request(proofs), self._secrets(proofs))

    def _proofs(self) -> Proofs:
        oidc = self._oidc
        secret, assertion, refresh_token = oidc.client_secret, None, oidc.token
        if self._assertions is not None:
            assertion = self._assertions.assertion(wall_ms() // 1000)
        if oidc.token_file is not None:
            setting = f"oauth.refresh.token.location={oidc.token_file!r}"
            data = read_file(oidc.token_file, setting)
            refresh_token = Password(data.decode("ascii", "replace").strip())
        return Proofs(None if secret is None else secret.current(), assertion, refresh_token)

    def _request(self, proofs: Proofs) -> HttpRequest:
        # No part of this is a variable of its own: tracebacks may show those.
        return HttpRequest(
            urlencode(
                {
                    "grant_type": self._oidc.grant,
                    **self._proof_fields(proofs),
                    **({"scope": self._oidc.scope} if self._oidc.scope else {}),
                    **({"audience": self._oidc.audience} if self._oidc.audience else {}),
                }
            ).encode(),
            {
                "Accept": "application/json",
                "Cache-Control": "no-cache, no-store",
                "Content-Type": "application/x-www-form-urlencoded",
                **(
                    {}
                    if proofs.secret is None
                    else {"Authorization": f"Basic {self._credentials(proofs.secret).value}"}
                ),
            },
        )

    def _proof_fields(self, proofs: Proofs) -> dict[str, str]:
        """Return the form fields that identify the client, or its user."""
        client_id = self._oidc.client_id
        named = {"client_id": client_id} if client_id else {}
        if self._oidc.grant == JWT_BEARER:
            return {} if proofs.assertion is None else {"assertion": proofs.assertion.value}
        fields = {}
        if self._oidc.grant == REFRESH_TOKEN and proofs.refresh_token is not None:
            fields["refresh_token"] = proofs.refresh_token.value
        if proofs.assertion is not None:
            fields["client_assertion_type"] = CLIENT_ASSERTION
            fields["client_assertion"] = proofs.assertion.value
        return fields | (named if proofs.secret is None else {})

    def _credentials(self, secret: Password) -> Password:
        """Return id and secret in the form of the header."""
        encode = quote_plus if self._config.sasl_oauthbearer_header_urlencode else str
        name = encode(self._oidc.client_id).encode()
        pair = b64encode(b":".join((name, Password(encode(secret.value)).encoded())))
        return Password(pair.decode())

    def _secrets(self, proofs: Proofs) -> list[Password]:
        """Return the secrets in every form in which they are sent."""
        found = [proof for proof in proofs if proof is not None]
        return found if proofs.secret is None else [*found, self._credentials(proofs.secret)]
