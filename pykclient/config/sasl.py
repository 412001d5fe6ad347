"""The settings of SASL, by which clients authenticate.

Names, defaults and meaning are Java's. What Java has in its login configuration
(``sasl.jaas.config``) has librdkafka's names as well, and the names of librdkafka and kafka-python
for the same things are aliases.

Owner: none, everything is immutable but the register of mechanisms, which only grows.
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
"""Those that take a user name and a password."""

OAUTHBEARER: Final = "OAUTHBEARER"
AWS_MSK_IAM: Final = "AWS_MSK_IAM"
GSSAPI: Final = "GSSAPI"
MECHANISMS: Final = (*PASSWORD_MECHANISMS, OAUTHBEARER, AWS_MSK_IAM, GSSAPI)
"""Those of the client's own."""

_PACKAGE: Final = "org.apache.kafka.common.security"
_LOGIN_MODULES: Final = {
    "PLAIN": f"{_PACKAGE}.plain.PlainLoginModule",
    **dict.fromkeys(SCRAM_MECHANISMS, f"{_PACKAGE}.scram.ScramLoginModule"),
    OAUTHBEARER: f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule",
    AWS_MSK_IAM: "software.amazon.msk.auth.iam.IAMLoginModule",
    GSSAPI: "com.sun.security.auth.module.Krb5LoginModule",
}
"""The classes of Java that a login configuration is for."""

