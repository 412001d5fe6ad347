"""Settings for TLS with an identity server: its authorities, and the client's certificate.

librdkafka has ``https.ca.location`` and ``https.ca.pem``; Java has all of them as ``ssl.*`` options
of the login module in ``sasl.jaas.config``. `pykclient.network.io.ssl_factory.HttpsFactory` reads
the files, never this module.

Owner: none, everything is immutable.
Source: Java classes ``JaasOptionsUtils``, ``SslConfigs``; RFC 8705 (a certificate authenticates a
client of OAuth); librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.config.policy import Reach
from pykclient.config.setting import Password, Setting, optional, password, path, text
from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")
"""Java's formats. JKS is its default and accepts any format."""

TLS_OPTIONS: Final = (
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.truststore.type",
    "ssl.truststore.password",
    "ssl.keystore.location",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.type",
    "ssl.keystore.password",
    "ssl.key.password",
)
"""TLS options of Java's login module."""


class HttpsFiles(NamedTuple):
    """Certificates and key for connections to an identity server; None if not set."""

    ca_location: str | None = None
    ca_pem: str | None = None
    ca_password: Password | None = None
    ca_type: str = "JKS"
    certificate_location: str | None = None
    certificate_pem: str | None = None
    key_location: str | None = None
    key_pem: Password | None = None
    key_password: Password | None = None
    store_password: Password | None = None
    store_type: str = "JKS"
    ca_setting: str = "https_ca_location"
    certificate_setting: str = "https_certificate_location"
    password_setting: str = "https_key_password"  # noqa: S105 (a name)

    @property
    def has_identity(self) -> bool:
        """True if the client has a certificate."""
        return self.certificate_location is not None or self.certificate_pem is not None


class HttpsConfig:
    """The authorities of the identity server's certificate, and the client's own certificate."""

    https_ca_location = Setting(
        optional(path(Reach.LOCAL_FILE)),
        None,
        "File with the authorities to trust for the identity server's certificate, in PEM; None "
        "means the system's. It is reloaded when it changes. Java has it as "
        "ssl.truststore.location in sasl_jaas_config.",
        key="https.ca.location",
        is_ours=True,
    )
    https_ca_pem = Setting(
        optional(text()),
        None,
        "Certificates of the authorities to trust, in PEM.",
        key="https.ca.pem",
        is_ours=True,
    )
    https_certificate_location = Setting(
        optional(path(Reach.LOCAL_FILE)),
        None,
        "File with the client's certificate for the identity server, and its chain: PEM, "
        "PKCS#12 or JKS. It is reloaded when it changes. Without a secret or an assertion, it "
        "authenticates the client (RFC 8705). Java has it as ssl.keystore.location in "
        "sasl_jaas_config.",
        key="https.certificate.location",
        is_ours=True,
    )
    https_key_location = Setting(
        optional(path(Reach.LOCAL_FILE)),
        None,
        "File with the key of that certificate in PEM, if it is not in https_certificate_location.",
        key="https.key.location",
        is_ours=True,
    )
    https_key_password = Setting(
        optional(password()),
        None,
        "Password of that key, or of the PKCS#12 file.",
        key="https.key.password",
        is_ours=True,
    )

    def read_https(self, options: Mapping[str, str]) -> HttpsFiles:
        """Return the certificates. `options` are the login module's ``ssl.*`` options.

        Raises:
            ConfigError: two settings contradict each other, or one is missing. It shows no secret.
        """
        if self.https_ca_location is not None and self.https_ca_pem is not None:
            raise ConfigError("https.ca.pem and https.ca.location are two sources; give one.")
        if self.https_key_location is not None and self.https_certificate_location is None:
            raise ConfigError(
                "https.key.location needs the certificate of the key; give it in "
                "https.certificate.location."
            )
        self._check_disagreement(options)
        if ("ssl.keystore.key" in options) != ("ssl.keystore.certificate.chain" in options):
            raise ConfigError(
                "ssl.keystore.key and ssl.keystore.certificate.chain in sasl.jaas.config belong "
                "together; give both."
            )
        key_password = self.https_key_password or _secret(options, "ssl.key.password")
        return HttpsFiles(
            self.https_ca_location or options.get("ssl.truststore.location"),
            self.https_ca_pem or options.get("ssl.truststore.certificates"),
            _secret(options, "ssl.truststore.password"),
            _store_type(options, "ssl.truststore.type"),
            self.https_certificate_location or options.get("ssl.keystore.location"),
            options.get("ssl.keystore.certificate.chain"),
            self.https_key_location,
            _secret(options, "ssl.keystore.key"),
            key_password,
            _secret(options, "ssl.keystore.password") or key_password,
            _store_type(options, "ssl.keystore.type"),
            _named("https_ca_location", self.https_ca_location, "ssl.truststore.location"),
            _named(
                "https_certificate_location",
                self.https_certificate_location,
                "ssl.keystore.location",
            ),
            _named("https_key_password", self.https_key_password, "ssl.key.password"),
        )

    def _check_disagreement(self, options: Mapping[str, str]) -> None:
        pairs = (
            ("https.ca.location", self.https_ca_location, "ssl.truststore.location"),
            ("https.ca.location", self.https_ca_location, "ssl.truststore.certificates"),
            ("https.ca.pem", self.https_ca_pem, "ssl.truststore.location"),
            ("https.ca.pem", self.https_ca_pem, "ssl.truststore.certificates"),
            (
                "https.certificate.location",
                self.https_certificate_location,
                "ssl.keystore.location",
            ),
            (
                "https.certificate.location",
                self.https_certificate_location,
                "ssl.keystore.certificate.chain",
            ),
        )
        for key, value, option in pairs:
            if value is not None and options.get(option, value) != value:
                raise ConfigError(
                    f"{key} and {option} in sasl.jaas.config are two sources; give one."
                )
        for one, other in (
            ("ssl.truststore.location", "ssl.truststore.certificates"),
            ("ssl.keystore.location", "ssl.keystore.certificate.chain"),
        ):
            if one in options and other in options:
                raise ConfigError(
                    f"{one} and {other} in sasl.jaas.config are two sources; give one."
                )


def _named(setting: str, value: object, option: str) -> str:
    """Return the setting that has a value, or the option of the login module in its place."""
    return setting if value is not None else f"{option} in sasl_jaas_config"


def _secret(options: Mapping[str, str], name: str) -> Password | None:
    return Password(options[name]) if name in options else None


def _store_type(options: Mapping[str, str], name: str) -> str:
    found = options.get(name, "JKS").strip().upper()
    if found not in STORE_TYPES:
        raise ConfigError(f"{name} in sasl.jaas.config is one of {', '.join(STORE_TYPES)}.")
    return found
