"""Topics of a fake cluster: their partitions, replicas and settings.

Owner: the cluster.
Source: Kafka's topic configuration; Java classes ``Topic``, ``ReplicationControlManager``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pykclient.testing.fake.log import LogSettings, PartitionLog
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from pykclient.testing.fake.storage import Storage

NO_LEADER = -1
NAME_LENGTH_MAX = 249

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class Partition:
    """A partition: its leader, its replicas and its log.

    `replica_ends` maps each replica to the offset up to which it has copied the leader's log.
    """

    def __init__(self, name: TopicPartition, replicas: Sequence[int], log: PartitionLog) -> None:
        self.name = name
        self.replicas = tuple(replicas)
        self.isr = list(replicas)
        self.leader_id = replicas[0]
        self.leader_epoch = log.last_epoch
        self.log = log
        self.replica_ends = dict.fromkeys(replicas, log.log_end_offset)

    @property
    def followers(self) -> list[int]:
        """Replicas other than the leader."""
        return [replica for replica in self.replicas if replica != self.leader_id]


class Topic:
    """A topic; `storage` holds what was kept of its partitions."""

    def __init__(
        self,
        name: str,
        topic_id: UUID,
        assignments: Sequence[Sequence[int]],
        *,
        config: Mapping[str, str],
        storage: Storage,
    ) -> None:
        self.name = name
        self.topic_id = topic_id.bytes
        self.config = dict(config)
        self._storage = storage
        self.min_insync_replicas = min_insync_replicas(config)
        """None for the cluster's default."""
        self.partitions: list[Partition] = []
        self.grow(assignments)

    def configure(self, config: Mapping[str, str]) -> None:
        """Replace the settings; the logs apply them from now on, existing segments stay.

        Raises:
            ValueError: a numeric setting is not a number.
        """
        settings, replicas = log_settings(config), min_insync_replicas(config)
        self.config, self.min_insync_replicas = dict(config), replicas
        for partition in self.partitions:
            partition.log.settings = settings
        self._keep()

    def grow(self, assignments: Sequence[Sequence[int]]) -> list[Partition]:
        """Add partitions with these replicas and return them."""
        settings = log_settings(self.config)
        added = []
        for number, replicas in enumerate(assignments, len(self.partitions)):
            name = TopicPartition(self.name, number)
            log = PartitionLog(settings, self._storage.log_store(name), name)
            added.append(Partition(name, replicas, log))
        self.partitions += added
        self._keep()
        return added

    def _keep(self) -> None:
        self._storage.on_topic(
            self.name,
            self.topic_id,
            [partition.replicas for partition in self.partitions],
            self.config,
        )

    @property
    def is_compacted(self) -> bool:
        """True if the cleaner compacts its logs."""
        return log_settings(self.config).is_compacted

    @property
    def is_internal(self) -> bool:
        """True for one of Kafka's internal topics."""
        return self.name.startswith("__")


def is_valid_name(name: str) -> bool:
    """Return whether Kafka accepts it as a topic name."""
    if name in (".", "..") or len(name) > NAME_LENGTH_MAX:
        return False
    return _NAME.fullmatch(name) is not None


def colliding_name(name: str, others: Iterable[str]) -> str | None:
    """Return a name that differs only in dots and underscores, or None.

    Kafka refuses such a topic, because the metrics of both would have the same name.
    """
    unified = name.replace(".", "_")
    return next((o for o in others if o != name and o.replace(".", "_") == unified), None)


def log_settings(config: Mapping[str, str]) -> LogSettings:
    """Return a topic's settings for its logs. Raises ValueError if a number is invalid.

    Settings that only concern a real broker's disk have no effect.
    """
    defaults = LogSettings()
    policies = config.get("cleanup.policy", "delete").replace(" ", "").split(",")
    return LogSettings(
        segment_bytes=_number(config, "segment.bytes", defaults.segment_bytes),
        max_message_bytes=_number(config, "max.message.bytes", defaults.max_message_bytes),
        retention_ms=_number(config, "retention.ms", defaults.retention_ms),
        retention_bytes=_number(config, "retention.bytes", defaults.retention_bytes),
        is_log_append_time=config.get("message.timestamp.type") == "LogAppendTime",
        segment_ms=_number(config, "segment.ms", defaults.segment_ms),
        is_deleted="delete" in policies,
        is_compacted="compact" in policies,
        min_cleanable_dirty_ratio=_fraction(
            config, "min.cleanable.dirty.ratio", defaults.min_cleanable_dirty_ratio
        ),
        min_compaction_lag_ms=_number(
            config, "min.compaction.lag.ms", defaults.min_compaction_lag_ms
        ),
        max_compaction_lag_ms=_number(
            config, "max.compaction.lag.ms", defaults.max_compaction_lag_ms
        ),
        delete_retention_ms=_number(config, "delete.retention.ms", defaults.delete_retention_ms),
    )


def min_insync_replicas(config: Mapping[str, str]) -> int | None:
    """Return the topic's min.insync.replicas, None if unset. Raises ValueError if invalid."""
    key = "min.insync.replicas"
    return _number(config, key, 0) if key in config else None


def _fraction(config: Mapping[str, str], key: str, default: float) -> float:
    value = config.get(key)
    try:
        return default if value is None else float(value)
    except ValueError as error:
        raise ValueError(f"{key} is {value!r}, which is not a number") from error


def _number(config: Mapping[str, str], key: str, default: int) -> int:
    value = config.get(key)
    try:
        return default if value is None else int(value)
    except ValueError as error:
        raise ValueError(f"{key} is {value!r}, which is not a whole number") from error
