"""Settings for SASL, which authenticates clients.

Names, defaults and meanings are Java's. Options in Java's login configuration
(``sasl.jaas.config``) can also be set by librdkafka's names, and other names of librdkafka and
kafka-python are aliases.

Owner: none, everything is immutable but the registry of mechanisms, which only grows.
Source: Java class ``SaslConfigs``; KIP-255 (OAUTHBEARER); librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.config.jaas import parse_jaas
from pykclient.config.kerberos import CACHES_WITHOUT_FILE, TICKET_CACHE, KerberosConfig
from pykclient.config.oidc import GCP_LOGIN_HANDLER, MSK_LOGIN_HANDLER, OidcConfig
from pykclient.config.policy import Reach
from pykclient.config.setting import (
    LONG_MAX,
    Kind,
    Password,
    Setting,
    boolean,
    decimal,
    integer,
    object_or_name,
    optional,
    password,
    password_or_callable,
    sendable_text,
    string,
)
from pykclient.config.strimzi import is_strimzi
from pykclient.config.unknown_keys import did_you_mean
from pykclient.config.unsecured_token import UnsecuredToken
from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.config.kerberos import KerberosLogin
    from pykclient.config.oidc import OidcTokenConfig
    from pykclient.config.setting import PasswordSource

SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD_MECHANISMS: Final = ("PLAIN", *SCRAM_MECHANISMS)
"""Mechanisms that use a user name and a password."""

OAUTHBEARER: Final = "OAUTHBEARER"
AWS_MSK_IAM: Final = "AWS_MSK_IAM"
GSSAPI: Final = "GSSAPI"
MECHANISMS: Final = (*PASSWORD_MECHANISMS, OAUTHBEARER, AWS_MSK_IAM, GSSAPI)
"""The client's built-in mechanisms."""

_PACKAGE: Final = "org.apache.kafka.common.security"
_LOGIN_MODULES: Final = {
    "PLAIN": f"{_PACKAGE}.plain.PlainLoginModule",
    **dict.fromkeys(SCRAM_MECHANISMS, f"{_PACKAGE}.scram.ScramLoginModule"),
    OAUTHBEARER: f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule",
    AWS_MSK_IAM: "software.amazon.msk.auth.iam.IAMLoginModule",
    GSSAPI: "com.sun.security.auth.module.Krb5LoginModule",
}
"""Java's login modules, by mechanism."""

_REACHING_OPTIONS: Final = {
    "keyTab": Reach.LOCAL_FILE,
    # If a keytab is set as well, the system's library may write to it.
    TICKET_CACHE: Reach.FILE,
    "ssl.truststore.location": Reach.LOCAL_FILE,
    "ssl.keystore.location": Reach.LOCAL_FILE,
    "oauth.ssl.truststore.location": Reach.LOCAL_FILE,
    "oauth.token.endpoint.uri": Reach.URL,
    **dict.fromkeys(
        (
            "oauth.access.token.location",
            "oauth.refresh.token.location",
            "oauth.client.assertion.location",
        ),
        Reach.FILE,
    ),
}
"""Options of login modules that name files and addresses."""

_TOKEN_AUTH: Final = "tokenauth"  # noqa: S105 - the name of an option
_USER_OF_BROKER: Final = "user_"
_IDLE_OPTIONS: Final = ("serviceName", "debug")
"""Options that PLAIN and SCRAM ignore, as in Java."""

_AWS_PROFILE: Final = "awsProfileName"
_AWS_ROLE: Final = "awsRoleArn"
_AWS_OPTIONS: Final = (
    *(_AWS_PROFILE, _AWS_ROLE, "awsRoleSessionName", "awsRoleExternalId", "awsStsRegion"),
    *("awsDebugCreds", "awsAddDefaultProviders", "awsMaxRetries", "awsMaxBackOffTimeMs"),
)
"""Options of ``aws-msk-iam-auth``. The last three have no effect here: failures are always retried,
and other credentials never replace those that the options name."""


class AwsLogin(NamedTuple):
    """The AWS credentials that sign: those of a profile, or of a role to assume."""

    profile: str | None = None
    """The profile; None means AWS's default chain: environment, web identity, profile, machine."""
    role_arn: str | None = None
    session_name: str | None = None
    external_id: str | None = None
    sts_region: str | None = None
    """The region whose STS issues the role's credentials; None means the cluster's region."""


