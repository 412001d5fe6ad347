"""Consumers of group ``g`` that assign partitions by hand, and what they read.

Owner: the test that made them.
"""

from __future__ import annotations

from pykclient import Consumer, Producer, TopicPartition

__all__ = [
    "COUNT",
    "FETCH_WAIT_MS",
    "P0",
    "P1",
    "TIMEOUT_S",
    "committed",
    "read",
    "reader",
    "write",
]

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
COUNT = 100
TIMEOUT_S = 30.0
FETCH_WAIT_MS = 20_000
"""Longer than any call here may take: who waits for a fetch is found out."""


def write(servers: str, topic: str, partition_count: int, count: int = COUNT) -> None:
    """Write records to the partitions in turn."""
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % partition_count)


def reader(servers: str, *partitions: TopicPartition, **settings: object) -> Consumer:
    """A consumer of group ``g`` that reads these partitions."""
    given = {"group_id": "g", "auto_offset_reset": "earliest", **settings}
    consumer = Consumer(bootstrap_servers=servers, **given)
    consumer.assign(partitions)
    return consumer


def committed(servers: str, *partitions: TopicPartition) -> list[int | None]:
    """How far group ``g`` has come."""
    with reader(servers, enable_auto_commit=False) as consumer:
        found = consumer.committed(partitions or [P0, P1]).values()
    return [each and each.offset for each in found]


def read(consumer: Consumer, count: int) -> None:
    """Poll until there were so many records."""
    while count > 0:
        count -= len(consumer.poll(TIMEOUT_S, max_records=count))
