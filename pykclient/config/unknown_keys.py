"""Unsupported settings: explanations for keys that a config class does not have.

The table has Kafka's own keys that are not supported yet, in underscore form; old and foreign names
are in `other_clients`. A known but unsupported key is an error instead of being ignored, unless its
value describes what happens anyway. Nothing else here is ever accepted.

Owner: none; the tables never change, and the owner of each key is determined once.
Source: Java classes ``ProducerConfig``, ``ConsumerConfig``, ``AdminClientConfig`` of 4.4.0.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.config.other_clients import other_clients
from pykclient.config.setting import shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

MISSPELLED_LENGTH_MAX: Final = 100
"""Characters of a name for which one that is close is looked for."""

EVERY_CLIENT: Final = ("producer", "consumer", "admin")


class Unsupported(NamedTuple):
    """Kafka's keys for one unsupported feature.

    `harmless` holds the values of each key that only ask for what happens anyway, Kafka's default
    first; "" stands for null and for an empty list.
    """

    clients: tuple[str, ...]
    reason: str
    harmless: Mapping[str, tuple[str, ...]]


def _harmless(text: str) -> dict[str, tuple[str, ...]]:
    """Parse keys with their harmless value, as ``key=value``; a key alone stands for null."""
    pairs = (word.partition("=") for word in text.split())
    return {key: (value,) for key, _, value in pairs}


_SECURITY: Final = _harmless(
    """
    sasl_client_callback_handler_class sasl_kerberos_kinit_cmd=/usr/bin/kinit
    sasl_kerberos_min_time_before_relogin=60000
    sasl_kerberos_ticket_renew_jitter=0.05 sasl_kerberos_ticket_renew_window_factor=0.8
    sasl_login_class
    sasl_oauthbearer_allow_unverified_audience=false
    sasl_oauthbearer_allow_unverified_issuer=false
    sasl_oauthbearer_clock_skew_seconds=30 sasl_oauthbearer_expected_audience
    sasl_oauthbearer_expected_issuer
    sasl_oauthbearer_jwks_endpoint_refresh_ms=3600000
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms=10000
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms=100 sasl_oauthbearer_jwks_endpoint_url
    sasl_oauthbearer_jwt_validator_class=org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
    sasl_oauthbearer_scope_claim_name=scope
    security_providers ssl_engine_factory_class ssl_keymanager_algorithm=SunX509
    ssl_provider ssl_secure_random_implementation
    ssl_trustmanager_algorithm=PKIX
    """
)

_MSK_HANDLERS: Final = (
    "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
)
"""Java's additional settings for Amazon MSK: the mechanism's class, or the class that makes
tokens."""

UNSUPPORTED: Final[tuple[Unsupported, ...]] = (
    Unsupported(
        EVERY_CLIENT,
        "It belongs to an unsupported part of TLS or SASL: this client has TLS and the mechanisms "
        "PLAIN, SCRAM, OAUTHBEARER, AWS_MSK_IAM and GSSAPI.",
        {**_SECURITY, "sasl_client_callback_handler_class": ("", *_MSK_HANDLERS)},
    ),
    Unsupported(
        EVERY_CLIENT,
        "Metrics reporters are not supported yet: `metrics()` returns all metrics.",
        {
            "metric_reporters": ("org.apache.kafka.common.metrics.JmxReporter", ""),
            "metrics_recording_level": ("INFO",),
        },
    ),
    Unsupported(
        EVERY_CLIENT,
        "Names are resolved when a connection is opened, repeatedly within the call's timeout; "
        "there is no separate limit.",
        {"bootstrap_resolve_timeout_ms": ("0",)},
    ),
    Unsupported(
        EVERY_CLIENT,
        "Pushing metrics to brokers (KIP-714) is not supported yet.",
        {"enable_metrics_push": ("true", "false")},
    ),
    Unsupported(
        ("consumer",),
        "Share groups are not supported yet.",
        {
            "share_acknowledgement_mode": ("implicit",),
            "share_acquire_mode": ("batch_optimized",),
        },
    ),
    Unsupported(
        ("consumer",),
        "Brokers before 2.5 lack stable offsets (KIP-447), and get requests without them.",
        {"internal_throw_on_fetch_stable_offset_unsupported": ("false",)},
    ),
    Unsupported(
        ("admin",),
        "Connecting to controllers is not supported yet: give bootstrap.servers.",
        {"bootstrap_controllers": ("",)},
    ),
)

_KEYS: Final = re.compile(r"[a-z][a-z_.]+")
_DOTTED: Final = re.compile(r"\b[a-z]+(?:\.[a-z0-9]+)+\b")

_PROVIDERS: Final = "config_providers_"
"""Prefix of a configuration provider's settings."""


def underscored(key: str) -> str:
    return key.replace(".", "_")


