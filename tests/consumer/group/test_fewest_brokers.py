"""The assignments of `fewest-brokers`: equal shares, led by as few brokers as possible."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pykclient.consumer.group.assignors import (
    FewestBrokersAssignor,
    GroupMember,
    PartitionReplicas,
    RangeAssignor,
    TopicReplicas,
)
from pykclient.consumer.group.assignors.setting import make_assignors
from pykclient.types import Node, TopicPartition

Assigned = dict[str, list[TopicPartition]]


def led_by(*leader_ids: int | None) -> list[PartitionReplicas]:
    """Return partitions with these leaders, in order."""
    nodes = [None if each is None else Node(each, "h", 1) for each in leader_ids]
    return [PartitionReplicas(node, [] if node is None else [node]) for node in nodes]


def members(**topics: str) -> dict[str, GroupMember]:
    return {name: GroupMember(frozenset(of_member)) for name, of_member in topics.items()}


def assign(topics: TopicReplicas, group: dict[str, GroupMember]) -> Assigned:
    return FewestBrokersAssignor().assign(topics, group)


def connections(topics: TopicReplicas, assigned: Assigned) -> int:
    """Return the number of pairs of a member and a leading broker."""
    leaders = {
        (member, topics[each.topic][each.partition].leader)
        for member, partitions in assigned.items()
        for each in partitions
    }
    return len(leaders)


def test_the_setting_names_it() -> None:
    (assignor,) = make_assignors(["fewest-brokers"])
    assert isinstance(assignor, FewestBrokersAssignor)


def test_each_member_reads_from_one_broker_where_that_is_possible() -> None:
    topics = {"t": led_by(1, 2, 3, 1, 2, 3, 1, 2, 3)}
    group = members(a="t", b="t", c="t")
    assigned = assign(topics, group)
    assert connections(topics, assigned) == 3
    assert {len(each) for each in assigned.values()} == {3}
    assert connections(topics, RangeAssignor().assign(topics, group)) == 9


def test_rests_of_brokers_that_fit_are_not_cut() -> None:
    topics = {"t": led_by(*[1] * 4, *[2] * 2, *[3] * 2, *[4] * 4)}
    assigned = assign(topics, members(a="t", b="t", c="t"))
    assert connections(topics, assigned) == 4


def test_members_with_fewer_topics_come_first_and_others_make_up_for_it() -> None:
    topics = {"t": led_by(1, 1, 2, 2), "u": led_by(1, 1)}
    assigned = assign(topics, members(a="tu", b="t"))
    assert [len(assigned[name]) for name in "ab"] == [3, 3]


def test_a_topic_without_a_subscriber_is_not_assigned_and_a_member_without_topics_gets_none() -> (
    None
):
    topics = {"t": led_by(1), "u": led_by(1)}
    assert assign(topics, members(a="t", b="")) == {"a": [TopicPartition("t", 0)], "b": []}


def test_partitions_without_a_leader_are_assigned_as_well() -> None:
    topics = {"t": led_by(None, 1, None, 1)}
    assigned = assign(topics, members(a="t", b="t"))
    assert connections(topics, assigned) == 2


leaders = st.lists(st.sampled_from([None, *range(1, 7)]), max_size=30)


@given(topics=st.dictionaries(st.sampled_from("tuv"), leaders), count=st.integers(1, 9))
def test_members_of_the_same_topics(topics: dict[str, list[int | None]], count: int) -> None:
    """Each partition is assigned once, counts differ by at most one, connections are bounded."""
    known = {name: led_by(*of_topic) for name, of_topic in topics.items()}
    group = members(**{f"m{number}": "tuv" for number in range(count)})
    assigned = assign(known, group)
    sizes = [len(each) for each in assigned.values()]
    assert max(sizes) - min(sizes) <= 1
    every = [TopicPartition(name, n) for name in known for n in range(len(known[name]))]
    assert sorted(each for one in assigned.values() for each in one) == sorted(every)
    broker_count = len({leader for of_topic in topics.values() for leader in of_topic})
    if every:
        assert connections(known, assigned) <= broker_count + count - 1
    assert assign(known, dict(reversed(group.items()))) == assigned


@given(
    topics=st.dictionaries(st.sampled_from("tuvw"), leaders),
    wanted=st.lists(st.sets(st.sampled_from("tuvwx")), min_size=1, max_size=7),
)
def test_members_of_any_topics(topics: dict[str, list[int | None]], wanted: list[set[str]]) -> None:
    """Each partition is assigned once, to a subscriber; equal members get equal shares."""
    known = {name: led_by(*of_topic) for name, of_topic in topics.items()}
    group = {f"m{n}": GroupMember(frozenset(each)) for n, each in enumerate(wanted)}
    assigned = assign(known, group)
    assert assigned.keys() == group.keys()
    for name, partitions in assigned.items():
        assert {each.topic for each in partitions} <= group[name].topics
    for name, member in group.items():
        alike = [len(assigned[each]) for each in group if group[each].topics == member.topics]
        assert max(alike) - min(alike) <= 1, name
    counts = Counter(each for one in assigned.values() for each in one)
    read = set[str]().union(*wanted) & known.keys()
    assert counts == {TopicPartition(name, n): 1 for name in read for n in range(len(known[name]))}
