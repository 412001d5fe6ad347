"""Settings for tokens that an identity server issues (OpenID Connect), for OAUTHBEARER.

Names, defaults and meanings are Java's, with librdkafka's names as aliases. Options that Java has
in ``sasl.jaas.config`` (``clientId``, ``clientSecret``, ``scope``, ``extension_NAME``) are read as
well. `pykclient.network.sasl.oidc` reads the files when a client is made, never this module.

Owner: none, everything is immutable.
Source: KIP-768, KIP-1139 (client credentials and assertions as settings), KIP-1258; Java class
``SaslConfigs``; librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.config.assertion import AssertionConfig, given_assertion
from pykclient.config.https import TLS_OPTIONS, HttpsConfig, HttpsFiles
from pykclient.config.policy import Reach
from pykclient.config.setting import (
    Kind,
    Password,
    Setting,
    boolean,
    choice,
    integer,
    optional,
    password_or_callable,
    string,
)
from pykclient.config.strimzi import STRIMZI_LOGIN_HANDLER, read_strimzi
from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.config.assertion import Assertion
    from pykclient.config.setting import PasswordSource
    from pykclient.config.strimzi import StrimziLogin

CLIENT_CREDENTIALS: Final = "client_credentials"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
REFRESH_TOKEN: Final = "refresh_token"  # noqa: S105 - the name of a grant
FILE: Final = "file"
"""Instead of a grant: the token is in a file."""
TOKEN: Final = "token"  # noqa: S105 - no token, but a word for one
"""Instead of a grant: the token is in the settings."""
AZURE_IMDS: Final = "azure_imds"
"""Instead of a grant: the machine's metadata service issues the token."""

AZURE_IMDS_URL: Final = "http://169.254.169.254/metadata/identity/oauth2/token"

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
LOGIN_HANDLERS: Final = (
    f"{_PACKAGE}.OAuthBearerLoginCallbackHandler",
    f"{_PACKAGE}.secured.OAuthBearerLoginCallbackHandler",
)
"""Java's classes that fetch tokens by OIDC, the current one and the one before Kafka 3.7."""

MSK_LOGIN_HANDLER: Final = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
"""Java's class that makes tokens from AWS credentials, for Amazon MSK."""

GCP_LOGIN_HANDLER: Final = "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"
"""Java's class that gets tokens of a service account, for Google's Managed Kafka."""

GCP_METADATA_URL: Final = (
    "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
)
"""The address that the policy must allow text to name: brokers get the service account's token."""

_RETRIEVERS: Final = {
    f"{_PACKAGE}.DefaultJwtRetriever": "",
    f"{_PACKAGE}.ClientCredentialsJwtRetriever": CLIENT_CREDENTIALS,
    f"{_PACKAGE}.JwtBearerJwtRetriever": JWT_BEARER,
    f"{_PACKAGE}.FileJwtRetriever": FILE,
}
"""Java's classes, by their task. The first one decides by the address and the grant's name."""

_URL_SIGNS: Final = re.compile(r"[\x21-\x7e]+")
_SCHEMES: Final = ("https", "http", "file")
_EXTENSION: Final = "extension_"
_CREDENTIALS: Final = ("clientId", "clientSecret", "scope")


class OidcTokenConfig(NamedTuple):
    """The settings of a token's source."""

    grant: str
    url: str
    client_id: str
    client_secret: Password | PasswordSource | None
    scope: str
    extensions: Mapping[str, str]
    assertion: Assertion | None
    files: HttpsFiles
    audience: str = ""
    token: Password | None = None
    """The token, or the refresh token."""
    token_file: str | None = None
    """The file with the refresh token, read for each token."""


def url() -> Kind[str]:
    def parse(value: object) -> str:
        from urllib.parse import urlsplit  # few clients have an address to parse

        if not isinstance(value, str) or not _URL_SIGNS.fullmatch(value.strip()):
            raise ValueError
        parts = urlsplit(value.strip())
        if parts.scheme not in _SCHEMES:
            raise ValueError("It must begin with https://, http:// or file:///.")
        if "@" in parts.netloc:
            raise ValueError("It contains a user; give the client's id and secret as settings.")
        if parts.scheme == "file" and (parts.hostname or not parts.path):
            raise ValueError("Write file:///path.")
        if parts.scheme != "file" and (not parts.hostname or parts.port == 0):
            raise ValueError("It has no host.")
        return f"{parts.scheme}:{value.strip().partition(':')[2]}"  # HTTPS: is https:

    return Kind(
        parse,
        "a URL",
        annotation="str",
        named=lambda value: [(Reach.URL, value)] if isinstance(value, str) else [],
    )


