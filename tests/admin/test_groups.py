"""The handlers of groups: what they make of responses that only odd or old brokers send."""

from __future__ import annotations

import pytest

from pykclient.admin.group_offsets import AlterGroupOffsets, DeleteGroupOffsets, ListGroupOffsets
from pykclient.admin.groups import (
    DeleteGroups,
    DescribeClassicGroups,
    DescribeConsumerGroups,
    FindCoordinators,
    GroupDescription,
    GroupListing,
    ListGroups,
)
from pykclient.errors import (
    CoordinatorLoadInProgressError,
    DecodeError,
    DisconnectedError,
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from pykclient.protocol.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from pykclient.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from pykclient.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from pykclient.protocol.messages.find_coordinator import FindCoordinatorResponse
from pykclient.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from pykclient.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pykclient.protocol.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from pykclient.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from pykclient.types import Node, OffsetAndMetadata, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
REFUSED = GroupAuthorizationFailedError.code


FOUND = {"g": Node(3, "h", 9092)}


def described(*groups: DescribedGroup) -> GroupDescription | KafkaError:
    message = DescribeGroupsResponse(groups=list(groups))
    return dict(DescribeClassicGroups(FOUND).results(message, ["g"]))["g"]


def member(assignment: bytes) -> DescribedGroupMember:
    return DescribedGroupMember(member_id="m", member_assignment=assignment)


def of_consumers(*members: DescribedGroupMember) -> DescribedGroup:
    return DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="consumer", members=list(members)
    )


# An assignment: version, one topic t with partitions 1 and 0, no user data.
ASSIGNMENT = b"\0\0\0\0\0\1\0\1t\0\0\0\2\0\0\0\1\0\0\0\0\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("protocol_type", "assignment", "read"),
    [
        ("consumer", b"\0\0" + ASSIGNMENT[2:], (T0, T1)),
        ("consumer", b"\0\3" + ASSIGNMENT[2:], (T0, T1)),
        ("consumer", b"\x7f\xff" + ASSIGNMENT[2:], (T0, T1)),
        ("consumer", b"", ()),
        ("connect", b"?", ()),
    ],
    ids=["version 0", "version 3", "newer", "in a rebalance", "of Connect"],
)
def test_an_assignment_is_read_in_every_version_if_it_is_of_a_consumer(
    protocol_type: str, assignment: bytes, read: tuple[TopicPartition, ...]
) -> None:
    group = DescribedGroup(
        group_id="g",
        group_state="Stable",
        protocol_type=protocol_type,
        members=[member(assignment)],
    )
    description = described(group)
    assert isinstance(description, GroupDescription)
    assert [each.assignment for each in description.members] == [read]
    assert description.coordinator.id == 3


@pytest.mark.parametrize("size", range(1, len(ASSIGNMENT)))
def test_an_assignment_that_is_cut_off_is_reported(size: int) -> None:
    error = described(of_consumers(member(ASSIGNMENT[:size])))
    assert isinstance(error, DecodeError)
    assert "group 'g' has an assignment that is malformed" in str(error)


def test_a_dead_group_is_one_that_does_not_exist() -> None:
    error = described(DescribedGroup(group_id="g", group_state="Dead"))
    assert isinstance(error, GroupIdNotFoundError)


def test_groups_that_were_not_requested_are_ignored() -> None:
    stranger = DescribedGroup(group_id="x", group_state="Stable")
    assert isinstance(described(stranger, of_consumers()), GroupDescription)
    message = ConsumerGroupDescribeResponse(groups=[ConsumerGroup(group_id="x")])
    assert dict(DescribeConsumerGroups(FOUND).results(message, ["g"])) == {}


def test_why_a_group_is_not_described_is_reported() -> None:
    error = described(DescribedGroup(group_id="g", error_code=REFUSED))
    assert isinstance(error, GroupAuthorizationFailedError)
    message = ConsumerGroupDescribeResponse(
        groups=[ConsumerGroup(group_id="g", error_code=REFUSED, error_message="not for you")]
    )
    error = dict(DescribeConsumerGroups(FOUND).results(message, ["g"]))["g"]
    assert "group 'g': not for you" in str(error)


def test_old_brokers_list_groups_without_state_and_type() -> None:
    message = ListGroupsResponse(groups=[ListedGroup("g", "consumer")])
    results = dict(ListGroups([], [], lambda _: False).results(message, [1]))
    assert results == {1: (GroupListing("g", "consumer", None, None),)}


