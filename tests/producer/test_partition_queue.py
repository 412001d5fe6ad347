"""TopicQueues: what a changed number of partitions does to queues and appenders."""

from __future__ import annotations

from pykclient.producer.partition_queue import TopicQueues


def test_queues_stay_when_partitions_come_and_go() -> None:
    topic = TopicQueues("t", hash_keys=False)
    topic.resize(3)
    queues = topic.queues
    assert [queue.key for queue in queues] == [("t", 0), ("t", 1), ("t", 2)]
    topic.resize(1)
    assert (topic.queues, topic.partition_count) == (queues, 1)
    topic.resize(4)
    assert topic.queues[:3] == queues
    assert topic.partition_count == 4


def test_appenders_are_replaced_whole_and_keep_the_way_of_keys() -> None:
    topic = TopicQueues("t", hash_keys=False)
    topic.resize(2)
    before = topic.appenders
    topic.resize(3)
    assert topic.appenders is not before
    assert len(before.open) == 2
    assert topic.appenders.open == [None, None, None]
    assert topic.appenders.hash_keys is False