def java_class(names: tuple[str, ...]) -> Kind[str]:
    """Return the kind of a Java class name, fully qualified or simple."""

    def parse(value: object) -> str:
        name = value.strip() if isinstance(value, str) else ""
        found = [each for each in names if name in (each, each.rpartition(".")[2])]
        if not found:
            raise ValueError(
                "It is a Java class; for tokens from your own code, set sasl_oauth_token_provider."
            )
        return found[0]

    return Kind(
        parse,
        f"one of {', '.join(names)}",
        annotation="str",
        named=lambda value: [(Reach.URL, GCP_METADATA_URL)] if value == GCP_LOGIN_HANDLER else [],
    )


def pairs() -> Kind[tuple[tuple[str, str], ...]]:
    """Return the kind of pairs written as NAME=VALUE, separated by commas."""

    def parse(value: object) -> tuple[tuple[str, str], ...]:
        if not isinstance(value, str):
            raise ValueError
        items = [item.strip().partition("=") for item in value.split(",") if item.strip()]
        if not all(name and sign for name, sign, _ in items):
            raise ValueError
        return tuple((name.strip(), content.strip()) for name, _, content in items)

    return Kind(
        parse,
        "NAME=VALUE pairs separated by commas",
        lambda value: ",".join(f"{name}={content}" for name, content in value),
        "str",
    )


_ALL_LOGIN_HANDLERS: Final = (
    *LOGIN_HANDLERS,
    MSK_LOGIN_HANDLER,
    GCP_LOGIN_HANDLER,
    STRIMZI_LOGIN_HANDLER,
)


def endpoint_config(place: str) -> OidcTokenConfig:
    """Return the settings of a token source that needs only an address."""
    return OidcTokenConfig(TOKEN, place, "", None, "", {}, None, HttpsFiles())


def metadata_type() -> Kind[str]:
    """Return the kind of a metadata service. The policy limits which ones text may name."""
    hint = (
        "aws_iam is not supported; for Amazon MSK, set sasl.mechanism=AWS_MSK_IAM, or "
        f"sasl.login.callback.handler.class={MSK_LOGIN_HANDLER}."
    )
    kind = choice({"none": "none", AZURE_IMDS: AZURE_IMDS}, hints={"aws_iam": hint})
    return Kind(
        kind.parse,
        kind.allowed,
        kind.written,
        kind.annotation,
        named=lambda value: [(Reach.URL, AZURE_IMDS_URL)] if value == AZURE_IMDS else [],
    )


