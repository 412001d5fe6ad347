"""FirstRecords: time and size of the first records of a range of a log.

Brokers have no index of bytes by offset. A few records from the beginning are therefore read and
stand for the rest: for lag in seconds and bytes, and for `maxBytesPerTrigger`.

Owner: none, all values are immutable.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient import Consumer, TopicPartition
from pykclient.consumer.config import ConsumerConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.consumer.record import ConsumerRecord

SAMPLE_RECORDS: Final = 100
"""Number of records read of one partition."""

SAMPLE_BYTES: Final = 64 * 1024
"""Number of bytes fetched of one partition; a broker sends a whole batch even if it is larger."""


class FirstRecords(NamedTuple):
    """Time and size of the first records of a range.

    `timestamp_ms` is the time of the first record. `bytes_per_offset` is the size of keys, values
    and headers, without compression, for each offset; gaps from compaction count.
    """

    timestamp_ms: int
    bytes_per_offset: float


def first_records(
    settings: Mapping[str, object],
    parts: Mapping[TopicPartition, tuple[int, int]],
    timeout_s: float,
) -> dict[TopicPartition, FirstRecords]:
    """Read the beginning of each part: a first offset, and the one after its last.

    Parts without records, or whose records do not arrive in time, are left out.

    Raises: what `Consumer.poll` raises, for example for a damaged batch.
    """
    size = ConsumerConfig.setting_of("max.partition.fetch.bytes")
    narrow = {
        key: value for key, value in settings.items() if ConsumerConfig.setting_of(key) is not size
    }
    narrow["max.partition.fetch.bytes"] = SAMPLE_BYTES
    samples = {partition: _Sample(start) for partition, (start, _) in parts.items()}
    with Consumer(narrow) as consumer:
        consumer.assign(parts)
        for partition, (start, _) in parts.items():
            consumer.seek(partition, start)
        deadline = time.monotonic() + timeout_s
        while unread := _unread(consumer, parts, samples):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            # Another partition comes first in the next response.
            consumer.pause(parts.keys() - unread)
            for record in consumer.poll(left_s, max_records=SAMPLE_RECORDS):
                samples[TopicPartition(record.topic, record.partition)].add(record)
    return {
        partition: FirstRecords(sample.timestamp_ms, sample.byte_count / sample.offset_count)
        for partition, sample in samples.items()
        if sample.timestamp_ms is not None
    }


def _unread(
    consumer: Consumer,
    parts: Mapping[TopicPartition, tuple[int, int]],
    samples: Mapping[TopicPartition, _Sample],
) -> set[TopicPartition]:
    """Return the partitions that are not at the end of their part and have a small sample."""
    return {
        partition
        for partition, (_, end) in parts.items()
        if samples[partition].record_count < SAMPLE_RECORDS and consumer.position(partition) < end
    }


class _Sample:
    """The records that were read of one partition."""

    def __init__(self, start: int) -> None:
        self._start = start
        self.timestamp_ms: int | None = None
        self.record_count = 0
        self.offset_count = 0
        self.byte_count = 0

    def add(self, record: ConsumerRecord) -> None:
        if self.timestamp_ms is None:
            self.timestamp_ms = record.timestamp_ms
        self.record_count += 1
        self.offset_count = record.offset + 1 - self._start
        self.byte_count += len(record.key or b"") + len(record.value or b"")
        self.byte_count += sum(len(key) + len(value or b"") for key, value in record.headers)
