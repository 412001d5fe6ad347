"""PartitionQueue, TopicQueues, TopicTable: waiting batches by partition and topic.

A topic is *known* while the metadata has it. A topic that leaves the metadata keeps its queues, in
which batches may wait, but accepts no records and has no leaders until it is back. Once all of its
queues are idle, the table drops it. A thread in the middle of `append` may still hold a dropped
topic; the table then takes that object back instead of creating a second one. A topic may have
thousands of partitions of which few are used: a queue is created when it is first needed.

Owner: `lock` guards a queue's `open`. An application thread appends to `waiting` under the lock;
the sender thread changes `waiting` otherwise, without it. The sender thread owns the other fields;
it replaces those of a topic whole, and any thread may read them.
Source: Java class ``RecordAccumulator``, ``TopicInfo`` therein.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from pykclient.accel import TopicAppenders
from pykclient.accel.key_rule import RANDOM
from pykclient.network.manager import NEVER_MS
from pykclient.producer.accumulator.batch import Batching, Leader, batch_size_bytes
from pykclient.producer.partitioner import PartitionLoad, StickyPartitioner, key_rule_of
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from random import Random

    from pykclient.network.cluster.cluster import Cluster, PartitionInfo, TopicInfo
    from pykclient.producer.accumulator.batch import ProducerBatch
    from pykclient.producer.config import ProducerConfig
    from pykclient.producer.record import RecordMetadata
    from pykclient.types import Node

NO_LEADER = Leader(None, None)


class Layout(NamedTuple):
    partitions: tuple[PartitionInfo, ...]
    nodes: Mapping[int, Node]


class PartitionQueue:
    """Batches of one partition that wait to be sent, oldest first.

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
        """Serial up to which batches are sent without lingering."""
        self.timer_ms = NEVER_MS
        """Time at which the sender looks at the queue again."""

    def seal(self) -> None:
        """Close the open batch. Requires `lock`.

        If an interrupt comes in between, the next caller completes it.
        """
        assert self.lock.locked()
        batch = self.open
        assert batch is not None
        batch.seal()
        appenders = self.topic.appenders
        if appenders.sticky is not None and batch.has_appender(appenders.sticky):
            appenders.sticky = None
            self.topic.sticky.on_batch(batch.size_bytes)
        self.open = None
        if self.key.partition < len(appenders.open):
            appenders.open[self.key.partition] = None

    @property
    def is_idle(self) -> bool:
        """True if no batch waits and no request carries one. Sender thread."""
        return not self.waiting and not self.in_flight_count

    def install(self, batch: ProducerBatch, *, is_sticky: bool) -> None:
        """Make the open batch available to the fast path of `send`. Requires `lock`."""
        topic, partition = self.topic, self.key.partition
        appenders = topic.appenders
        if partition < len(appenders.open):
            appenders.open[partition] = batch.appender
        # The sticky partition may have changed while the batch was filled without the lock.
        if is_sticky and topic.sticky.partition == partition:
            appenders.sticky = batch.appender


class _Queues(dict[int, PartitionQueue]):
    """Queues by partition, each created on first use. Any thread."""

    def __init__(self, topic: TopicQueues) -> None:
        super().__init__()
        self._topic = topic

    def __missing__(self, partition: int) -> PartitionQueue:
        queue = PartitionQueue(self._topic, partition, self._topic.leader(partition))
        return self.setdefault(partition, queue)  # another thread's, if it was first


class TopicQueues:
    """One topic: its queues, its partitioner, and the appenders of open batches."""

    __slots__ = (
        "__weakref__",
        "appenders",
        "batching",
        "is_known",
        "layout",
        "name",
        "queues",
        "sticky",
    )

    def __init__(self, name: str, sticky: StickyPartitioner, batching: Batching, turn: int) -> None:
        self.name = name
        self.batching = batching
        self.sticky = sticky
        self.is_known = False
        self.layout = Layout((), {})
        self.queues = _Queues(self)
        self.appenders: TopicAppenders[RecordMetadata]
        self.resize(0, turn)

    def leader(self, partition: int) -> Leader:
        """Return a partition's leader according to the metadata. Any thread."""
        partitions, nodes = self.layout
        if partition >= len(partitions):
            return NO_LEADER
        info = partitions[partition]
        return Leader(info.leader_id if info.leader_id in nodes else None, info.leader_epoch)

    def led_partitions(self) -> list[int]:
        """Return the partitions that have a leader, or all if none has."""
        partitions, nodes = self.layout
        led = [info.partition for info in partitions if info.leader_id in nodes]
        return led or [info.partition for info in partitions]

    def used_queues(self) -> list[PartitionQueue]:
        return list(self.queues.copy().values())

    def resize(self, partition_count: int, turn: int) -> None:
        # Replaced whole, since `send` reads it at any time. New batches fill its entries.
        self.appenders = TopicAppenders(partition_count, key_rule=self.sticky.key_rule, turn=turn)


