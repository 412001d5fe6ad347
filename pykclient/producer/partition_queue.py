"""The batches of one partition that wait to be sent, and the queues of one topic.

Owner: a queue's `waiting` and `open` belong to its `lock`, its other fields to the sender thread;
the fields of a topic are replaced by the sender thread, and read by any.
Source: Java class ``RecordAccumulator``, ``TopicInfo`` therein.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from pykclient.accel import TopicAppenders
from pykclient.network.manager import NEVER_MS
from pykclient.producer.batch import Leader
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.producer.batch import ProducerBatch
    from pykclient.producer.partitioner import StickyPartition
    from pykclient.producer.record import RecordMetadata

__all__ = ["NO_LEADER", "PartitionQueue", "TopicQueues"]

NO_LEADER = Leader(None, None)


class PartitionQueue:
    """The batches of one partition that wait to be sent, the first one first.

    `lock` guards `waiting` and `open`, `append_lock` what is inside the open batch.
    """

    __slots__ = (
        "append_lock",
        "forced_serial",
        "in_flight_count",
        "key",
        "leader",
        "lock",
        "next_serial",
        "open",
        "timer_ms",
        "topic",
        "waiting",
    )

    def __init__(self, topic: TopicQueues, partition: int) -> None:
        self.topic = topic
        self.key = TopicPartition(topic.name, partition)
        self.lock = threading.Lock()
        self.append_lock = threading.Lock()
        self.open: ProducerBatch | None = None
        self.waiting: deque[ProducerBatch] = deque()
        self.next_serial = 0
        self.leader = NO_LEADER
        self.in_flight_count = 0
        self.forced_serial: tuple[int, ...] = ()
        """Batches up to this one are sent without waiting for company."""
        self.timer_ms = NEVER_MS
        """When the sender looks at the queue again."""

    def seal(self) -> None:
        """Close the open batch. Requires `lock`.

        An interrupt may come in between; the next one who comes along finishes it.
        """
        assert self.lock.locked()
        assert self.open is not None
        self.open.seal()
        self.open = None
        appenders = self.topic.appenders
        if self.key.partition < len(appenders.open):
            appenders.open[self.key.partition] = None


class TopicQueues:
    """One topic: its queues, and the appenders of its open batches for `send`."""

    __slots__ = (
        "appenders",
        "hash_keys",
        "is_known",
        "name",
        "queues",
        "sticky",
        "sticky_batch",
    )

    def __init__(self, name: str, *, hash_keys: bool) -> None:
        self.name = name
        self.hash_keys = hash_keys
        self.is_known = False
        self.queues: tuple[PartitionQueue, ...] = ()
        self.appenders: TopicAppenders[RecordMetadata] = TopicAppenders(0, hash_keys=hash_keys)
        self.sticky: StickyPartition
        self.sticky_batch: ProducerBatch | None = None
        """The batch that records without a key went to last."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has. There may be more queues, of partitions gone since."""
        return len(self.appenders.open)

    def resize(self, partition_count: int) -> None:
        """Make room for a changed number of partitions."""
        queues = list(self.queues)
        while len(queues) < partition_count:
            queues.append(PartitionQueue(self, len(queues)))
        self.queues = tuple(queues)
        # Replaced whole, since `send` reads it at any time. Its gaps are filled as batches begin.
        appenders: TopicAppenders[RecordMetadata] = TopicAppenders(
            partition_count, hash_keys=self.hash_keys
        )
        self.appenders = appenders
