"""The settings of encrypted connections, and how they go with those of SASL; for all clients.

Names, defaults and meaning are Java's. What Java has no name for has librdkafka's, and the names
of librdkafka and kafka-python for the same things are aliases. Files are read when a client is
made, by `pykclient.network.io.ssl_factory`, never here.

Owner: none, everything is immutable.
Source: Java class ``SslConfigs``; KIP-651 (PEM); librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

from typing import Final

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

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")

TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
TLS_NAMES: Final = ("TLSv1.3", "TLS", "TLSv1.2")
"""Java's names of TLS, the default first."""

_SASL_CREDENTIALS: Final = (
    *("sasl_jaas_config", "sasl_username", "sasl_password"),
    *("sasl_oauth_token_provider", "oauth_cb", "sasl_oauthbearer_token_endpoint_url"),
)
_SENT_IN_PLAIN_TEXT: Final = {
    "PLAIN": ("password", "it can be read on the way"),
    OAUTHBEARER: ("token", "it can be read on the way"),
    AWS_MSK_IAM: ("signed request", "whoever reads it can use it while it is valid"),
    **dict.fromkeys(
        SCRAM_MECHANISMS,
        ("exchange", "whoever reads it can try passwords on it until one fits"),
    ),
}
"""The part of each mechanism that a reader of the connection can use, and how."""

_TLS_CREDENTIALS: Final = (
    "ssl_keystore_location",
    "ssl_keystore_certificate_chain",
    "ssl_context",
)


def names(allowed: tuple[str, ...] = ()) -> Kind[tuple[str, ...]]:
    """Names with commas between, or colons, as OpenSSL has them; empty `allowed` takes any."""

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
    """A file's path; ``probe``, with which librdkafka looks for the system's, is None."""
    file = optional(path(Reach.LOCAL_FILE))
    return Kind(
        lambda value: None if value == "probe" else file.parse(value),
        file.allowed,
        annotation=file.annotation,
        named=file.named,
    )


def endpoint_identification() -> Kind[str]:
    """Read "https", "" (none), or a Boolean as of kafka-python's ``ssl_check_hostname``."""

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
        f"host names in the brokers' certificates are not verified ({reason}): whoever has a "
        f"certificate of the same authorities for any other host can pass for a broker"
    )


def ssl_context_object() -> Kind[object]:
    def parse(value: object) -> object:
        if not hasattr(value, "wrap_bio"):
            raise ValueError
        return value

    return Kind(parse, "an ssl.SSLContext", annotation="SSLContext")


