"""Security of a cluster's listeners: TLS, SASL and ACLs, and the client settings for each.

Every listener for clients has a name, by default its protocol. Brokers talk to each other and to
the controller on separate plaintext listeners on the loopback interface. There, and on a PLAINTEXT
listener for clients, the principal is User:ANONYMOUS, a super user.

Owner: none; it holds no state.
Source: Kafka's ``SslConfigs``, ``SaslConfigs`` and ``BrokerSecurityConfigs``; KIP-103 (listeners),
KIP-651 (PEM), KIP-684 (mutual TLS with SASL), KIP-900 (SCRAM users when formatting the storage).
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pykclient.config.unknown_keys import did_you_mean
from pykclient.errors.base import (
    ConfigError,
    ConnectionFailedError,
    KafkaTimeoutError,
    UsageError,
)
from pykclient.errors.broker import error_for_code
from pykclient.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pykclient.testing.cluster.certificates import presented_certificate
from pykclient.testing.cluster.probe import exchange, response_timeout_s

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pykclient.testing.clock import Deadline
    from pykclient.testing.cluster.acls import Acl
    from pykclient.testing.cluster.certificates import Certificate, CertificateAuthority
    from pykclient.testing.cluster.properties import PropertyValue
    from pykclient.testing.port import Address

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MUTUAL_TLS = "MTLS"
"""Name of a listener with protocol SSL that requires client certificates."""

SCRAM_ITERATIONS = 4096
SCRAM_SALT_BYTES = 16
_SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

_ASK_PAUSE_S = 0.02
_HANDSHAKES = 9
"""Connections go in turn to the listener's threads, three by default (``num.network.threads``),
and each thread takes a new certificate separately."""
_BROKER = 4
"""Resource type of a broker's settings."""

_PACKAGE = "org.apache.kafka.common.security"
_LOGIN_MODULES = {
    "PLAIN": f"{_PACKAGE}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_PACKAGE}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_PACKAGE}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule",
}
MECHANISMS = tuple(_LOGIN_MODULES)
"""Mechanisms of Kafka."""
AWS_MSK_IAM = "AWS_MSK_IAM"
"""Mechanism of Amazon MSK, supported by fake brokers."""
_AWS_LOGIN_MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"
_OIDC_HANDLER = f"{_PACKAGE}.oauthbearer.OAuthBearerValidatorCallbackHandler"
_ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"

_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_ANONYMOUS = "User:ANONYMOUS"
"""Principal of the brokers themselves, on their own listener."""

_COMMON_NAME_ALONE = "RULE:^(?:.*,)?CN=([^,]+)(?:,.*)?$/$1/,DEFAULT"
"""Maps a client certificate to the principal ``User:<common name>``."""