_REACHING_OPTIONS: Final = {
    "keyTab": Reach.LOCAL_FILE,
    # Where a keytab is given as well, the system's library may write to it.
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
"""Options that mean nothing to PLAIN and SCRAM, in Java either."""

_AWS_PROFILE: Final = "awsProfileName"
_AWS_ROLE: Final = "awsRoleArn"
_AWS_OPTIONS: Final = (
    *(_AWS_PROFILE, _AWS_ROLE, "awsRoleSessionName", "awsRoleExternalId", "awsStsRegion"),
    *("awsDebugCreds", "awsAddDefaultProviders", "awsMaxRetries", "awsMaxBackOffTimeMs"),
)
"""Options of ``aws-msk-iam-auth``. The last three change nothing here: what fails is tried again
anyway, and other credentials never stand in for those that the options name."""


class AwsLogin(NamedTuple):
    """The AWS credentials that sign: those of a profile, or of a role that others assume."""

    profile: str | None = None
    """None for the default of AWS's own chain: environment, web identity, profile, machine."""
    role_arn: str | None = None
    session_name: str | None = None
    external_id: str | None = None
    sts_region: str | None = None
    """The region whose STS issues the role's credentials; None is the cluster's."""


class MechanismNames:
    """The names that `sasl_mechanism` takes."""

    own: Final = MECHANISMS

    def __init__(self) -> None:
        self.registered: set[str] = set()
        """Those of `pykclient.register_sasl_mechanism`."""

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
            return  # `SaslConfig.jaas_options` says why
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
    """By which mechanism a client authenticates, and with which credentials."""

    sasl_mechanism = Setting(
        Kind(
            MECHANISM_NAMES.parse,
            f"one of {', '.join(MECHANISM_NAMES.own)}, or a registered one",
            annotation="str",
        ),
        "GSSAPI",
        "How to authenticate where security_protocol is SASL_PLAINTEXT or SASL_SSL.",
        aliases=("sasl.mechanisms",),
    )
    sasl_jaas_config = Setting(
        optional(login_configuration()),
        None,
        'User name and password as Java has them, MODULE required username="..." password="...";, '
        "for PLAIN and SCRAM, where tokenauth=true says that they are id and HMAC of a delegation "
        "token (KIP-48); for OAUTHBEARER clientId and clientSecret, or the claims of an "
        "unsecured token; for GSSAPI keyTab and principal.",
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
        "Password for PLAIN and SCRAM, or a function that returns it, called without arguments for "
        "each authentication. Java has it in sasl_jaas_config.",
        key="sasl.password",
        aliases=("sasl_plain_password",),
        is_ours=True,
    )
    sasl_oauth_token_provider: Setting[object] = Setting(
        object_or_name(),
        None,
        "Where OAUTHBEARER has its tokens from: a function without arguments, or an object with "
        "token() and perhaps extensions(). What it returns is the token as text, a tuple as "
        "oauth_cb returns it, or a pykclient.OAuthToken. It may block, and is called on a thread "
        "of its own.",
        is_ours=True,
    )
    oauth_cb: Setting[object] = Setting(
        object_or_name(reach=Reach.FUNCTION),
        None,
        "The same as confluent-kafka has it: a function that is called with "
        "sasl.oauthbearer.config and returns the token, its expiry in seconds since 1970 and, if "
        "it likes, the principal and a dict of SASL extensions.",
        aliases=("oauthbearer_token_refresh_cb",),
        is_ours=True,
    )
    enable_sasl_oauthbearer_unsecure_jwt = Setting(
        boolean(),
        False,
        "True makes tokens without a signature of sasl.oauthbearer.config, for brokers of tests. "
        "Java has them in sasl_jaas_config.",
        key="enable.sasl.oauthbearer.unsecure.jwt",
        is_ours=True,
    )
    sasl_login_refresh_window_factor = Setting(
        decimal(0.5, 1.0),
        0.8,
        "After which part of its lifetime a token is renewed.",
    )
    sasl_login_refresh_window_jitter = Setting(
        decimal(0.0, 0.25),
        0.05,
        "The largest part of the lifetime that is added to that at random.",
    )
    sasl_login_refresh_min_period_seconds = Setting(
        integer(0, 900), 60, "Least time before a token is renewed, where its lifetime allows that."
    )
    sasl_login_refresh_buffer_seconds = Setting(
        integer(0, 3_600),
        300,
        "Time before its expiry by which a token is renewed, where its lifetime allows that.",
    )
    sasl_login_retry_backoff_ms = Setting(
        integer(0, LONG_MAX),
        100,
        "Pause before another token is fetched, after a fetch that failed or a broker that refused "
        "the token, at least a second; doubles each time.",
    )
    sasl_login_retry_backoff_max_ms = Setting(
        integer(0, LONG_MAX), 10_000, "Longest pause before another token is fetched."
    )

    @property
    def credentials(self) -> tuple[str, Password | PasswordSource] | None:
        """User name and password for PLAIN and SCRAM; None where one is missing.

        Raises:
            ConfigError: they are given in two ways that disagree, or cannot be read.
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
        """True if user and password are the id and the HMAC of a delegation token (KIP-48).

        Raises:
            ConfigError: sasl.jaas.config cannot be read, or is for another mechanism.
        """
        return self.jaas_options.get(_TOKEN_AUTH, "").strip().lower() == "true"

    @property
    def jaas_options(self) -> dict[str, str]:
        """The options in sasl.jaas.config; empty without it.

        Raises:
            ConfigError: it cannot be read, or is for another mechanism.
        """
        if self.sasl_jaas_config is None:
            return {}
        try:
            jaas = parse_jaas(self.sasl_jaas_config.value)
        except ValueError as error:
            raise ConfigError(f"sasl.jaas.config cannot be read. {error}") from None
        needed = _LOGIN_MODULES.get(self.sasl_mechanism, "")
        if needed and jaas.module.rpartition(".")[2] != needed.rpartition(".")[2]:
            raise ConfigError(
                f"sasl.jaas.config is for {jaas.module}, and sasl.mechanism={self.sasl_mechanism} "
                f"needs {needed}."
            )
        return jaas.options

    @property
    def unsecured_token(self) -> UnsecuredToken | None:
        """What tokens without a signature have; None where the settings require none.

        Raises:
            ConfigError: it cannot be read.
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
        """With which credentials GSSAPI gets tickets.

        Raises:
            ConfigError: two settings contradict each other, or an option is unknown.
        """
        return self.read_kerberos(self.jaas_options)

    @property
    def aws_login(self) -> AwsLogin:
        """Return which AWS credentials are for Amazon MSK.

        Raises:
            ConfigError: sasl.jaas.config has options that are not built, or that contradict each
                other.
        """
        options = self.jaas_options
        others = [name for name in options if name not in _AWS_OPTIONS]
        if others or options.get("awsDebugCreds", "false").lower() != "false":
            raise ConfigError(
                f"sasl.jaas.config has {', '.join(others) or 'awsDebugCreds'}, which is not built "
                f"for Amazon MSK; there are {', '.join(_AWS_OPTIONS)}."
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
        """Whether tokens are made of AWS credentials."""
        return self.sasl_login_callback_handler_class == MSK_LOGIN_HANDLER

    @property
    def has_gcp_tokens(self) -> bool:
        """True if tokens are those of a service account of Google Cloud."""
        return self.sasl_login_callback_handler_class == GCP_LOGIN_HANDLER

    @property
    def oidc(self) -> OidcTokenConfig | None:
        """What tokens of an identity server are fetched with; None where there is no such server.

        Raises:
            ConfigError: a setting is missing, or two contradict each other.
        """
        return self.read_oidc(self.jaas_options) if self.has_oidc_tokens else None

    @property
    def has_oidc_tokens(self) -> bool:
        """True if tokens come from an identity server, a metadata service, or a file.

        Raises:
            ConfigError: sasl.jaas.config cannot be read.
        """
        return self.is_oidc or (
            self.sasl_mechanism == OAUTHBEARER and is_strimzi(self.jaas_options)
        )

    @property
    def token_sources(self) -> list[str]:
        """What the settings have tokens from: names of settings. More than one is an error."""
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
            ConfigError: they contradict each other, or one is missing; shows no secret.
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
                "brokers of tests, enable.sasl.oauthbearer.unsecure.jwt."
            )
        if self.has_oidc_tokens:
            self.read_oidc(self.jaas_options)
        if self.has_aws_tokens:
            _ = self.aws_login
        if self.has_gcp_tokens and self.jaas_options:
            raise ConfigError(
                f"sasl.jaas.config has {', '.join(self.jaas_options)}, which is no option for "
                f"Google's Managed Kafka; there are none."
            )


def _check_user_options(options: dict[str, str], mechanism: str) -> None:
    """Raise `ConfigError` for an option that PLAIN or SCRAM would drop without a word."""
    known = ["username", "password", *([_TOKEN_AUTH] if mechanism in SCRAM_MECHANISMS else [])]
    for option in options:
        # A file may have the users of a broker as well, and what Kerberos needs.
        if option in known or option in _IDLE_OPTIONS or option.startswith(_USER_OF_BROKER):
            continue
        of_scram = f" {_TOKEN_AUTH} is of SCRAM." if option == _TOKEN_AUTH else ""
        raise ConfigError(
            f"sasl.jaas.config has the option {option}, which {mechanism} does not have; there are "
            f"{', '.join(known)}.{of_scram}{did_you_mean(option, known)}"
        )
    if options.get(_TOKEN_AUTH, "true").strip().lower() not in ("true", "false"):
        raise ConfigError(f"{_TOKEN_AUTH} in sasl.jaas.config is true or false.")


def _user_of(options: dict[str, str]) -> tuple[str, Password]:
    for option in ("username", "password"):
        if option not in options:
            raise ConfigError(f"sasl.jaas.config has no {option}.")
    try:
        name = sendable_text(options["username"])
    except ValueError as error:
        raise ConfigError(f"The username in sasl.jaas.config cannot be sent. {error}") from None
    return name, Password(options["password"])
