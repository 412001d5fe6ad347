"""ProducerConfig: every setting of a producer, immutable and picklable.

Idempotence that was not set gives way to settings that exclude it, as in Java.

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
"""Brokers remember the last five batches of a producer (KIP-98)."""

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
        "Who must hold a record before it counts as sent: all in-sync replicas (all, -1), the "
        "leader (1), none (0).",
    )
    enable_idempotence = Setting(
        boolean(),
        True,
        "Retries neither double nor reorder records (KIP-98). Needs acks=all, retries and at most "
        "5 requests in flight; switched off when one of them says otherwise and this was not "
        "given. After an unclean leader election, records that may be in the log fail rather than "
        "being doubled.",
    )
    transactional_id = Setting(
        _transactional_id(),
        None,
        "Has the producer send in transactions (KIP-98): with commit_transaction readers with "
        "isolation.level=read_committed see all records and offsets of one, else none. The id is "
        "that of one running producer: init_transactions fences an older one with the same. Needs "
        "idempotence.",
    )
    transaction_timeout_ms = Setting(
        integer(0),
        60_000,
        "The coordinator aborts a transaction that is open for longer, and fences the producer. At "
        "most the brokers' transaction.max.timeout.ms.",
    )
    transaction_two_phase_commit_enable = Setting(
        boolean(),
        False,
        "Transactions have no time-out (KIP-939): what prepare_transaction returned stays open "
        "until it is ended. Excludes transaction.timeout.ms. Needs Kafka 4.3, its brokers with "
        "unstable.api.versions.enable=true and transaction.two.phase.commit.enable=true.",
    )
    key_serializer = Setting(
        serializer_or_name("Serializer", "K"),
        None,
        "Turns keys into bytes; none takes bytes as they are.",
    )
    value_serializer = Setting(
        serializer_or_name("Serializer", "V"),
        None,
        "Turns values into bytes; none takes bytes as they are.",
    )
    partitioner = Setting(
        partitioner_or_name(),
        None,
        "Chooses the partition of a record that names none; none is murmur2_random: the key's "
        "hash as in Java, and where there is no key one partition after the other is filled. "
        "consistent_random (librdkafka's default) hashes by CRC32, fnv1a_random by FNV-1a. "
        "Without _random, records without a key all go to the partition of an empty key. "
        "round_robin and random choose for each record, whatever its key, which makes small "
        "batches.",
        key="partitioner.class",
    )
    partitioner_ignore_keys = Setting(
        boolean(), False, "Spread records with keys as if they had none."
    )
    partitioner_adaptive_partitioning_enable = Setting(
        boolean(), True, "Give faster brokers more of the records without keys (KIP-794)."
    )
    partitioner_availability_timeout_ms = Setting(
        integer(0, LONG_MAX),
        0,
        "Leave out partitions whose broker has taken nothing for so long; 0 for never. Without "
        "effect unless partitioner.adaptive.partitioning.enable (KIP-794).",
    )
    partitioner_rack_aware = Setting(
        boolean(),
        False,
        "Give records without keys to partitions whose leader is in client.rack, while there are "
        "any that take records (KIP-1123). Takes client.rack; no effect with a partitioner of "
        "your own.",
    )
    client_rack = Setting(
        string(), "", "Rack of this client, for partitioner.rack.aware (KIP-1123)."
    )
    interceptors: Setting[tuple[object, ...]] = Setting(
        object_list(), (), "Called for every record and its delivery.", key="interceptor.classes"
    )
    batch_size = Setting(
        integer(0),
        16_384,
        "A batch of one partition is sent when it has reached this size, which is that before "
        "compression. Java fills batches to the size that it expects after compression: for "
        "batches as large as Java's, raise it by the ratio.",
    )
    linger_ms = Setting(
        integer(0, LONG_MAX), 5, "How long a batch waits to be filled before it is sent."
    )
    buffer_memory = Setting(
        integer(0, LONG_MAX), 33_554_432, "Memory for records that are not delivered yet."
    )
    max_block_ms = Setting(
        integer(0, LONG_MAX), 60_000, "How long send may wait for memory or metadata."
    )
    max_request_size = Setting(
        integer(0), 1_048_576, "Largest request, and so largest record before compression."
    )
    max_in_flight_requests_per_connection = Setting(
        integer(1), 5, "Requests in flight that a connection may have."
    )
    retries = Setting(
        integer(0, INT_MAX), INT_MAX, "Further attempts at a request, within delivery_timeout_ms."
    )
    delivery_timeout_ms = Setting(
        integer(0),
        120_000,
        "Time from send to success or failure. At least linger_ms + request_timeout_ms: raised to "
        "that when it was not given.",
    )
    compression_type = Setting(
        choice({name: name for name in ("none", "gzip", "snappy", "lz4", "zstd")}),
        "none",
        "Codec of batches. zstd needs brokers from 2.1 (KIP-110).",
    )
    compression_gzip_level = Setting(
        integer(1, 9, also=-1), -1, "Effort of gzip; -1 leaves it to the codec (KIP-390)."
    )
    compression_lz4_level = Setting(integer(1, 17), 9, "Effort of lz4 (KIP-390).")
    compression_zstd_level = Setting(integer(-131_072, 22), 3, "Effort of zstd (KIP-390).")
    topic_settings = Setting(
        per_topic(
            compression_type,
            compression_gzip_level,
            compression_lz4_level,
            compression_zstd_level,
            linger_ms,
        ),
        {},
        "What is different for some topics: compression.type, its levels, and linger.ms, by the "
        "topic's name.",
        is_ours=True,
    )
    metadata_max_idle_ms = Setting(
        integer(5_000, LONG_MAX), 300_000, "A topic unused for so long is forgotten."
    )
    receive_buffer_bytes = ClientConfig.receive_buffer_bytes.with_default(32_768)

    def for_topic(self, topic: str) -> Self:
        """This config with what is different for a topic."""
        return self._with(**self.topic_settings.get(topic, {}))

    def _reconcile(self, given: Collection[str]) -> None:
        super()._reconcile(given)
        self._reconcile_idempotence("enable_idempotence" in given)
        self._reconcile_two_phase_commit("transaction_timeout_ms" in given)
        self._reconcile_delivery_timeout("delivery_timeout_ms" in given)
        if self.partitioner_rack_aware and not self.client_rack.strip():
            raise ConfigError(
                "partitioner.rack.aware=true needs client.rack: give the rack of this client, as "
                "brokers have it in broker.rack, or leave partitioner.rack.aware out."
            )
        if (
            self.partitioner_ignore_keys
            and isinstance(self.partitioner, str)
            and (self.partitioner in PARTITIONERS)
        ):
            raise ConfigError(
                f"partitioner.ignore.keys=true contradicts partitioner.class={self.partitioner}, "
                f"which says what keys are for. Leave one of them out."
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
                "transaction.two.phase.commit.enable=true is about transactions, and there is no "
                "transactional.id. Give one, or leave it out."
            )
        if has_timeout:
            raise ConfigError(
                f"transaction.timeout.ms={self.transaction_timeout_ms} contradicts "
                f"transaction.two.phase.commit.enable=true, with which transactions have no "
                f"time-out. Leave one of them out."
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
