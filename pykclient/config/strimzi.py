"""The options of strimzi-kafka-oauth in ``sasl.jaas.config``, ``oauth.*``.

Strimzi's class prefers environment variables of the same names. They are not read here: refer to
them as ``${env:NAME}``.

Owner: no state.
Source: strimzi-kafka-oauth, "Client configuration options" in its README; its class
``JaasClientOauthLoginCallbackHandler``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.config.setting import Password
from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

STRIMZI_LOGIN_HANDLER: Final = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"

PREFIX: Final = "oauth."

CLIENT_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

_RENAMED: Final = {
    "oauth.client.id": "clientId",
    "oauth.client.secret": "clientSecret",
    "oauth.scope": "scope",
    "oauth.ssl.truststore.location": "ssl.truststore.location",
    "oauth.ssl.truststore.certificates": "ssl.truststore.certificates",
    "oauth.ssl.truststore.type": "ssl.truststore.type",
    "oauth.ssl.truststore.password": "ssl.truststore.password",
}
"""Options that Java's login module has under another name."""

_EXTENSION: Final = "oauth.sasl.extension."

_READ: Final = (
    "oauth.token.endpoint.uri",
    "oauth.audience",
    "oauth.access.token",
    "oauth.access.token.location",
    "oauth.refresh.token",
    "oauth.refresh.token.location",
    "oauth.client.assertion",
    "oauth.client.assertion.location",
)

_ONLY: Final = {
    "oauth.client.assertion.type": (CLIENT_ASSERTION,),
    "oauth.client.credentials.grant.type": ("client_credentials",),
    "oauth.include.accept.header": ("true",),
    "oauth.ssl.endpoint.identification.algorithm": ("https",),
}
"""Options with a single supported value, in lower case, which is what the client does anyway."""

_IDLE: Final = (
    "oauth.access.token.is.jwt",
    "oauth.config.id",
    "oauth.enable.metrics",
    "oauth.http.retries",
    "oauth.http.retry.pause.millis",
    "oauth.ssl.secure.random.implementation",
    "oauth.username.claim",
)
"""Options without effect here: this client always retries, and reads a token's claims if it can."""

ALL_OPTIONS: Final = tuple(sorted((*_RENAMED, *_READ, *_ONLY, *_IDLE)))


class StrimziLogin(NamedTuple):
    """Strimzi's options; None if not given. `options` are those with Java's names."""

    options: dict[str, str]
    url: str | None
    audience: str | None
    access_token: Password | None
    access_token_file: str | None
    refresh_token: Password | None
    refresh_token_file: str | None
    assertion: Password | None
    assertion_file: str | None
    is_given: bool
    """True if there is any Strimzi option."""


def is_strimzi(options: Mapping[str, str]) -> bool:
    """Return whether a login module's options are Strimzi's."""
    return any(name.startswith(PREFIX) for name in options)


def read_strimzi(options: Mapping[str, str]) -> StrimziLogin:
    """Parse Strimzi's options.

    Raises:
        ConfigError: an option is not supported, or contradicts another one. It shows no secret.
    """
    renamed: dict[str, str] = {}
    for name, value in options.items():
        if name in _RENAMED:
            renamed[_RENAMED[name]] = value
        elif name.startswith(_EXTENSION):
            renamed[f"extension_{name.removeprefix(_EXTENSION)}"] = value
        elif name in _ONLY:
            if value.strip().lower() not in _ONLY[name]:
                raise ConfigError(
                    f"{name} in sasl.jaas.config may only be {_ONLY[name][0]}; leave it out."
                )
        elif name.startswith(PREFIX) and name not in (*_READ, *_IDLE):
            raise ConfigError(
                f"sasl.jaas.config has the option {name}, which is not supported; use one of "
                f"{', '.join(ALL_OPTIONS)} and {_EXTENSION}NAME."
            )
        elif not name.startswith(PREFIX):
            renamed[name] = value
    sources = [
        name
        for name in _READ
        if name in options and name.startswith(("oauth.access.", "oauth.refresh."))
    ]
    if len(sources) > 1:
        raise ConfigError(f"{' and '.join(sources)} in sasl.jaas.config are two tokens; give one.")
    proofs = [
        name
        for name in ("oauth.client.secret", *_READ)
        if name in options and name.startswith(("oauth.client.secret", "oauth.client.assertion"))
    ]
    if len(proofs) > 1:
        raise ConfigError(
            f"{' and '.join(proofs)} in sasl.jaas.config both authenticate the client; give one."
        )
    return StrimziLogin(
        renamed,
        options.get("oauth.token.endpoint.uri"),
        options.get("oauth.audience"),
        _secret(options, "oauth.access.token"),
        options.get("oauth.access.token.location"),
        _secret(options, "oauth.refresh.token"),
        options.get("oauth.refresh.token.location"),
        _secret(options, "oauth.client.assertion"),
        options.get("oauth.client.assertion.location"),
        is_strimzi(options),
    )


def _secret(options: Mapping[str, str], name: str) -> Password | None:
    return Password(options[name]) if name in options else None
