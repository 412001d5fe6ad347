"""The assignors that the setting names, and what each assigns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.group.assignors import (
    CooperativeStickyAssignor,
    GroupMember,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    StickyAssignor,
)
from pykclient.consumer.group.assignors.setting import common_protocol, make_assignors
from pykclient.errors import ConfigError
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping


class OwnAssignor(RoundRobinAssignor):
    """A custom assignor."""


class OnlyCooperative(RoundRobinAssignor):
    """A custom assignor without the eager protocol."""

    protocols = (RebalanceProtocol.COOPERATIVE,)  # type: ignore[misc]


def chosen(value: object) -> list[str]:
    config = ConsumerConfig.from_settings(
        bootstrap_servers="h:1", partition_assignment_strategy=value
    )
    return [assignor.name for assignor in make_assignors(config.partition_assignment_strategy)]


@pytest.mark.parametrize(
    "value",
    [
        "sticky, range",
        ["sticky", "range"],
        "org.apache.kafka.clients.consumer.StickyAssignor,RangeAssignor",
    ],
)
def test_kafkas_own_have_short_names_and_javas(value: object) -> None:
    assert chosen(value) == ["sticky", "range"]


def test_an_own_one_is_an_object_a_class_or_a_name() -> None:
    assert chosen([OwnAssignor()]) == chosen([OwnAssignor]) == ["roundrobin"]
    assert chosen(f"{OwnAssignor.__module__}:OwnAssignor") == ["roundrobin"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([object()], "lacks name, protocols, user_data, assign, on_assignment"),
        ([], "Give at least one"),
        (["range", "range"], "two assignors with one name"),
        (["range", OnlyCooperative()], "no rebalance protocol"),
    ],
)
def test_what_is_none_is_refused(value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        chosen(value)


def test_the_most_advanced_protocol_that_all_work_with_is_used() -> None:
    assert common_protocol(make_assignors(["cooperative-sticky"])) is RebalanceProtocol.COOPERATIVE
    both = make_assignors(["range", "cooperative-sticky"])
    assert common_protocol(both) is RebalanceProtocol.EAGER


# RangeAssignor.


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


# RoundRobinAssignor.


def test_partitions_of_all_topics_go_round() -> None:
    topics = {"u": [ANYWHERE] * 2, "t": [ANYWHERE] * 3}
    everything = GroupMember(frozenset(topics))
    assert RoundRobinAssignor().assign(topics, {"b": everything, "a": everything}) == {
        "a": [TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1)],
        "b": [TopicPartition("t", 1), TopicPartition("u", 0)],
    }


def test_a_member_without_a_subscription_to_the_topic_is_passed_over() -> None:
    topics = {"t": [ANYWHERE] * 2, "u": [ANYWHERE]}
    members = {"a": GroupMember(frozenset({"u"})), "b": GroupMember(frozenset({"t", "u"}))}
    assert RoundRobinAssignor().assign(topics, members) == {
        "a": [TopicPartition("u", 0)],
        "b": [TopicPartition("t", 0), TopicPartition("t", 1)],
    }


# StickyAssignor and CooperativeStickyAssignor.


TOPICS = {"t": [ANYWHERE] * 6}


def owner(*indexes: int, generation: int | None = 3) -> GroupMember:
    return GroupMember(frozenset({"t"}), tuple(partitions("t", *indexes)), generation)


def cooperative(members: Mapping[str, GroupMember]) -> dict[str, list[TopicPartition]]:
    return CooperativeStickyAssignor().assign(TOPICS, members)


def test_a_member_that_leaves_moves_only_its_own() -> None:
    got = cooperative({"a": owner(0, 1), "c": owner(4, 5)})
    assert set(partitions("t", 0, 1)) < set(got["a"])
    assert set(partitions("t", 4, 5)) < set(got["c"])
    assert sorted(got["a"] + got["c"]) == partitions("t", 0, 1, 2, 3, 4, 5)


def test_what_another_must_give_up_waits_for_the_next_round() -> None:
    first = cooperative({"a": owner(0, 1, 2, 3, 4, 5), "b": owner(generation=None)})
    assert first == {"a": partitions("t", 0, 1, 2), "b": []}
    second = cooperative({"a": owner(0, 1, 2), "b": owner()})
    assert second["b"] == partitions("t", 3, 4, 5)


def test_with_different_topics_too() -> None:
    topics = {"t": [ANYWHERE] * 4, "u": [ANYWHERE]}
    members = {
        "a": GroupMember(frozenset({"t"}), tuple(partitions("t", 0, 1, 2, 3)), 3),
        "b": GroupMember(frozenset({"t", "u"}), (), None),
    }
    got = CooperativeStickyAssignor().assign(topics, members)
    assert len(got["a"]) == 3
    assert got["b"] == [TopicPartition("u", 0)]


def test_the_later_generation_has_the_better_claim() -> None:
    got = cooperative({"a": owner(0, 1, 2, generation=2), "b": owner(0, 1, 2, generation=3)})
    assert got["b"] == partitions("t", 0, 1, 2)


def test_a_partition_that_two_claim_in_one_generation_is_neither_ones() -> None:
    got = cooperative({"a": owner(0, 1, 2), "b": owner(2, 3, 4)})
    assert TopicPartition("t", 2) not in got["a"] + got["b"]


def test_an_eager_member_sends_what_it_had() -> None:
    before = StickyAssignor()
    before.on_assignment(partitions("t", 5, 1), 3)
    user_data = before.user_data(frozenset({"t"}))
    members = {
        "a": GroupMember(frozenset({"t"})),
        "b": GroupMember(frozenset({"t"}), user_data=user_data),
    }
    assert set(partitions("t", 1, 5)) < set(StickyAssignor().assign(TOPICS, members)["b"])


def test_a_new_member_has_nothing_to_send() -> None:
    assert StickyAssignor().user_data(frozenset({"t"})) is None


@given(user_data=st.binary())
def test_user_data_that_cannot_be_read_claims_nothing(user_data: bytes) -> None:
    members = {
        "a": GroupMember(frozenset({"t"}), user_data=user_data),
        "b": GroupMember(frozenset({"t"})),
    }
    for assignor in (StickyAssignor(), CooperativeStickyAssignor()):
        shares = assignor.assign(TOPICS, members).values()
        assert sorted(partition for share in shares for partition in share) == partitions(
            "t", 0, 1, 2, 3, 4, 5
        )
        assert {len(share) for share in shares} == {3}
