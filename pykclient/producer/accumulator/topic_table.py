"""TopicTable: the queues of all topics, as the cluster has them at present.

A topic is *known* once the metadata has it. One that it does not have any more keeps its queues, in
which batches may wait, but nothing is added and nobody leads them until it is back.

Owner: the sender thread; `get` may be called from any.
Source: Java class ``RecordAccumulator``; KIP-480, KIP-794 (sticky partitions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.producer.accumulator.queues import Layout, TopicQueues
from pykclient.producer.partitioner import PartitionLoad, StickyPartition

if TYPE_CHECKING:
    from random import Random

    from pykclient.accel import TopicAppenders
    from pykclient.network.cluster.cluster import Cluster, TopicInfo
    from pykclient.producer.accumulator.queues import PartitionQueue
    from pykclient.producer.accumulator.ready import ReadyQueues
    from pykclient.producer.record import RecordMetadata
    from pykclient.types import TopicPartition

__all__ = ["TopicTable"]


class TopicTable:
    """Topics by name.

    `switch_bytes` and `is_adaptive` are those of the sticky partitions. `fast_topics` is where
    `send` finds the appenders of a topic by itself; None when no record may take that way.
    """

    def __init__(
        self,
        ready: ReadyQueues,
        *,
        hash_keys: bool,
        switch_bytes: int,
        is_adaptive: bool,
        random: Random,
        fast_topics: dict[object, TopicAppenders[RecordMetadata]] | None,
    ) -> None:
        self.slow_node_ids: frozenset[int] = frozenset()
        """Nodes that have taken nothing for too long: sticky partitions avoid them (KIP-794)."""
        self._ready = ready
        self._hash_keys = hash_keys
        self._switch_bytes = switch_bytes
        self._is_adaptive = is_adaptive
        self._random = random
        self._fast_topics = fast_topics
        self._is_closed = False
        self._topics: dict[str, TopicQueues] = {}

    def get(self, name: str) -> TopicQueues | None:
        """Return a topic that is known, None if it is not. Any thread."""
        topic = self._topics.get(name)
        return topic if topic is not None and topic.is_known else None

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        """Return the queue of a partition that has had one."""
        return self._topics[partition.topic].queues[partition.partition]

    def close(self) -> None:
        """Let `send` find no appender any more."""
        self._is_closed = True
        if self._fast_topics is not None:
            self._fast_topics.clear()

    def on_cluster(self, cluster: Cluster, now_ms: int) -> None:
        """Learn the topics' partitions and leaders."""
        for info in cluster.topics.values():
            if info.partitions:  # a topic without any, which no broker should tell of, is unknown
                self._update(info, cluster, now_ms)
        for topic in self._topics.values():
            if topic.is_known and topic.name not in cluster.topics:
                # It has idled too long, was deleted, or this broker does not know it for a moment.
                # What waits keeps its place, and its sequence numbers.
                self._forget(topic, now_ms)

    def _update(self, info: TopicInfo, cluster: Cluster, now_ms: int) -> None:
        topic = self._topics.get(info.name) or self._new_topic(info.name)
        if len(info.partitions) != topic.partition_count:
            topic.resize(len(info.partitions))
        layout = Layout(info.partitions, cluster.nodes)
        if layout != topic.layout:
            self._lay_out(topic, layout, now_ms)
        topic.sticky.forget_loads()
        self._place_sticky(topic, now_ms)
        topic.is_known = True
        self._topics[topic.name] = topic
        if self._fast_topics is not None and not self._is_closed:
            self._fast_topics[topic.name] = topic.appenders

    def _forget(self, topic: TopicQueues, now_ms: int) -> None:
        topic.is_known = False
        if self._fast_topics is not None:
            self._fast_topics.pop(topic.name, None)
        self._lay_out(topic, Layout((), {}), now_ms)

    def _lay_out(self, topic: TopicQueues, layout: Layout, now_ms: int) -> None:
        topic.layout = layout
        for queue in topic.used_queues():
            self.follow(queue, now_ms)

    def _new_topic(self, name: str) -> TopicQueues:
        topic = TopicQueues(name, hash_keys=self._hash_keys)
        topic.sticky = StickyPartition(
            lambda: self._loads(topic),
            switch_bytes=self._switch_bytes,
            is_adaptive=self._is_adaptive,
            random=self._random,
        )
        return topic

    def _place_sticky(self, topic: TopicQueues, now_ms: int) -> None:
        """Have the sticky partition be one that there is."""
        # Without a lock: whoever switches at the same time draws one that there is as well.
        if not 0 <= topic.sticky.partition < topic.partition_count:
            topic.sticky.switch(now_ms)

    def _loads(self, topic: TopicQueues) -> list[PartitionLoad]:
        partitions, nodes = topic.layout
        slow = self.slow_node_ids
        led = [info for info in partitions if info.leader_id in nodes]
        usable = [info for info in led if info.leader_id not in slow] if slow else led
        used = topic.queues.get
        return [
            PartitionLoad(info.partition, len(queue.waiting) if queue is not None else 0)
            for info, queue in (
                (info, used(info.partition)) for info in usable or led or partitions
            )
        ]

    def follow(self, queue: PartitionQueue, now_ms: int) -> None:
        """Learn who leads a queue's partition, also when it was made a moment ago."""
        leader = queue.topic.leader(queue.key.partition)
        if leader != queue.leader:
            self._ready.remove(queue)
            queue.leader = leader
            self._ready.look_at(queue, now_ms)
