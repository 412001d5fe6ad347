"""Static members (KIP-345): they return, are fenced, and are removed by instance id."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.errors.broker import (
    FencedInstanceIdError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from pykclient.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from tests.testing.fake.groups.classic_client import (
    SESSION_MS,
    ClassicClient,
    assign_each,
    assignment_of,
    begun,
    joined,
    settled,
    synced,
)
from tests.testing.fake.requests import coordinator_id, response_to

if TYPE_CHECKING:
    from pykclient.testing import FakeCluster


def test_a_static_member_joins_without_requesting_an_id_first(cluster: FakeCluster) -> None:
    [client] = settled(cluster, "i")
    [member] = cluster.group("g").members
    assert (member.instance_id, member.member_id) == ("i", client.member_id)
    assert client.member_id.startswith("i-")


@pytest.mark.parametrize(
    ("number", "version", "is_skipped", "member_count", "leads"),
    [(0, 9, True, 2, True), (0, 8, False, 0, False), (1, 9, False, 0, False)],
)
def test_one_that_comes_back_keeps_its_share_without_a_rebalance(
    cluster: FakeCluster,
    number: int,
    version: int,
    is_skipped: bool,
    member_count: int,
    leads: bool,
) -> None:
    clients = settled(cluster, "i", "j")
    leader_id = clients[0].member_id
    back = ClassicClient(cluster, clients[number].instance_id)
    response = back.accept(back.join(version=version))
    assert (response.skip_assignment, len(response.members)) == (is_skipped, member_count)
    assert (response.leader == back.member_id) is leads
    assert response.leader == leader_id or leads
    assert synced(back.sync()).assignment == assignment_of("t", number)
    assert cluster.group("g").generation == 1
    assert clients[1 - number].heartbeat() == 0


def test_the_one_that_was_replaced_is_fenced(cluster: FakeCluster) -> None:
    [old] = settled(cluster, "i")
    back = ClassicClient(cluster, "i")
    back.accept(back.join())
    fenced = FencedInstanceIdError.code
    assert old.heartbeat() == fenced
    assert joined(old.join()).error_code == fenced
    assert synced(old.sync()).error_code == fenced
    assert old.commit({0: 1}) == [fenced]
    assert old.leave() == fenced
    assert back.heartbeat() == 0


def test_one_that_waits_is_fenced_at_once(cluster: FakeCluster) -> None:
    clients = settled(cluster, "i", "j")
    waiting = clients[0].join()
    assert not waiting.is_ended
    back = ClassicClient(cluster, "i")
    call = back.join()
    assert joined(waiting).error_code == FencedInstanceIdError.code
    assign_each([back, clients[1]], [call, clients[1].join()])


def test_one_that_comes_back_while_the_leader_assigns_makes_a_rebalance(
    cluster: FakeCluster,
) -> None:
    clients = [ClassicClient(cluster, instance_id) for instance_id in "ij"]
    begun(*clients)
    waiting = clients[1].sync()
    ClassicClient(cluster, "j").join()
    assert synced(waiting).error_code == FencedInstanceIdError.code
    assert clients[0].heartbeat() == RebalanceInProgressError.code


def test_one_that_comes_back_with_another_protocol_makes_a_rebalance(cluster: FakeCluster) -> None:
    client = ClassicClient(cluster, "i", protocols={"a": b"", "b": b""})
    begun(client)
    client.sync({})
    back = ClassicClient(cluster, "i", protocols={"b": b"", "a": b""})
    response = back.accept(back.join())
    assert (response.generation_id, response.protocol_name) == (2, "b")


def test_static_members_are_not_missed_until_their_session_ends(cluster: FakeCluster) -> None:
    clients = settled(cluster, "i", "j")
    cluster.advance(cluster.now_ms + SESSION_MS - 1)
    clients[0].heartbeat()
    assert len(cluster.group("g").members) == 2
    cluster.advance(cluster.now_ms + 1)
    assert [each.instance_id for each in cluster.group("g").members] == ["i"]


def test_an_administrator_removes_a_static_member_by_name(cluster: FakeCluster) -> None:
    clients = settled(cluster, "i", "j")
    identities = [
        MemberIdentity(member_id="", group_instance_id="j"),
        MemberIdentity(member_id="", group_instance_id="k"),
        MemberIdentity(member_id=clients[0].member_id, group_instance_id="j"),
        MemberIdentity(member_id="nobody"),
    ]
    request = LeaveGroupRequest(group_id="g", members=identities)
    response = response_to(cluster, request, LeaveGroupResponse, broker_id=coordinator_id(cluster))
    unknown = UnknownMemberIdError.code
    assert [each.error_code for each in response.members] == [0, unknown, unknown, unknown]
    assert [each.group_instance_id for each in response.members] == ["j", "k", "j", None]
    assert clients[0].heartbeat() == RebalanceInProgressError.code
