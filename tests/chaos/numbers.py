"""Records that are numbers: partition p of n has p, p + n, p + 2n, ..., in this order.

They are read by librdkafka, which shares no code with the clients under test, and during the run by
`CommittedReader`.

Owner: the calling thread; a `CommittedReader` has its own, and any thread may read its counts.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Self, cast

import confluent_kafka
from confluent_kafka.cimpl import OFFSET_BEGINNING

from pykclient import Consumer, Producer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

Numbers = dict[int, list[int]]
"""Numbers by partition, in log order."""

TIMEOUT_S: Final = 120.0
POLL_S: Final = 0.2
BATCH: Final = 10_000


def numbers_of(partition_count: int, count: int) -> Numbers:
    """Return the numbers below `count`, by partition."""
    return {
        partition: list(range(partition, count, partition_count))
        for partition in range(partition_count)
    }


def write_numbers(servers: str, topic: str, partition_count: int, count: int) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % partition_count)


def read_numbers(
    servers: str, topic: str, partition_count: int, *, is_committed_only: bool = True
) -> Numbers:
    """Read the current contents of a topic, with aborted records unless `is_committed_only`.

    Raises:
        AssertionError: an open transaction hides the end, or reading takes too long.
    """
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": "read_committed" if is_committed_only else "read_uncommitted",
        }
    )
    found: Numbers = {partition: [] for partition in range(partition_count)}
    unfinished = set(found)
    deadline_s = time.monotonic() + TIMEOUT_S
    try:
        consumer.assign(
            [confluent_kafka.TopicPartition(topic, each, OFFSET_BEGINNING) for each in found]
        )
        while unfinished:
            assert time.monotonic() < deadline_s, f"partitions {unfinished} of {topic} have no end"
            for message in consumer.consume(BATCH, timeout=POLL_S):
                partition = cast("int", message.partition())
                if (error := message.error()) is None:
                    found[partition].append(int(cast("bytes", message.value())))
                else:
                    assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                    unfinished.discard(partition)
    finally:
        consumer.close()
    return found


class CommittedReader:
    """Reads committed records of topics as they arrive; a context manager."""

    def __init__(self, servers: str, topics: Sequence[str], partition_count: int) -> None:
        self.found: dict[str, Numbers] = {
            topic: {partition: [] for partition in range(partition_count)} for topic in topics
        }
        self.errors: list[Exception] = []
        self._servers = servers
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the reader does not end"

    def count(self, topic: str) -> int:
        """Return the number of records read from a topic."""
        return sum(map(len, self.found[topic].values()))

    def _run(self) -> None:
        with Consumer(
            bootstrap_servers=self._servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            on_stall="log",
        ) as consumer:
            consumer.assign(
                TopicPartition(topic, partition)
                for topic, partitions in self.found.items()
                for partition in partitions
            )
            try:
                while not self._is_over.is_set():
                    for record in consumer.poll(POLL_S):
                        assert record.value is not None
                        self.found[record.topic][record.partition].append(int(record.value))
            except Exception as error:  # noqa: BLE001 - raised to those who wait
                self.errors.append(error)