class MechanismNames:
    """The names that `sasl_mechanism` accepts."""

    own: Final = MECHANISMS

    def __init__(self) -> None:
        self.registered: set[str] = set()
        """The names registered with `pykclient.register_sasl_mechanism`."""

    def parse(self, value: object) -> str:
        name = value.strip().upper() if isinstance(value, str) else ""
        if name not in self.own and name not in self.registered:
            raise ValueError
        return name


MECHANISM_NAMES: Final = MechanismNames()


def login_configuration() -> Kind[Password]:
    """Return the kind of Java's login configuration, whose options may name files."""
    secret = password()

    def named(value: object) -> Iterator[tuple[Reach, str]]:
        if not isinstance(value, Password):
            return
        try:
            options = parse_jaas(value.value).options
        except ValueError:
            return  # `SaslConfig.jaas_options` reports the error
        for option, reach in _REACHING_OPTIONS.items():
            if option in options:
                kind, colon, rest = options[option].partition(":")
                is_typed = option == TICKET_CACHE and colon
                if not is_typed:
                    yield reach, options[option]
                elif kind not in CACHES_WITHOUT_FILE:
                    yield reach, rest.removeprefix(":")  # DIR::FILE is one file of a folder

    return Kind(secret.parse, secret.allowed, annotation=secret.annotation, named=named)


