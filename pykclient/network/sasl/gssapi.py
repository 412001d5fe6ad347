"""GSSAPI: authentication with a Kerberos ticket, through the system's library.

The package gssapi wraps that library, which finds the credentials (a cache filled by `kinit`, or a
keytab) and requests tickets from the KDC, so the mechanism may block. Broker and client prove their
identity to each other. No security layer is negotiated: TLS is one.

Owner: the connection that authenticates; its calls run on a background thread.
Source: RFC 4752 (SASL), RFC 4121 (Kerberos); Java classes ``SaslClientAuthenticator``,
``KerberosLogin``.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from pykclient.config.sasl import GSSAPI
from pykclient.errors import AuthenticationError, ConfigError, ConnectionFailedError
from pykclient.network.sasl.mechanism import SaslMechanism

if TYPE_CHECKING:
    from pykclient.config.client import ClientConfig
    from pykclient.config.kerberos import KerberosLogin

NO_LAYER: Final = 1
"""The bit of RFC 4752 for no integrity or confidentiality protection of later messages."""

_OFFER_BYTES: Final = 4
_KDC_UNREACHABLE: Final = -1_765_328_228 % 2**32
"""KRB5_KDC_UNREACH, which may be temporary."""

_MINOR: Final = re.compile(r"Minor \(\d+\): (.*)\Z", re.DOTALL)

_NO_TICKET: Final = (
    *("No Kerberos credentials available", "No credentials cache found", "No credentials were"),
)
_CURES: Final = (
    (_NO_TICKET, "run kinit, or give sasl_kerberos_keytab and sasl_kerberos_principal"),
    (("expired",), "run kinit again, or give sasl_kerberos_keytab and sasl_kerberos_principal"),
    (
        ("not found in Kerberos database",),
        "check the principal, sasl_kerberos_service_name and the broker's advertised name",
    ),
    (("Clock skew",), "set this machine's clock"),
    (("Cannot find KDC",), "check the realm, and krb5.conf"),
)


class GssapiMaker:
    """Makes the mechanisms of one client.

    Raises:
        ConfigError: the package gssapi or the system's library is missing, or a file cannot be
            read.
    """

    def __init__(self, config: ClientConfig) -> None:
        try:
            self._gssapi: Any = import_module("gssapi")
        except (ImportError, OSError):
            raise ConfigError(
                f"sasl_mechanism={GSSAPI}, which is the default, needs the package gssapi and the "
                f"system's Kerberos library: apt-get install libkrb5-dev, pip install "
                f"'pykclient[gssapi]'. Or set another sasl_mechanism."
            ) from None
        self._login = config.kerberos
        if self._login.keytab is not None:
            _check_readable(self._login.keytab)

    def mechanism(self, host: str) -> Gssapi:
        """Return a mechanism for one authentication at a broker."""
        return Gssapi(self._gssapi, self._login, host)


class Gssapi(SaslMechanism):
    """One authentication; `gssapi` is the package, or its stand-in in tests."""

    name = GSSAPI

    def __init__(self, gssapi: Any, login: KerberosLogin, host: str) -> None:
        self._gssapi = gssapi
        self._login = login
        self._service = f"{login.service}@{login.host or host}"
        self._context: Any = None
        self._has_chosen = False

    def begin(self) -> bytes:
        try:
            self._context = self._new_context()
            token: bytes | None = self._context.step()
        except self._gssapi.exceptions.GSSError as error:
            raise self._failure(error) from error
        return token or b""

    def respond(self, challenge: bytes) -> bytes | None:
        """Continue the context, then answer the offer of layers, which is the last message."""
        if self._has_chosen:
            return None
        try:
            if not self._context.complete:
                token: bytes | None = self._context.step(challenge)
                return token or b""
            return self._choose(challenge)
        except self._gssapi.exceptions.GSSError as error:
            raise self._failure(error) from error

    def _new_context(self) -> Any:
        gssapi, login = self._gssapi, self._login
        flags = gssapi.RequirementFlag
        name = None
        if login.principal is not None:
            name = gssapi.Name(login.principal, gssapi.NameType.kerberos_principal)
        store = {}
        if login.keytab is not None:
            store["client_keytab"] = f"FILE:{login.keytab}"
            # Tickets from a keytab belong to this process and are kept until they expire.
            store["ccache"] = f"MEMORY:pykclient-{login.principal}"
        if login.ticket_cache is not None:
            store["ccache"] = login.ticket_cache
        credentials = gssapi.Credentials(usage="initiate", name=name, store=store or None)
        self.user = str(credentials.name)
        return gssapi.SecurityContext(
            name=gssapi.Name(self._service, gssapi.NameType.hostbased_service),
            creds=credentials,
            usage="initiate",
            flags=flags.mutual_authentication | flags.integrity | flags.out_of_sequence_detection,
        )

    def _choose(self, challenge: bytes) -> bytes:
        """Return the reply to the broker's offer of security layers: none."""
        offer: bytes = self._context.unwrap(challenge).message
        if len(offer) != _OFFER_BYTES or not offer[0] & NO_LAYER:
            raise AuthenticationError(
                "the broker requires a Kerberos security layer, which Kafka does not support; use "
                "security_protocol=SASL_SSL for TLS"
            )
        self._has_chosen = True
        # No layer, no message size limit, and no authorization identity other than the ticket's.
        chosen: bytes = self._context.wrap(bytes((NO_LAYER, 0, 0, 0)), False).message
        return chosen

    def _failure(self, error: Any) -> AuthenticationError | ConnectionFailedError:
        found = _MINOR.search(str(error))
        reason = found[1].strip() if found else str(error)
        text = f"Kerberos, for the service {self._service}: {reason}"
        if error.min_code % 2**32 == _KDC_UNREACHABLE:
            return ConnectionFailedError(text)
        if self._login.keytab is not None and any(words in reason for words in _NO_TICKET):
            # The library reports a missing key, a wrong key and a wrong realm alike.
            return AuthenticationError(
                f"{text}; the keytab {self._login.keytab} gave no ticket of "
                f"{self._login.principal}: check that it has that principal's current key "
                f"(klist -k), and the realm"
            )
        cure = next((cure for words, cure in _CURES if any(w in reason for w in words)), "")
        return AuthenticationError(f"{text}; {cure}" if cure else text)


def _check_readable(place: str) -> None:
    try:
        with open(place, "rb"):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"sasl_kerberos_keytab={place!r} cannot be read: {reason}.") from error
