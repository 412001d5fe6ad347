"""Data that members send each other, compared with the bytes of Java's client."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.consumer.group.assignors import GroupMember
from pykclient.consumer.group.classic.protocol import (
    encode_assignment,
    encode_subscription,
    group_member,
    read_assignment,
    read_subscription,
)
from pykclient.errors import DecodeError
from pykclient.types import TopicPartition

A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 7)

topics = st.text("abc", min_size=1, max_size=3)
partitions = st.lists(st.builds(TopicPartition, topics, st.integers(0, 9)), unique=True)


def test_a_subscription_has_javas_bytes() -> None:
    member = GroupMember(
        topics=frozenset({"b", "a"}),
        owned_partitions=(C, B, A),
        generation=5,
        rack="r",
        user_data=b"\x01\x02",
    )
    assert encode_subscription(member) == (
        b"\x00\x03"
        b"\x00\x00\x00\x02\x00\x01a\x00\x01b"
        b"\x00\x00\x00\x02\x01\x02"
        b"\x00\x00\x00\x02"
        b"\x00\x01a\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01"
        b"\x00\x01b\x00\x00\x00\x01\x00\x00\x00\x07"
        b"\x00\x00\x00\x05"
        b"\x00\x01r"
    )


@given(
    st.builds(
        GroupMember,
        topics=st.frozensets(topics),
        owned_partitions=partitions.map(lambda owned: tuple(sorted(owned))),
        generation=st.none() | st.integers(0, 2**31 - 1),
        rack=st.none() | topics,
        user_data=st.none() | st.binary(max_size=9),
        group_instance_id=st.none() | topics,
    )
)
def test_a_subscription_is_read_as_it_was_written(member: GroupMember) -> None:
    data = encode_subscription(member)
    counts = {each.topic: 2**31 for each in member.owned_partitions}
    assert group_member(read_subscription(data), member.group_instance_id, counts) == member


def test_of_the_partitions_that_a_member_had_those_that_exist_count_once() -> None:
    had = (A, TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("gone", 0))
    message = read_subscription(encode_subscription(GroupMember(frozenset({"a"}), had)))
    message.owned_partitions *= 2
    member = group_member(message, None, {"a": 2, "b": 1})
    assert member.owned_partitions == (A, TopicPartition("a", 1))


def test_the_oldest_subscription_has_topics_alone() -> None:
    data = b"\x00\x00\x00\x00\x00\x01\x00\x01a\xff\xff\xff\xff"
    assert group_member(read_subscription(data), None, {}) == GroupMember(frozenset({"a"}))


@given(partitions)
def test_an_assignment_is_read_as_it_was_written(assigned: list[TopicPartition]) -> None:
    share = read_assignment(encode_assignment(assigned, b"for its assignor"))
    assert sorted(share.partitions) == sorted(assigned)
    assert share.user_data == b"for its assignor"


def test_of_a_version_to_come_the_known_part_is_read() -> None:
    assert read_assignment(b"\x00\x63" + encode_assignment([A])[2:] + b"new").partitions == (A,)
    member = GroupMember(frozenset({"a"}))
    newer = read_subscription(b"\x00\x63" + encode_subscription(member)[2:] + b"new")
    assert group_member(newer, None, {}) == member


@pytest.mark.parametrize("data", [b"\x00", b"\xff\xff", b"\x00\x00\x7f\xff\xff\xff"])
def test_what_is_neither_is_an_error_of_its_own(data: bytes) -> None:
    with pytest.raises(DecodeError):
        read_assignment(data)
    with pytest.raises(DecodeError):
        read_subscription(data)


def test_no_bytes_assign_no_partitions() -> None:
    """A broker sends that to a member that an older leader has left out."""
    assert read_assignment(b"").partitions == ()
    with pytest.raises(DecodeError):
        read_subscription(b"")


def test_an_assignment_names_partitions_that_can_be() -> None:
    with pytest.raises(DecodeError, match="negative"):
        read_assignment(encode_assignment([TopicPartition("a", -1)]))


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for read in (read_assignment, read_subscription):
        try:
            read(data)
        except DecodeError:
            continue
