"""Cluster: the topics of one cluster and the offsets that their partitions hold, for planning.

The driver has one for a batch plan, and one for the life of a stream. Topics come from `Admin`,
which reports a missing one at once and knows topic ids; offsets come from `Consumer`. A request
that fails is repeated (`Retries`).

Owner: one planning process of the driver.
Source: Spark's Structured Streaming + Kafka Integration Guide (how options choose topics).
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient import Admin, Consumer, TopicPartition
from pykclient.errors import ConfigError, UnknownTopicOrPartitionError
from spark_connector.first_records import first_records
from spark_connector.offsets import LogBounds
from spark_connector.retries import Retries
from spark_connector.topic_pattern import found_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pykclient.admin.topics import TopicDescription
    from spark_connector.first_records import FirstRecords
    from spark_connector.options import KafkaOptions, TopicChoice

_LOG = logging.getLogger(__name__)

_INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
"""Kafka's own topics. A pattern leaves them out; they can still be read by name."""

FIRST_RESPONSE_S_MAX: Final = 10.0
"""Maximum time until brokers respond for the first time, where the user has set neither
``default.api.timeout.ms`` nor ``fetchOffset.numRetries``: a wrong address fails soon."""

FIRST_RECORDS_S_MAX: Final = 5.0
"""Maximum time that planning one batch waits for the records that show the size of others."""


class ChosenTopics(NamedTuple):
    """The partitions that exist and were chosen, in order, and the ids of their topics.

    `missing` has the topics and partitions that the options name and brokers do not list.
    """

    partitions: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, bytes | None]
    missing: tuple[str | TopicPartition, ...] = ()


