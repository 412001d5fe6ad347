"""StickyAssignor and CooperativeStickyAssignor: what stays, what moves, and whose claim counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from pykclient.consumer.group.assignors import (
    CooperativeStickyAssignor,
    GroupMember,
    StickyAssignor,
)
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

ANYWHERE = frozenset[str]()
TOPICS = {"t": [ANYWHERE] * 6}


def partitions(*indexes: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("t", index) for index in indexes)


def owner(*indexes: int, generation: int | None = 3) -> GroupMember:
    return GroupMember(frozenset({"t"}), partitions(*indexes), generation)


def cooperative(members: Mapping[str, GroupMember]) -> dict[str, list[TopicPartition]]:
    return CooperativeStickyAssignor().assign(TOPICS, members)


def test_a_member_that_leaves_moves_only_its_own() -> None:
    got = cooperative({"a": owner(0, 1), "c": owner(4, 5)})
    assert set(partitions(0, 1)) < set(got["a"])
    assert set(partitions(4, 5)) < set(got["c"])
    assert sorted(got["a"] + got["c"]) == list(partitions(0, 1, 2, 3, 4, 5))


def test_what_another_must_give_up_waits_for_the_next_round() -> None:
    first = cooperative({"a": owner(0, 1, 2, 3, 4, 5), "b": owner(generation=None)})
    assert first == {"a": list(partitions(0, 1, 2)), "b": []}
    second = cooperative({"a": owner(0, 1, 2), "b": owner()})
    assert second["b"] == list(partitions(3, 4, 5))


def test_with_different_topics_too() -> None:
    topics = {"t": [ANYWHERE] * 4, "u": [ANYWHERE]}
    members = {
        "a": GroupMember(frozenset({"t"}), partitions(0, 1, 2, 3), 3),
        "b": GroupMember(frozenset({"t", "u"}), (), None),
    }
    got = CooperativeStickyAssignor().assign(topics, members)
    assert len(got["a"]) == 3
    assert got["b"] == [TopicPartition("u", 0)]


def test_the_later_generation_has_the_better_claim() -> None:
    got = cooperative({"a": owner(0, 1, 2, generation=2), "b": owner(0, 1, 2, generation=3)})
    assert got["b"] == list(partitions(0, 1, 2))


def test_a_partition_that_two_claim_in_one_generation_is_neither_ones() -> None:
    got = cooperative({"a": owner(0, 1, 2), "b": owner(2, 3, 4)})
    assert TopicPartition("t", 2) not in got["a"] + got["b"]


def test_an_eager_member_sends_what_it_had() -> None:
    before = StickyAssignor()
    before.on_assignment(partitions(5, 1), 3)
    user_data = before.user_data(frozenset({"t"}))
    members = {
        "a": GroupMember(frozenset({"t"})),
        "b": GroupMember(frozenset({"t"}), user_data=user_data),
    }
    assert set(partitions(1, 5)) < set(StickyAssignor().assign(TOPICS, members)["b"])


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
        assert sorted(partition for share in shares for partition in share) == list(
            partitions(0, 1, 2, 3, 4, 5)
        )
        assert {len(share) for share in shares} == {3}