def test_a_broker_that_is_loading_its_groups_is_tried_again() -> None:
    message = ListGroupsResponse(error_code=CoordinatorLoadInProgressError.code)
    error = dict(ListGroups([], [], lambda _: False).results(message, [1]))[1]
    assert isinstance(error, KafkaError)
    assert error.retriable
    assert "the groups of broker 1" in str(error)


def test_only_a_broker_that_the_cluster_has_dropped_counts_as_without_groups() -> None:
    error = DisconnectedError("gone")
    handler = ListGroups([], [], lambda broker: broker == 2)
    assert handler.on_unreachable(1, error) is error
    assert handler.on_unreachable(2, error) == ()


def test_why_there_is_no_coordinator_is_reported() -> None:
    message = FindCoordinatorResponse(error_code=REFUSED, error_message="not for you")
    error = dict(FindCoordinators().results(message, ["g"]))["g"]
    assert isinstance(error, GroupAuthorizationFailedError)
    assert "coordinator of group 'g': not for you" in str(error)


def test_deleted_groups_and_refusals_are_distinguished() -> None:
    message = DeleteGroupsResponse(
        results=[DeletableGroupResult("a"), DeletableGroupResult("b", error_code=REFUSED)]
    )
    results = dict(DeleteGroups().results(message, ["a", "b"]))
    assert results["a"] == "a"
    assert isinstance(results["b"], GroupAuthorizationFailedError)


# Offsets.


def fetched(*partitions: OffsetFetchResponsePartition, error_code: int = 0) -> object:
    message = OffsetFetchResponse(
        topics=[OffsetFetchResponseTopic("t", list(partitions))], error_code=error_code
    )
    return dict(ListGroupOffsets(None, is_stable=False).results(message, ["g"]))["g"]


def test_only_what_was_committed_is_an_offset() -> None:
    assert fetched(
        OffsetFetchResponsePartition(0, 5, 2, "note"),
        OffsetFetchResponsePartition(1, 0, -1, None),
        OffsetFetchResponsePartition(2, -1),
    ) == {T0: OffsetAndMetadata(5, "note", 2), T1: OffsetAndMetadata(0, "", None)}


def test_offsets_are_returned_whole_or_not_at_all() -> None:
    code = TopicAuthorizationFailedError.code
    error = fetched(
        OffsetFetchResponsePartition(0, 5), OffsetFetchResponsePartition(1, -1, error_code=code)
    )
    assert isinstance(error, TopicAuthorizationFailedError)
    assert "group 'g' for t-1" in str(error)
    assert isinstance(fetched(error_code=REFUSED), GroupAuthorizationFailedError)


def test_some_partitions_are_requested_or_all() -> None:
    some = ListGroupOffsets([T1, T0], is_stable=True).request(["g"], 1)
    assert some.topics is not None
    assert [(topic.name, topic.partition_indexes) for topic in some.topics] == [("t", [1, 0])]
    assert (some.group_id, some.require_stable) == ("g", True)
    assert ListGroupOffsets(None, is_stable=False).request(["g"], 1).topics is None


def test_an_offset_is_committed_with_its_epoch_and_note() -> None:
    handler = AlterGroupOffsets(
        "g", {T0: OffsetAndMetadata(5, "note", 2), T1: OffsetAndMetadata(6)}
    )
    (topic,) = handler.request([T0, T1], 1).topics
    assert [
        (p.partition_index, p.committed_offset, p.committed_leader_epoch, p.committed_metadata)
        for p in topic.partitions
    ] == [(0, 5, 2, "note"), (1, 6, -1, "")]


def test_members_in_the_way_are_reported_and_partitions_that_do_not_exist() -> None:
    codes = (UnknownMemberIdError.code, UnknownTopicOrPartitionError.code)
    message = OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                "t",
                partitions=[
                    OffsetCommitResponsePartition(index, code) for index, code in enumerate(codes)
                ],
            )
        ]
    )
    results = dict(AlterGroupOffsets("g", {}).results(message, [T0, T1]))
    assert "the group has members, and only they may commit; stop them" in str(results[T0])
    assert isinstance(results[T1], AlterGroupOffsets.final_errors)


def test_one_refusal_is_for_all_partitions_whatever_is_reported_of_them() -> None:
    message = OffsetDeleteResponse(
        error_code=GroupIdNotFoundError.code,
        topics=[
            OffsetDeleteResponseTopic("t", partitions=[OffsetDeleteResponsePartition(T0.partition)])
        ],
    )
    results = dict(DeleteGroupOffsets("g").results(message, [T0, T1]))
    assert results[T0] is results[T1]
    assert isinstance(results[T0], GroupIdNotFoundError)
