"""TopicTable: which topics are known, who leads what, and what `send` may find."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pykclient.producer.accumulator.batch import Leader
from pykclient.producer.accumulator.queues import NO_LEADER, PartitionQueue
from pykclient.types import TopicPartition
from tests.producer.sender_bench import TOPIC, SenderBench


@pytest.fixture
def bench() -> SenderBench:
    return SenderBench(leaders=(1, 2))


def test_a_topic_is_known_with_its_partitions_while_the_cluster_has_it(bench: SenderBench) -> None:
    assert bench.accumulator.partition_count(TOPIC) == 2
    assert set(bench.fast_topics) == {TOPIC}
    before = bench.fast_topics[TOPIC]
    bench.forget_topic()
    assert bench.accumulator.partition_count(TOPIC) is None
    assert bench.fast_topics == {}
    bench.lead(1, 2, 3)
    assert bench.accumulator.partition_count(TOPIC) == 3
    assert bench.fast_topics[TOPIC].open == [None] * 3
    assert len(before.open) == 2  # which a `send` may be reading
    assert bench.fast_topics[TOPIC].hash_keys is before.hash_keys is True


def test_what_waits_stays_while_its_topic_is_not_known(bench: SenderBench) -> None:
    bench.send(b"waiting", partition=1)
    bench.forget_topic()
    assert bench.poll() == []
    bench.lead(3, 3)
    (request,) = bench.poll()
    assert request.node_id == 3


def test_a_queue_has_the_leader_that_the_metadata_names_and_lists(bench: SenderBench) -> None:
    table = bench.accumulator._topics
    bench.lead(1, None)
    leaders = [table.queue(TopicPartition(TOPIC, number)).leader for number in range(3)]
    assert leaders == [Leader(1, 2), Leader(None, 2), NO_LEADER]
    cluster = bench.metadata.cluster
    bench.learn(type(cluster)(topics=cluster.topics.values(), nodes=()))
    assert table.queue(TopicPartition(TOPIC, 0)).leader.node_id is None


def test_the_sticky_partition_is_always_one_that_there_is(bench: SenderBench) -> None:
    bench.lead(*[1] * 50)
    for count in (50, 3, 1, 7):
        bench.lead(*[1] * count)
        topic = bench.accumulator._topics.get(TOPIC)
        assert topic is not None
        assert 0 <= topic.sticky.partition < count


def test_a_topic_of_many_partitions_costs_queues_for_those_that_are_sent_to() -> None:
    bench = SenderBench(leaders=[1] * 20_000)
    topic = bench.accumulator._topics.get(TOPIC)
    assert topic is not None
    assert topic.used_queues() == []
    bench.send(b"v", partition=19_999)
    (request,) = bench.poll()
    assert request.node_id == 1
    assert [queue.key.partition for queue in topic.used_queues()] == [19_999]


def test_threads_that_need_the_same_queue_get_the_same_one() -> None:
    topic = SenderBench(leaders=[1] * 1_000).accumulator._topics.get(TOPIC)
    assert topic is not None
    queues = topic.queues
    barrier = threading.Barrier(4)

    def use() -> list[PartitionQueue]:
        barrier.wait()
        return [queues[number] for number in range(1_000)]

    with ThreadPoolExecutor(4) as threads:
        first, *others = [each.result() for each in [threads.submit(use) for _ in range(4)]]
    assert all(other == first for other in others)


def test_a_queue_made_while_the_leader_changed_goes_to_the_new_one(bench: SenderBench) -> None:
    # 1. A thread that sends looks up who leads the partition; 2. the sender thread learns of
    # another leader, and of no queue to tell; 3. the thread puts its queue into the table.
    topic = bench.accumulator._topics.get(TOPIC)
    assert topic is not None
    queue = topic.queues[1]
    del topic.queues[1]
    bench.lead(1, 3)
    topic.queues[1] = queue
    bench.send(b"v", partition=1)
    (request,) = bench.poll()
    assert request.node_id == 3