class OidcConfig(AssertionConfig, HttpsConfig):
    """The identity server that issues tokens, and how the client authenticates to it."""

    sasl_login_callback_handler_class = Setting(
        optional(java_class(_ALL_LOGIN_HANDLERS)),
        None,
        "Java's class that fetches tokens, as Java's files name it. An identity server's class is "
        "not needed here, its address is enough. Amazon's class signs with AWS credentials, "
        "Google's gets the token of a service account, and Strimzi's reads the options oauth.* "
        "of sasl_jaas_config.",
    )
    sasl_oauthbearer_method = Setting(
        choice({"default": "default", "oidc": "oidc"}),
        "default",
        "librdkafka's name of the token source, such as oidc. It is not needed here: the address "
        "of the identity server is enough.",
        key="sasl.oauthbearer.method",
        is_ours=True,
    )
    sasl_oauthbearer_metadata_authentication_type = Setting(
        metadata_type(),
        "none",
        "The machine's metadata service that issues tokens: azure_imds is Azure's, for a managed "
        "identity. Give its parameters in sasl.oauthbearer.config, "
        "query=api-version=2018-02-01&resource=..., and another address in "
        "sasl_oauthbearer_token_endpoint_url. Only librdkafka has this setting.",
        key="sasl.oauthbearer.metadata.authentication.type",
        is_ours=True,
    )
    sasl_oauthbearer_config = Setting(
        string(),
        "",
        "Argument of oauth_cb; or the parameters of a metadata service; or the contents of an "
        "unsecured token in librdkafka's form: principal=alice scope=a,b lifeSeconds=3600 "
        "extension_NAME=VALUE.",
        key="sasl.oauthbearer.config",
        is_ours=True,
    )
    sasl_oauthbearer_audience = Setting(
        optional(string()),
        None,
        "The service that the token is for, if the identity server requires the parameter "
        "audience. Strimzi has it as oauth.audience in sasl_jaas_config.",
        key="sasl.oauthbearer.audience",
        is_ours=True,
    )
    sasl_oauthbearer_token_endpoint_url = Setting(
        optional(url()),
        None,
        "Address at which an identity server issues tokens (OpenID Connect), https://...; or a "
        "file with a token, file:///..., which is reloaded before the token expires.",
    )
    sasl_oauthbearer_client_credentials_client_id = Setting(
        optional(string()),
        None,
        "The client's id at the identity server. Java has it as clientId in sasl_jaas_config, too.",
        aliases=("sasl.oauthbearer.client.id",),
    )
    sasl_oauthbearer_client_credentials_client_secret = Setting(
        optional(password_or_callable()),
        None,
        "The client's secret, or a function that returns it, called without arguments for each "
        "token. Java has it as clientSecret in sasl_jaas_config, too.",
        aliases=("sasl.oauthbearer.client.secret",),
    )
    sasl_oauthbearer_scope = Setting(
        optional(string()),
        None,
        "Scope of the token, as the identity server names it. Java has it as scope in "
        "sasl_jaas_config, too.",
    )
    sasl_oauthbearer_extensions = Setting(
        pairs(),
        (),
        "SASL extensions for the broker, as NAME=VALUE separated by commas: logicalCluster and "
        "identityPoolId for Confluent Cloud. Java has them as extension_NAME in sasl_jaas_config.",
        key="sasl.oauthbearer.extensions",
        is_ours=True,
    )
    sasl_oauthbearer_grant_type = Setting(
        choice({name: name for name in (CLIENT_CREDENTIALS, JWT_BEARER)}),
        CLIENT_CREDENTIALS,
        "The grant: client credentials, where the client authenticates with its secret or an "
        "assertion (KIP-1258); or an assertion, a JWT signed with the client's key, as the grant "
        "(RFC 7523).",
        key="sasl.oauthbearer.grant.type",
        is_ours=True,
    )
    sasl_oauthbearer_jwt_retriever_class = Setting(
        java_class(tuple(_RETRIEVERS)),
        next(iter(_RETRIEVERS)),
        "Java's class for the grant.",
    )
    sasl_oauthbearer_header_urlencode = Setting(
        boolean(),
        False,
        "True URL-encodes id and secret for the header, as RFC 6749 says; the default is Java's.",
    )
    sasl_oauthbearer_sub_claim_name = Setting(
        string(), "sub", "Claim of a token that names its user, for messages."
    )
    sasl_login_connect_timeout_ms = Setting(
        optional(integer(0)),
        None,
        "Maximum time to connect to the identity server; None means 10 seconds, 0 the rest of "
        "request_timeout_ms.",
    )
    sasl_login_read_timeout_ms = Setting(
        optional(integer(0)),
        None,
        "Maximum time for the identity server's response; None and 0 mean the rest of "
        "request_timeout_ms.",
    )

    @property
    def is_oidc(self) -> bool:
        """True if tokens come from an identity server, or from a file."""
        return (
            self.sasl_oauthbearer_method == "oidc"
            or self.sasl_oauthbearer_metadata_authentication_type != "none"
            or self.sasl_login_callback_handler_class in (*LOGIN_HANDLERS, STRIMZI_LOGIN_HANDLER)
            or self.sasl_oauthbearer_token_endpoint_url is not None
        )

    def read_oidc(self, jaas_options: Mapping[str, str]) -> OidcTokenConfig:
        """Return the settings of the token source. `jaas_options` come from ``sasl.jaas.config``.

        Raises:
            ConfigError: a setting is missing, or two contradict each other. It shows no secret.
        """
        login = read_strimzi(jaas_options)
        options = login.options
        _check_options(options)
        place = self._place(login)
        grant = self._grant(place, login)
        if place.startswith("file:") and grant not in (FILE, TOKEN):
            raise ConfigError(
                "sasl.oauthbearer.token.endpoint.url is a file, but the other settings are for a "
                "server that issues tokens; give the server's address."
            )
        is_asserted = self._is_asserted(login, grant)
        files = self.read_https(options)
        return OidcTokenConfig(
            grant,
            place,
            self._client_id(options, grant, is_asserted=is_asserted),
            None if is_asserted else self._client_secret(options, grant, files),
            _agreed("scope", options, self.sasl_oauthbearer_scope) or "",
            self._extensions(options),
            self._assertion(login) if is_asserted else None,
            files,
            _one("audience", self.sasl_oauthbearer_audience, login.audience) or "",
            login.access_token or login.refresh_token,
            login.refresh_token_file,
        )

    def _place(self, login: StrimziLogin) -> str:
        """Return the address that issues tokens, or the file that contains one."""
        given = login.url
        if given is not None:
            try:
                given = url().parse(given)
            except ValueError as error:
                raise ConfigError(
                    f"oauth.token.endpoint.uri in sasl.jaas.config is not a URL. {error}".strip()
                ) from None
        place = _one("token.endpoint.url", self.sasl_oauthbearer_token_endpoint_url, given)
        if self.sasl_oauthbearer_metadata_authentication_type == AZURE_IMDS:
            return self._metadata_place(place)
        if login.access_token_file is not None:
            from urllib.parse import quote  # few clients have an address to format

            # The path is not normalized: ".." after a link leads elsewhere than the policy has
            # checked.
            return f"file://{quote(os.path.join(os.getcwd(), login.access_token_file))}"
        if login.access_token is not None:
            return place or ""
        if place is None:
            option = " or oauth.token.endpoint.uri" if login.is_given else ""
            raise ConfigError(
                f"OAUTHBEARER with OIDC needs sasl.oauthbearer.token.endpoint.url{option}, the "
                f"address at which the identity server issues tokens."
            )
        return place

    def _metadata_place(self, place: str | None) -> str:
        pairs = (part.partition("=") for part in self.sasl_oauthbearer_config.split(","))
        query = next((value for name, _, value in pairs if name.strip() == "query"), "").strip()
        if place is None and not query:
            raise ConfigError(
                "sasl.oauthbearer.metadata.authentication.type=azure_imds needs the parameters in "
                "sasl.oauthbearer.config: query=api-version=2018-02-01&resource=..., or "
                "sasl.oauthbearer.token.endpoint.url with them."
            )
        place = place or AZURE_IMDS_URL
        if not query:
            return place
        if not _URL_SIGNS.fullmatch(query):
            raise ConfigError(
                "query in sasl.oauthbearer.config has characters that a URL must not have; "
                "encode them."
            )
        return f"{place}{'&' if '?' in place else '?'}{query}"

    def _assertion(self, login: StrimziLogin) -> Assertion:
        if login.assertion is None and login.assertion_file is None:
            return self.read_assertion()
        if self.sasl_oauthbearer_assertion_file is not None or self.has_assertion_key:
            raise ConfigError(
                "sasl.oauthbearer.assertion and oauth.client.assertion in sasl.jaas.config are two "
                "sources; give one."
            )
        return given_assertion(login.assertion, login.assertion_file)

    def _grant(self, place: str, login: StrimziLogin) -> str:
        if self.sasl_oauthbearer_metadata_authentication_type == AZURE_IMDS:
            return AZURE_IMDS
        if login.access_token is not None:
            return TOKEN
        if login.refresh_token is not None or login.refresh_token_file is not None:
            return REFRESH_TOKEN
        named = _RETRIEVERS[self.sasl_oauthbearer_jwt_retriever_class]
        grant = self.sasl_oauthbearer_grant_type
        if named not in ("", grant) and grant != CLIENT_CREDENTIALS:
            raise ConfigError(
                "sasl.oauthbearer.jwt.retriever.class and sasl.oauthbearer.grant.type disagree; "
                "give one."
            )
        is_file = place.startswith("file:")
        if named and is_file != (named == FILE):
            raise ConfigError(
                f"sasl.oauthbearer.jwt.retriever.class is for "
                f"{'a file' if named == FILE else 'an identity server'}, but "
                f"sasl.oauthbearer.token.endpoint.url is not."
            )
        return FILE if is_file else named or grant

    def _is_asserted(self, login: StrimziLogin, grant: str) -> bool:
        """Return whether an assertion authenticates the client, or is the grant.

        As in Java, an assertion takes precedence over a secret: first a file, then a key with
        ``claim.iss``, then the secret (KIP-1258). With a key but no ``claim.iss``, Java uses the
        secret.
        """
        if login.assertion is not None or login.assertion_file is not None:
            return grant in (CLIENT_CREDENTIALS, REFRESH_TOKEN)
        if grant != CLIENT_CREDENTIALS:
            return grant == JWT_BEARER
        has_issuer = self.sasl_oauthbearer_assertion_claim_iss is not None
        if self.sasl_oauthbearer_assertion_file is not None or has_issuer:
            return True
        if self.has_assertion_key and self._has_secret(login.options):
            raise ConfigError(
                "sasl.oauthbearer.assertion.private.key and a client secret are given: set "
                "sasl.oauthbearer.assertion.claim.iss, or leave out the secret, to authenticate "
                "with an assertion; leave out the key to authenticate with the secret."
            )
        return self.has_assertion_key

    def _has_secret(self, options: Mapping[str, str]) -> bool:
        found = self.sasl_oauthbearer_client_credentials_client_secret
        return found is not None or "clientSecret" in options

    def oidc_warnings(self, jaas_options: Mapping[str, str]) -> list[str]:
        """Return a sentence for each setting that has no effect because of another one."""
        found: list[str] = []
        if self.read_oidc(jaas_options).assertion is None:
            return found
        if self._has_secret(read_strimzi(jaas_options).options):
            found.append(
                "sasl_oauthbearer_client_credentials_client_secret is not used: an assertion "
                "authenticates the client; leave out the secret"
            )
        if self.sasl_oauthbearer_assertion_file is not None and self.has_assertion_key:
            found.append(
                "sasl_oauthbearer_assertion_private_key_file is not used: the assertion is in "
                "sasl_oauthbearer_assertion_file; give one"
            )
        return found

    def _client_id(self, options: Mapping[str, str], grant: str, *, is_asserted: bool) -> str:
        name = self.sasl_oauthbearer_client_credentials_client_id
        client_id = _agreed("clientId", options, name) or ""
        if grant in (CLIENT_CREDENTIALS, REFRESH_TOKEN) and not is_asserted:
            if not client_id:
                raise ConfigError(_missing("id", JWT_BEARER))
            if ":" in client_id and not self.sasl_oauthbearer_header_urlencode:
                raise ConfigError(
                    "sasl.oauthbearer.client.credentials.client.id has a colon, which would end "
                    "it in the header; set sasl.oauthbearer.header.urlencode=true."
                )
        return client_id

    def _client_secret(
        self, options: Mapping[str, str], grant: str, files: HttpsFiles
    ) -> Password | PasswordSource | None:
        found = self.sasl_oauthbearer_client_credentials_client_secret
        if "clientSecret" in options:
            secret = Password(options["clientSecret"])
            if found not in (None, secret):
                raise ConfigError(_two_sources("clientSecret"))
            found = secret
        is_missing = found in (None, Password("")) and not files.has_identity
        if grant == CLIENT_CREDENTIALS and is_missing:
            raise ConfigError(_missing("secret", JWT_BEARER))
        return found

    def _extensions(self, options: Mapping[str, str]) -> dict[str, str]:
        of_java = {
            name.removeprefix(_EXTENSION): value
            for name, value in options.items()
            if name.startswith(_EXTENSION)
        }
        own = dict(self.sasl_oauthbearer_extensions)
        if any(of_java.get(name, value) != value for name, value in own.items()):
            raise ConfigError(
                "sasl.oauthbearer.extensions and sasl.jaas.config disagree on an extension; give "
                "it once."
            )
        return {**of_java, **own}


