"""Coordinators that move, stop and return: only the group's state in the log survives."""

from __future__ import annotations

import pytest

from pykclient.errors.broker import (
    CoordinatorLoadInProgressError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykclient.testing import FakeCluster, GroupSettings, faults
from pykclient.types import TopicPartition
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


def move(cluster: FakeCluster) -> int:
    """Move the group's coordinator to the next broker, and return the old one's id."""
    old_id = cluster.group("g").coordinator_id
    cluster.move_coordinator(0, "g", (old_id + 1) % 3)
    return old_id


@pytest.mark.parametrize("version", range(FindCoordinatorRequest.max_version + 1))
def test_the_coordinator_is_found_in_every_version(version: int, cluster: FakeCluster) -> None:
    keys = ["g"] if version >= 4 else []
    request = FindCoordinatorRequest(key="" if keys else "g", coordinator_keys=keys)
    response = response_to(cluster, request, FindCoordinatorResponse, version=version)
    found = response.coordinators[0].node_id if keys else response.node_id
    assert found == coordinator_id(cluster)


def test_a_stable_group_goes_on_at_its_new_coordinator(cluster: FakeCluster) -> None:
    clients = settled(cluster, None, None)
    assert clients[0].commit({0: 7}) == [0]
    before = cluster.group("g")
    old_id = move(cluster)
    assert clients[0].heartbeat() == clients[1].heartbeat() == 0
    assert synced(clients[1].sync()).assignment == assignment_of("t", 1)
    after = cluster.group("g")
    assert (after.state, after.generation, after.members) == ("Stable", 1, before.members)
    assert after.offsets[TopicPartition("t", 0)].offset == 7
    assert joined(clients[0].join(broker_id=old_id)).error_code == NotCoordinatorError.code


def test_members_have_a_whole_session_from_the_move_on(cluster: FakeCluster) -> None:
    [client] = settled(cluster, None)
    cluster.advance(cluster.now_ms + SESSION_MS - 1)
    move(cluster)
    cluster.advance(cluster.now_ms + SESSION_MS - 1)
    assert client.heartbeat() == 0
    cluster.advance(cluster.now_ms + SESSION_MS)
    assert client.heartbeat() == UnknownMemberIdError.code


def test_a_waiting_member_is_sent_to_the_new_coordinator(cluster: FakeCluster) -> None:
    leader, follower = ClassicClient(cluster), ClassicClient(cluster)
    calls = [leader.join_by_id(), follower.join_by_id()]
    move(cluster)
    assert [joined(call).error_code for call in calls] == [NotCoordinatorError.code] * 2
    assert cluster.group("g").members == ()
    leader.member_id = follower.member_id = ""
    begun(leader, follower)
    waiting = follower.sync()
    move(cluster)
    assert synced(waiting).error_code == NotCoordinatorError.code


def test_a_generation_that_was_never_assigned_is_gone(cluster: FakeCluster) -> None:
    [old], new = settled(cluster, None), ClassicClient(cluster)
    call = new.join_by_id()
    old.accept(old.join())
    new.accept(call)
    assert cluster.group("g").generation == 2
    move(cluster)
    group = cluster.group("g")
    assert (group.state, group.generation) == ("Stable", 1)
    assert [each.member_id for each in group.members] == [old.member_id]
    assert new.heartbeat() == UnknownMemberIdError.code


def test_a_member_that_left_is_back_until_its_session_ends(cluster: FakeCluster) -> None:
    """Kafka writes a group when its next generation is assigned, not when a member leaves."""
    stays, left = settled(cluster, None, None)
    left.leave()
    move(cluster)
    assert len(cluster.group("g").members) == 2
    cluster.advance(cluster.now_ms + SESSION_MS - 1)
    stays.heartbeat()
    cluster.advance(cluster.now_ms + 1)
    assert stays.heartbeat() == RebalanceInProgressError.code


def test_members_join_again_at_the_new_coordinator(cluster: FakeCluster) -> None:
    clients = settled(cluster, None, None)
    move(cluster)
    assign_each(clients, [client.join() for client in clients])
    assert cluster.group("g").generation == 2


def test_a_group_outlives_its_only_broker() -> None:
    cluster = FakeCluster(1, group_settings=GroupSettings(group_initial_rebalance_delay_ms=50))
    cluster.create_topic("t", 4)
    [client] = settled(cluster, None)
    client.commit({1: 3})
    cluster.stop_broker(0)
    assert cluster.coordinator(0, "g") is None
    cluster.advance(cluster.now_ms + 10 * SESSION_MS)
    cluster.start_broker(0)
    assert client.heartbeat() == 0
    assert cluster.group("g").offsets[TopicPartition("t", 1)].offset == 3


def test_a_coordinator_that_still_loads_is_a_fault(cluster: FakeCluster) -> None:
    [client] = settled(cluster, None)
    cluster.faults.add(faults.fail_with(CoordinatorLoadInProgressError), ApiKey.HEARTBEAT)
    assert client.heartbeat() == CoordinatorLoadInProgressError.code
    assert client.heartbeat() == 0
