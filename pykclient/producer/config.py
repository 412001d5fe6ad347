"""ProducerConfig: every setting of a producer, immutable and picklable.

As in Java, a setting that excludes idempotence turns it off, unless it was requested explicitly.

Source: Java class ``ProducerConfig`` of 4.4.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.config.client import ClientConfig
from pykclient.config.partitioner_setting import PARTITIONERS, partitioner_or_name
from pykclient.config.serializer_setting import serializer_or_name
from pykclient.config.setting import (
    INT_MAX,
    LONG_MAX,
    Kind,
    Setting,
    boolean,
    choice,
    integer,
    object_list,
    sendable_text,
    shown,
    string,
)
from pykclient.config.topic_setting import per_topic
from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Self

ACKS_ALL: Final = -1
IN_FLIGHT_IDEMPOTENT_MAX: Final = 5
"""Number of batches of a producer that brokers remember (KIP-98)."""

_ACKS_HINT: Final = "Write all; how many replicas that means is min.insync.replicas of the topic."


def _transactional_id() -> Kind[str | None]:
    def parse(value: object) -> str | None:
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        if isinstance(value, str):
            return sendable_text(value.strip())
        raise ValueError

    return Kind(parse, "a string, or None", str, "str | None")


class ProducerConfig(ClientConfig):
    """Settings of a producer. Times are milliseconds, sizes bytes."""

    client = "producer"

    acks = Setting(
        choice(
            {"all": -1, "-1": -1, "0": 0, "1": 1},
            hints={str(count): _ACKS_HINT for count in range(2, 10)},
        ),
        -1,
        "Replicas that must have a record before it counts as sent: all in-sync replicas (all, "
        "-1), the leader (1), none (0).",
    )
    enable_idempotence = Setting(
        boolean(),
        True,
        "Retries neither duplicate nor reorder records (KIP-98). Needs acks=all, retries and at "
        "most 5 requests in flight; if it was not set explicitly, a setting that excludes it turns "
        "it off. After an unclean leader election, records that may be in the log fail instead of "
        "being duplicated.",
    )
    transactional_id = Setting(
        _transactional_id(),
        None,
        "Makes the producer transactional (KIP-98): with commit_transaction, readers with "
        "isolation.level=read_committed see all records and offsets of a transaction, else none. "
        "Each running producer needs its own id: init_transactions fences an older producer with "
        "the same id. Needs idempotence.",
    )
    transaction_timeout_ms = Setting(
        integer(0),
        60_000,
        "Time after which the coordinator aborts an open transaction and fences the producer. At "
        "most transaction.max.timeout.ms of the brokers.",
    )
    transaction_two_phase_commit_enable = Setting(
        boolean(),
        False,
        "Transactions do not time out (KIP-939): a transaction that prepare_transaction returned "
        "stays open until it is ended. Excludes transaction.timeout.ms. Needs Kafka 4.3 with "
        "unstable.api.versions.enable=true and transaction.two.phase.commit.enable=true.",
    )
    key_serializer = Setting(
        serializer_or_name("Serializer", "K"),
        None,
        "Turns keys into bytes; without one, keys are bytes.",
    )
    value_serializer = Setting(
        serializer_or_name("Serializer", "V"),
        None,
        "Turns values into bytes; without one, values are bytes.",
    )
    partitioner = Setting(
        partitioner_or_name(),
        None,
        "Chooses the partition of a record that names none. The default is murmur2_random: the "
        "key's hash as in Java; without a key, one partition after the other is filled. "
        "consistent_random (librdkafka's default) hashes by CRC32, fnv1a_random by FNV-1a. "
        "Without _random, records without a key all go to the partition of an empty key. "
        "round_robin and random choose for each record, whatever its key, which makes small "
        "batches.",
        key="partitioner.class",
    )
    partitioner_ignore_keys = Setting(
        boolean(), False, "Distribute records with keys as if they had none."
    )
    partitioner_adaptive_partitioning_enable = Setting(
        boolean(), True, "Send more of the records without keys to faster brokers (KIP-794)."
    )
    partitioner_availability_timeout_ms = Setting(
        integer(0, LONG_MAX),
        0,
        "Avoid partitions whose broker has accepted nothing for this long; 0 for never. No effect "
        "unless partitioner.adaptive.partitioning.enable is true (KIP-794).",
    )
    partitioner_rack_aware = Setting(
        boolean(),
        False,
        "Send records without keys to partitions whose leader is in client.rack, if there are any "
        "that accept records (KIP-1123). Needs client.rack; no effect with a custom partitioner.",
    )
    client_rack = Setting(
        string(), "", "Rack of this client, for partitioner.rack.aware (KIP-1123)."
    )
    interceptors: Setting[tuple[object, ...]] = Setting(
        object_list(),
        (),
        "Objects called for every record and its result.",
        key="interceptor.classes",
    )
    batch_size = Setting(
        integer(0),
        16_384,
        "Size at which a batch of one partition is sent, before compression. Java fills batches to "
        "the size that it expects after compression: for batches as large as Java's, raise it by "
        "the compression ratio.",
    )
    linger_ms = Setting(
        integer(0, LONG_MAX), 5, "Time that a batch waits for more records before it is sent."
    )
    buffer_memory = Setting(
        integer(0, LONG_MAX), 33_554_432, "Memory for records that are not delivered yet."
    )
    max_block_ms = Setting(
        integer(0, LONG_MAX), 60_000, "Maximum time that send waits for memory or metadata."
    )
    max_request_size = Setting(
        integer(0), 1_048_576, "Maximum size of a request, and of a record before compression."
    )
    max_in_flight_requests_per_connection = Setting(
        integer(1), 5, "Maximum number of requests in flight per connection."
    )
    retries = Setting(
        integer(0, INT_MAX), INT_MAX, "Maximum retries of a batch, within delivery_timeout_ms."
    )
    delivery_timeout_ms = Setting(
        integer(0),
        120_000,
        "Maximum time from send to success or failure. At least linger_ms + request_timeout_ms: "
        "the default is raised to that.",
    )
    compression_type = Setting(
        choice({name: name for name in ("none", "gzip", "snappy", "lz4", "zstd")}),
        "none",
        "Compression codec of batches. zstd needs Kafka 2.1 (KIP-110).",
    )
    compression_gzip_level = Setting(
        integer(1, 9, also=-1), -1, "gzip level; -1 is the codec's default (KIP-390)."
    )
    compression_lz4_level = Setting(integer(1, 17), 9, "lz4 level (KIP-390).")
    compression_zstd_level = Setting(integer(-131_072, 22), 3, "zstd level (KIP-390).")
    topic_settings = Setting(
        per_topic(
            compression_type,
            compression_gzip_level,
            compression_lz4_level,
            compression_zstd_level,
            linger_ms,
        ),
        {},
        "Settings for single topics, by topic name: compression.type, its levels, and linger.ms.",
        is_ours=True,
    )
    metadata_max_idle_ms = Setting(
        integer(5_000, LONG_MAX), 300_000, "Time after which an unused topic is forgotten."
    )
    receive_buffer_bytes = ClientConfig.receive_buffer_bytes.with_default(32_768)

    def for_topic(self, topic: str) -> Self:
        """Return this config with the settings of a topic applied."""
        return self._with(**self.topic_settings.get(topic, {}))

    def _reconcile(self, given: Collection[str]) -> None:
        super()._reconcile(given)
        self._reconcile_idempotence("enable_idempotence" in given)
        self._reconcile_two_phase_commit("transaction_timeout_ms" in given)
        self._reconcile_delivery_timeout("delivery_timeout_ms" in given)
        if self.partitioner_rack_aware and not self.client_rack.strip():
            raise ConfigError(
                "partitioner.rack.aware=true needs client.rack: set the rack of this client, named "
                "as in the brokers' broker.rack, or leave partitioner.rack.aware out."
            )
        if (
            self.partitioner_ignore_keys
            and isinstance(self.partitioner, str)
            and (self.partitioner in PARTITIONERS)
        ):
            raise ConfigError(
                f"partitioner.ignore.keys=true contradicts partitioner.class={self.partitioner}, "
                f"which says how keys are used. Leave one of them out."
            )

    def _reconcile_idempotence(self, is_given: bool) -> None:
        wanted_by = "enable.idempotence=true"
        if self.transactional_id is not None:
            wanted_by = f"transactional.id={shown('transactional.id', self.transactional_id)}"
            is_given = True
        if not self.enable_idempotence:
            if self.transactional_id is not None:
                raise ConfigError(
                    f"enable.idempotence=false contradicts {wanted_by}: transactions need "
                    f"idempotence. Change one of them."
                )
            return
        for key, value, is_met, needed in (
            ("acks", self.acks, self.acks == ACKS_ALL, "all"),
            ("retries", self.retries, self.retries > 0, "more than 0"),
            (
                "max.in.flight.requests.per.connection",
                self.max_in_flight_requests_per_connection,
                self.max_in_flight_requests_per_connection <= IN_FLIGHT_IDEMPOTENT_MAX,
                f"at most {IN_FLIGHT_IDEMPOTENT_MAX}",
            ),
        ):
            if is_met:
                continue
            if is_given:
                raise ConfigError(
                    f"{key}={value} contradicts {wanted_by}, which needs {key} to be {needed}. "
                    f"Change one of them."
                )
            self._settle("enable_idempotence", False)

    def _reconcile_two_phase_commit(self, has_timeout: bool) -> None:
        if not self.transaction_two_phase_commit_enable:
            return
        if self.transactional_id is None:
            raise ConfigError(
                "transaction.two.phase.commit.enable=true is for transactions, and "
                "transactional.id is not set. Set it, or leave "
                "transaction.two.phase.commit.enable out."
            )
        if has_timeout:
            raise ConfigError(
                f"transaction.timeout.ms={self.transaction_timeout_ms} contradicts "
                f"transaction.two.phase.commit.enable=true, with which transactions do not time "
                f"out. Leave one of them out."
            )
        self._settle("transaction_timeout_ms", INT_MAX)

    def _reconcile_delivery_timeout(self, is_given: bool) -> None:
        linger_ms = max(
            [self.linger_ms, *(self.for_topic(topic).linger_ms for topic in self.topic_settings)]
        )
        shortest_ms = min(linger_ms + self.request_timeout_ms, INT_MAX)
        if self.delivery_timeout_ms >= shortest_ms:
            return
        if is_given:
            raise ConfigError(
                f"delivery.timeout.ms={self.delivery_timeout_ms} is shorter than linger.ms + "
                f"request.timeout.ms = {shortest_ms}: no record could be sent within it. "
                f"Give at least that."
            )
        self._settle("delivery_timeout_ms", shortest_ms)
