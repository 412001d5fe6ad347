"""ConsumerLog: what a consumer knows of topics, for planning a read.

Owner: whoever owns the consumer.
Source: Spark's Structured Streaming + Kafka Integration Guide (how options choose topics).
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from pykclient import TopicPartition
from pykclient.errors import ConfigError
from spark_connector.offsets import LogBounds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykclient import Consumer
    from spark_connector.options import TopicChoice

__all__ = ["ConsumerLog"]

_LOG = logging.getLogger(__name__)

_INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
"""Kafka's own topics. A pattern leaves them out; they can still be read by name."""


class ConsumerLog:
    """The partitions of the cluster that a consumer speaks to."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def partitions(self, choice: TopicChoice) -> list[TopicPartition]:
        """The partitions that exist and were chosen, in order.

        There are none when no topic matches the pattern.

        Raises: `ConfigError` when an assigned partition does not exist, and what
        `Consumer.partitions_for` raises, such as for a topic that does not exist.
        """
        if choice.partitions:
            return self._assigned(choice.partitions)
        if choice.pattern:
            return self._matching(choice.pattern)
        return sorted(partition for topic in choice.topics for partition in self._all_of(topic))

    def bounds(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, LogBounds]:
        """First and next offset of each partition, as the consumer's isolation level shows them."""
        beginnings = self._consumer.beginning_offsets(partitions)
        ends = self._consumer.end_offsets(partitions)
        return {
            partition: LogBounds(beginnings[partition], ends[partition]) for partition in partitions
        }

    def offsets_at(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """First offset at or after a time for each partition; None when there is none."""
        found = self._consumer.offsets_for_times(timestamps_ms)
        return {
            partition: None if first is None else first.offset for partition, first in found.items()
        }

    def _all_of(self, topic: str) -> list[TopicPartition]:
        return [
            TopicPartition(topic, info.partition) for info in self._consumer.partitions_for(topic)
        ]

    def _assigned(self, wanted: Sequence[TopicPartition]) -> list[TopicPartition]:
        for topic in dict.fromkeys(partition.topic for partition in wanted):
            existing = set(self._all_of(topic))
            missing = [str(one) for one in wanted if one.topic == topic and one not in existing]
            if missing:
                raise ConfigError(
                    f"Option 'assign' names {', '.join(missing)}, but topic {topic!r} has only "
                    f"{len(existing)} partitions, numbered from 0."
                )
        return sorted(wanted)

    def _matching(self, pattern: str) -> list[TopicPartition]:
        found = re.compile(pattern)
        partitions = [
            TopicPartition(topic, info.partition)
            for topic, infos in self._consumer.list_topics().items()
            if topic not in _INTERNAL_TOPICS and found.search(topic)
            for info in infos
        ]
        if not partitions:
            _LOG.warning("No topic has a name in which the pattern %r is found.", pattern)
        return sorted(partitions)