class SaslConfig(OidcConfig, KerberosConfig):
    """The mechanism and the credentials with which a client authenticates."""

    sasl_mechanism = Setting(
        Kind(
            MECHANISM_NAMES.parse,
            f"one of {', '.join(MECHANISM_NAMES.own)}, or a registered name",
            annotation="str",
        ),
        "GSSAPI",
        "SASL mechanism, used if security_protocol is SASL_PLAINTEXT or SASL_SSL.",
        aliases=("sasl.mechanisms",),
    )
    sasl_jaas_config = Setting(
        optional(login_configuration()),
        None,
        "Java's login configuration: for PLAIN and SCRAM "
        'MODULE required username="..." password="..."; and tokenauth=true if they are the id '
        "and HMAC of a delegation token (KIP-48); for OAUTHBEARER clientId and clientSecret, or "
        "the claims of an unsecured token; for GSSAPI keyTab and principal.",
    )
    sasl_username = Setting(
        optional(string()),
        None,
        "User name for PLAIN and SCRAM. Java has it in sasl_jaas_config.",
        key="sasl.username",
        aliases=("sasl_plain_username",),
        is_ours=True,
    )
    sasl_password = Setting(
        optional(password_or_callable()),
        None,
        "Password for PLAIN and SCRAM, or a function that returns it, called without arguments "
        "for each authentication. Java has it in sasl_jaas_config.",
        key="sasl.password",
        aliases=("sasl_plain_password",),
        is_ours=True,
    )
    sasl_oauth_token_provider: Setting[object] = Setting(
        object_or_name(),
        None,
        "Source of tokens for OAUTHBEARER: a function without arguments, or an object with "
        "token() and optionally extensions(). It returns the token as text, a tuple like that of "
        "oauth_cb, or a pykclient.OAuthToken. It may block, and is called on a separate thread.",
        is_ours=True,
    )
    oauth_cb: Setting[object] = Setting(
        object_or_name(reach=Reach.FUNCTION),
        None,
        "Source of tokens as in confluent-kafka: a function that is called with "
        "sasl.oauthbearer.config and returns the token, its expiry in seconds since 1970 and, "
        "optionally, the principal and a dict of SASL extensions.",
        aliases=("oauthbearer_token_refresh_cb",),
        is_ours=True,
    )
    enable_sasl_oauthbearer_unsecure_jwt = Setting(
        boolean(),
        False,
        "True makes unsigned tokens from sasl.oauthbearer.config, for test brokers. Java "
        "configures them in sasl_jaas_config.",
        key="enable.sasl.oauthbearer.unsecure.jwt",
        is_ours=True,
    )
    sasl_login_refresh_window_factor = Setting(
        decimal(0.5, 1.0),
        0.8,
        "Fraction of its lifetime after which a token is renewed.",
    )
    sasl_login_refresh_window_jitter = Setting(
        decimal(0.0, 0.25),
        0.05,
        "Maximum fraction of the lifetime that is added to it at random.",
    )
    sasl_login_refresh_min_period_seconds = Setting(
        integer(0, 900), 60, "Minimum time before a token is renewed, if its lifetime allows that."
    )
    sasl_login_refresh_buffer_seconds = Setting(
        integer(0, 3_600),
        300,
        "Time before its expiry at which a token is renewed, if its lifetime allows that.",
    )
    sasl_login_retry_backoff_ms = Setting(
        integer(0, LONG_MAX),
        100,
        "Pause before another token is fetched, after a failed fetch or a refused token. It is "
        "at least a second and doubles each time.",
    )
    sasl_login_retry_backoff_max_ms = Setting(
        integer(0, LONG_MAX), 10_000, "Maximum pause before another token is fetched."
    )

    @property
    def credentials(self) -> tuple[str, Password | PasswordSource] | None:
        """User name and password for PLAIN and SCRAM; None if one is missing.

        Raises:
            ConfigError: two settings for them disagree, or sasl.jaas.config is malformed.
        """
        name, secret = self.sasl_username, self.sasl_password
        if self.sasl_jaas_config is not None:
            options = self.jaas_options
            _check_user_options(options, self.sasl_mechanism)
            java_name, java_secret = _user_of(options)
            if name not in (None, java_name) or secret not in (None, java_secret):
                raise ConfigError(
                    "sasl.jaas.config and sasl.username or sasl.password disagree; give one."
                )
            name, secret = java_name, java_secret
        return None if name is None or secret is None else (name, secret)

    @property
    def has_delegation_token(self) -> bool:
        """True if user and password are the id and HMAC of a delegation token (KIP-48).

        Raises:
            ConfigError: sasl.jaas.config is malformed, or is for another mechanism.
        """
        return self.jaas_options.get(_TOKEN_AUTH, "").strip().lower() == "true"

    @property
    def jaas_options(self) -> dict[str, str]:
        """The options in sasl.jaas.config; empty without it.

        Raises:
            ConfigError: it is malformed, or is for another mechanism.
        """
        if self.sasl_jaas_config is None:
            return {}
        try:
            jaas = parse_jaas(self.sasl_jaas_config.value)
        except ValueError as error:
            raise ConfigError(f"sasl.jaas.config is malformed. {error}") from None
        needed = _LOGIN_MODULES.get(self.sasl_mechanism, "")
        if needed and jaas.module.rpartition(".")[2] != needed.rpartition(".")[2]:
            raise ConfigError(
                f"sasl.jaas.config is for {jaas.module}, and sasl.mechanism={self.sasl_mechanism} "
                f"needs {needed}."
            )
        return jaas.options

    @property
    def unsecured_token(self) -> UnsecuredToken | None:
        """The contents of unsigned tokens; None if the settings do not require them.

        Raises:
            ConfigError: they are malformed.
        """
        options = self.jaas_options
        try:
            if self.enable_sasl_oauthbearer_unsecure_jwt:
                return UnsecuredToken.from_librdkafka(self.sasl_oauthbearer_config)
            if any(name.startswith("unsecuredLogin") for name in options):
                return UnsecuredToken.from_jaas(options)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return None

    @property
    def kerberos(self) -> KerberosLogin:
        """The credentials with which GSSAPI gets tickets.

        Raises:
            ConfigError: two settings contradict each other, or an option is unknown.
        """
        return self.read_kerberos(self.jaas_options)

    @property
    def aws_login(self) -> AwsLogin:
        """Return the AWS credentials for Amazon MSK.

        Raises:
            ConfigError: sasl.jaas.config has options that are not supported, or that contradict
                each other.
        """
        options = self.jaas_options
        others = [name for name in options if name not in _AWS_OPTIONS]
        if others or options.get("awsDebugCreds", "false").lower() != "false":
            raise ConfigError(
                f"sasl.jaas.config has {', '.join(others) or 'awsDebugCreds'}, which is not "
                f"supported for Amazon MSK; use one of {', '.join(_AWS_OPTIONS)}."
            )
        if _AWS_PROFILE in options and _AWS_ROLE in options:
            raise ConfigError(
                f"{_AWS_PROFILE} and {_AWS_ROLE} in sasl.jaas.config are two sources; give one. A "
                f"profile of ~/.aws/config may assume a role: role_arn."
            )
        return AwsLogin(
            options.get(_AWS_PROFILE),
            options.get(_AWS_ROLE),
            options.get("awsRoleSessionName"),
            options.get("awsRoleExternalId"),
            options.get("awsStsRegion"),
        )

    @property
    def has_aws_tokens(self) -> bool:
        """True if tokens are made from AWS credentials."""
        return self.sasl_login_callback_handler_class == MSK_LOGIN_HANDLER

    @property
    def has_gcp_tokens(self) -> bool:
        """True if tokens come from a Google Cloud service account."""
        return self.sasl_login_callback_handler_class == GCP_LOGIN_HANDLER

    @property
    def oidc(self) -> OidcTokenConfig | None:
        """The settings of the token source by OIDC; None without one.

        Raises:
            ConfigError: a setting is missing, or two contradict each other.
        """
        return self.read_oidc(self.jaas_options) if self.has_oidc_tokens else None

    @property
    def has_oidc_tokens(self) -> bool:
        """True if tokens come from an identity server, a metadata service, or a file.

        Raises:
            ConfigError: sasl.jaas.config is malformed.
        """
        return self.is_oidc or (
            self.sasl_mechanism == OAUTHBEARER and is_strimzi(self.jaas_options)
        )

    @property
    def token_sources(self) -> list[str]:
        """Names of the settings that are sources of tokens. More than one is an error."""
        sources = [
            key
            for key, value in (
                ("sasl_oauth_token_provider", self.sasl_oauth_token_provider),
                ("oauth_cb", self.oauth_cb),
            )
            if value is not None
        ]
        if self.has_oidc_tokens:
            sources.append("sasl.oauthbearer.token.endpoint.url")
        if self.has_aws_tokens:
            sources.append("sasl.login.callback.handler.class")
        if self.has_gcp_tokens:
            sources.append("sasl.login.callback.handler.class")
        if self.unsecured_token is not None:
            is_java = not self.enable_sasl_oauthbearer_unsecure_jwt
            sources.append(
                "sasl.jaas.config" if is_java else "enable.sasl.oauthbearer.unsecure.jwt"
            )
        return sources

    def check_sasl(self) -> None:
        """Check the settings of a client that authenticates.

        Raises:
            ConfigError: they contradict each other, or one is missing. It shows no secret.
        """
        mechanism = self.sasl_mechanism
        if mechanism in MECHANISM_NAMES.registered:
            return
        if mechanism == OAUTHBEARER:
            self._check_token_source()
        elif mechanism == AWS_MSK_IAM:
            _ = self.aws_login
        elif mechanism == GSSAPI:
            _ = self.kerberos
        elif self.credentials is None:
            raise ConfigError(
                f"sasl.mechanism={mechanism} needs sasl.username and sasl.password, or Java's "
                f"sasl.jaas.config."
            )

    def _check_token_source(self) -> None:
        sources = self.token_sources
        if len(sources) > 1:
            raise ConfigError(f"{' and '.join(sources)} are sources of the same token; give one.")
        if not sources:
            raise ConfigError(
                "sasl.mechanism=OAUTHBEARER needs a source of tokens: "
                "sasl.oauthbearer.token.endpoint.url, sasl_oauth_token_provider, oauth_cb or, for "
                "test brokers, enable.sasl.oauthbearer.unsecure.jwt."
            )
        if self.has_oidc_tokens:
            self.read_oidc(self.jaas_options)
        if self.has_aws_tokens:
            _ = self.aws_login
        if self.has_gcp_tokens and self.jaas_options:
            raise ConfigError(
                f"sasl.jaas.config has {', '.join(self.jaas_options)}, but Google's Managed "
                f"Kafka has no options."
            )