class Listener(NamedTuple):
    """Name and protocol of a listener for clients."""

    name: str
    protocol: str

    @property
    def has_tls(self) -> bool:
        """True if clients do a TLS handshake."""
        return self.protocol in {"SSL", "SASL_SSL"}

    @property
    def has_sasl(self) -> bool:
        """True if clients authenticate with SASL."""
        return self.protocol.startswith("SASL_")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSecurity:
    """The security of a `KafkaCluster` or `FakeKafka`, as clients see it.

    `listeners` are protocols: SSL, SASL_SSL, SASL_PLAINTEXT, PLAINTEXT; MTLS is SSL with required
    client certificates. A second listener of a protocol needs a name, as in
    ``listener.security.protocol.map``: ``"REAUTH:SASL_SSL"``. Its settings can be given in the
    cluster's `config`, with the prefix ``listener.name.reauth.``.
    `mechanisms` are the SASL mechanisms. `users` are the users of PLAIN and SCRAM with their
    passwords. For AWS_MSK_IAM, which only fake brokers support, they are AWS key ids with secret
    keys, which a client finds in its environment.
    OAUTHBEARER accepts any unsecured token; with `jwks_url`, it accepts only tokens signed by a key
    found there.
    `acls` enable the authorizer: apart from `super_users`, such as ``User:alice``, clients may only
    do what an ACL allows.

    Raises:
        ConfigError: a protocol or mechanism is unknown, a name repeats, or there are no users.
    """

    listeners: Sequence[str] = ("SASL_SSL",)
    mechanisms: Sequence[str] = MECHANISMS
    users: Mapping[str, str] = field(default_factory=lambda: {"alice": "alice-secret"}, repr=False)
    jwks_url: str | None = None
    acls: Sequence[Acl] | None = None
    super_users: Sequence[str] = ()

    def __post_init__(self) -> None:
        listeners = self.client_listeners
        names = [listener.name for listener in listeners]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"listeners is {self.listeners}; give at least one, and none twice")
        for listener in listeners:
            _check_known("protocol", listener.protocol, PROTOCOLS)
        if any(listener.has_sasl for listener in listeners) and not self.mechanisms:
            raise ConfigError("a listener uses SASL, but mechanisms is empty; give at least one")
        for mechanism in self.mechanisms:
            _check_known("mechanism", mechanism, (*MECHANISMS, AWS_MSK_IAM))
        if not self.users or not all(map(all, self.users.items())):
            raise ConfigError("users is empty, or a name or password is; give at least one user")
        if _SCRAM_HASHES.keys() & set(self.mechanisms):
            for name in self.users:
                _check_scram_name(name)

    @property
    def client_listeners(self) -> list[Listener]:
        """Listeners for clients, in the given order."""
        return [_listener(text) for text in self.listeners]

    def listener(self, name: str | None) -> Listener:
        """Return the listener with this name, None for the first. Raises `UsageError`."""
        listeners = self.client_listeners
        for listener in listeners:
            if name in {None, listener.name}:
                return listener
        names = [listener.name for listener in listeners]
        raise UsageError(
            f"there is no listener {name!r}; there are {', '.join(names)}."
            f"{did_you_mean(name or '', names)}"
        )

    def server_settings(self, keystore: Path, truststore: Path) -> dict[str, PropertyValue]:
        """Return a server's settings for security, without listeners. Raises `ConfigError`."""
        if AWS_MSK_IAM in self.mechanisms:
            raise ConfigError(
                f"Kafka's brokers do not support {AWS_MSK_IAM}, which is Amazon MSK's; leave it "
                "out of mechanisms, or use FakeKafka"
            )
        settings: dict[str, PropertyValue] = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(truststore),
            "ssl.principal.mapping.rules": _COMMON_NAME_ALONE,
            # A replacement certificate may have another name and other hosts.
            "ssl.allow.dn.changes": True,
            "ssl.allow.san.changes": True,
            "sasl.enabled.mechanisms": ",".join(self.mechanisms),
        }
        if self.acls is not None:
            settings["authorizer.class.name"] = _AUTHORIZER
            settings["super.users"] = ";".join([_ANONYMOUS, *self.super_users])
        if self.jwks_url is not None:
            settings["sasl.oauthbearer.jwks.endpoint.url"] = self.jwks_url
            # Brokers since 4.4 require both values, or these; older ones do not know them.
            settings["sasl.oauthbearer.allow.unverified.audience"] = True
            settings["sasl.oauthbearer.allow.unverified.issuer"] = True
        for listener in self.client_listeners:
            prefix = f"listener.name.{listener.name.lower()}"
            if listener.name == MUTUAL_TLS:
                settings[f"{prefix}.ssl.client.auth"] = "required"
            for mechanism in self.mechanisms if listener.has_sasl else ():
                name = f"{prefix}.{mechanism.lower()}.sasl"
                settings[f"{name}.jaas.config"] = self._broker_jaas(mechanism)
                if mechanism == "OAUTHBEARER" and self.jwks_url is not None:
                    settings[f"{name}.server.callback.handler.class"] = _OIDC_HANDLER
        return settings

    def java_options(self) -> list[str]:
        """Return a broker's JVM options.

        Kafka reads keys only from URLs allowed here, and only Java's second compiler uses the
        processor's AES instructions.
        """
        options = [] if self.jwks_url is None else [f"-D{_ALLOWED_URLS}={self.jwks_url}"]
        if any(listener.has_tls for listener in self.client_listeners):
            options.append("-XX:TieredStopAtLevel=4")
        return options

    def scram_credentials(self) -> list[str]:
        """Return users with salted passwords for SCRAM, as Kafka's StorageTool takes them.

        They appear in a command line, so they must not contain passwords.
        """
        return [
            _scram_credential(mechanism, user, password)
            for mechanism in self.mechanisms
            if mechanism in _SCRAM_HASHES
            for user, password in self.users.items()
        ]

    def client_settings(
        self,
        listener: Listener,
        *,
        mechanism: str | None,
        user: str | None,
        password: str | None,
    ) -> dict[str, str]:
        """Return a client's settings for a listener, without addresses and files."""
        settings = {"security_protocol": listener.protocol}
        if not listener.has_sasl:
            if mechanism is not None or password is not None:
                raise UsageError(
                    f"listener {listener.name} has protocol {listener.protocol}, without SASL; "
                    "leave out mechanism and password"
                )
            return settings
        chosen = mechanism or self.mechanisms[0]
        if chosen not in self.mechanisms:
            raise UsageError(
                f"the cluster's mechanisms are {', '.join(self.mechanisms)}, not {mechanism!r}."
                f"{did_you_mean(chosen, self.mechanisms)}"
            )
        settings["sasl_mechanism"] = chosen
        settings["sasl_jaas_config"] = self._client_jaas(chosen, user, password)
        return settings

    def _broker_jaas(self, mechanism: str) -> str:
        options = {f"user_{name}": word for name, word in self.users.items()}
        return _jaas(mechanism, options if mechanism == "PLAIN" else {})

    def _client_jaas(self, mechanism: str, user: str | None, password: str | None) -> str:
        if mechanism == AWS_MSK_IAM:
            return f"{_AWS_LOGIN_MODULE} required;"
        name = user or next(iter(self.users))
        if mechanism == "OAUTHBEARER":
            return _jaas(mechanism, {"unsecuredLoginStringClaim_sub": name})
        if password is None:
            if name not in self.users:
                raise UsageError(
                    f"there is no user {name!r}; there are {', '.join(self.users)}. To test a "
                    "refusal, give a password"
                )
            password = self.users[name]
        return _jaas(mechanism, {"username": name, "password": password})