def _agreed(option: str, options: Mapping[str, str], value: str | None) -> str | None:
    """Return the value of a setting or of Java's option for it; either may be missing."""
    found = options.get(option)
    if found is not None and value not in (None, found):
        raise ConfigError(_two_sources(option))
    return value if found is None else found


def _one(name: str, value: str | None, option: str | None) -> str | None:
    """Return the value of a setting or of Strimzi's option for it; either may be missing."""
    if option is not None and value not in (None, option):
        raise ConfigError(
            f"sasl.oauthbearer.{name} and Strimzi's option in sasl.jaas.config disagree; give one."
        )
    return value if option is None else option


def _two_sources(option: str) -> str:
    key = {
        "clientId": "sasl.oauthbearer.client.credentials.client.id",
        "clientSecret": "sasl.oauthbearer.client.credentials.client.secret",
        "scope": "sasl.oauthbearer.scope",
    }[option]
    return f"{key} and {option} in sasl.jaas.config disagree; give one."


def _missing(what: str, other_grant: str) -> str:
    return (
        f"OAUTHBEARER with OIDC needs sasl.oauthbearer.client.credentials.client.{what} "
        f"(sasl.oauthbearer.client.{what} in librdkafka); or an assertion: "
        f"sasl.oauthbearer.assertion.file, or a key with sasl.oauthbearer.assertion.claim.iss; or "
        f"sasl.oauthbearer.grant.type={other_grant}, whose grant is an assertion."
    )


def _check_options(options: Mapping[str, str]) -> None:
    for name in options:
        if name not in (*_CREDENTIALS, *TLS_OPTIONS) and not name.startswith(_EXTENSION):
            raise ConfigError(
                f"sasl.jaas.config has the option {name}, which is not supported for an identity "
                f"server; use one of {', '.join(_CREDENTIALS)}, extension_NAME and "
                f"{', '.join(TLS_OPTIONS)}."
            )