def _check_user_options(options: dict[str, str], mechanism: str) -> None:
    """Raise `ConfigError` for an option that PLAIN or SCRAM would ignore silently."""
    known = ["username", "password", *([_TOKEN_AUTH] if mechanism in SCRAM_MECHANISMS else [])]
    for option in options:
        # A file may also have a broker's users, and options for Kerberos.
        if option in known or option in _IDLE_OPTIONS or option.startswith(_USER_OF_BROKER):
            continue
        of_scram = f" {_TOKEN_AUTH} is for SCRAM." if option == _TOKEN_AUTH else ""
        raise ConfigError(
            f"sasl.jaas.config has the option {option}, which {mechanism} does not have; use one "
            f"of {', '.join(known)}.{of_scram}{did_you_mean(option, known)}"
        )
    if options.get(_TOKEN_AUTH, "true").strip().lower() not in ("true", "false"):
        raise ConfigError(f"{_TOKEN_AUTH} in sasl.jaas.config must be true or false.")


def _user_of(options: dict[str, str]) -> tuple[str, Password]:
    for option in ("username", "password"):
        if option not in options:
            raise ConfigError(f"sasl.jaas.config has no {option}.")
    try:
        name = sendable_text(options["username"])
    except ValueError as error:
        raise ConfigError(f"The username in sasl.jaas.config cannot be sent. {error}") from None
    return name, Password(options["password"])