class ClientSettings:
    """Client settings for the listeners of a cluster.

    A user's certificate is issued at first use. `authority` is None if no listener has TLS.
    """

    def __init__(self, security: ClusterSecurity, authority: CertificateAuthority | None) -> None:
        self._security = security
        self._authority = authority
        self._certificates: dict[str, Certificate] = {}

    def of(
        self,
        listener: Listener,
        addresses: Sequence[Address],
        *,
        mechanism: str | None,
        user: str | None,
        password: str | None,
    ) -> dict[str, str]:
        """Return the settings for a listener with these addresses. Raises `UsageError`."""
        settings = {
            "bootstrap_servers": ",".join(map(str, addresses)),
            **self._security.client_settings(
                listener, mechanism=mechanism, user=user, password=password
            ),
        }
        if not listener.has_tls:
            return settings
        authority = self._authority
        assert authority is not None, "a listener has TLS"
        settings |= trust_settings(authority.path)
        if listener.protocol == "SSL" and (listener.name == MUTUAL_TLS or user is not None):
            name = user or next(iter(self._security.users))
            if name not in self._certificates:
                self._certificates[name] = authority.issue(name)
            settings |= key_settings(self._certificates[name])
        return settings


def replace_certificate(
    node_id: int,
    addresses: tuple[Address, Address],
    *,
    listener: Listener,
    certificate: Certificate,
    deadline: Deadline,
) -> None:
    """Replace a broker's certificate on a listener, and wait until it presents the new one.

    The `addresses` are the broker's plaintext address and the listener's.

    Raises:
        BrokerError: the broker refused the keystore.
        KafkaTimeoutError: it still presented another one at the deadline.
    """
    prefix = f"listener.name.{listener.name.lower()}.ssl.keystore"
    settings = {f"{prefix}.location": str(certificate.path), f"{prefix}.type": "PEM"}
    configs = [AlterableConfig(name=name, value=value) for name, value in settings.items()]
    resource = AlterConfigsResource(_BROKER, str(node_id), configs)
    plain, secured = addresses
    response = exchange(
        plain,
        IncrementalAlterConfigsRequest(resources=[resource]),
        IncrementalAlterConfigsResponse,
        timeout=response_timeout_s(deadline),
    )
    for result in response.responses:
        if result.error_code:
            raise error_for_code(result.error_code, result.error_message)
    in_a_row = 0
    while in_a_row < _HANDSHAKES:
        try:
            presented = presented_certificate(secured, timeout=response_timeout_s(deadline))
        except OSError as error:
            raise ConnectionFailedError(f"no TLS handshake at {secured}: {error}") from error
        in_a_row = in_a_row + 1 if presented == certificate.chain_pem else 0
        if in_a_row == 0:
            if deadline.has_passed():
                raise KafkaTimeoutError(
                    f"broker {node_id} still presented another certificate on {listener.name} "
                    f"after {deadline.timeout_ms} ms"
                )
            time.sleep(_ASK_PAUSE_S)