class TopicTable:
    """Topics by name.

    The fast path of `send` finds appenders by topic in `fast_topics`; None closes that path.
    """

    def __init__(
        self,
        config: ProducerConfig,
        random: Random,
        fast_topics: dict[object, TopicAppenders[RecordMetadata]] | None,
    ) -> None:
        self.slow_node_ids: frozenset[int] = frozenset()
        """Nodes that accepted nothing for too long: sticky partitions avoid them (KIP-794)."""
        self._config = config
        self._key_rule = key_rule_of(config)
        # Created now, so that a codec without its library fails before anything is opened.
        self._batching = Batching.from_config(config)
        self._batching_of = {
            name: Batching.from_config(config.for_topic(name)) for name in config.topic_settings
        }
        self._random = random
        self._fast_topics = fast_topics
        self._is_closed = False
        self._topics: dict[str, TopicQueues] = {}
        self._let_go: WeakValueDictionary[str, TopicQueues] = WeakValueDictionary()
        """Dropped topics that a thread inside `append` still holds. A topic never has two objects:
        batches of the second could overtake those of the first."""

    def get(self, name: str) -> TopicQueues | None:
        """Return a topic, None if it is unknown. Any thread."""
        topic = self._topics.get(name)
        return topic if topic is not None and topic.is_known else None

    def next_choice(self, name: str) -> int:
        """Return the next partition, where each record chooses its own; -1 if the topic is unknown.

        Any thread.
        """
        topic = self.get(name)
        return -1 if topic is None else topic.appenders.next_choice()

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        """Return the queue of a partition that has batches. Sender thread."""
        return self._topics[partition.topic].queues[partition.partition]

    def find_queue(self, partition: TopicPartition) -> PartitionQueue | None:
        """Return the queue of a partition; None if its topic was dropped. Sender thread."""
        topic = self._topics.get(partition.topic)
        return None if topic is None else topic.queues[partition.partition]

    def keep(self, topic: TopicQueues) -> None:
        """Keep a topic that has a batch, even if it was dropped before. Sender thread."""
        kept = self._topics.setdefault(topic.name, topic)
        assert kept is topic, "two objects of a topic"

    def close(self) -> None:
        """Close the fast path of `send`, until `open`."""
        self._is_closed = True
        if self._fast_topics is not None:
            self._fast_topics.clear()

    def open(self) -> None:
        """Open the fast path of `send` again."""
        self._is_closed = False
        if self._fast_topics is not None:
            for topic in self._topics.values():
                if topic.is_known:
                    self._fast_topics[topic.name] = topic.appenders

    def on_cluster(self, cluster: Cluster, now_ms: int) -> Iterator[PartitionQueue]:
        """Update the topics' partitions; yield the queues whose leader may have changed."""
        for info in cluster.topics.values():
            if info.partitions:  # no broker should report a topic without any: it counts as unknown
                yield from self._update(info, cluster, now_ms)
        for topic in list(self._topics.values()):
            if topic.name in cluster.topics:
                continue
            if topic.is_known:
                # It idled too long, was deleted, or this broker does not know it for a moment.
                # Waiting batches keep their place and their sequence numbers.
                topic.is_known = False
                if self._fast_topics is not None:
                    self._fast_topics.pop(topic.name, None)
                topic.layout = Layout((), {})
                yield from topic.used_queues()
            if all(queue.is_idle for queue in topic.used_queues()):
                self._let_go[topic.name] = self._topics.pop(topic.name)

    def _update(self, info: TopicInfo, cluster: Cluster, now_ms: int) -> Iterator[PartitionQueue]:
        name = info.name
        topic = self._topics.get(name) or self._let_go.pop(name, None) or self._new_topic(name)
        partition_count = len(info.partitions)
        if partition_count != topic.sticky.partition_count:
            topic.resize(partition_count, topic.appenders.turn)
        layout = Layout(info.partitions, cluster.nodes)
        if layout != topic.layout:
            topic.layout = layout
            topic.appenders.choices = topic.led_partitions()
            yield from topic.used_queues()
        topic.sticky.on_partitions(partition_count, now_ms)
        topic.is_known = True
        self._topics[topic.name] = topic
        if self._fast_topics is not None and not self._is_closed:
            self._fast_topics[topic.name] = topic.appenders

    def _new_topic(self, name: str) -> TopicQueues:
        sticky = StickyPartitioner(
            lambda: self._loads(topic),
            switch_bytes=batch_size_bytes(self._config),
            is_adaptive=self._config.partitioner_adaptive_partitioning_enable,
            key_rule=self._key_rule,
            random=self._random,
        )
        # A counter begins at 0; the state of a xorshift must not be 0.
        turn = self._random.getrandbits(32) | 1 if self._key_rule & RANDOM else 0
        topic = TopicQueues(name, sticky, self._batching_of.get(name, self._batching), turn)
        return topic

    def _loads(self, topic: TopicQueues) -> list[PartitionLoad]:
        partitions, nodes = topic.layout
        used = topic.queues.get
        slow = self.slow_node_ids
        rack = self._config.client_rack if self._config.partitioner_rack_aware else None
        near = {node_id for node_id, node in nodes.items() if rack and node.rack == rack}
        loads = []
        for info in partitions:
            queue = used(info.partition)
            waiting_count = len(queue.waiting) if queue is not None else 0
            leader_id = info.leader_id
            loads.append(
                PartitionLoad(
                    info.partition,
                    waiting_count,
                    has_leader=leader_id in nodes,
                    is_slow=leader_id in slow,
                    is_near=leader_id in near,
                )
            )
        return loads