class SecurityConfig(SaslConfig):
    """How connections are encrypted, which authorities they trust, and how they authenticate."""

    security_protocol = Setting(
        choice({name: name for name in PROTOCOLS}, is_case_kept=False),
        "PLAINTEXT",
        "How to speak with brokers: encrypted (SSL), authenticated (SASL_PLAINTEXT), both "
        "(SASL_SSL), or neither.",
    )
    ssl_truststore_location = Setting(
        authorities(),
        None,
        "File with the authorities that brokers' certificates must come from, PEM, PKCS#12 or JKS; "
        "None is the system's, as is librdkafka's word probe.",
        aliases=("ssl.ca.location", "ssl_cafile"),
    )
    ssl_truststore_certificates = Setting(
        optional(text()),
        None,
        "The authorities' certificates themselves, in PEM.",
        aliases=("ssl.ca.pem",),
    )
    ssl_truststore_password = Setting(
        optional(password()), None, "Password of a truststore in PKCS#12 or JKS."
    )
    ssl_truststore_type = Setting(
        choice({name: name for name in STORE_TYPES}, is_case_kept=False),
        "JKS",
        "Format of ssl_truststore_location. With JKS, Java's default, it is found out.",
    )
    ssl_keystore_location = Setting(
        optional(path(Reach.LOCAL_FILE)),
        None,
        "File with the client's certificate, its chain and its key, for brokers that want one: "
        "PEM, PKCS#12 or JKS.",
        aliases=("ssl.certificate.location", "ssl_certfile"),
    )
    ssl_key_location = Setting(
        optional(path(Reach.LOCAL_FILE)),
        None,
        "File with the client's key in PEM, where it is not in ssl_keystore_location.",
        key="ssl.key.location",
        aliases=("ssl_keyfile",),
        is_ours=True,
    )
    ssl_keystore_certificate_chain = Setting(
        optional(text()),
        None,
        "The client's certificate and its chain themselves, in PEM.",
        aliases=("ssl.certificate.pem",),
    )
    ssl_keystore_key = Setting(
        optional(password()),
        None,
        "The client's key itself, in PEM.",
        aliases=("ssl.key.pem",),
    )
    ssl_keystore_password = Setting(
        optional(password()), None, "Password of a keystore in PKCS#12 or JKS."
    )
    ssl_keystore_type = Setting(
        choice({name: name for name in STORE_TYPES}, is_case_kept=False),
        "JKS",
        "Format of ssl_keystore_location, as ssl_truststore_type.",
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
        "https: a broker's certificate must be for the name, or the address, that was connected "
        "to. Empty: that of any host will do, and whoever has one can pass for the broker.",
        aliases=("ssl_check_hostname",),
    )
    enable_ssl_certificate_verification = Setting(
        boolean(),
        True,
        "False accepts any certificate, so whoever is on the way can read and change everything; "
        "for trying only. Java has no such setting, librdkafka has.",
        key="enable.ssl.certificate.verification",
        is_ours=True,
    )
    ssl_enabled_protocols = Setting(
        names(TLS_VERSIONS), TLS_VERSIONS, "Versions of TLS that may be spoken."
    )
    ssl_protocol = Setting(
        choice({name: name for name in TLS_NAMES}, is_case_kept=False),
        "TLSv1.3",
        "TLSv1.2 leaves TLSv1.3 out, even if it is in ssl_enabled_protocols, which else says it "
        "all; TLS is the same as TLSv1.3.",
    )
    ssl_cipher_suites = Setting(
        names(),
        (),
        "Cipher suites that may be used, by their standard names or OpenSSL's; empty are OpenSSL's "
        "own. Of those of TLS 1.3 give all or none, before Python 3.15.",
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
        "An ssl.SSLContext that has it all, in the place of the other settings of ssl.",
        is_ours=True,
    )

    @property
    def tls_versions(self) -> tuple[str, ...]:
        """Versions of TLS that are spoken."""
        if self.ssl_protocol == "TLSv1.2":
            return tuple(each for each in self.ssl_enabled_protocols if each != "TLSv1.3")
        return self.ssl_enabled_protocols

    @property
    def is_encrypted(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def is_authenticated(self) -> bool:
        """Whether SASL authenticates; TLS may do so with a certificate, too."""
        return self.security_protocol.startswith("SASL")

    @property
    def security_warnings(self) -> list[str]:
        """What a user should know of settings that are allowed, and less safe than they look.

        A sentence each, without a secret: on what is sent in plain text and should not be, on
        certificates and host names that are not verified, and on credentials that this
        security_protocol does not use.
        """
        protocol = self.security_protocol
        found = []
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
                "sasl_oauthbearer_token_endpoint_url begins with http: what the identity server "
                "gets and issues is sent in plain text, and can be read on the way; use https"
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
        """Return a sentence on the part of the brokers' certificates that is not verified."""
        from ssl import CERT_NONE, CERT_REQUIRED  # clients without TLS do without it

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
            f"the brokers' certificates are not verified ({unverified}): whoever is on the way "
            f"can read and change what is sent"
        ]

    @property
    def _fetches_tokens_in_plain_text(self) -> bool:
        if self.sasl_mechanism != OAUTHBEARER:
            return False
        oidc = self.oidc
        # A metadata service has http alone, on a link of the machine's own.
        return oidc is not None and oidc.url.startswith("http:") and oidc.grant != AZURE_IMDS

    @property
    def _has_unsecured_token(self) -> bool:
        return self.sasl_mechanism == OAUTHBEARER and self.unsecured_token is not None

    def _given(self, names: tuple[str, ...]) -> list[str]:
        return [name for name in names if getattr(self, name) is not None]

    def check_security(self) -> None:
        """Check these settings against each other.

        Raises:
            ConfigError: they contradict each other, or one is missing; shows no secret.
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
                "ssl.key.location is the key of a certificate; give it in ssl.keystore.location."
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
                f"ssl_context has it all, and {', '.join(beside)} would have no effect; give one "
                f"or the other."
            )
