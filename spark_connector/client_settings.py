"""ClientSettings: the ``kafka.*`` options, as settings of the client that needs them.

One dictionary of options may serve a whole pipeline, so a setting that only another client has is
left out with a warning; one that no client has goes to the client, which refuses it by name.
Values never appear in `repr`, since secrets are among them.

Owner: none, it is immutable.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pykclient.admin.config import AdminConfig
from pykclient.config.unknown_keys import clients_with, underscored
from pykclient.consumer.config import ConsumerConfig
from pykclient.errors import ConfigError
from pykclient.producer.config import ProducerConfig
from spark_connector.java_partitioners import partitioner_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.config.client import ClientConfig

_LOG = logging.getLogger(__name__)

CLIENT_PREFIX: Final = "kafka."
_CLIENTS: Final = (ConsumerConfig, ProducerConfig, AdminConfig)

REFUSED_BY_READS: Final = {
    "auto.offset.reset": "Where to start is startingOffsets, and failOnDataLoss what happens when "
    "records are gone.",
    "key.deserializer": "Keys are bytes: decode the column.",
    "value.deserializer": "Values are bytes: decode the column.",
    "enable.auto.commit": "Spark's checkpoint keeps the offsets; commitGroup shows them to others.",
    "interceptor.classes": "Interceptors could change records: leave it out.",
    "on_record_error": "failOnDataLoss says what becomes of a batch that cannot be read.",
}
REFUSED_BY_WRITES: Final = {
    "transactional.id": "Tasks that share an id fence each other: leave it out. With "
    "delivery=exactly_once the sink makes ids, from sinkId.",
    "key.serializer": "Keys are written as they are: cast the column to string or binary.",
    "value.serializer": "Values are written as they are: cast the column to string or binary.",
}

TRANSACTION_SETTINGS: Final = ("transaction.timeout.ms",)
"""Transaction settings, which only exactly-once writes have."""
IDLE_SETTINGS: Final = ("group.id", *TRANSACTION_SETTINGS)
"""Settings that Spark's own source and sink accept and that have no effect here.

Reads have no group, and writes no transaction.
"""
TRANSACTION_TIMEOUT_MS: Final = 900_000
"""Default transaction timeout of an exactly-once sink.

It is the time in which a failed driver has to come back; brokers allow no more by default
(``transaction.max.timeout.ms``).
"""

TWO_PHASES: Final = "transaction.two.phase.commit.enable"
"""The setting with which a transaction never times out on the brokers (KIP-939)."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings that the user gave with the prefix ``kafka.``, without it."""

    given: Mapping[str, str]

    def check(self, refused: Mapping[str, str]) -> None:
        """Raise `ConfigError` for a setting in `refused`, with its advice, or without brokers."""
        for key, advice in refused.items():
            if (spelling := self.spelling_of(key)) is not None:
                raise ConfigError(f"Option 'kafka.{spelling}' cannot be used. {advice}")
        if self.spelling_of("bootstrap.servers") is None:
            raise ConfigError(
                "Option 'kafka.bootstrap.servers' is missing: give broker addresses such as "
                "'kafka1:9092,kafka2:9092'."
            )

    def of(self, client: type[ClientConfig]) -> dict[str, object]:
        """Return the settings of this client and the unknown ones, without idle settings."""
        found: dict[str, object] = {}
        idle = [self.spelling_of(key) for key in IDLE_SETTINGS]
        for spelling, value in self.given.items():
            if spelling in idle:
                continue
            owners = clients_with(underscored(spelling))
            if owners and client.client not in owners:
                _LOG.info("Option 'kafka.%s' has no effect on the %s.", spelling, client.client)
            else:
                found[spelling] = value
        return found

    def of_producer(self, *, is_transactional: bool = False) -> dict[str, object]:
        """Return the producer's settings, including those that replace one of Java's partitioners.

        Raises: `ConfigError` for a Java class that has no equivalent here, and for a
        transaction.timeout.ms that is not a number, even where it has no effect.
        """
        timeout = self.spelling_of("transaction.timeout.ms")
        if timeout is not None and not self.given[timeout].strip().isdecimal():
            raise ConfigError(
                f"Option 'kafka.{timeout}' must be an integer, not {self.given[timeout][:100]!r}."
            )
        settings = self.of(ProducerConfig)
        if is_transactional:
            settings |= self._of_transactions(timeout)
        if self.spelling_of("send.buffer.bytes") is None:
            # The system's own grows with what is sent: Kafka's 128 KiB hold half a batch.
            settings["send.buffer.bytes"] = -1
        spelling = self.spelling_of("partitioner.class")
        if spelling is not None:
            found = partitioner_settings(self.given[spelling])
            if found is not None:
                del settings[spelling]
                for key, value in found.items():
                    settings[self.spelling_of(key) or key] = value
        return settings

    def _of_transactions(self, timeout: str | None) -> dict[str, object]:
        if timeout is not None:
            return {timeout: self.given[timeout]}
        two_phases = self.spelling_of(TWO_PHASES)
        if two_phases is not None and self.given[two_phases].strip().lower() == "true":
            return {}  # such a transaction has no time-out
        return {"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}

    def of_sink_driver(self) -> dict[str, object]:
        """Return the settings of the producer that writes a sink's record, in its own transactions.

        These transactions are short, and no other process ends them, so the user's settings for the
        tasks' transactions do not apply.
        """
        settings = self.of_producer()
        for name in (TWO_PHASES, *TRANSACTION_SETTINGS):
            settings.pop(self.spelling_of(name) or "", None)
        return settings

    def spelling_of(self, key: str) -> str | None:
        """Return the user's spelling of a key, in any spelling that a client accepts, or None."""
        names = {underscored(key)}
        for client in _CLIENTS:
            if (setting := client.setting_of(key)) is not None:
                names |= {setting.name, underscored(setting.key)}
        return next((given for given in self.given if underscored(given) in names), None)

    def __repr__(self) -> str:
        return f"ClientSettings({sorted(self.given)})"
