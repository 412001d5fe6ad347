"""KIP-848 groups over time: joins, timeouts, changing topics, moving coordinators.

``integration/test_fake_groups_against_kafka.py`` compares single responses with Kafka's.
"""

from __future__ import annotations

import pytest

from pykclient.errors import UsageError
from pykclient.errors.broker import (
    BrokerUnsupportedVersionError,
    GroupIdNotFoundError,
    InconsistentGroupProtocolError,
    NonEmptyGroupError,
    NotCoordinatorError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from pykclient.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from pykclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pykclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pykclient.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from pykclient.testing import FakeCluster, GroupSettings
from pykclient.testing.fake.groups.kip848.group import ConsumerGroup
from pykclient.testing.fake.groups.kip848.regex import (
    REFRESH_INTERVAL_MS,
    REFRESH_INTERVAL_MS_MIN,
)
from pykclient.testing.fake.handlers.describe_groups import ALL_OPERATIONS
from pykclient.types import TopicPartition
from tests.testing.fake.groups.kip848_client import GROUP, REBALANCE_MS, Kip848Client, owned_by
from tests.testing.fake.requests import coordinator_id, response_to

SETTINGS = GroupSettings(group_consumer_assignment_interval_ms=1_000, group_consumer_max_size=3)
SESSION_MS = SETTINGS.group_consumer_session_timeout_ms
INTERVAL_MS = SETTINGS.group_consumer_assignment_interval_ms


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(3, group_settings=SETTINGS)
    cluster.create_topic("t", 4)
    return cluster


def group_of(cluster: FakeCluster) -> ConsumerGroup:
    group = cluster.groups.find(GROUP)
    assert isinstance(group, ConsumerGroup)
    return group


def pass_time(cluster: FakeCluster, duration_ms: int) -> None:
    cluster.advance(cluster.now_ms + duration_ms)


def two_settled(cluster: FakeCluster) -> tuple[Kip848Client, Kip848Client]:
    first, second = Kip848Client(cluster, "m1", ["t"]), Kip848Client(cluster, "m2", ["t"])
    first.settle()
    second.beat()
    pass_time(cluster, INTERVAL_MS)
    for client in (first, second, first, second):
        client.settle()
    return first, second


def test_a_target_stands_for_the_interval_between_assignments(cluster: FakeCluster) -> None:
    first, second = Kip848Client(cluster, "m1", ["t"]), Kip848Client(cluster, "m2", ["t"])
    first.settle()
    response = second.beat()
    assert response.member_epoch == first.epoch
    assert response.heartbeat_interval_ms == SETTINGS.group_consumer_heartbeat_interval_ms
    assert cluster.group(GROUP).state == "Assigning"
    pass_time(cluster, INTERVAL_MS - 1)
    assert second.beat().member_epoch == first.epoch
    pass_time(cluster, 1)
    assert second.beat().member_epoch == first.epoch + 1
    assert cluster.group(GROUP).state == "Reconciling"


def test_a_member_without_heartbeats_is_gone_after_its_session(cluster: FakeCluster) -> None:
    first, second = two_settled(cluster)
    epoch = group_of(cluster).epoch
    pass_time(cluster, SESSION_MS - 1)
    second.beat()
    assert len(cluster.group(GROUP).members) == 2
    pass_time(cluster, 1)
    assert [member.member_id for member in cluster.group(GROUP).members] == ["m2"]
    assert group_of(cluster).epoch == epoch + 1
    second.settle()
    assert owned_by(cluster, second) == {"t": [0, 1, 2, 3]}
    assert first.beat().error_code == UnknownMemberIdError.code


def test_a_member_that_gives_nothing_up_is_gone_after_its_rebalance_time_out(
    cluster: FakeCluster,
) -> None:
    first, second = Kip848Client(cluster, "m1", ["t"]), Kip848Client(cluster, "m2", ["t"])
    first.settle()
    pass_time(cluster, INTERVAL_MS)
    second.settle()
    first.beat()
    for _ in range(2):
        pass_time(cluster, REBALANCE_MS // 2 - 1)
        first.beat()
        second.beat()
    assert owned_by(cluster, second) == {}
    pass_time(cluster, 2)
    assert first.beat().error_code == UnknownMemberIdError.code
    second.settle()
    assert owned_by(cluster, second) == {"t": [0, 1, 2, 3]}


def test_a_member_that_gives_up_in_time_stays(cluster: FakeCluster) -> None:
    first, _ = two_settled(cluster)
    pass_time(cluster, REBALANCE_MS)
    assert first.beat().error_code == 0


def test_a_static_member_that_left_has_its_session_to_come_back(cluster: FakeCluster) -> None:
    client = Kip848Client(cluster, "m1", ["t"], instance_id="i")
    client.settle()
    epoch = group_of(cluster).epoch
    client.leave(-2)
    pass_time(cluster, SESSION_MS - 1)
    successor = Kip848Client(cluster, "m2", ["t"], instance_id="i")
    assert successor.beat().member_epoch == epoch
    successor.reconcile()
    assert owned_by(cluster, successor) == {"t": [0, 1, 2, 3]}
    successor.leave(-2)
    pass_time(cluster, SESSION_MS)
    assert cluster.group(GROUP).members == ()
    assert group_of(cluster).epoch == epoch + 1


def test_a_static_member_that_left_has_nothing_to_give_up_any_more(cluster: FakeCluster) -> None:
    """The revocation timer may fire while the member is away: its longer session decides."""
    left = Kip848Client(cluster, "m1", ["t"], instance_id="i")
    other = Kip848Client(cluster, "m2", ["t"])
    left.settle()
    pass_time(cluster, INTERVAL_MS)
    other.settle()
    left.beat()
    assert group_of(cluster).state_name == "Reconciling", "it has to revoke two"
    left.leave(-2)
    pass_time(cluster, REBALANCE_MS)
    assert {each.member_id for each in cluster.group(GROUP).members} == {"m1", "m2"}
    other.settle()
    assert owned_by(cluster, other) == {"t": [2, 3]}


def test_a_topic_that_appears_is_assigned_at_the_next_heartbeat(cluster: FakeCluster) -> None:
    client = Kip848Client(cluster, "m1", ["t", "later"])
    client.settle()
    cluster.create_topic("later", 2)
    pass_time(cluster, INTERVAL_MS)
    client.settle()
    assert owned_by(cluster, client) == {"t": [0, 1, 2, 3], "later": [0, 1]}


def test_a_topic_that_grows_is_assigned_whole_at_the_next_heartbeat(cluster: FakeCluster) -> None:
    client = Kip848Client(cluster, "m1", ["t"])
    client.settle()
    cluster.add_partitions("t", 6)
    pass_time(cluster, INTERVAL_MS)
    client.settle()
    assert owned_by(cluster, client) == {"t": [0, 1, 2, 3, 4, 5]}


@pytest.mark.parametrize(("name", "count"), [("t", 4), ("t", 3), ("u", 9)])
def test_a_topic_grows_to_more_than_it_has(cluster: FakeCluster, name: str, count: int) -> None:
    with pytest.raises(UsageError, match=f"'{name}' with fewer than {count}"):
        cluster.add_partitions(name, count)


def test_a_deleted_topic_is_taken_away_and_its_namesake_assigned_anew(
    cluster: FakeCluster,
) -> None:
    client = Kip848Client(cluster, "m1", ["t"])
    client.settle()
    cluster.delete_topic("t")
    pass_time(cluster, INTERVAL_MS)
    client.settle()
    assert client.owned == set()
    topic = cluster.create_topic("t", 1)
    pass_time(cluster, INTERVAL_MS)
    client.settle()
    assert client.owned == {(topic.topic_id, 0)}


def test_expressions_are_resolved_beside_heartbeats(cluster: FakeCluster) -> None:
    client = Kip848Client(cluster, "m1", regex="t|u.*")
    client.beat()
    assert client.assigned == set()
    cluster.advance(cluster.now_ms)
    client.settle()
    assert owned_by(cluster, client) == {"t": [0, 1, 2, 3]}
    assert group_of(cluster).is_subscribed_to("t")


@pytest.mark.parametrize("has_new_topic", [True, False])
def test_expressions_are_resolved_again_for_new_topics_but_not_at_once(
    cluster: FakeCluster, has_new_topic: bool
) -> None:
    client = Kip848Client(cluster, "m1", regex="t|u.*")
    client.beat()
    cluster.advance(cluster.now_ms)
    pass_time(cluster, INTERVAL_MS)
    client.settle()
    if has_new_topic:
        cluster.create_topic("u1", 1)
    pass_time(cluster, REFRESH_INTERVAL_MS_MIN - INTERVAL_MS)
    client.settle()
    cluster.advance(cluster.now_ms)
    assert not group_of(cluster).is_subscribed_to("u1")
    pass_time(cluster, 1)
    client.settle()
    cluster.advance(cluster.now_ms)
    assert group_of(cluster).is_subscribed_to("u1") == has_new_topic


def test_expressions_are_resolved_again_after_a_while(cluster: FakeCluster) -> None:
    cluster.create_topic("u1", 1)
    client = Kip848Client(cluster, "m1", regex="t|u.*")
    client.beat()
    cluster.advance(cluster.now_ms)
    cluster.delete_topic("u1")
    for _ in range(REFRESH_INTERVAL_MS // (SESSION_MS // 2)):
        pass_time(cluster, SESSION_MS // 2)
        client.settle()
    pass_time(cluster, SESSION_MS // 2)
    client.settle()
    cluster.advance(cluster.now_ms)
    assert not group_of(cluster).is_subscribed_to("u1")


def test_a_new_coordinator_gives_everybody_a_session_anew(cluster: FakeCluster) -> None:
    first, second = two_settled(cluster)
    epoch = group_of(cluster).epoch
    pass_time(cluster, SESSION_MS - 1)
    old_id = coordinator_id(cluster)
    cluster.move_coordinator(0, GROUP, (old_id + 1) % 3)
    pass_time(cluster, SESSION_MS - 1)
    assert first.beat().error_code == second.beat().error_code == 0
    assert (first.epoch, group_of(cluster).epoch) == (epoch, epoch)
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m1", member_epoch=epoch)
    response = response_to(cluster, request, ConsumerGroupHeartbeatResponse, broker_id=old_id)
    assert response.error_code == NotCoordinatorError.code


@pytest.mark.parametrize(
    ("member_id", "epoch_change", "partition", "version", "expected"),
    [
        ("m1", 0, 0, 9, None),
        ("m1", 0, 0, 8, BrokerUnsupportedVersionError),
        ("m1", 1, 0, 9, StaleMemberEpochError),
        ("m1", -1, 0, 9, None),
        ("m1", -1, 3, 9, StaleMemberEpochError),
        ("m2", -1, 2, 9, StaleMemberEpochError),
        ("m9", 0, 0, 9, UnknownMemberIdError),
        ("", -99, 0, 9, UnknownMemberIdError),
    ],
)
def test_a_commit_is_checked_against_the_epoch_in_which_its_partition_was_assigned(
    cluster: FakeCluster,
    member_id: str,
    epoch_change: int,
    partition: int,
    version: int,
    expected: type[Exception] | None,
) -> None:
    first, _ = two_settled(cluster)
    refusal = group_of(cluster).check_commit(
        member_id,
        first.epoch + epoch_change,
        version=version,
        partitions=[TopicPartition("t", partition)],
    )
    assert refusal is expected


def test_an_empty_group_takes_commits_without_an_epoch_and_may_be_deleted(
    cluster: FakeCluster,
) -> None:
    client = Kip848Client(cluster, "m1", ["t"])
    client.settle()
    group = group_of(cluster)
    assert group.check_commit("", -1, version=9) is UnknownMemberIdError
    assert group.check_delete() is NonEmptyGroupError
    client.leave()
    assert group.check_commit("", -1, version=9) is None
    assert group.check_delete() is None
    cluster.groups.remove(GROUP, cluster.now_ms)
    assert cluster.groups.find(GROUP) is None


@pytest.mark.parametrize(
    ("member_id", "epoch", "expected"),
    [
        (None, -1, None),
        ("m1", 2, None),
        ("m1", 1, StaleMemberEpochError),
        ("m9", 2, UnknownMemberIdError),
    ],
)
def test_offsets_are_read_in_the_members_own_epoch(
    cluster: FakeCluster, member_id: str | None, epoch: int, expected: type[Exception] | None
) -> None:
    Kip848Client(cluster, "m1", ["t"]).settle()
    assert group_of(cluster).check_fetch(member_id, epoch) is expected


def join_classic(cluster: FakeCluster) -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=10_000, protocol_type="consumer", protocols=[]
    )
    return response_to(
        cluster, request, JoinGroupResponse, broker_id=coordinator_id(cluster), version=3
    )


def test_a_group_with_members_keeps_its_kind(cluster: FakeCluster) -> None:
    Kip848Client(cluster, "m1", ["t"]).beat()
    assert join_classic(cluster).error_code == InconsistentGroupProtocolError.code


def test_what_is_described_and_listed(cluster: FakeCluster) -> None:
    first, second = two_settled(cluster)
    request = ConsumerGroupDescribeRequest(
        group_ids=[GROUP, "nobody's"], include_authorized_operations=True
    )
    described = response_to(
        cluster, request, ConsumerGroupDescribeResponse, broker_id=coordinator_id(cluster)
    )
    group = described.groups[0]
    assert (group.group_state, group.group_epoch) == ("Stable", first.epoch)
    assert group.authorized_operations == ALL_OPERATIONS
    assert [member.member_id for member in group.members] == ["m1", "m2"]
    assert [member.client_host for member in group.members] == ["/fake", "/fake"]
    assert described.groups[1].error_code in (
        GroupIdNotFoundError.code,
        NotCoordinatorError.code,
    )
    listed = response_to(
        cluster,
        ListGroupsRequest(types_filter=["Consumer"]),
        ListGroupsResponse,
        broker_id=coordinator_id(cluster),
    )
    assert [each.group_type for each in listed.groups] == ["consumer"]
    assert second.epoch == first.epoch
