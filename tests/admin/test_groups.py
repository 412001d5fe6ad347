"""The handlers of groups: what they make of answers that only odd or old brokers give."""

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
from pykclient.admin.lookup import GroupCoordinator
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
from pykclient.protocol.messages.offset_delete import OffsetDeleteResponse
from pykclient.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from pykclient.types import OffsetAndMetadata, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
REFUSED = GroupAuthorizationFailedError.code


@pytest.fixture
def found() -> GroupCoordinator:
    """A look-up that has found the coordinator of g."""
    lookup = GroupCoordinator()
    lookup.learn("g", FindCoordinatorResponse(node_id=3, host="h", port=9092))
    return lookup


def described(found: GroupCoordinator, *groups: DescribedGroup) -> GroupDescription | KafkaError:
    message = DescribeGroupsResponse(groups=list(groups))
    return dict(DescribeClassicGroups(found).results(message, ["g"]))["g"]


def member(assignment: bytes) -> DescribedGroupMember:
    return DescribedGroupMember(member_id="m", member_assignment=assignment)


def of_consumers(*members: DescribedGroupMember) -> DescribedGroup:
    return DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="consumer", members=list(members)
    )


# An assignment: version, one topic t with partitions 1 and 0, no user data.
ASSIGNMENT = b"\0\0\0\0\0\1\0\1t\0\0\0\2\0\0\0\1\0\0\0\0\xff\xff\xff\xff"


@pytest.mark.parametrize("version", [b"\0\0", b"\0\3", b"\x7f\xff"])
def test_what_a_member_has_is_read_in_every_version(
    found: GroupCoordinator, version: bytes
) -> None:
    description = described(found, of_consumers(member(version + ASSIGNMENT[2:])))
    assert isinstance(description, GroupDescription)
    assert [each.assignment for each in description.members] == [(T0, T1)]
    assert description.coordinator.id == 3


def test_a_member_has_nothing_while_the_group_rebalances(found: GroupCoordinator) -> None:
    description = described(found, of_consumers(member(b"")))
    assert isinstance(description, GroupDescription)
    assert [each.assignment for each in description.members] == [()]


@pytest.mark.promise("a malformed assignment is an error of its group")
@pytest.mark.parametrize("size", range(1, len(ASSIGNMENT)))
def test_an_assignment_that_is_cut_off_is_told(found: GroupCoordinator, size: int) -> None:
    error = described(found, of_consumers(member(ASSIGNMENT[:size])))
    assert isinstance(error, DecodeError)
    assert "group 'g' has an assignment that is malformed" in str(error)


def test_what_the_workers_of_connect_have_is_their_own(found: GroupCoordinator) -> None:
    group = DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="connect", members=[member(b"?")]
    )
    description = described(found, group)
    assert isinstance(description, GroupDescription)
    assert [each.assignment for each in description.members] == [()]


def test_a_dead_group_is_one_that_does_not_exist(found: GroupCoordinator) -> None:
    error = described(found, DescribedGroup(group_id="g", group_state="Dead"))
    assert isinstance(error, GroupIdNotFoundError)


def test_groups_that_nobody_asked_for_are_ignored(found: GroupCoordinator) -> None:
    stranger = DescribedGroup(group_id="x", group_state="Stable")
    assert isinstance(described(found, stranger, of_consumers()), GroupDescription)
    message = ConsumerGroupDescribeResponse(groups=[ConsumerGroup(group_id="x")])
    assert dict(DescribeConsumerGroups(found).results(message, ["g"])) == {}


def test_why_a_group_is_not_described_is_told(found: GroupCoordinator) -> None:
    error = described(found, DescribedGroup(group_id="g", error_code=REFUSED))
    assert isinstance(error, GroupAuthorizationFailedError)
    message = ConsumerGroupDescribeResponse(
        groups=[ConsumerGroup(group_id="g", error_code=REFUSED, error_message="not for you")]
    )
    told = dict(DescribeConsumerGroups(found).results(message, ["g"]))["g"]
    assert "group 'g': not for you" in str(told)


def test_old_brokers_list_groups_without_state_and_type() -> None:
    message = ListGroupsResponse(groups=[ListedGroup("g", "consumer")])
    answers = dict(ListGroups([], [], lambda _: False).results(message, [1]))
    assert answers == {1: (GroupListing("g", "consumer", None, None),)}


def test_a_broker_that_is_loading_its_groups_is_asked_again() -> None:
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


def test_why_there_is_no_coordinator_is_told() -> None:
    message = FindCoordinatorResponse(error_code=REFUSED, error_message="not for you")
    error = dict(FindCoordinators().results(message, ["g"]))["g"]
    assert isinstance(error, GroupAuthorizationFailedError)
    assert "coordinator of group 'g': not for you" in str(error)


def test_deleted_groups_and_refusals_are_told_apart() -> None:
    message = DeleteGroupsResponse(
        results=[DeletableGroupResult("a"), DeletableGroupResult("b", error_code=REFUSED)]
    )
    answers = dict(DeleteGroups().results(message, ["a", "b"]))
    assert answers["a"] == "a"
    assert isinstance(answers["b"], GroupAuthorizationFailedError)


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


def test_offsets_are_told_whole_or_not_at_all() -> None:
    code = TopicAuthorizationFailedError.code
    error = fetched(
        OffsetFetchResponsePartition(0, 5), OffsetFetchResponsePartition(1, -1, error_code=code)
    )
    assert isinstance(error, TopicAuthorizationFailedError)
    assert "group 'g' for t-1" in str(error)
    assert isinstance(fetched(error_code=REFUSED), GroupAuthorizationFailedError)


def test_some_partitions_are_asked_for_or_all() -> None:
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


def test_members_in_the_way_are_told_and_partitions_that_do_not_exist() -> None:
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
    answers = dict(AlterGroupOffsets("g", {}).results(message, [T0, T1]))
    assert "the group has members, and only they may commit; stop them" in str(answers[T0])
    assert isinstance(answers[T1], AlterGroupOffsets.final_errors)


def test_one_refusal_is_for_all_partitions() -> None:
    message = OffsetDeleteResponse(error_code=GroupIdNotFoundError.code)
    answers = dict(DeleteGroupOffsets("g").results(message, [T0, T1]))
    assert answers[T0] is answers[T1]
    assert isinstance(answers[T0], GroupIdNotFoundError)
