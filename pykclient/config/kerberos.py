"""Settings for Kerberos, which GSSAPI uses to authenticate.

Names and meanings are Java's and librdkafka's. The options of Java's ``Krb5LoginModule`` in
``sasl.jaas.config`` (``keyTab``, ``principal``, ``serviceName``, ``ticketCache``) are read as well.

Owner: none, everything is immutable.
Source: Java class ``SaslConfigs``; ``com.sun.security.auth.module.Krb5LoginModule``; librdkafka's
CONFIGURATION.md; kafka-python's ``KafkaClient``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.config.policy import Reach
from pykclient.config.setting import Setting, optional, path, string
from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVICE: Final = "kafka"

TICKET_CACHE: Final = "ticketCache"
CACHES_WITHOUT_FILE: Final = ("API", "KCM", "KEYRING", "MEMORY", "MSLSA")
"""Types of ticket caches, written before a colon, that are not files."""

_NO_EFFECT: Final = frozenset(
    {
        *("useKeyTab", "useTicketCache", "storeKey", "doNotPrompt", "renewTGT"),
        *("refreshKrb5Config", "isInitiator", "debug", "storePass", "clearPass", "renewTicket"),
    }
)
"""Options of Java's login module that the system's library covers by itself. ``renewTicket`` is not
one of them, but many files have it."""


class KerberosLogin(NamedTuple):
    """The credentials with which a client gets its tickets, and the service they are for."""

    service: str
    """First part of the brokers' principals."""
    host: str | None
    """Second part of the brokers' principals; None is the name that the client connects to."""
    principal: str | None
    """The client's principal; None is that of the available credentials."""
    keytab: str | None
    ticket_cache: str | None


class KerberosConfig:
    """Settings for a client's Kerberos tickets."""

    sasl_kerberos_service_name = Setting(
        optional(string()),
        None,
        "Name of the brokers' service, the first part of their principals; None is kafka. Java has "
        "it as serviceName in sasl_jaas_config, too.",
    )
    sasl_kerberos_domain_name = Setting(
        optional(string()),
        None,
        "Host in the brokers' principals; None is the name that the client connects to. "
        "kafka-python has this setting.",
        is_ours=True,
    )
    sasl_kerberos_keytab = Setting(
        optional(path(Reach.LOCAL_FILE)),
        None,
        "File with the client's key, to get tickets without kinit. Java has it as keyTab in "
        "sasl_jaas_config.",
        key="sasl.kerberos.keytab",
        is_ours=True,
    )
    sasl_kerberos_principal = Setting(
        optional(string()),
        None,
        "The client's principal, alice@EXAMPLE.COM; None is that of the tickets that kinit has "
        "fetched. Java has it as principal in sasl_jaas_config.",
        key="sasl.kerberos.principal",
        aliases=("sasl_kerberos_name",),
        is_ours=True,
    )

    def read_kerberos(self, options: Mapping[str, str]) -> KerberosLogin:
        """Return the credentials. `options` are those of ``sasl.jaas.config``.

        Raises:
            ConfigError: two settings contradict each other, or an option is unknown.
        """
        ours = {
            "serviceName": ("sasl.kerberos.service.name", self.sasl_kerberos_service_name),
            "keyTab": ("sasl.kerberos.keytab", self.sasl_kerberos_keytab),
            "principal": ("sasl.kerberos.principal", self.sasl_kerberos_principal),
        }
        found = {}
        for option, (key, value) in ours.items():
            if option in options and value not in (None, options[option]):
                raise ConfigError(f"{key} and {option} in sasl.jaas.config disagree; give one.")
            found[option] = options.get(option, value)
        known = {*ours, TICKET_CACHE}
        for option in options.keys() - known - _NO_EFFECT:
            raise ConfigError(
                f"sasl.jaas.config has the option {option}, which is not supported for Kerberos; "
                f"use one of {', '.join(sorted(known))}."
            )
        if found["keyTab"] is not None and found["principal"] is None:
            raise ConfigError("sasl.kerberos.keytab needs sasl.kerberos.principal too.")
        return KerberosLogin(
            found["serviceName"] or SERVICE,
            self.sasl_kerberos_domain_name,
            found["principal"],
            found["keyTab"],
            options.get(TICKET_CACHE),
        )
