"""Classic groups, request by request, with the responses of Kafka's coordinator."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.errors import UsageError
from pykclient.errors.broker import (
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownServerError,
)
from pykclient.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from pykclient.protocol.messages.join_group import JoinGroupRequest
from pykclient.protocol.messages.sync_group import SyncGroupRequest
from pykclient.testing import FakeCluster, GroupSettings
from pykclient.testing.fake.groups.classic.group import NEW_MEMBER_JOIN_TIMEOUT_MS
from pykclient.testing.fake.groups.classic.state import (
    NEXT,
    ClassicState,
    assigned_partitions,
    subscribed_topics,
)
from pykclient.types import TopicPartition
from tests.testing.fake.groups.classic_client import (
    REBALANCE_MS,
    SESSION_MS,
    ClassicClient,
    assign_each,
    assignment_of,
    begin,
    begun,
    joined,
    settle,
    settled,
    subscription_to,
    synced,
)
from tests.testing.fake.requests import coordinator_id


def state_of(cluster: FakeCluster) -> str:
    return cluster.group("g").state


def pause(cluster: FakeCluster, duration_ms: int) -> None:
    cluster.advance(cluster.now_ms + duration_ms)


# Joining.


@pytest.mark.parametrize(
    "version", range(JoinGroupRequest.min_version, JoinGroupRequest.max_version + 1)
)
def test_a_member_joins_and_is_assigned_in_every_version(
    version: int, cluster: FakeCluster
) -> None:
    client = ClassicClient(cluster)
    call = client.join(version=version)
    if version >= 4:
        first = joined(call)
        assert first.error_code == MemberIdRequiredError.code
        client.member_id = first.member_id
        call = client.join(version=version)
    begin(cluster)
    response = client.accept(call)
    assert (response.generation_id, response.leader, response.protocol_name) == (
        1,
        client.member_id,
        "range",
    )
    assert [each.member_id for each in response.members] == [client.member_id]
    sync_version = min(version, SyncGroupRequest.max_version)
    call = client.sync({client.member_id: assignment_of("t", 0, 1)}, version=sync_version)
    assert synced(call).assignment == assignment_of("t", 0, 1)
    group = cluster.group("g")
    assert (group.state, group.generation, group.leader_id) == ("Stable", 1, client.member_id)
    assert group.members[0].partitions == (TopicPartition("t", 0), TopicPartition("t", 1))


def test_an_id_that_was_requested_and_not_used_is_dropped(cluster: FakeCluster) -> None:
    client = ClassicClient(cluster)
    client.member_id = joined(client.join()).member_id
    pause(cluster, SESSION_MS)
    assert joined(client.join()).error_code == UnknownMemberIdError.code


def test_a_member_that_was_given_an_id_is_waited_for(cluster: FakeCluster) -> None:
    [old], slow = settled(cluster, None), ClassicClient(cluster)
    slow.member_id = joined(slow.join()).member_id
    call = old.join()
    assert not call.is_ended
    late = slow.join()
    assign_each([old, slow], [call, late])
    assert cluster.group("g").generation == 2


def test_only_the_leader_receives_the_members(cluster: FakeCluster) -> None:
    clients = [ClassicClient(cluster) for _ in range(3)]
    response = begun(*clients)
    assert [len(each.members) for each in response] == [3, 0, 0]
    assert {each.leader for each in response} == {clients[0].member_id}


def test_a_group_that_was_empty_waits_for_more_members_each_time_one_comes() -> None:
    settings = GroupSettings(group_initial_rebalance_delay_ms=3_000)
    cluster = FakeCluster(1, group_settings=settings)
    first, second, third = (ClassicClient(cluster, rebalance_ms=7_000) for _ in range(3))
    calls = [first.join_by_id()]
    cluster.advance(2_999)
    calls.append(second.join_by_id())
    cluster.advance(3_000)
    assert not calls[0].is_ended, "the second joined meanwhile"
    cluster.advance(5_999)
    calls.append(third.join_by_id())
    cluster.advance(6_000)
    assert not calls[0].is_ended, "one of seven seconds is left"
    cluster.advance(7_000)
    assert [joined(call).generation_id for call in calls] == [1, 1, 1]


def test_the_initial_delay_is_not_prolonged_without_another_member() -> None:
    settings = GroupSettings(group_initial_rebalance_delay_ms=3_000)
    cluster = FakeCluster(1, group_settings=settings)
    call = ClassicClient(cluster).join_by_id()
    cluster.advance(2_999)
    assert not call.is_ended
    cluster.advance(3_000)
    assert joined(call).generation_id == 1


def test_a_new_member_makes_the_others_join_again(cluster: FakeCluster) -> None:
    [old], new = settled(cluster, None), ClassicClient(cluster)
    call = new.join_by_id()
    assert old.heartbeat() == RebalanceInProgressError.code
    assert not call.is_ended
    assign_each([old, new], [old.join(), call])
    assert old.heartbeat() == new.heartbeat() == 0
    assert [each.partitions for each in cluster.group("g").members] == [
        (TopicPartition("t", 0),),
        (TopicPartition("t", 1),),
    ]


def test_members_that_do_not_join_again_in_time_are_lost(cluster: FakeCluster) -> None:
    gone = ClassicClient(cluster, session_ms=5 * REBALANCE_MS)
    new = ClassicClient(cluster, rebalance_ms=1_000)
    settle(gone)
    call = new.join_by_id()
    pause(cluster, REBALANCE_MS - 1)
    assert not call.is_ended, "the slowest member's time counts"
    pause(cluster, 1)
    response = new.accept(call)
    assert (response.leader, len(response.members)) == (new.member_id, 1)
    assert gone.heartbeat() == UnknownMemberIdError.code


def test_a_new_member_waits_only_so_long_for_its_first_generation(cluster: FakeCluster) -> None:
    old = ClassicClient(cluster, rebalance_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    new = ClassicClient(cluster)
    settle(old)
    call = new.join_by_id()
    for _ in range(2 * NEW_MEMBER_JOIN_TIMEOUT_MS // SESSION_MS):
        assert not call.is_ended
        old.heartbeat()
        pause(cluster, SESSION_MS // 2)
    assert joined(call).error_code == UnknownMemberIdError.code


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_leader_that_joins_again_makes_a_rebalance_and_a_follower_does_not(
    cluster: FakeCluster, is_leader: bool
) -> None:
    leader, follower = settled(cluster, None, None)
    call = (leader if is_leader else follower).join()
    assert call.is_ended is not is_leader
    assert state_of(cluster) == ("PreparingRebalance" if is_leader else "Stable")
    if not is_leader:
        assert joined(call).generation_id == 1
        assert joined(call).members == []


def test_changed_metadata_of_a_follower_makes_a_rebalance(cluster: FakeCluster) -> None:
    leader, follower = settled(cluster, None, None)
    follower.protocols["range"] = b"changed"
    assert not follower.join().is_ended
    assert leader.heartbeat() == RebalanceInProgressError.code


def test_a_response_that_was_lost_is_sent_again(cluster: FakeCluster) -> None:
    client = ClassicClient(cluster)
    client.join_by_id()
    begin(cluster)
    again = client.accept(client.join())
    assert (again.generation_id, len(again.members)) == (1, 1)
    assert state_of(cluster) == "CompletingRebalance"


# Protocols.


@pytest.mark.parametrize(
    ("protocols_of_members", "chosen"),
    [
        (["ab", "ab"], "a"),
        (["ab", "ba", "ba"], "b"),
        (["abc", "cb"], "b"),
        (["ab", "bc", "cb"], "b"),
    ],
)
def test_the_protocol_with_most_votes_that_all_support_is_chosen(
    protocols_of_members: list[str], chosen: str, cluster: FakeCluster
) -> None:
    clients = [
        ClassicClient(cluster, protocols=dict.fromkeys(names, b""))
        for names in protocols_of_members
    ]
    assert {response.protocol_name for response in begun(*clients)} == {chosen}


@pytest.mark.parametrize(
    "stranger",
    [
        {"protocols": {"other": b""}},
        {"protocol_type": "connect"},
        {"protocol_type": ""},
    ],
)
def test_a_member_that_no_other_understands_is_refused(
    stranger: dict[str, object], cluster: FakeCluster
) -> None:
    settle(ClassicClient(cluster))
    client = ClassicClient(cluster, **stranger)  # type: ignore[arg-type]
    assert joined(client.join()).error_code == InconsistentGroupProtocolError.code


def test_a_first_member_needs_a_protocol(cluster: FakeCluster) -> None:
    client = ClassicClient(cluster)
    client.protocols = {}
    assert joined(client.join()).error_code == InconsistentGroupProtocolError.code
    assert joined(ClassicClient(cluster, protocol_type="").join()).error_code
    assert state_of(cluster) == "Empty"


# Refusals.


def test_what_no_group_would_take_is_refused(cluster: FakeCluster) -> None:
    client = ClassicClient(cluster)
    assert joined(client.join(group="")).error_code == InvalidGroupIdError.code
    elsewhere = (coordinator_id(cluster) + 1) % 3
    assert joined(client.join(broker_id=elsewhere)).error_code == NotCoordinatorError.code
    for session_ms in (5_999, 1_800_001):
        refused = ClassicClient(cluster, session_ms=session_ms)
        assert joined(refused.join()).error_code == InvalidSessionTimeoutError.code
    client.member_id = "nobody"
    assert joined(client.join()).error_code == UnknownMemberIdError.code
    assert cluster.groups.find("g") is None, "none of these creates a group"


def test_a_full_group_takes_no_more_members() -> None:
    cluster = FakeCluster(1, group_settings=GroupSettings(50, group_max_size=2))
    clients = [ClassicClient(cluster) for _ in range(3)]
    calls = [client.join_by_id() for client in clients]
    refused = joined(calls[2])
    assert (refused.error_code, refused.member_id) == (GroupMaxSizeReachedError.code, "")
    begin(cluster)
    assign_each(clients[:2], calls[:2])
    assert joined(clients[2].join()).error_code == GroupMaxSizeReachedError.code
    assert not clients[0].join().is_ended, "a member is not a new one"


def test_members_of_another_generation_or_name_are_refused(cluster: FakeCluster) -> None:
    [client] = settled(cluster, None)
    client.generation = 0
    assert client.heartbeat() == IllegalGenerationError.code
    assert synced(client.sync()).error_code == IllegalGenerationError.code
    assert client.commit({0: 1}) == [IllegalGenerationError.code]
    client.member_id = "nobody"
    assert client.heartbeat() == UnknownMemberIdError.code
    assert synced(client.sync()).error_code == UnknownMemberIdError.code
    assert client.leave() == UnknownMemberIdError.code
    assert client.commit({0: 1}) == [UnknownMemberIdError.code]


def test_a_pending_member_cannot_turn_static(cluster: FakeCluster) -> None:
    client = ClassicClient(cluster)
    client.member_id = joined(client.join()).member_id
    client.instance_id = "i"
    assert joined(client.join()).error_code == UnknownServerError.code


# Assigning.


def test_members_wait_for_the_leaders_assignment(cluster: FakeCluster) -> None:
    leader, follower = ClassicClient(cluster), ClassicClient(cluster)
    begun(leader, follower)
    waiting = follower.sync()
    assert not waiting.is_ended
    own = synced(leader.sync({leader.member_id: assignment_of("t", 0)}))
    assert own.assignment == assignment_of("t", 0)
    assert (own.protocol_type, own.protocol_name) == ("consumer", "range")
    assert synced(waiting).assignment == b"", "the leader left it out"
    assert synced(follower.sync()).error_code == 0, "again"


def test_a_sync_must_name_the_protocol_that_was_chosen(cluster: FakeCluster) -> None:
    [client] = settled(cluster, None)
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=client.member_id)
    for version, code in ((5, InconsistentGroupProtocolError.code), (4, 0)):
        call = cluster.handle_request(coordinator_id(cluster), request, 0, version=version)
        assert synced(call).error_code == code
    client.protocols = {"other": b""}
    assert synced(client.sync()).error_code == InconsistentGroupProtocolError.code


def test_a_member_that_joins_while_the_leader_assigns_begins_again(cluster: FakeCluster) -> None:
    leader, follower = ClassicClient(cluster), ClassicClient(cluster)
    begun(leader, follower)
    waiting = follower.sync()
    ClassicClient(cluster).join_by_id()
    assert synced(waiting).error_code == RebalanceInProgressError.code
    assert synced(leader.sync()).error_code == RebalanceInProgressError.code


def test_members_that_never_request_their_assignment_are_removed(cluster: FakeCluster) -> None:
    leader = ClassicClient(cluster, rebalance_ms=4_000)
    follower = ClassicClient(cluster, rebalance_ms=4_000)
    begun(leader, follower)
    leader.sync({})
    pause(cluster, 3_999)
    assert leader.heartbeat() == 0
    pause(cluster, 1)
    assert leader.heartbeat() == RebalanceInProgressError.code
    assert follower.heartbeat() == UnknownMemberIdError.code


# Staying and leaving.


def test_a_member_without_heartbeats_is_lost_after_its_session(cluster: FakeCluster) -> None:
    lively, silent = settled(cluster, None, None)
    pause(cluster, SESSION_MS - 1)
    assert lively.heartbeat() == 0
    pause(cluster, 1)
    assert lively.heartbeat() == RebalanceInProgressError.code
    assert silent.heartbeat() == UnknownMemberIdError.code
    response = lively.accept(lively.join())
    assert len(response.members) == 1


def test_a_member_that_waits_for_others_may_send_no_heartbeats(cluster: FakeCluster) -> None:
    old, slow = ClassicClient(cluster), ClassicClient(cluster, session_ms=REBALANCE_MS)
    settle(old, slow)
    call = old.join()
    pause(cluster, 3 * SESSION_MS)
    assert not call.is_ended
    assert slow.heartbeat() == RebalanceInProgressError.code
    calls = [call, slow.join()]
    assign_each([old, slow], calls)
    pause(cluster, SESSION_MS - 1)
    assert old.heartbeat() == 0


def test_a_member_that_leaves_is_not_waited_for(cluster: FakeCluster) -> None:
    stays, leaves = settled(cluster, None, None)
    assert leaves.leave() == 0
    assert leaves.leave() == UnknownMemberIdError.code
    assert stays.heartbeat() == RebalanceInProgressError.code
    assign_each([stays], [stays.join()])
    assert stays.leave() == 0
    group = cluster.group("g")
    assert (group.state, group.generation, group.members) == ("Empty", 3, ())
    assert group.protocol_name is None


def test_the_last_one_missing_may_leave_and_the_others_go_on(cluster: FakeCluster) -> None:
    stays, leaves = settled(cluster, None, None)
    call = stays.join()
    assert not call.is_ended
    leaves.leave()
    assert joined(call).generation_id == 2


def test_a_leader_that_goes_leaves_the_lead_to_another(cluster: FakeCluster) -> None:
    clients = [ClassicClient(cluster) for _ in range(3)]
    settle(*clients)
    clients[0].leave()
    calls = [client.join() for client in clients[1:]]
    assign_each(clients[1:], calls)
    assert cluster.group("g").leader_id == clients[1].member_id


def test_a_leader_that_does_not_come_in_time_leads_no_more(cluster: FakeCluster) -> None:
    leader = ClassicClient(cluster, "i", session_ms=5 * REBALANCE_MS)
    other = ClassicClient(cluster, session_ms=5 * REBALANCE_MS)
    settle(leader, other)
    other.protocols["range"] = b"changed"
    call = other.join()
    pause(cluster, REBALANCE_MS)
    assert other.accept(call).leader == other.member_id
    assert len(cluster.group("g").members) == 2, "a static member may be late"


def test_a_test_can_end_a_members_session(cluster: FakeCluster) -> None:
    [client] = settled(cluster, None)
    cluster.expire_member("g", client.member_id)
    assert state_of(cluster) == "Empty"
    for name, member_id in (("g", client.member_id), ("none", "m")):
        with pytest.raises(UsageError):
            cluster.expire_member(name, member_id)
    with pytest.raises(UsageError):
        cluster.group("none")


def test_an_emptied_group_leaves_no_timer_behind(cluster: FakeCluster) -> None:
    before_ms = FakeCluster(1).next_deadline_ms()
    for client in settled(cluster, "i", None):
        client.leave()
    begin(cluster)
    assert cluster.next_deadline_ms() == before_ms


def test_every_state_can_be_left_for_dead_and_no_dead_group_comes_back() -> None:
    assert set(NEXT) == set(ClassicState)
    assert all(ClassicState.DEAD in NEXT[state] for state in set(NEXT) - {ClassicState.DEAD})
    assert NEXT[ClassicState.DEAD] == frozenset()


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_of_all_versions_are_read(version: int) -> None:
    out = bytearray(version.to_bytes(2))
    ConsumerProtocolSubscription(topics=["a", "b"], user_data=b"x").write(out, version)
    assert subscribed_topics([bytes(out), subscription_to("c")]) == frozenset("abc")


def test_assignments_are_read() -> None:
    assert assigned_partitions(assignment_of("t", 1, 3)) == (
        TopicPartition("t", 1),
        TopicPartition("t", 3),
    )


@given(st.binary())
def test_garbage_is_nothing_known(data: bytes) -> None:
    assert isinstance(assigned_partitions(data), tuple)
    topics = subscribed_topics([data])
    assert topics is None or isinstance(topics, frozenset)


def test_one_unreadable_subscription_makes_all_unknown() -> None:
    assert subscribed_topics([subscription_to("a"), b"\0"]) is None
    assert assigned_partitions(b"") == ()