class Cluster:
    """The cluster that the options name. Nothing is connected before the first call.

    `retries` are those of the options; `sleep`, for tests, takes the seconds of their pauses.
    """

    def __init__(self, options: KafkaOptions, sleep: Callable[[float], None] = time.sleep) -> None:
        limits = options.stream
        self.retries = Retries(
            limits.offset_retries,
            limits.offset_retry_ms,
            is_given=limits.are_offset_retries_given,
            sleep=sleep,
        )
        is_time_given = options.client.spelling_of("default.api.timeout.ms") is not None
        self._first_timeout_s = (
            None if is_time_given or self.retries.is_given else FIRST_RESPONSE_S_MAX
        )
        self._choice = options.choice
        self._uncommitted_settings = options.uncommitted_settings()
        self._settings = options.consumer_settings()
        self._unchecked_topic = options.dead_letters_topic
        with ExitStack() as opened:
            self._consumer = opened.enter_context(Consumer(self._settings))
            self._admin = opened.enter_context(Admin(options.admin_settings()))
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Close both clients."""
        self._opened.close()

    def topics(self, *, missing_ok: bool = False) -> ChosenTopics:
        """Return the existing partitions that the options select.

        There are none if no topic matches the pattern. With `missing_ok` topics and partitions that
        do not exist are left out, and listed in `missing` if the options name them.

        Raises: `ConfigError` if an assigned partition does not exist,
        `UnknownTopicOrPartitionError` if a topic or the dead-letter topic does not, and what
        `Admin` raises.
        """
        return self.retries.call(lambda: self._topics(missing_ok=missing_ok))

    def _topics(self, *, missing_ok: bool) -> ChosenTopics:
        choice = self._choice
        self._check_dead_letters()
        if choice.pattern:
            names = self._matching(choice.pattern)
        else:
            names = choice.topics or tuple({one.topic: None for one in choice.partitions})
        described = self._described(names, missing_ok=missing_ok or bool(choice.pattern))
        existing = {
            TopicPartition(topic, info.partition)
            for topic, description in described.items()
            for info in description.partitions
        }
        if choice.partitions and not missing_ok:
            _check_assigned(choice, existing)
        chosen = existing.intersection(choice.partitions) if choice.partitions else existing
        # Metadata of what is not assigned are requested with each call.
        self._consumer.assign(chosen)
        return ChosenTopics(
            tuple(sorted(chosen)),
            {topic: description.topic_id for topic, description in described.items()},
            (
                *(name for name in choice.topics if name not in described),
                *(one for one in choice.partitions if one not in existing),
            ),
        )

    def bounds(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogBounds]:
        """Return first and next offset of each partition of `ends`, as its isolation level shows.

        If it hides records before an end, the high watermark is looked up as well.
        """
        found = self.retries.call(lambda: log_bounds(self._consumer, ends))
        hidden = [partition for partition, held in found.items() if ends[partition] > held.end]
        if not hidden or self._uncommitted_settings is None:
            return found
        with Consumer(self._uncommitted_settings) as consumer:
            for partition, watermark in consumer.end_offsets(hidden).items():
                found[partition] = found[partition]._replace(high_watermark=watermark)
        return found

    def beginnings(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset that each partition holds."""
        return self.retries.call(lambda: self._consumer.beginning_offsets(partitions))

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record of each partition."""
        return self.retries.call(lambda: self._consumer.end_offsets(partitions))

    def first_records(
        self, parts: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, FirstRecords]:
        """Read the first records of parts, as far as they arrive within `FIRST_RECORDS_S_MAX`."""
        return first_records(self._settings, parts, FIRST_RECORDS_S_MAX)

    def offsets_at(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after a time for each partition, None if there is none."""
        found = self.retries.call(lambda: self._consumer.offsets_for_times(timestamps_ms))
        return {
            partition: None if first is None else first.offset for partition, first in found.items()
        }

    def committed(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return a consumer group's committed offsets, without partitions that have none."""
        found = self.retries.call(
            lambda: self._admin.list_group_offsets(group, partitions, require_stable=True)
        )
        return {partition: committed.offset for partition, committed in found.items()}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a group that has no members."""
        self._admin.alter_group_offsets(group, offsets)

    def _matching(self, pattern: str) -> tuple[str, ...]:
        names = [name for name in self._listed() if name not in _INTERNAL_TOPICS]
        chosen = found_in(pattern, names)
        if not chosen:
            _LOG.warning("No topic has a name in which the pattern %r is found.", pattern)
        return tuple(sorted(chosen))

    def _described(
        self, names: Iterable[str], *, missing_ok: bool
    ) -> Mapping[str, TopicDescription]:
        existing = tuple(names)
        if missing_ok and existing:
            listed = self._listed()
            existing = tuple(name for name in existing if name in listed)
        if not existing:
            return {}
        try:
            found = self._admin.describe_topics(existing, self._first_timeout_s)
        except UnknownTopicOrPartitionError:
            if not missing_ok:
                raise
            # Deleted since it was listed.
            return self._described(existing, missing_ok=True)
        self._first_timeout_s = None
        return found

    def _check_dead_letters(self) -> None:
        """Check once that the dead-letter topic exists, before a task needs it."""
        if self._unchecked_topic and not self._described([self._unchecked_topic], missing_ok=True):
            raise UnknownTopicOrPartitionError(
                f"Topic {self._unchecked_topic!r} (option deadLettersTopic) does not exist: create "
                f"it."
            )
        self._unchecked_topic = ""

    def _listed(self) -> Collection[str]:
        found = self._admin.list_topics(self._first_timeout_s, include_internal=True)
        self._first_timeout_s = None
        return found


def log_bounds(
    consumer: Consumer, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, LogBounds]:
    """Return first and next offset of each partition, as the isolation level shows them."""
    beginnings = consumer.beginning_offsets(partitions)
    ends = consumer.end_offsets(partitions)
    return {
        partition: LogBounds(beginnings[partition], ends[partition]) for partition in partitions
    }


def _check_assigned(choice: TopicChoice, existing: Collection[TopicPartition]) -> None:
    missing = [str(one) for one in choice.partitions if one not in existing]
    if missing:
        topics = {one.topic for one in choice.partitions if one not in existing}
        counts = {
            topic: sum(other.topic == topic for other in existing) for topic in sorted(topics)
        }
        has = ", ".join(f"topic {topic!r} has only {count}" for topic, count in counts.items())
        raise ConfigError(
            f"Option 'assign' names {', '.join(missing)}, but {has} partitions, numbered from 0."
        )
