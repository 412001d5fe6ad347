"""OffsetCommit, OffsetFetch and OffsetDelete, in every version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.errors.broker import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    InvalidGroupIdError,
    NonEmptyGroupError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from pykclient.protocol.message import decode_response, encode_response
from pykclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pykclient.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from pykclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from pykclient.testing.fake.groups.offsets import CommittedOffset
from pykclient.types import TopicPartition
from tests.testing.fake.groups.classic_client import (
    SESSION_MS,
    ClassicClient,
    begun,
    settle,
    settled,
    subscription_to,
)
from tests.testing.fake.requests import coordinator_id, response_of, response_to

if TYPE_CHECKING:
    from pykclient.testing import FakeCluster

T0 = TopicPartition("t", 0)
COMMITTED = CommittedOffset(5, 3, "note")
LATER = 99
"""A log offset beyond everything written here."""

PartitionResult = tuple[int, int, int, str | None]
"""Error code, offset, leader epoch and metadata."""


def commit(
    cluster: FakeCluster,
    version: int,
    *,
    topic: str = "t",
    number: int = 0,
    generation: int = -1,
    group: str = "g",
    broker_id: int | None = None,
) -> int:
    """Commit `COMMITTED` without a member id and return the error code."""
    partition = OffsetCommitRequestPartition(
        number, COMMITTED.offset, COMMITTED.leader_epoch if version >= 6 else -1, COMMITTED.metadata
    )
    found = cluster.topics.get(topic)
    named = OffsetCommitRequestTopic(name=topic, partitions=[partition])
    if version >= 10:
        topic_id = b"\x01" * 16 if found is None else found.topic_id
        named = OffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition])
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, topics=[named]
    )
    node_id = coordinator_id(cluster, group) if broker_id is None else broker_id
    response = response_to(
        cluster, request, OffsetCommitResponse, broker_id=node_id, version=version
    )
    return response.topics[0].partitions[0].error_code


def fetch(
    cluster: FakeCluster,
    version: int,
    numbers: list[int] | None,
    *,
    is_stable: bool = False,
    broker_id: int | None = None,
) -> tuple[int, dict[int, PartitionResult]]:
    """Fetch partitions of ``t``, None for all; return error codes of group and partitions."""
    topic_id = cluster.topics["t"].topic_id
    if version >= 8:
        topics = None
        if numbers is not None:
            topics = [OffsetFetchRequestTopics("" if version >= 10 else "t", topic_id, numbers)]
            topics[0].topic_id = topic_id if version >= 10 else bytes(16)
        group = OffsetFetchRequestGroup(group_id="g", topics=topics)
        request = OffsetFetchRequest(groups=[group], require_stable=is_stable)
    else:
        older = None if numbers is None else [OffsetFetchRequestTopic("t", numbers)]
        request = OffsetFetchRequest(group_id="g", topics=older, require_stable=is_stable)
    node_id = coordinator_id(cluster) if broker_id is None else broker_id
    call = cluster.handle_request(node_id, request, cluster.now_ms, version=version)
    # Compare the encoded response, because fields that a version lacks do not count.
    frame = encode_response(call.require_response(), version, 0)
    response = decode_response(OffsetFetchResponse, version, memoryview(frame)[4:])
    assert isinstance(response, OffsetFetchResponse)
    group_or_response = response.groups[0] if version >= 8 else response
    return group_or_response.error_code, {
        each.partition_index: (
            each.error_code, each.committed_offset, each.committed_leader_epoch, each.metadata
        )
        for topic in group_or_response.topics
        for each in topic.partitions
    }  # fmt: skip


# Committing.


@pytest.mark.parametrize(
    "version", range(OffsetCommitRequest.min_version, OffsetCommitRequest.max_version + 1)
)
def test_a_commit_to_a_group_without_members_needs_no_membership_in_every_version(
    version: int, cluster: FakeCluster
) -> None:
    assert commit(cluster, version) == 0
    group = cluster.group("g")
    epoch = COMMITTED.leader_epoch if version >= 6 else -1
    assert group.offsets == {T0: COMMITTED._replace(leader_epoch=epoch)}
    assert (group.state, group.protocol_type, group.members) == ("Empty", "", ())


@pytest.mark.parametrize(
    ("version", "error"), [(8, IllegalGenerationError), (9, GroupIdNotFoundError)]
)
def test_a_member_of_a_group_that_is_not_there_gets_an_error(
    version: int, error: type[GroupIdNotFoundError], cluster: FakeCluster
) -> None:
    assert commit(cluster, version, generation=1) == error.code


@pytest.mark.parametrize(
    ("version", "error"), [(9, UnknownTopicOrPartitionError), (10, UnknownTopicIdError)]
)
def test_topics_and_partitions_must_be_there(
    version: int, error: type[UnknownTopicIdError], cluster: FakeCluster
) -> None:
    assert commit(cluster, version, topic="none") == error.code
    assert commit(cluster, version, number=4) == UnknownTopicOrPartitionError.code
    assert commit(cluster, version, number=-1) == UnknownTopicOrPartitionError.code
    assert cluster.groups.find("g") is None


def test_only_the_coordinator_takes_commits_and_a_group_needs_no_name(
    cluster: FakeCluster,
) -> None:
    other_id = (coordinator_id(cluster) + 1) % 3
    assert commit(cluster, 9, broker_id=other_id) == NotCoordinatorError.code
    assert commit(cluster, 9, group="") == 0


def test_a_member_commits_and_stays_alive_by_it(cluster: FakeCluster) -> None:
    [client] = settled(cluster, None)
    cluster.advance(cluster.now_ms + SESSION_MS - 1)
    assert client.commit({0: 5, 3: 6}) == [0, 0]
    cluster.advance(cluster.now_ms + SESSION_MS - 1)
    assert client.heartbeat() == 0
    assert commit(cluster, 9) == UnknownMemberIdError.code, "the group no longer has the member"


def test_commits_are_taken_while_members_join_and_not_while_the_leader_assigns(
    cluster: FakeCluster,
) -> None:
    [old], new = settled(cluster, None), ClassicClient(cluster)
    new.join_by_id()
    assert old.commit({0: 1}) == [0]
    old.accept(old.join())
    assert old.commit({0: 2}) == [RebalanceInProgressError.code]
    assert cluster.group("g").offsets[T0].offset == 1


def test_a_note_that_is_too_long_is_refused_alone(cluster: FakeCluster) -> None:
    [client] = settled(cluster, None)
    limit = cluster.groups.settings.offset_metadata_max_bytes
    assert client.commit({0: 1}, metadata="é" * limit) == [0]
    too_large = OffsetMetadataTooLargeError.code
    assert client.commit({0: 2}, metadata="é" * (limit + 1)) == [too_large]
    assert client.commit({0: 2}, metadata="😀" * (limit // 2 + 1)) == [too_large]
    assert cluster.group("g").offsets[T0].offset == 1


# Fetching.


@pytest.mark.parametrize(
    "version", range(OffsetFetchRequest.min_version, OffsetFetchRequest.max_version + 1)
)
def test_committed_offsets_are_returned_in_every_version(
    version: int, cluster: FakeCluster
) -> None:
    nothing = (0, -1, -1, "")
    assert fetch(cluster, version, [0]) == (0, {0: nothing}), "a missing group is no error"
    assert commit(cluster, 9) == 0
    known = (0, 5, 3 if version >= 5 else -1, "note")
    assert fetch(cluster, version, [0, 1]) == (0, {0: known, 1: nothing})
    if version >= 2:
        assert fetch(cluster, version, None) == (0, {0: known})


@pytest.mark.parametrize("version", range(1, OffsetFetchRequest.max_version + 1))
def test_a_broker_that_does_not_coordinate_refuses_in_every_version(
    version: int, cluster: FakeCluster
) -> None:
    other_id = (coordinator_id(cluster) + 1) % 3
    code, partitions = fetch(cluster, version, [0], broker_id=other_id)
    if version == 1:
        code = partitions[0][0]
    assert code == NotCoordinatorError.code


def test_an_unknown_topic_id_gets_its_error(cluster: FakeCluster) -> None:
    topic = OffsetFetchRequestTopics(topic_id=b"\x01" * 16, partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[topic])])
    response = response_to(
        cluster, request, OffsetFetchResponse, broker_id=coordinator_id(cluster), version=10
    )
    assert response.groups[0].topics[0].partitions[0].error_code == UnknownTopicIdError.code


@pytest.mark.parametrize("version", [7, 9])
def test_offsets_of_open_transactions_are_unstable_where_require_stable_is_set(
    version: int, cluster: FakeCluster
) -> None:
    assert commit(cluster, 9) == 0
    cluster.groups.offsets("g").hold(1, T0, CommittedOffset(9), log_offset=LATER)
    unstable = {0: (UnstableOffsetCommitError.code, -1, -1, "")}
    assert fetch(cluster, version, [0], is_stable=True) == (0, unstable)
    assert fetch(cluster, version, [0])[1][0][1] == 5
    cluster.groups.offsets("g").commit_held(1)
    assert fetch(cluster, version, [0], is_stable=True)[1][0][1] == 9
    cluster.groups.offsets("g").hold(2, T0, CommittedOffset(10), log_offset=LATER)
    cluster.groups.offsets("g").drop_held(2)
    assert fetch(cluster, version, [0], is_stable=True)[1][0][1] == 9


def test_a_deleted_topics_offsets_are_gone_with_those_of_open_transactions(
    cluster: FakeCluster,
) -> None:
    offsets = cluster.groups.offsets("g")
    for topic in ("t", "u"):
        assert commit(cluster, 9, topic=topic) == 0
        offsets.hold(7, TopicPartition(topic, 0), CommittedOffset(2), log_offset=LATER)
    cluster.delete_topic("t")
    cluster.create_topic("t", 4)
    assert fetch(cluster, 10, [0]) == (0, {0: (0, -1, -1, "")})
    offsets.commit_held(7)
    assert offsets.all() == {TopicPartition("u", 0): CommittedOffset(2)}


# Deleting.


def delete(
    cluster: FakeCluster, topic: str = "t", *, number: int = 0, group: str = "g"
) -> tuple[int, int]:
    """Delete an offset; return the error codes of request and partition, 0 if absent."""
    named = OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(number)])
    request = OffsetDeleteRequest(group_id=group, topics=[named])
    call = cluster.handle_request(coordinator_id(cluster, group), request, cluster.now_ms)
    response = response_of(call, OffsetDeleteResponse)
    partition_code = response.topics[0].partitions[0].error_code if response.topics else 0
    return response.error_code, partition_code


def test_offsets_of_an_empty_group_are_deleted(cluster: FakeCluster) -> None:
    assert delete(cluster) == (GroupIdNotFoundError.code, 0)
    assert delete(cluster, group="") == (InvalidGroupIdError.code, 0)
    commit(cluster, 9)
    assert delete(cluster) == (0, 0)
    assert delete(cluster, number=9) == (0, UnknownTopicOrPartitionError.code)
    assert cluster.group("g").offsets == {}


def test_only_topics_that_consumers_do_not_read_are_forgotten(cluster: FakeCluster) -> None:
    client = ClassicClient(cluster, protocols={"range": subscription_to("t")})
    settle(client)
    client.commit({0: 1})
    client.commit({0: 1}, topic="u")
    assert delete(cluster, "t") == (0, GroupSubscribedToTopicError.code)
    assert delete(cluster, "u") == (0, 0)
    assert list(cluster.group("g").offsets) == [T0]


@pytest.mark.parametrize("metadata", [b"", b"\0\0\xff"])
def test_a_member_with_unreadable_metadata_may_read_any_topic(
    metadata: bytes, cluster: FakeCluster
) -> None:
    settle(ClassicClient(cluster, protocols={"range": metadata}))
    assert delete(cluster, "u") == (0, GroupSubscribedToTopicError.code)


def test_others_than_consumers_keep_all_while_there_are_members(cluster: FakeCluster) -> None:
    client = ClassicClient(cluster, protocol_type="connect")
    begun(client)
    assert delete(cluster) == (NonEmptyGroupError.code, 0)