def explain_unknown(
    client: str, spelling: str, value: object, known: Collection[str], *, suggests: bool = True
) -> str | None:
    """Return the complaint about a key that `client` does not have, with the cure.

    None if the key is Kafka's and `value` only asks for what happens anyway. `known` holds the
    client's own keys, for the suggestion, which takes a millisecond; `suggests` False omits it.
    """
    name = underscored(spelling)
    for unsupported in UNSUPPORTED:
        if client in unsupported.clients and name in unsupported.harmless:
            return _unsupported(unsupported, name, spelling, value)
    others = other_clients()
    if name in others.renamed:
        return _renamed(client, spelling, others.renamed[name], known)
    if cure := UNSUPPORTED[0].reason if name in others.not_built else others.gone.get(name):
        return f"The {client} has no setting {spelling!r}. {cure}"
    if owners := clients_with(name):
        return (
            f"{spelling!r} is a setting of the {' and the '.join(owners)}, not of the {client}. "
            f"Remove it here."
        )
    guess = did_you_mean(name, known) if suggests else ""
    return f"The {client} has no setting {shown('', spelling)}.{guess}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean ...?" with the closest of `known`, or "" if none is close.

    Dots, underscores and case make no difference. Each word of `name` must appear in the
    suggestion, apart from typing errors: rebalance.backoff.ms does not suggest
    reconnect.backoff.ms.
    """
    # Imported here: only a mistake needs it, and it takes its share of the import budget.
    from difflib import get_close_matches

    if len(name) > MISSPELLED_LENGTH_MAX:
        return ""
    spellings = {word.replace(".", "_").lower(): word for word in known}
    wanted = name.replace(".", "_").lower()
    for found in get_close_matches(wanted, spellings, n=1, cutoff=0.75):
        words = found.split("_")
        # One wrong letter in two is a single typing error, like one in five.
        if all(
            word in found or get_close_matches(word, words, cutoff=0.6 if len(word) > 2 else 0.5)
            for word in wanted.split("_")
        ):
            return f" Did you mean {spellings[found]!r}?"
    return ""


def respelled(text: str) -> str:
    """Return a message with Kafka's keys spelled as keywords."""
    return _DOTTED.sub(
        lambda found: underscored(found[0]) if clients_with(underscored(found[0])) else found[0],
        text,
    )


def java_hint(text: str) -> str:
    """Return a hint for a Java class name; empty for other names."""
    if text.startswith(("org.apache.", "io.confluent.")):
        return "That is a Java class; give a Python class."
    return ""


def _unsupported(unsupported: Unsupported, name: str, spelling: str, value: object) -> str | None:
    """Return the complaint, or None if the value is harmless."""
    harmless = unsupported.harmless[name]
    if _plain(value) in [text.lower() for text in harmless]:
        return None
    allowed = " or ".join(repr(text) for text in harmless if text)
    return (
        f"{spelling}={shown(spelling, value)} is refused. {unsupported.reason} "
        f"Leave the setting out{f'; allowed is {allowed}' if allowed else ''}."
    )


def _renamed(client: str, spelling: str, now: str, known: Collection[str]) -> str:
    found = [underscored(word) for word in _KEYS.findall(now)]
    owners = next(filter(None, map(clients_with, found)), ())
    if client not in owners and owners and not set(found) & set(map(underscored, known)):
        return (
            f"{spelling!r}, by Kafka's name {now}, is a setting of the "
            f"{' and the '.join(owners)}, not of the {client}. Remove it here."
        )
    whose = (
        "it is receive_max_bytes here" if now == "receive_max_bytes" else f"Kafka's is now {now}"
    )
    return f"{spelling!r} is the name of an older release or of another library; {whose}."


def _plain(value: object) -> str:
    """Return a value in the form of a properties file, in lower case."""
    if value is None:
        return ""
    items = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return ",".join(str(item).strip() for item in items).lower()


def is_known(key: str) -> bool:
    """Return whether a key, in any spelling, is explained here or belongs to a client."""
    name = underscored(key)
    if name in _aliases() or name.startswith(_PROVIDERS) or clients_with(name):
        return True
    others = other_clients()
    return name in others.renamed or name in others.gone or name in others.not_built


def clients_with(name: str) -> tuple[str, ...]:
    """Return the clients that have a key, or would have it if it were supported.

    The key is spelled with underscores.
    """
    if name in _holders():
        return _holders()[name]
    return next((each.clients for each in UNSUPPORTED if name in each.harmless), ())


@cache
def _aliases() -> frozenset[str]:
    """Return the aliases of other libraries for settings of each client, with underscores."""
    from pykclient.config.client_properties import config_class

    return frozenset(
        underscored(alias)
        for client in EVERY_CLIENT
        for setting in config_class(client).settings()
        for alias in setting.aliases
    )


@cache
def _holders() -> dict[str, tuple[str, ...]]:
    """Return the clients that have each key.

    It imports every client's config, since only a mistake needs them.
    """
    from importlib import import_module

    holders: dict[str, tuple[str, ...]] = {}
    for client in EVERY_CLIENT:
        config = getattr(import_module(f"pykclient.{client}.config"), f"{client.title()}Config")
        for setting in config.settings():
            for name in {setting.name, underscored(setting.key)}:
                holders[name] = (*holders.get(name, ()), client)
    return holders
