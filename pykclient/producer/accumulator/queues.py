"""The batches of one partition that wait to be sent; the queues of a topic; the topics.

A topic is *known* once the metadata has it. One that it does not have any more keeps its queues, in
which batches may wait, but nothing is added, and they have no leader, until it is back. Once all of
its queues are idle the table lets it go: only a thread in the middle of `append` may still hold it,
and then it is taken back rather than made a second time. A topic may have thousands of partitions
of which few are sent to: a queue is made when it is first needed.

Owner: a queue's `open` belongs to its `lock`. To `waiting` an application's thread adds at the
right, under the lock; all else with it the sender thread does, without. The other fields are the
sender thread's; those of a topic it replaces, and any may read.
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
        """Batches up to this one are sent without lingering."""
        self.timer_ms = NEVER_MS
        """When the sender looks at the queue again."""

    def seal(self) -> None:
        """Close the open batch. Requires `lock`.

        An interrupt may come in between; whoever comes next finishes it.
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
        """True if it has no batch, and none of its batches is in a request. Sender thread."""
        return not self.waiting and not self.in_flight_count

    def install(self, batch: ProducerBatch, *, is_sticky: bool) -> None:
        """Let `send` find the open batch by itself from now on. Requires `lock`."""
        topic, partition = self.topic, self.key.partition
        appenders = topic.appenders
        if partition < len(appenders.open):
            appenders.open[partition] = batch.appender
        # While a new batch was filled without the lock, the turn may have ended.
        if is_sticky and topic.sticky.partition == partition:
            appenders.sticky = batch.appender


class _Queues(dict[int, PartitionQueue]):
    """Queues by partition, each made when it is first looked for. Any thread."""

    def __init__(self, topic: TopicQueues) -> None:
        super().__init__()
        self._topic = topic

    def __missing__(self, partition: int) -> PartitionQueue:
        queue = PartitionQueue(self._topic, partition, self._topic.leader(partition))
        return self.setdefault(partition, queue)  # another thread's, if it came first


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
        """Return a partition's leader, as the metadata has it. Any thread."""
        partitions, nodes = self.layout
        if partition >= len(partitions):
            return NO_LEADER
        info = partitions[partition]
        return Leader(info.leader_id if info.leader_id in nodes else None, info.leader_epoch)

    def led_partitions(self) -> list[int]:
        """Return the partitions that have a leader; all if none has."""
        partitions, nodes = self.layout
        led = [info.partition for info in partitions if info.leader_id in nodes]
        return led or [info.partition for info in partitions]

    def used_queues(self) -> list[PartitionQueue]:
        return list(self.queues.copy().values())

    def resize(self, partition_count: int, turn: int) -> None:
        # Replaced whole, since `send` reads it at any time. Its gaps are filled as batches begin.
        self.appenders = TopicAppenders(partition_count, key_rule=self.sticky.key_rule, turn=turn)


class TopicTable:
    """Topics by name.

    `fast_topics` is where `send` finds the appenders of a topic by itself; None when no record may
    take that way.
    """

    def __init__(
        self,
        config: ProducerConfig,
        random: Random,
        fast_topics: dict[object, TopicAppenders[RecordMetadata]] | None,
    ) -> None:
        self.slow_node_ids: frozenset[int] = frozenset()
        """Nodes that have taken nothing for too long: sticky partitions avoid them (KIP-794)."""
        self._config = config
        self._key_rule = key_rule_of(config)
        # Made now: a codec's library that is missing shows before anything is opened.
        self._batching = Batching.from_config(config)
        self._batching_of = {
            name: Batching.from_config(config.for_topic(name)) for name in config.topic_settings
        }
        self._random = random
        self._fast_topics = fast_topics
        self._is_closed = False
        self._topics: dict[str, TopicQueues] = {}
        self._let_go: WeakValueDictionary[str, TopicQueues] = WeakValueDictionary()
        """Topics that the table needs no longer, while a thread that was in `append` holds one.
        There is never a second object for a topic, whose batches could overtake the first's."""

    def get(self, name: str) -> TopicQueues | None:
        """Return a topic that is known, None if it is not. Any thread."""
        topic = self._topics.get(name)
        return topic if topic is not None and topic.is_known else None

    def next_choice(self, name: str) -> int:
        """Return the next partition where each record has one of its own; -1 if the topic is not
        known. Any thread."""
        topic = self.get(name)
        return -1 if topic is None else topic.appenders.next_choice()

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        """Return the queue of a partition that has batches. Sender thread."""
        return self._topics[partition.topic].queues[partition.partition]

    def find_queue(self, partition: TopicPartition) -> PartitionQueue | None:
        """Return the queue of a partition; None if its topic was let go. Sender thread."""
        topic = self._topics.get(partition.topic)
        return None if topic is None else topic.queues[partition.partition]

    def keep(self, topic: TopicQueues) -> None:
        """Keep a topic that has a batch, also if it was let go before that came. Sender thread."""
        kept = self._topics.setdefault(topic.name, topic)
        assert kept is topic, "two objects of a topic"

    def close(self) -> None:
        """Let `send` find no appender any more, until `open`."""
        self._is_closed = True
        if self._fast_topics is not None:
            self._fast_topics.clear()

    def open(self) -> None:
        """Let `send` find appenders again."""
        self._is_closed = False
        if self._fast_topics is not None:
            for topic in self._topics.values():
                if topic.is_known:
                    self._fast_topics[topic.name] = topic.appenders

    def on_cluster(self, cluster: Cluster, now_ms: int) -> Iterator[PartitionQueue]:
        """Take over the topics' partitions; yield the queues whose leader may be another one."""
        for info in cluster.topics.values():
            if info.partitions:  # a topic without any, which no broker should report, is unknown
                yield from self._update(info, cluster, now_ms)
        for topic in list(self._topics.values()):
            if topic.name in cluster.topics:
                continue
            if topic.is_known:
                # It has idled too long, was deleted, or this broker does not know it for a moment.
                # What waits keeps its place, and its sequence numbers.
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
        # A counter begins at 0, the state of a xorshift never does.
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
