"""Unsupported settings: explanations for keys that a config class does not have.

Tables of names in underscore form: Kafka's own keys that are not supported yet, and old or foreign
names of keys that Kafka names differently. A known but unsupported key is an error instead of being
ignored, unless its value describes what happens anyway. Nothing else here is ever accepted.

Owner: none; the tables never change, and the owner of each key is determined once.
Source: Java classes ``ProducerConfig``, ``ConsumerConfig``, ``AdminClientConfig`` of 4.4.0; the
names of librdkafka's, kafka-python's and aiokafka's settings, and of Kafka 0.8's.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

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

RENAMED: Final[dict[str, str]] = {
    # Kafka 0.8's Scala clients.
    "metadata_broker_list": "bootstrap.servers",
    "broker_list": "bootstrap.servers",
    "zookeeper_connect": "bootstrap.servers (brokers, no longer ZooKeeper)",
    "request_required_acks": "acks",
    "request_timeout": "request.timeout.ms",
    "compression_codec": "compression.type",
    "message_send_max_retries": "retries",
    "serializer_class": "value.serializer",
    "key_serializer_class": "key.serializer",
    "send_buffer": "send.buffer.bytes",
    "topic_metadata_refresh_interval_ms": "metadata.max.age.ms",
    "queue_buffering_max_ms": "linger.ms",
    "queue_buffering_max_messages": "buffer.memory (bytes, not records)",
    "queue_enqueue_timeout_ms": "max.block.ms",
    "batch_num_messages": "batch.size (bytes, not records)",
    "auto_commit_enable": "enable.auto.commit",
    "autocommit_enable": "enable.auto.commit",
    "autocommit_interval_ms": "auto.commit.interval.ms",
    "fetch_message_max_bytes": "max.partition.fetch.bytes",
    "fetch_wait_max_ms": "fetch.max.wait.ms",
    "fetch_size": "max.partition.fetch.bytes",
    "autooffset_reset": "auto.offset.reset",
    "block_on_buffer_full": "max.block.ms",
    "metadata_fetch_timeout_ms": "max.block.ms",
    # librdkafka.
    "queue_buffering_max_kbytes": "buffer.memory (bytes)",
    "message_timeout_ms": "delivery.timeout.ms",
    "message_max_bytes": "max.request.size",
    "receive_message_max_bytes": "receive_max_bytes",
    "max_in_flight": "max.in.flight.requests.per.connection",
    "socket_timeout_ms": "request.timeout.ms",
    "socket_send_buffer_bytes": "send.buffer.bytes",
    "socket_receive_buffer_bytes": "receive.buffer.bytes",
    "compression_level": "compression.gzip.level, compression.lz4.level or compression.zstd.level",
    "queued_max_messages_kbytes": "fetch.max.bytes (bytes)",
    "fetch_error_backoff_ms": "retry.backoff.ms",
    "partitioner_cb": "partitioner.class",
    "socket_buffersize": "receive.buffer.bytes",
    # kafka-python and aiokafka.
    "max_batch_size": "batch.size",
    "reconnect_backoff_max": "reconnect.backoff.max.ms",
    "rebalance_timeout_ms": "max.poll.interval.ms",
}

GONE: Final[dict[str, str]] = {
    name: cure
    for cure, names in {
        "Remove it: sending never waits for the broker; delivery.result() does.": "producer_type",
        "Remove it.": "group_protocol_type",
        "Remove it: versions are negotiated with each broker.": (
            "api_version api_version_request api_version_request_timeout_ms "
            "api_version_fallback_ms api_version_auto_timeout_ms broker_version_fallback"
        ),
        "Remove it: this client has no event loop.": "loop",
        "Only send.buffer.bytes, receive.buffer.bytes and socket.keepalive.enable can be set.": (
            "socket_options"
        ),
        "Remove it: small requests never wait (TCP_NODELAY is set).": "socket_nagle_disable",
        "Pass on_delivery to send() of a Producer.": (
            "dr_cb dr_msg_cb on_delivery delivery_report_only_error"
        ),
        "Get records with poll(), or by iteration.": "consume_cb consume_callback_max_messages",
        "Give subscribe() a RebalanceListener.": "rebalance_cb",
        "Give commit_async() a callback; interceptors have on_commit().": (
            "offset_commit_cb on_commit"
        ),
        "Give commit_async() a callback.": "default_offset_commit_callback",
        "Configure the logger 'pykclient'.": (
            "log_cb log_queue log_thread_name log_connection_close logger"
        ),
        "Brokers that throttle are logged.": "throttle_cb",
        "Errors are raised by the call that they concern.": "error_cb",
        "Remove it: every client has metrics().": (
            "stats_cb statistics_interval_ms metrics_enabled metric_group_prefix"
        ),
        "current_lag() of a Consumer is 0 at a partition's end.": "enable_partition_eof",
        "Remove it: the group's coordinator keeps the offsets.": (
            "offset_store_method offset_store_path offset_store_sync_interval_ms"
        ),
        "Remove it: fetch.max.bytes limits the data fetched ahead.": (
            "queued_min_messages fetch_queue_backoff_ms"
        ),
        "Remove it: the group's coordinator leads rebalances.": (
            "rebalance_backoff_ms rebalance_max_retries"
        ),
        "Remove it: the coordinator names members; group.instance.id makes one static.": (
            "consumer_id"
        ),
        "Remove it: one thread fetches from all brokers at a time.": "num_consumer_fetchers",
        "Remove it: fetch.max.bytes limits data fetched ahead.": "queued_max_message_chunks",
        "Remove it: the client looks for new leaders after retry.backoff.ms.": (
            "refresh_leader_backoff_ms"
        ),
        "Remove it: the client looks for a coordinator when it needs one.": (
            "coordinator_query_interval_ms"
        ),
        "Remove it: no client needs ZooKeeper.": (
            "zookeeper_connection_timeout_ms zookeeper_session_timeout_ms"
        ),
        "Remove it: every pause has a jitter of a fifth.": "reconnect_backoff_jitter_ms",
        "Remove it: a request that times out ends its connection.": "socket_max_fails",
        "Remove it: all addresses of a name are tried, of both families.": (
            "broker_address_family broker_address_ttl"
        ),
        "Remove it: this client's I/O cannot be replaced.": (
            "socket_blocking_max_ms socket_cb connect_cb closesocket_cb open_cb resolve_cb "
            "selector kafka_client"
        ),
        "Connections through a proxy are not supported.": "proxy_url socks5_proxy",
        "Remove it: a constructor does not wait for brokers; each call has its own timeout.": (
            "bootstrap_timeout_ms"
        ),
        "Remove it: the client requests metadata of topics in use, every retry.backoff.ms.": (
            "topic_metadata_refresh_fast_interval_ms topic_metadata_refresh_fast_cnt "
            "topic_metadata_refresh_sparse topic_metadata_propagation_max_ms"
        ),
        "Leave such topics out of the pattern that subscribe() is given.": "topic_blacklist",
        "Remove it: topic settings are set like all others.": "default_topic_conf",
        "Give topic_settings={'logs': {'compression.type': 'zstd'}} for each topic to compress, "
        "and no compression.type for the others.": "compressed_topics",
        "Remove it: there is no queue of events; callbacks are arguments of calls.": (
            "enabled_events background_event_cb opaque"
        ),
        "Remove it: there are no plug-ins; give your objects in interceptor.classes.": (
            "builtin_features plugin_library_paths"
        ),
        "Remove it: it is about librdkafka's own code.": (
            "enable_random_seed internal_termination_signal message_copy_max_bytes"
        ),
        "Remove it: a partition's records are sent in order, batches when full or linger.ms old.": (
            "queuing_strategy msg_order_cmp queue_buffering_backpressure_threshold"
        ),
        "There is none: a record that fails for good does not block those after it.": (
            "enable_gapless_guarantee"
        ),
        "Remove it: records without a key stay on a partition for a batch (KIP-794).": (
            "sticky_partitioning_linger_ms"
        ),
        "Remove it: deliveries have their offsets.": "produce_offset_report",
        "Remove it: fetches use sessions (KIP-227), unless fetch_order is lag.": (
            "enable_incremental_fetch_sessions"
        ),
        "Give it to the serializer that needs it.": "schema_registry_url",
        "Give an object, such as pykclient.serialization.StringSerializer('utf-16-be').": (
            "serializer_encoding key_serializer_encoding value_serializer_encoding "
            "deserializer_encoding key_deserializer_encoding value_deserializer_encoding"
        ),
        "Set the level of the logger 'pykclient'.": "debug log_level",
        UNSUPPORTED[0].reason: (
            "ssl_key "
            "ssl_certificate ssl_certificate_verify_cb ssl_ca ssl_ca_certificate_stores "
            "ssl_curves_list ssl_sigalgs_list ssl_providers ssl_engine_location ssl_engine_id "
            "ssl_engine_callback_data"
        ),
        "It is a setting of brokers and topics: see Admin.create_topics().": "num_partitions",
        "It is a setting of topics: see Admin.create_topics().": "replication_factor",
        "It is a setting of brokers and topics.": "min_insync_replicas",
        "It is a setting of topics.": "retention_ms cleanup_policy",
        "It is a setting of brokers; a consumer has allow.auto.create.topics.": (
            "auto_create_topics_enable"
        ),
    }.items()
    for name in names.split()
}
"""Names without a counterpart here, by the replacement."""


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
    if name in RENAMED:
        return _renamed(client, spelling, RENAMED[name], known)
    if name in GONE:
        return f"The {client} has no setting {spelling!r}. {GONE[name]}"
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
    return (
        name in RENAMED
        or name in GONE
        or name in _aliases()
        or name.startswith(_PROVIDERS)
        or bool(clients_with(name))
    )


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
