"""DescribeGroups, ListGroups, DeleteGroups and LeaveGroup, in every version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.errors.broker import (
    GroupIdNotFoundError,
    InvalidGroupIdError,
    NonEmptyGroupError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from pykclient.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from pykclient.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from pykclient.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from pykclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from pykclient.testing.fake.handlers.describe_groups import ALL_OPERATIONS
from tests.testing.fake.groups.classic_client import (
    ClassicClient,
    assignment_of,
    joined,
    settled,
    subscription_to,
)
from tests.testing.fake.requests import coordinator_id, response_to

if TYPE_CHECKING:
    from pykclient.testing import FakeCluster


@pytest.fixture
def client(cluster: FakeCluster) -> ClassicClient:
    """Return the only member of a stable group."""
    return settled(cluster, None)[0]


def described(
    cluster: FakeCluster, name: str, version: int, broker_id: int | None = None
) -> DescribedGroup:
    request = DescribeGroupsRequest([name], include_authorized_operations=version >= 3)
    node_id = coordinator_id(cluster, name) if broker_id is None else broker_id
    response = response_to(
        cluster, request, DescribeGroupsResponse, broker_id=node_id, version=version
    )
    return response.groups[0]


@pytest.mark.parametrize("version", range(DescribeGroupsRequest.max_version + 1))
def test_a_stable_group_is_described_in_every_version(version: int, client: ClassicClient) -> None:
    group = described(client.cluster, "g", version)
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable", "consumer", "range"
    )  # fmt: skip
    [member] = group.members
    assert (member.member_id, member.client_id) == (client.member_id, "test")
    assert member.member_metadata == subscription_to("t")
    assert member.member_assignment == assignment_of("t", 0)
    if version >= 3:
        assert group.authorized_operations == ALL_OPERATIONS


def test_a_group_that_rebalances_has_members_without_their_metadata(client: ClassicClient) -> None:
    ClassicClient(client.cluster).join_by_id()
    group = described(client.cluster, "g", 6)
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [member.member_metadata for member in group.members] == [b"", b""]


@pytest.mark.parametrize(("version", "code"), [(0, 0), (5, 0), (6, GroupIdNotFoundError.code)])
def test_a_group_that_is_not_there_is_dead(version: int, code: int, cluster: FakeCluster) -> None:
    group = described(cluster, "none", version)
    assert (group.group_state, group.error_code) == ("Dead", code)


def test_only_the_coordinator_describes(client: ClassicClient) -> None:
    other_id = (coordinator_id(client.cluster) + 1) % 3
    group = described(client.cluster, "g", 6, other_id)
    assert group.error_code == NotCoordinatorError.code


def listed(
    cluster: FakeCluster,
    version: int = 5,
    *,
    states: tuple[str, ...] = (),
    types: tuple[str, ...] = (),
) -> dict[str, str]:
    """Return the groups of all brokers with their protocol types."""
    groups: dict[str, str] = {}
    for broker_id in cluster.brokers:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        response = response_to(
            cluster, request, ListGroupsResponse, broker_id=broker_id, version=version
        )
        names = {group.group_id: group.protocol_type for group in response.groups}
        assert not names.keys() & groups.keys(), "each group has one coordinator"
        groups |= names
    return groups


@pytest.mark.parametrize("version", range(ListGroupsRequest.max_version + 1))
def test_groups_are_listed_by_their_coordinators_in_every_version(
    version: int, client: ClassicClient
) -> None:
    assert listed(client.cluster, version) == {"g": "consumer"}


def test_groups_are_listed_by_state_and_type(client: ClassicClient) -> None:
    cluster = client.cluster
    other = ClassicClient(cluster)
    joined(other.join(group="empty", broker_id=coordinator_id(cluster, "empty")))
    assert set(listed(cluster)) == {"g", "empty"}
    assert set(listed(cluster, states=(" stable ",))) == {"g"}
    assert set(listed(cluster, states=("Empty", "Dead"))) == {"empty"}
    assert set(listed(cluster, types=("Classic",))) == {"g", "empty"}
    assert listed(cluster, types=("consumer",)) == {}


def deleted(cluster: FakeCluster, *names: str, version: int = 2) -> list[tuple[str, int]]:
    request = DeleteGroupsRequest(list(names))
    response = response_to(
        cluster, request, DeleteGroupsResponse, broker_id=coordinator_id(cluster), version=version
    )
    return [(each.group_id, each.error_code) for each in response.results]


@pytest.mark.parametrize("version", range(DeleteGroupsRequest.max_version + 1))
def test_an_empty_group_is_deleted_with_its_offsets_in_every_version(
    version: int, client: ClassicClient
) -> None:
    cluster = client.cluster
    client.commit({0: 1})
    assert deleted(cluster, "g", version=version) == [("g", NonEmptyGroupError.code)]
    client.leave()
    assert deleted(cluster, "g", "g", version=version) == [("g", 0)]
    assert deleted(cluster, "g", version=version) == [("g", GroupIdNotFoundError.code)]
    assert cluster.groups.offsets("g").all() == {}


def test_only_the_coordinator_deletes(client: ClassicClient) -> None:
    cluster = client.cluster
    elsewhere = next(
        name
        for name in map(str, range(100))
        if coordinator_id(cluster, name) != coordinator_id(cluster)
    )
    assert deleted(cluster, elsewhere) == [(elsewhere, NotCoordinatorError.code)]


@pytest.mark.parametrize("version", range(LeaveGroupRequest.max_version + 1))
def test_members_leave_in_every_version(version: int, client: ClassicClient) -> None:
    assert client.leave(version) == 0
    assert client.cluster.group("g").state == "Empty"
    assert client.leave(version) == UnknownMemberIdError.code


def test_a_member_that_was_given_an_id_may_leave_without_having_joined(
    client: ClassicClient,
) -> None:
    other = ClassicClient(client.cluster)
    other.member_id = joined(other.join()).member_id
    call = client.join()
    assert not call.is_ended
    assert other.leave() == 0
    assert joined(call).generation_id == 2


@pytest.mark.parametrize("version", range(HeartbeatRequest.max_version + 1))
def test_heartbeats_get_a_response_in_every_version(version: int, client: ClassicClient) -> None:
    assert client.heartbeat(version) == 0
    ClassicClient(client.cluster).join_by_id()
    assert client.heartbeat(version) == RebalanceInProgressError.code


def test_a_group_must_have_a_name_and_be_there(cluster: FakeCluster) -> None:
    for name, code in (("", InvalidGroupIdError.code), ("none", UnknownMemberIdError.code)):
        broker_id = coordinator_id(cluster, name)
        sync = SyncGroupRequest(group_id=name, protocol_type="consumer", protocol_name="range")
        leave = LeaveGroupRequest(group_id=name, members=[MemberIdentity("m")])
        codes = [
            response_to(
                cluster, HeartbeatRequest(group_id=name), HeartbeatResponse, broker_id=broker_id
            ).error_code,
            response_to(cluster, sync, SyncGroupResponse, broker_id=broker_id).error_code,
        ]
        left = response_to(cluster, leave, LeaveGroupResponse, broker_id=broker_id)
        codes.append(left.error_code or left.members[0].error_code)
        assert codes == [code] * 3
