"""RoundRobinAssignor: partitions dealt out in turn."""

from __future__ import annotations

from pykclient.consumer.group.assignors import GroupMember, RoundRobinAssignor
from pykclient.types import TopicPartition

ANYWHERE = frozenset[str]()


def test_partitions_of_all_topics_go_round() -> None:
    topics = {"u": [ANYWHERE] * 2, "t": [ANYWHERE] * 3}
    everything = GroupMember(frozenset(topics))
    assert RoundRobinAssignor().assign(topics, {"b": everything, "a": everything}) == {
        "a": [TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1)],
        "b": [TopicPartition("t", 1), TopicPartition("u", 0)],
    }


def test_a_member_that_does_not_want_a_topic_is_passed_over() -> None:
    topics = {"t": [ANYWHERE] * 2, "u": [ANYWHERE]}
    members = {"a": GroupMember(frozenset({"u"})), "b": GroupMember(frozenset({"t", "u"}))}
    assert RoundRobinAssignor().assign(topics, members) == {
        "a": [TopicPartition("u", 0)],
        "b": [TopicPartition("t", 0), TopicPartition("t", 1)],
    }
