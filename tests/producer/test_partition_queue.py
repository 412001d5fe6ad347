"""TopicQueues: what a changed number of partitions does to queues and appenders."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random

from pykclient.network.cluster.cluster import PartitionInfo
from pykclient.producer.accumulator.batch import Leader
from pykclient.producer.accumulator.queues import NO_LEADER, Layout, PartitionQueue, TopicQueues
from pykclient.producer.partitioner import PartitionLoad, StickyPartitioner
from pykclient.types import Node


def new_topic() -> TopicQueues:
    """Return a topic in which a record without a key goes to partition 0."""
    sticky = StickyPartitioner(
        lambda: [PartitionLoad(0, 0)], switch_bytes=100, is_adaptive=True, random=Random(1)
    )
    return TopicQueues("t", sticky, hash_keys=False)


def test_queues_stay_when_partitions_come_and_go() -> None:
    topic = new_topic()
    topic.resize(3)
    queues = [topic.queues[number] for number in range(3)]
    assert [queue.key for queue in queues] == [("t", 0), ("t", 1), ("t", 2)]
    topic.resize(1)
    assert (topic.used_queues(), topic.partition_count) == (queues, 1)
    topic.resize(4)
    assert [topic.queues[number] for number in range(3)] == queues
    assert topic.partition_count == 4


def test_a_partition_costs_nothing_before_it_is_used() -> None:
    topic = new_topic()
    topic.resize(20_000)
    assert topic.used_queues() == []
    queue = topic.queues[7]
    assert topic.queues[7] is queue
    assert topic.used_queues() == [queue]


def test_threads_that_need_the_same_queue_get_the_same_one() -> None:
    topic = new_topic()
    topic.resize(1_000)
    barrier = threading.Barrier(4)

    def use() -> list[PartitionQueue]:
        barrier.wait()
        return [topic.queues[number] for number in range(1_000)]

    with ThreadPoolExecutor(4) as threads:
        first, *others = [each.result() for each in [threads.submit(use) for _ in range(4)]]
    assert all(other == first for other in others)


def test_a_queue_has_the_leader_that_the_metadata_tells() -> None:
    topic = new_topic()
    topic.resize(3)
    node = Node(1, "h", 9092)
    infos = (
        PartitionInfo("t", 0, 1, 5),
        PartitionInfo("t", 1, 2, 5),
        PartitionInfo("t", 2, None, 5),
    )
    topic.layout = Layout(infos, {1: node})
    leaders = [topic.queues[number].leader for number in range(4)]
    assert leaders == [Leader(1, 5), Leader(None, 5), Leader(None, 5), NO_LEADER]


def test_appenders_are_replaced_whole_and_keep_the_way_of_keys() -> None:
    topic = new_topic()
    topic.resize(2)
    before = topic.appenders
    topic.resize(3)
    assert topic.appenders is not before
    assert len(before.open) == 2
    assert topic.appenders.open == [None, None, None]
    assert topic.appenders.hash_keys is False
