"""RangeAssignor: ranges of each topic, aligned over topics, within racks where that can be."""

from __future__ import annotations

from pykclient.consumer.group.assignors import GroupMember, RangeAssignor
from pykclient.types import TopicPartition

ANYWHERE = frozenset[str]()


def member(*topics: str, rack: str | None = None, instance: str | None = None) -> GroupMember:
    return GroupMember(frozenset(topics), rack=rack, group_instance_id=instance)


def partitions(topic: str, *indexes: int) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in indexes]


def test_the_first_members_get_one_more() -> None:
    topics = {"t": [ANYWHERE] * 5}
    assert RangeAssignor().assign(topics, {"b": member("t"), "a": member("t")}) == {
        "a": partitions("t", 0, 1, 2),
        "b": partitions("t", 3, 4),
    }
    topics = {"t": [ANYWHERE] * 4}
    assert RangeAssignor().assign(topics, {name: member("t") for name in "abc"}) == {
        "a": partitions("t", 0, 1),
        "b": partitions("t", 2),
        "c": partitions("t", 3),
    }


def test_topics_of_the_same_members_are_aligned() -> None:
    topics = {"t": [ANYWHERE] * 3, "u": [ANYWHERE] * 3}
    got = RangeAssignor().assign(topics, {"a": member("t", "u"), "b": member("t", "u")})
    assert got["a"] == partitions("t", 0, 1) + partitions("u", 0, 1)
    assert got["b"] == partitions("t", 2) + partitions("u", 2)


def test_static_members_come_first_by_their_instance() -> None:
    members = {"a": member("t"), "z": member("t", instance="1"), "y": member("t", instance="2")}
    got = RangeAssignor().assign({"t": [ANYWHERE] * 3}, members)
    assert got == {
        "z": partitions("t", 0),
        "y": partitions("t", 1),
        "a": partitions("t", 2),
    }


def test_a_member_in_a_rack_reads_what_has_a_replica_there() -> None:
    topics = {"t": [frozenset({"east"}), frozenset({"west"})]}
    members = {"a": member("t", rack="west"), "b": member("t", rack="east")}
    assert RangeAssignor().assign(topics, members) == {
        "a": partitions("t", 1),
        "b": partitions("t", 0),
    }


def test_racks_do_not_change_the_numbers() -> None:
    topics = {"t": [frozenset({"east"})] * 3 + [frozenset({"west"})]}
    members = {"a": member("t", rack="west"), "b": member("t", rack="east")}
    got = RangeAssignor().assign(topics, members)
    assert (len(got["a"]), len(got["b"])) == (2, 2)
    assert TopicPartition("t", 3) in got["a"]


def test_members_get_nothing_of_topics_that_are_not_there() -> None:
    assert RangeAssignor().assign({}, {"a": member("gone")}) == {"a": []}
