"""What a leader makes of its members and the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from pykclient.consumer.group.assignors import (
    Assignment,
    CooperativeStickyAssignor,
    GroupMember,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    TopicRacks,
)
from pykclient.consumer.group.classic.leader import (
    assign_partitions,
    is_known,
    read_members,
    topic_racks,
)
from pykclient.consumer.group.classic.protocol import encode_subscription
from pykclient.errors import DecodeError, UnknownTopicOrPartitionError, UsageError
from pykclient.network.cluster.cluster import Cluster, PartitionInfo, TopicInfo
from pykclient.protocol.messages.join_group import JoinGroupResponseMember
from pykclient.types import Node, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
TWO: TopicRacks = {"a": [frozenset(), frozenset()]}
MEMBERS = {"m1": GroupMember(frozenset({"a"})), "m2": GroupMember(frozenset({"a"}))}


class OwnAssignor(RoundRobinAssignor):
    """Gives what a test says."""

    def __init__(self, assigned: Mapping[str, object] | Exception) -> None:
        self._assigned = assigned

    def assign(self, topics: object, members: object) -> dict[str, list[TopicPartition]]:
        if isinstance(self._assigned, Exception):
            raise self._assigned
        return cast("dict[str, list[TopicPartition]]", self._assigned)


def cluster() -> Cluster:
    infos = (
        PartitionInfo("a", 0, 1, 0, replica_ids=(1, 2)),
        PartitionInfo("a", 1, 2, 0, replica_ids=(2, 3)),
    )
    return Cluster(
        nodes=[Node(1, "h", 1, "r1"), Node(2, "h", 2, "r2"), Node(3, "h", 3)],
        topics=[TopicInfo("a", bytes(16), is_internal=False, partitions=infos)],
        topic_errors={"gone": UnknownTopicOrPartitionError("gone")},
    )


def test_members_are_read_with_their_instance_ids() -> None:
    member = GroupMember(frozenset({"a"}), group_instance_id="i")
    answer = JoinGroupResponseMember(
        member_id="m", group_instance_id="i", metadata=encode_subscription(member)
    )
    assert read_members([answer]) == {"m": member}


def test_a_member_that_cannot_be_read_is_reported() -> None:
    with pytest.raises(DecodeError):
        read_members([JoinGroupResponseMember(member_id="m", metadata=b"x")])


def test_topics_are_known_when_the_brokers_have_said_something_of_each() -> None:
    assert is_known(cluster(), ["a", "gone"])
    assert not is_known(cluster(), ["a", "b"])


def test_racks_are_those_of_the_replicas() -> None:
    assert topic_racks(cluster(), ["a", "gone"]) == {
        "a": [frozenset({"r1", "r2"}), frozenset({"r2"})]
    }


def test_an_assignor_assigns() -> None:
    assigned = assign_partitions(RangeAssignor(), RebalanceProtocol.EAGER, TWO, MEMBERS)
    assert assigned == {"m1": Assignment((A0,)), "m2": Assignment((A1,))}


@pytest.mark.promise("assignors of users assign, and are refused when they break the rules")
@pytest.mark.parametrize(
    ("assigned", "message"),
    [
        ({"m1": [A0], "m2": [A0]}, r"assigned a-0 twice"),
        ({"m1": [A0, A0]}, r"assigned a-0 twice"),
        ({"m3": [A0]}, r"assigned partitions to 'm3', no member"),
        ({"m1": [("a", 0)]}, r"failed: TypeError.*\('a', 0\) is no TopicPartition"),
        *(
            ({"m1": [wrong]}, r"failed: TypeError.*is no TopicPartition")
            for wrong in (
                TopicPartition("a", cast("int", "0")),
                TopicPartition("a", cast("int", True)),
                TopicPartition("a", -1),
                TopicPartition("a", 2**31),
                TopicPartition(cast("str", 5), 0),
                TopicPartition("\ud800", 0),
            )
        ),
        (
            {"m1": Assignment([A0], cast("bytes", "text"))},
            r"failed: TypeError.*user data must be bytes, not 'text'",
        ),
        ({"m1": None}, r"failed: TypeError"),
        (ValueError("mistake"), r"failed: ValueError\('mistake'\)"),
    ],
)
def test_an_own_assignor_that_breaks_the_rules_is_reported(
    assigned: Mapping[str, object] | Exception, message: str
) -> None:
    with pytest.raises(UsageError, match=f"the assignor 'roundrobin' {message}"):
        assign_partitions(OwnAssignor(assigned), RebalanceProtocol.EAGER, TWO, MEMBERS)


def test_a_member_left_out_gets_nothing_and_what_can_be_read_once_is_given() -> None:
    assignor = OwnAssignor({"m2": iter([A1])})
    assigned = assign_partitions(assignor, RebalanceProtocol.EAGER, TWO, MEMBERS)
    assert assigned == {"m1": Assignment(()), "m2": Assignment((A1,))}


@pytest.mark.promise(
    "a cooperative group keeps what does not move, and a group changes to it member by member"
)
def test_a_cooperative_assignor_gives_nothing_that_another_one_has() -> None:
    members = {
        "m1": GroupMember(frozenset({"a"}), owned_partitions=(A0, A1), generation=1),
        "m2": GroupMember(frozenset({"a"})),
    }
    moved = OwnAssignor({"m1": [A0], "m2": [A1]})
    with pytest.raises(UsageError, match="assigned a-1 to a member while another one still has it"):
        assign_partitions(moved, RebalanceProtocol.COOPERATIVE, TWO, members)
    assert assign_partitions(moved, RebalanceProtocol.EAGER, TWO, members)["m2"] == Assignment(
        (A1,)
    )
    first = assign_partitions(
        CooperativeStickyAssignor(), RebalanceProtocol.COOPERATIVE, TWO, members
    )
    assert first == {"m1": Assignment((A0,)), "m2": Assignment(())}
