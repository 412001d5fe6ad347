"""Settings for encrypted connections, and how they combine with those for SASL; for all clients.

Names, defaults and meanings are Java's. Settings that Java lacks have librdkafka's names, and other
names of librdkafka and kafka-python are aliases. `pykclient.network.io.ssl_factory` reads the files
when a client is made, never this module.

Owner: none, everything is immutable.
Source: Java class ``SslConfigs``; KIP-651 (PEM); librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pykclient.config.oidc import AZURE_IMDS
from pykclient.config.policy import Reach
from pykclient.config.sasl import AWS_MSK_IAM, OAUTHBEARER, SCRAM_MECHANISMS, SaslConfig
from pykclient.config.setting import (
    Kind,
    Setting,
    boolean,
    choice,
    optional,
    password,
    path,
    text,
)
from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")

TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
TLS_NAMES: Final = ("TLSv1.3", "TLS", "TLSv1.2")
"""Java's names of TLS versions, the default first."""

_SASL_CREDENTIALS: Final = (
    *("sasl_jaas_config", "sasl_username", "sasl_password"),
    *("sasl_oauth_token_provider", "oauth_cb", "sasl_oauthbearer_token_endpoint_url"),
)
_SENT_IN_PLAIN_TEXT: Final = {
    "PLAIN": ("password", "it can be read in transit"),
    OAUTHBEARER: ("token", "it can be read in transit"),
    AWS_MSK_IAM: ("signed request", "anyone who reads it can use it while it is valid"),
    **dict.fromkeys(
        SCRAM_MECHANISMS,
        ("exchange", "anyone who reads it can test passwords against it"),
    ),
}
"""The part of each mechanism that an eavesdropper can use, and how."""

_TLS_CREDENTIALS: Final = (
    "ssl_keystore_location",
    "ssl_keystore_certificate_chain",
    "ssl_context",
)


def names(allowed: tuple[str, ...] = ()) -> Kind[tuple[str, ...]]:
    """Return the kind of a list of names; empty `allowed` accepts any name.

    Names are separated by commas or, as for OpenSSL, by colons.
    """

    def parse(value: object) -> tuple[str, ...]:
        items = value.replace(":", ",").split(",") if isinstance(value, str) else value
        if not isinstance(items, (list, tuple)) or not all(isinstance(i, str) for i in items):
            raise ValueError
        found = tuple(dict.fromkeys(item.strip() for item in items if item.strip()))
        if allowed and (not found or not set(found) <= set(allowed)):
            raise ValueError
        return found

    what = f"some of {', '.join(allowed)}" if allowed else "a list of names"
    return Kind(parse, what, ",".join, "str | Sequence[str]")


def authorities() -> Kind[str | None]:
    """Return the kind of a file of authorities; librdkafka's ``probe`` becomes None."""
    file = optional(path(Reach.LOCAL_FILE))
    return Kind(
        lambda value: None if value == "probe" else file.parse(value),
        file.allowed,
        annotation=file.annotation,
        named=file.named,
    )


def endpoint_identification() -> Kind[str]:
    """Return the kind of "https", "" (none), or a Boolean as for kafka-python."""

    def parse(value: object) -> str:
        if isinstance(value, bool):
            return "https" if value else ""
        word = value.strip().lower() if isinstance(value, str) else "?"
        if word in ("https", "true"):
            return "https"
        if word in ("", "none", "false"):
            return ""
        raise ValueError

    return Kind(parse, "https, or empty for none", annotation="str | bool")


def _any_host(reason: str) -> str:
    return (
        f"host names in the brokers' certificates are not verified ({reason}): anyone with a "
        f"certificate of the same authorities for another host can impersonate a broker"
    )


def ssl_context_object() -> Kind[object]:
    def parse(value: object) -> object:
        if not hasattr(value, "wrap_bio"):
            raise ValueError
        return value

    return Kind(parse, "an ssl.SSLContext", annotation="SSLContext")