def key_settings(certificate: Certificate) -> dict[str, str]:
    """Return a client's settings to present a certificate."""
    settings = {
        "ssl_keystore_type": "PEM",
        "ssl_keystore_location": str(certificate.path),
    }
    if certificate.key_password is not None:
        settings["ssl_key_password"] = certificate.key_password
    return settings


def trust_settings(truststore: Path) -> dict[str, str]:
    """Return a client's settings to trust the brokers."""
    return {"ssl_truststore_type": "PEM", "ssl_truststore_location": str(truststore)}


def _listener(text: str) -> Listener:
    if text == MUTUAL_TLS:
        return Listener(MUTUAL_TLS, "SSL")
    name, _, protocol = text.partition(":")
    return Listener(name, protocol or name)


def _check_known(kind: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise ConfigError(
            f"{name!r} is not a {kind} of a listener; there are {', '.join(known)}."
            f"{did_you_mean(name, known)}"
        )


def _check_scram_name(name: str) -> None:
    if not name.isascii() or "," in name:
        raise ConfigError(
            f"{name!r} cannot be a SCRAM user: Kafka's brokers accept only ASCII, and its "
            "StorageTool no comma; choose another name, or set mechanisms to PLAIN alone"
        )


def _jaas(mechanism: str, options: Mapping[str, str]) -> str:
    words = [f"{_quoted(name)}={_quoted(value)}" for name, value in options.items()]
    return " ".join([_LOGIN_MODULES[mechanism], "required", *words]) + ";"


def _quoted(text: str) -> str:
    # Java's StreamTokenizer ends a string at the end of a line, and uses C's escapes.
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
    return '"' + "".join(escapes.get(character, character) for character in text) + '"'


def _scram_credential(mechanism: str, user: str, password: str) -> str:
    salt = os.urandom(SCRAM_SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(
        _SCRAM_HASHES[mechanism], password.encode(), salt, SCRAM_ITERATIONS
    )
    stored = {
        "name": user,
        "salt": base64.b64encode(salt).decode(),
        "saltedpassword": base64.b64encode(salted).decode(),
    }
    words = [f'{name}="{value}"' for name, value in stored.items()]
    return f"{mechanism}=[{','.join(words)},iterations={SCRAM_ITERATIONS}]"
