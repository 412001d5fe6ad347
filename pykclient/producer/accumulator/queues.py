"""The batches of one partition that wait to be sent, and the queues of one topic.

Owner: a queue's `open` belongs to its `lock`. To `waiting` an application's thread adds at the
right, under the lock; all else with it the sender thread does, without. The other fields are the
sender thread's; those of a topic it replaces, and any may read.
Source: Java class ``RecordAccumulator``, ``TopicInfo`` therein.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pykclient.accel import TopicAppenders
from pykclient.network.manager import NEVER_MS
from pykclient.producer.accumulator.batch import Leader
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.network.cluster.cluster import PartitionInfo
    from pykclient.producer.accumulator.batch import ProducerBatch
    from pykclient.producer.partitioner import StickyPartition
    from pykclient.producer.record import RecordMetadata
    from pykclient.types import Node

__all__ = ["NO_LEADER", "Layout", "PartitionQueue", "TopicQueues"]

NO_LEADER = Leader(None, None)


class Layout(NamedTuple):
    """A topic's partitions in order, and the brokers that there are."""

    partitions: tuple[PartitionInfo, ...]
    nodes: Mapping[int, Node]


class PartitionQueue:
    """The batches of one partition that wait to be sent, the first one first.

    `lock` guards `open`, `append_lock` what is inside the open batch.
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

    def __init__(self, topic: TopicQueues, partition: int, leader: Leader = NO_LEADER) -> None:
        self.topic = topic
        self.key = TopicPartition(topic.name, partition)
        self.lock = threading.Lock()
        self.append_lock = threading.Lock()
        self.open: ProducerBatch | None = None
        self.waiting: deque[ProducerBatch] = deque()
        self.next_serial = 0
        self.leader = leader
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
        appenders = self.topic.appenders
        if appenders.sticky is not None and self.open.has_appender(appenders.sticky):
            appenders.sticky = None
        self.open = None
        if self.key.partition < len(appenders.open):
            appenders.open[self.key.partition] = None


class _Queues(dict[int, PartitionQueue]):
    """Queues by partition, each made when it is first looked for. Any thread."""

    def __init__(self, topic: TopicQueues) -> None:
        super().__init__()
        self._topic = topic

    def __missing__(self, partition: int) -> PartitionQueue:
        queue = PartitionQueue(self._topic, partition, self._topic.leader(partition))
        return self.setdefault(partition, queue)  # another thread's, if it came first


class TopicQueues:
    """One topic: its queues, and the appenders of its open batches for `send`.

    A topic may have thousands of partitions of which few are sent to.
    """

    __slots__ = (
        "appenders",
        "hash_keys",
        "is_known",
        "layout",
        "name",
        "queues",
        "sticky",
        "sticky_batch",
    )

    def __init__(self, name: str, *, hash_keys: bool) -> None:
        self.name = name
        self.hash_keys = hash_keys
        self.is_known = False
        self.layout = Layout((), {})
        self.queues = _Queues(self)
        self.appenders: TopicAppenders[RecordMetadata] = TopicAppenders(0, hash_keys=hash_keys)
        self.sticky: StickyPartition
        self.sticky_batch: ProducerBatch | None = None
        """The batch that records without a key went to last."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has. There may be more queues, of partitions gone since."""
        return len(self.appenders.open)

    def drop_sticky_batch(self, batch: ProducerBatch) -> None:
        """Count a batch that is done, if it was the last for records without a key."""
        if self.sticky_batch is batch:
            self.sticky_batch = None
            self.sticky.on_produced(batch.size_bytes)

    def leader(self, partition: int) -> Leader:
        """Return who leads a partition, as the metadata has it. Any thread."""
        partitions, nodes = self.layout
        if partition >= len(partitions):
            return NO_LEADER
        info = partitions[partition]
        return Leader(info.leader_id if info.leader_id in nodes else None, info.leader_epoch)

    def used_queues(self) -> list[PartitionQueue]:
        """Return the queues that there are by now."""
        return list(self.queues.copy().values())

    def resize(self, partition_count: int) -> None:
        """Make room for a changed number of partitions."""
        # Replaced whole, since `send` reads it at any time. Its gaps are filled as batches begin.
        appenders: TopicAppenders[RecordMetadata] = TopicAppenders(
            partition_count, hash_keys=self.hash_keys
        )
        self.appenders = appenders
