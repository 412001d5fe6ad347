"""Topics that together hold all that a reader may meet, filled by another client.

Owner: the test that makes them.
"""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # It does not export them all.
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from pykclient.testing.clock import Deadline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.testing import KafkaCluster

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_MS: Final = 1_700_000_000_123
STEP_MS: Final = 1_000
RECORD_COUNT: Final = 10
"""In each partition that has any."""

COMPACTED_COUNT: Final = 24
COMPACTED_OFFSETS: Final = [7, *range(9, 14), 22, 23]
"""The last record of each of seven keys; of one key two, since the last one's segment is open."""

TIMEOUT_S: Final = 30.0
COMPACTION_TIMEOUT_S: Final = 120.0
"""A broker's cleaner is the last thread that a busy machine lets run."""

Headers = list[tuple[str, str | bytes | None]]

KINDS: Final[tuple[tuple[bytes | None, bytes | None, Headers | None], ...]] = (
    # Key, value, headers.
    (None, None, None),
    (b"", b"", [("", b"")]),
    (b"k", b"\x00\xff", [("name", b"x"), ("name", None), ("name", b"x")]),
    (None, b"v", [("caf\u00e9", b"\xff")]),
    (b"k", None, None),
    (b"key", b"compressible " * 100, [("one", None)]),
)


class EveryTopic(NamedTuple):
    """The names of the topics.

    `codecs` has a partition for each codec, with records of all `KINDS`. `plain` has two
    partitions of records a second apart. Of the two of `hollow` only the first has records. Those
    of `transactions` are committed, aborted, or, in the second partition, of an open transaction
    at the end. `compacted` has holes. The times of `appended` are the broker's. The heads of
    `headless` were deleted, of its second partition everything.
    """

    codecs: str
    plain: str
    hollow: str
    transactions: str
    compacted: str
    appended: str
    headless: str


class TopicMaker:
    """Makes and fills topics. `open_producers` hold transactions open as long as they live."""

    def __init__(self, kafka: KafkaCluster) -> None:
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": kafka.bootstrap_servers
        }
        self._admin = AdminClient(self._settings)
        self.open_producers: list[Producer] = []

    def every_topic(self) -> EveryTopic:
        compacted = self._compacted()
        made = EveryTopic(
            codecs=self.codecs(),
            plain=self.filled("plain", RECORD_COUNT, RECORD_COUNT),
            hollow=self.filled("hollow", RECORD_COUNT, 0),
            transactions=self.transactions(),
            compacted=compacted,
            appended=self.filled(
                "appended", RECORD_COUNT, **{"message.timestamp.type": "LogAppendTime"}
            ),
            headless=self._headless(),
        )
        self._await_compaction(compacted)
        return made

    def _new(self, stem: str, partition_count: int, config: Mapping[str, str]) -> str:
        topic = f"{stem}-{uuid.uuid4().hex[:8]}"
        wanted = NewTopic(topic, partition_count, 1, config={"retention.ms": "-1", **config})
        self._admin.create_topics([wanted])[topic].result(TIMEOUT_S)
        return topic

    def _producer(self, **settings: str | int) -> Producer:
        return Producer(
            self._settings | {name.replace("_", "."): settings[name] for name in settings}
        )

    def filled(self, stem: str, *counts: int, **config: str) -> str:
        """Create a topic with this many records in each partition, a second apart."""
        topic = self._new(stem, len(counts), config)
        producer = self._producer()
        for partition, count in enumerate(counts):
            for number in range(count):
                producer.produce(
                    topic,
                    b"%d" % number,
                    b"%d" % (number % 3),
                    partition=partition,
                    timestamp=FIRST_MS + number * STEP_MS,
                )
        _flush(producer)
        return topic

    def codecs(self) -> str:
        """Return a topic with a partition for each codec, of records of all `KINDS`."""
        topic = self._new("codecs", len(CODECS), {})
        for partition, codec in enumerate(CODECS):
            producer = self._producer(compression_type=codec)
            kinds = itertools.islice(itertools.cycle(KINDS), 2 * len(KINDS))
            for number, (key, value, headers) in enumerate(kinds):
                time_ms = FIRST_MS + number * STEP_MS
                producer.produce(
                    topic, value, key, partition=partition, headers=headers, timestamp=time_ms
                )
            _flush(producer)
        return topic

    def transactions(self) -> str:
        """Return a topic of committed and aborted records, that ends in an open transaction."""
        topic = self._new("transactions", 2, {})
        producer = self._producer(transactional_id=topic, transaction_timeout_ms=600_000)
        producer.init_transactions(TIMEOUT_S)
        for state in ("committed", "aborted", "committed", "aborted", "open"):
            producer.begin_transaction()
            for _ in range(4):
                producer.produce(topic, state, partition=1)
                if state != "open":
                    producer.produce(topic, state, partition=0)
            _flush(producer)
            if state == "committed":
                producer.commit_transaction(TIMEOUT_S)
            elif state == "aborted":
                producer.abort_transaction(TIMEOUT_S)
        self.open_producers.append(producer)
        return topic

    def _headless(self) -> str:
        topic = self.filled("headless", RECORD_COUNT, RECORD_COUNT)
        before = [TopicPartition(topic, 0, 4), TopicPartition(topic, 1, RECORD_COUNT)]
        for deletion in self._admin.delete_records(before).values():
            deletion.result(TIMEOUT_S)
        return topic

    def _compacted(self) -> str:
        """Create a topic with few keys, whose one-record segments may be compacted at once."""
        self._set_cleaner_pause(AlterConfigOpType.SET)
        config = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "1",
        }
        topic = self._new("compacted", 1, config)
        producer = self._producer(linger_ms=0)
        for number in range(COMPACTED_COUNT):
            # A batch that is that much younger begins a new segment.
            time_ms = FIRST_MS + number * STEP_MS
            key = b"%d" % (number % 7 if number < 14 else 1)
            producer.produce(topic, b"%d" % number, key, timestamp=time_ms)
            _flush(producer)
        return topic

    def _await_compaction(self, topic: str) -> None:
        """Return once only the last record of each key is left, beside the open segment's."""
        deadline = Deadline(COMPACTION_TIMEOUT_S)
        settings = {"group.id": topic, "enable.auto.commit": False}
        consumer = Consumer(self._settings | settings)
        try:
            while (left := _offsets(consumer, topic, COMPACTED_COUNT - 1)) != COMPACTED_OFFSETS:
                assert not deadline.has_passed(), f"the cleaner has left {left}"
        finally:
            consumer.close()
        self._set_cleaner_pause(AlterConfigOpType.DELETE)

    def _set_cleaner_pause(self, operation: AlterConfigOpType) -> None:
        """Set the pause of the brokers' cleaners to 100 ms, or back to its default."""
        entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=operation)
        brokers = [
            ConfigResource(ResourceType.BROKER, str(number), incremental_configs=[entry])
            for number in self._admin.list_topics(timeout=TIMEOUT_S).brokers
        ]
        for altered in self._admin.incremental_alter_configs(brokers).values():
            altered.result(TIMEOUT_S)


def _offsets(consumer: Consumer, topic: str, last: int) -> list[int]:
    """Return the offsets of all records of the first partition, up to `last`."""
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    while not found or found[-1] < last:
        record = consumer.poll(TIMEOUT_S)
        assert record is not None
        assert record.error() is None
        offset = record.offset()
        assert offset is not None
        found.append(offset)
    consumer.unassign()
    return found


def _flush(producer: Producer) -> None:
    assert producer.flush(TIMEOUT_S) == 0