class SecurityConfig(SaslConfig):
    """The encryption of connections, the authorities they trust, and their authentication."""

    security_protocol = Setting(
        choice({name: name for name in PROTOCOLS}, is_case_kept=False),
        "PLAINTEXT",
        "Protocol for brokers: encrypted (SSL), authenticated (SASL_PLAINTEXT), both "
        "(SASL_SSL), or neither.",
    )
    ssl_truststore_location = Setting(
        authorities(),
        None,
        "File with the authorities to trust for brokers' certificates, in PEM, PKCS#12 or JKS; "
        "None means the system's, as does librdkafka's value probe.",
        aliases=("ssl.ca.location", "ssl_cafile"),
    )
    ssl_truststore_certificates = Setting(
        optional(text()),
        None,
        "Certificates of the authorities to trust, in PEM.",
        aliases=("ssl.ca.pem",),
    )
    ssl_truststore_password = Setting(
        optional(password()), None, "Password of a truststore in PKCS#12 or JKS."
    )
    ssl_truststore_type = Setting(
        choice({name: name for name in STORE_TYPES}, is_case_kept=False),
        "JKS",
        "Format of ssl_truststore_location. With JKS, Java's default, it is detected.",
    )
    ssl_keystore_location = Setting(
        optional(path(Reach.LOCAL_FILE)),
        None,
        "File with the client's certificate, its chain and its key, for brokers that require "
        "one: PEM, PKCS#12 or JKS.",
        aliases=("ssl.certificate.location", "ssl_certfile"),
    )
    ssl_key_location = Setting(
        optional(path(Reach.LOCAL_FILE)),
        None,
        "File with the client's key in PEM, if it is not in ssl_keystore_location.",
        key="ssl.key.location",
        aliases=("ssl_keyfile",),
        is_ours=True,
    )
    ssl_keystore_certificate_chain = Setting(
        optional(text()),
        None,
        "The client's certificate and its chain, in PEM.",
        aliases=("ssl.certificate.pem",),
    )
    ssl_keystore_key = Setting(
        optional(password()),
        None,
        "The client's key, in PEM.",
        aliases=("ssl.key.pem",),
    )
    ssl_keystore_password = Setting(
        optional(password()), None, "Password of a keystore in PKCS#12 or JKS."
    )
    ssl_keystore_type = Setting(
        choice({name: name for name in STORE_TYPES}, is_case_kept=False),
        "JKS",
        "Format of ssl_keystore_location, like ssl_truststore_type.",
    )
    ssl_key_password = Setting(
        optional(password()),
        None,
        "Password of an encrypted key.",
        aliases=("ssl_password",),
    )
    ssl_endpoint_identification_algorithm = Setting(
        endpoint_identification(),
        "https",
        "https: a broker's certificate must be for the name or address that the client connects "
        "to. Empty: any host's certificate is accepted, so its owner can impersonate the broker.",
        aliases=("ssl_check_hostname",),
    )
    enable_ssl_certificate_verification = Setting(
        boolean(),
        True,
        "False accepts any certificate, so anyone in between can read and change everything; "
        "for tests only. Only librdkafka has this setting.",
        key="enable.ssl.certificate.verification",
        is_ours=True,
    )
    ssl_enabled_protocols = Setting(
        names(TLS_VERSIONS), TLS_VERSIONS, "Versions of TLS that may be used."
    )
    ssl_protocol = Setting(
        choice({name: name for name in TLS_NAMES}, is_case_kept=False),
        "TLSv1.3",
        "TLSv1.2 excludes TLSv1.3, even if it is in ssl_enabled_protocols; the other values leave "
        "the choice to ssl_enabled_protocols. TLS is the same as TLSv1.3.",
    )
    ssl_cipher_suites = Setting(
        names(),
        (),
        "Cipher suites that may be used, by their standard or OpenSSL names; empty means "
        "OpenSSL's defaults. Before Python 3.15, give all suites of TLS 1.3 or none.",
        aliases=("ssl_ciphers",),
    )
    ssl_crl_location = Setting(
        optional(path(Reach.LOCAL_FILE)),
        None,
        "File with the list of revoked certificates, in PEM. Java has no such setting, librdkafka "
        "has.",
        key="ssl.crl.location",
        aliases=("ssl_crlfile",),
        is_ours=True,
    )
    ssl_context: Setting[object] = Setting(
        optional(ssl_context_object()),
        None,
        "A complete ssl.SSLContext, used instead of the other ssl settings.",
        is_ours=True,
    )

    reference_warnings: tuple[str, ...] = ()
    """Warnings about references whose configuration provider does not exist."""

    spellings: Mapping[str, str] = MappingProxyType({})
    """Names of settings as the caller gave them, where they are another client's names."""

    def spelled(self, name: str) -> str:
        """Return the name of a setting as the caller gave it, for errors."""
        return self.spellings.get(name, name)

    @property
    def tls_versions(self) -> tuple[str, ...]:
        """Versions of TLS that are used."""
        if self.ssl_protocol == "TLSv1.2":
            return tuple(each for each in self.ssl_enabled_protocols if each != "TLSv1.3")
        return self.ssl_enabled_protocols

    @property
    def is_encrypted(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def is_authenticated(self) -> bool:
        """True if SASL authenticates; TLS may do so with a certificate, too."""
        return self.security_protocol.startswith("SASL")

    @property
    def security_warnings(self) -> list[str]:
        """Warnings about settings that are allowed, but less safe than they look.

        Each is a sentence without secrets, about secrets sent in plain text, certificates and host
        names that are not verified, credentials that this security_protocol does not use, or
        references whose configuration provider does not exist.
        """
        protocol = self.security_protocol
        found = list(self.reference_warnings)
        if self.is_authenticated and not self.is_encrypted:
            sent = _SENT_IN_PLAIN_TEXT.get(self.sasl_mechanism)
            if sent is not None and not self._has_unsecured_token:
                found.append(
                    f"with sasl_mechanism={self.sasl_mechanism} and security_protocol={protocol} "
                    f"the {sent[0]} is sent in plain text: {sent[1]}; set "
                    f"security_protocol=SASL_SSL, and use the brokers' port for it"
                )
        if self.is_authenticated and self._fetches_tokens_in_plain_text:
            found.append(
                "sasl_oauthbearer_token_endpoint_url begins with http: requests to the identity "
                "server and its tokens are sent in plain text, and can be read in transit; use "
                "https"
            )
        is_bearer = self.is_authenticated and self.sasl_mechanism == OAUTHBEARER
        if is_bearer and self.has_oidc_tokens:
            found += self.oidc_warnings(self.jaas_options)
        if self.is_encrypted:
            found += self._verification_warnings()
        unused = [] if self.is_authenticated else self._given(_SASL_CREDENTIALS)
        unused += [] if self.is_encrypted else self._given(_TLS_CREDENTIALS)
        if unused:
            found.append(
                f"{', '.join(unused)}: not used with security_protocol={protocol}; set it to the "
                f"protocol of the brokers' listener, or leave the credentials out"
            )
        return found

    def _verification_warnings(self) -> list[str]:
        """Return a warning about the parts of brokers' certificates that are not verified."""
        from ssl import CERT_NONE, CERT_REQUIRED  # clients without TLS do not need it

        context = self.ssl_context
        if not self.enable_ssl_certificate_verification:
            unverified = "enable_ssl_certificate_verification is False"
        elif getattr(context, "verify_mode", CERT_REQUIRED) == CERT_NONE:
            unverified = "ssl_context has the verify_mode CERT_NONE"
        elif not getattr(context, "check_hostname", True):
            return [_any_host("ssl_context has check_hostname False")]
        elif context is None and not self.ssl_endpoint_identification_algorithm:
            return [_any_host("ssl_endpoint_identification_algorithm is empty")]
        else:
            return []
        return [
            f"the brokers' certificates are not verified ({unverified}): anyone in between can "
            f"read and change the traffic"
        ]

    @property
    def _fetches_tokens_in_plain_text(self) -> bool:
        if self.sasl_mechanism != OAUTHBEARER:
            return False
        oidc = self.oidc
        # A metadata service only has http, on the machine's own link.
        return oidc is not None and oidc.url.startswith("http:") and oidc.grant != AZURE_IMDS

    @property
    def _has_unsecured_token(self) -> bool:
        return self.sasl_mechanism == OAUTHBEARER and self.unsecured_token is not None

    def _given(self, names: tuple[str, ...]) -> list[str]:
        return [name for name in names if getattr(self, name) is not None]

    def check_security(self) -> None:
        """Check these settings against each other.

        Raises:
            ConfigError: they contradict each other, or one is missing. It shows no secret.
        """
        if self.ssl_context is not None:
            self._refuse_beside_context()
        pairs = (
            ("ssl.truststore.certificates", "ssl.truststore.location"),
            ("ssl.keystore.certificate.chain", "ssl.keystore.location"),
            ("ssl.keystore.key", "ssl.keystore.location"),
            ("ssl.keystore.key", "ssl.key.location"),
        )
        for one, other in pairs:
            if self._has(one) and self._has(other):
                raise ConfigError(f"{one} and {other} are two sources of the same; give one.")
        if self._has("ssl.keystore.key") != self._has("ssl.keystore.certificate.chain"):
            raise ConfigError(
                "ssl.keystore.key and ssl.keystore.certificate.chain belong together; give both."
            )
        if self._has("ssl.key.location") and not self._has("ssl.keystore.location"):
            raise ConfigError(
                "ssl.key.location needs the key's certificate; give it in ssl.keystore.location."
            )
        if not self.tls_versions:
            raise ConfigError(
                f"ssl.protocol={self.ssl_protocol} leaves none of the versions in "
                f"ssl.enabled.protocols={','.join(self.ssl_enabled_protocols)}."
            )
        if self.is_authenticated:
            self.check_sasl()

    def _has(self, key: str) -> bool:
        return getattr(self, key.replace(".", "_")) is not None

    def _refuse_beside_context(self) -> None:
        beside = [
            name
            for name, setting in vars(SecurityConfig).items()
            if isinstance(setting, Setting)
            and name.startswith(("ssl_", "enable_ssl"))
            and name != "ssl_context"
            and getattr(self, name) != setting.default
        ]
        if beside:
            raise ConfigError(
                f"ssl_context replaces {', '.join(beside)}, which would have no effect; give one "
                f"or the other."
            )
