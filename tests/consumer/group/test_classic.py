"""A classic member: joining, staying, leaving, and every error of the coordinator."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.group.classic.membership import ClassicState
from pykclient.consumer.group.classic.protocol import (
    encode_assignment,
    read_assignment,
    read_subscription,
)
from pykclient.consumer.group.history import EPOCH
from pykclient.consumer.group.metadata import AT_ONCE_COUNT
from pykclient.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    DecodeError,
    DisconnectedError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaTimeoutError,
    MemberIdRequiredError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from pykclient.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from pykclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from pykclient.types import TopicPartition
from tests.consumer.group.member_scene import (
    MAX_POLL_MS,
    NODE_ID,
    OTHER_NODE_ID,
    RETRY_MS,
    SESSION_MS,
    ClassicScene,
)
from tests.consumer.known_cluster import is_outdated, topic, update_metadata

if TYPE_CHECKING:
    from pykclient.errors import BrokerError


@pytest.fixture
def scene() -> ClassicScene:
    return ClassicScene()


@pytest.fixture
def joined(scene: ClassicScene) -> ClassicScene:
    scene.join()
    return scene


def test_a_member_joins_with_its_settings_and_takes_its_assignment(scene: ClassicScene) -> None:
    scene.start_joining()
    first = scene.take(JoinGroupRequest)
    assert (first.group_id, first.member_id, first.protocol_type) == ("g", "", "consumer")
    assert (first.session_timeout_ms, first.rebalance_timeout_ms) == (SESSION_MS, MAX_POLL_MS)
    [protocol] = first.protocols
    assert protocol.name == "range"
    assert read_subscription(protocol.metadata).topics == ["t"]
    assert first.reason == "a test wants it"
    scene.respond(JoinGroupResponse(error_code=MemberIdRequiredError.code, member_id="m-1"))
    scene.poll()
    second = scene.take(JoinGroupRequest)
    assert second.member_id == "m-1"
    assert second.reason == "need to re-join with the given member-id: m-1"
    scene.respond_to_join()
    scene.poll()
    sync = scene.take(SyncGroupRequest)
    assert (sync.generation_id, sync.member_id, sync.protocol_name) == (1, "m-1", "range")
    assert sync.assignments == []
    scene.respond_to_sync()
    scene.poll()
    assert scene.membership.state is ClassicState.STABLE
    assert scene.carried_out.events == ["lose all", "assign t0"]


def test_the_leader_assigns_before_it_syncs_and_only_in_a_poll(scene: ClassicScene) -> None:
    scene.start_joining()
    update_metadata(scene.metadata)
    scene.respond_to_join(leader="m-1")
    scene.poll()
    assert not scene.sent, "not all topics are known yet"
    scene.update_metadata()
    scene.wait(1)
    assert not scene.sent
    scene.poll()
    sync = scene.take(SyncGroupRequest)
    assert [
        (each.member_id, read_assignment(each.assignment).partitions) for each in sync.assignments
    ] == [
        ("m-1", (TopicPartition("t", 0),)),
        ("m-2", (TopicPartition("t", 1),)),
    ]


def test_a_follower_syncs_while_the_application_is_away_but_takes_when_it_polls(
    scene: ClassicScene,
) -> None:
    scene.start_joining()
    scene.respond_to_join()
    scene.wait(1)
    scene.respond_to_sync()
    scene.wait(1)
    assert scene.membership.state is ClassicState.ASSIGNING
    assert scene.carried_out.events == ["lose all"]
    scene.poll()
    assert scene.carried_out.events == ["lose all", "assign t0"]


def respond_with(scene: ClassicScene, *numbers: int) -> None:
    """Assign these partitions to the member, and poll until it takes them."""
    scene.start_joining()
    scene.respond_to_join()
    scene.poll()
    assigned = encode_assignment(TopicPartition("t", number) for number in numbers)
    scene.respond(SyncGroupResponse(assignment=assigned))
    scene.poll()
    assert scene.membership.state is ClassicState.STABLE


def test_a_partition_that_metadata_do_not_list_waits_for_them(scene: ClassicScene) -> None:
    respond_with(scene, 0, 2, 3)
    assert scene.carried_out.events == ["lose all", "assign t0"]
    assert scene.membership.unlisted == [TopicPartition("t", 2)]
    assert is_outdated(scene.metadata)
    update_metadata(scene.metadata, topic("t", [1, 1]))
    scene.poll()
    assert len(scene.carried_out.events) == 2
    update_metadata(scene.metadata, topic("t", [1, 1, 1]))
    scene.wait(1)
    assert len(scene.carried_out.events) == 2, "the application does not poll"
    assert scene.membership.wants_turn(scene.now_ms)
    scene.poll()
    assert scene.carried_out.events[2:] == ["assign t0 t2"]
    assert scene.membership.state is ClassicState.STABLE
    assert scene.membership.unlisted == [TopicPartition("t", 3)]
    update_metadata(scene.metadata, topic("t", [1] * 4))
    scene.poll()
    assert scene.carried_out.events[3:] == ["assign t0 t2 t3"]
    assert scene.membership.unlisted == []
    assert [each.reason for each in scene.history.rebalances(0, EPOCH)] == [
        "a test wants it",
        *["metadata list more of the assigned partitions"] * 2,
    ]


def test_what_a_member_has_stays_whatever_metadata_list(scene: ClassicScene) -> None:
    scene.subscription.assign_from_group([TopicPartition("t", 5)])
    respond_with(scene, 0, 5)
    assert scene.carried_out.events[1:] == ["assign t0 t5"]


def test_in_the_next_round_a_member_does_not_wait_for_what_it_was_assigned_before(
    scene: ClassicScene,
) -> None:
    respond_with(scene, 0, 2)
    scene.membership.request_join("a test wants it again")
    scene.poll()
    assert scene.membership.unlisted == []
    update_metadata(scene.metadata, topic("t", [1, 1, 1]))
    scene.respond_to_join(generation=2)
    scene.poll()
    scene.respond_to_sync()
    scene.poll()
    assert scene.carried_out.events[-1] == "assign t0"


@pytest.mark.parametrize("round_", ["lost", "interrupted"])
def test_with_its_generation_a_member_loses_what_it_waits_for(
    scene: ClassicScene, round_: str
) -> None:
    respond_with(scene, 0, 2)
    if round_ == "lost":
        scene.beat(UnknownMemberIdError.code)
    else:
        update_metadata(scene.metadata, topic("t", [1, 1, 1]))
        scene.carried_out.is_slow = True
        scene.poll()
        assert scene.membership.state is ClassicState.ASSIGNING
        scene.membership.restart(scene.now_ms, is_wanted=True)
    assert scene.membership.unlisted == []
    assert scene.membership.state is ClassicState.UNJOINED


LONG_ID = "m" * 150_000


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (JoinGroupResponse(member_id=LONG_ID, generation_id=1), "a member id of 150000 bytes"),
        (
            JoinGroupResponse(member_id="é" * 20_000, generation_id=1),
            "a member id of 40000 bytes, and 32767 are the most that can be sent back",
        ),
        (
            JoinGroupResponse(error_code=MemberIdRequiredError.code, member_id=LONG_ID),
            "a member id of 150000 bytes",
        ),
        (JoinGroupResponse(member_id="m-1", generation_id=-5), "the generation, or epoch, -5"),
        (
            JoinGroupResponse(
                member_id="m-1",
                leader="m-1",
                generation_id=1,
                protocol_name="range",
                members=[JoinGroupResponseMember(member_id=LONG_ID)],
            ),
            "a member id of 150000 bytes",
        ),
    ],
)
def test_what_cannot_be_sent_back_is_an_error_at_once(
    scene: ClassicScene, response: JoinGroupResponse, reason: str
) -> None:
    scene.start_joining()
    scene.take(JoinGroupRequest)
    scene.respond(response)
    scene.poll()
    error = scene.membership.take_error()
    assert isinstance(error, DecodeError)
    assert f"the response to JoinGroup has {reason}" in str(error)
    assert scene.sent == []
    assert not scene.membership.member.is_member
    assert scene.membership.member.member_id == ("m-1" if response.leader else "")


def test_a_member_id_may_be_as_long_as_a_request_can_have(scene: ClassicScene) -> None:
    scene.start_joining()
    scene.respond_to_join(member_id="m" * 32_767)
    assert scene.membership.take_error() is None
    assert scene.membership.state is ClassicState.SYNCING


def test_nothing_is_given_up_while_the_application_is_away(joined: ClassicScene) -> None:
    joined.beat(RebalanceInProgressError.code)
    joined.wait(1)
    assert joined.carried_out.events == []
    joined.poll()
    assert joined.carried_out.events == ["revoke to join"]
    assert joined.take(JoinGroupRequest).reason == "group is already rebalancing"


def test_joining_waits_until_what_is_given_up_has_gone(joined: ClassicScene) -> None:
    joined.carried_out.is_slow = True
    joined.membership.request_join("again")
    joined.poll()
    assert joined.membership.state is ClassicState.REVOKING
    assert joined.membership.can_commit
    assert not joined.sent
    joined.carried_out.finish()
    joined.poll()
    joined.take(JoinGroupRequest)
    assert not joined.membership.can_commit


def test_heartbeats_go_on_while_partitions_are_given_up(joined: ClassicScene) -> None:
    joined.carried_out.is_slow = True
    joined.membership.request_join("again")
    joined.poll()
    joined.beat(RebalanceInProgressError.code)
    assert joined.membership.state is ClassicState.REVOKING


def test_an_assignment_that_takes_something_away_leads_to_another_round(
    scene: ClassicScene,
) -> None:
    scene.subscription.assign_from_group([TopicPartition("t", 1)])
    scene.start_joining()
    scene.respond_to_join()
    scene.poll()
    scene.respond_to_sync()
    scene.poll()
    assert scene.take(JoinGroupRequest).reason == "need to revoke partitions and re-join"


@pytest.mark.parametrize("error", [NotCoordinatorError, CoordinatorNotAvailableError])
@pytest.mark.parametrize("is_syncing", [False, True])
def test_another_coordinator_is_looked_up_and_gets_the_request_after_a_pause(
    error: type[BrokerError], is_syncing: bool, scene: ClassicScene
) -> None:
    refuse(scene, error, is_syncing=is_syncing)
    assert scene.coordinator.reasons == [error.name]
    scene.poll()
    assert not scene.sent
    scene.poll(passed_ms=100)
    scene.take(JoinGroupRequest)
    assert not scene.membership.has_error


def test_a_coordinator_that_loads_gets_the_request_again_after_a_pause(scene: ClassicScene) -> None:
    refuse(scene, CoordinatorLoadInProgressError, is_syncing=False)
    assert scene.coordinator.reasons == []
    scene.poll(passed_ms=100)
    scene.take(JoinGroupRequest)


@pytest.mark.parametrize("is_syncing", [False, True])
def test_a_member_that_is_refused_again_and_again_pauses(
    is_syncing: bool, scene: ClassicScene
) -> None:
    """Some coordinators respond with errors as fast as requests come."""
    refuse(scene, RebalanceInProgressError, is_syncing=is_syncing)
    for _ in range(AT_ONCE_COUNT):
        scene.poll()
        scene.take(JoinGroupRequest)
        if is_syncing:
            scene.respond_to_join()
            scene.poll()
            scene.take(SyncGroupRequest)
            scene.respond(SyncGroupResponse(error_code=RebalanceInProgressError.code))
        else:
            scene.respond(JoinGroupResponse(error_code=UnknownMemberIdError.code))
    scene.poll()
    assert not [each for each in scene.sent if isinstance(each.message, JoinGroupRequest)]
    scene.poll(passed_ms=RETRY_MS)
    scene.take(JoinGroupRequest)


@pytest.mark.parametrize("given", ["m-1", ""])
def test_a_member_that_is_given_an_id_again_and_again_pauses(
    given: str, scene: ClassicScene, caplog: pytest.LogCaptureFixture
) -> None:
    """The first time is normal for a new member; a static member needs no second attempt."""
    caplog.set_level(logging.INFO)
    refusal = JoinGroupResponse(error_code=MemberIdRequiredError.code, member_id=given)
    scene.start_joining()
    if given:
        scene.respond(refusal)
        scene.poll()
    before = scene.membership.rejection
    assert before is None
    for _ in range(AT_ONCE_COUNT):
        scene.take(JoinGroupRequest)
        scene.respond(refusal)
        scene.poll()
    assert isinstance(scene.membership.rejection, MemberIdRequiredError)
    scene.take(JoinGroupRequest)
    scene.respond(refusal)
    scene.poll()
    assert scene.sent == []
    scene.poll(passed_ms=RETRY_MS)
    scene.take(JoinGroupRequest)
    assert caplog.messages == [
        "(re)joining group 'g': a test wants it",
        "group 'g': joining as ''",
        *(["group 'g': joining as 'm-1'"] if given else []),
        "(re)joining group 'g': rebalance failed due to MemberIdRequiredError",
    ]


@pytest.mark.parametrize("is_syncing", [False, True])
def test_a_round_that_another_one_overtook_is_begun_again_at_once(
    is_syncing: bool, scene: ClassicScene
) -> None:
    refuse(scene, RebalanceInProgressError, is_syncing=is_syncing)
    scene.poll()
    again = scene.take(JoinGroupRequest)
    assert again.reason == "rebalance failed due to RebalanceInProgressError"
    assert scene.carried_out.events == ["lose all"], "nothing is given up twice"


@pytest.mark.parametrize(
    ("error", "member_id"), [(UnknownMemberIdError, ""), (IllegalGenerationError, "m-1")]
)
def test_one_that_is_no_member_any_more_joins_anew(
    error: type[BrokerError], member_id: str, joined: ClassicScene
) -> None:
    joined.beat(error.code)
    assert not joined.membership.can_commit
    assert joined.carried_out.events == [], "the application gets it when it polls"
    joined.poll()
    assert joined.carried_out.events == ["lose all"]
    again = joined.take(JoinGroupRequest)
    assert (again.member_id, again.reason) == (
        member_id,
        f"encountered {error.name} from Heartbeat response",
    )


@pytest.mark.parametrize("error", [UnknownMemberIdError, IllegalGenerationError])
def test_a_sync_of_no_member_leads_to_joining_anew(
    error: type[BrokerError], scene: ClassicScene
) -> None:
    refuse(scene, error, is_syncing=True)
    scene.poll()
    assert scene.carried_out.events == ["lose all", "lose all"]
    scene.take(JoinGroupRequest)


@pytest.mark.parametrize(
    "error",
    [
        GroupAuthorizationFailedError,
        GroupMaxSizeReachedError,
        InconsistentGroupProtocolError,
        InvalidSessionTimeoutError,
    ],
)
@pytest.mark.parametrize("is_syncing", [False, True])
def test_what_no_waiting_cures_is_raised_and_tried_again_after_that(
    error: type[BrokerError], is_syncing: bool, scene: ClassicScene
) -> None:
    refuse(scene, error, is_syncing=is_syncing)
    scene.poll(passed_ms=1_000)
    assert not scene.sent, "not before the application is notified"
    assert isinstance(scene.membership.take_error(), error)
    scene.poll()
    scene.take(JoinGroupRequest)


@pytest.mark.promise(
    "static members keep partitions over a restart; another one with the id fences the first"
)
@pytest.mark.parametrize("is_syncing", [False, True])
def test_a_fenced_member_leaves_the_other_one_alone(is_syncing: bool) -> None:
    scene = ClassicScene(group_instance_id="i")
    refuse(scene, FencedInstanceIdError, is_syncing=is_syncing)
    for _ in range(2):
        scene.poll(passed_ms=1_000)
        assert isinstance(scene.membership.take_error(), FencedInstanceIdError)
    assert not scene.sent


def test_a_fenced_heartbeat_ends_the_membership() -> None:
    scene = ClassicScene(group_instance_id="i")
    scene.join()
    scene.beat(FencedInstanceIdError.code)
    scene.poll(passed_ms=10_000)
    assert not scene.sent
    assert isinstance(scene.membership.take_error(), FencedInstanceIdError)
    assert not scene.membership.can_commit


def test_a_join_that_is_lost_is_sent_again_under_the_same_name(scene: ClassicScene) -> None:
    scene.join()
    scene.membership.request_join("again")
    scene.poll()
    scene.fail(DisconnectedError("gone"))
    assert scene.coordinator.reasons == ["gone"]
    scene.poll(passed_ms=100)
    assert scene.take(JoinGroupRequest).member_id == "m-1"


@pytest.mark.promise("`max_poll_interval_ms` and `session_timeout_ms` are enforced")
@pytest.mark.parametrize("is_syncing", [False, True])
def test_a_coordinator_that_hangs_is_left_for_the_one_in_its_place(
    is_syncing: bool, scene: ClassicScene
) -> None:
    scene.start_joining()
    if is_syncing:
        scene.respond_to_join()
        scene.poll()
    hanging = scene.sent.pop()
    scene.poll(passed_ms=SESSION_MS)
    assert not scene.sent, "it may be waiting for the group"
    scene.coordinator.known = OTHER_NODE_ID
    scene.poll()
    scene.poll(passed_ms=100)
    [again] = scene.sent
    assert isinstance(again.message, JoinGroupRequest)
    assert again.node_id == OTHER_NODE_ID
    hanging.on_response(JoinGroupResponse(generation_id=9, member_id="m-1"), scene.now_ms)
    assert scene.membership.state is ClassicState.JOINING


def test_no_heartbeat_waits_behind_a_sync(scene: ClassicScene) -> None:
    scene.start_joining()
    scene.respond_to_join()
    scene.poll()
    scene.wait(SESSION_MS - 1)
    scene.take(SyncGroupRequest)


def test_an_old_broker_without_static_membership_is_reported() -> None:
    scene = ClassicScene(group_instance_id="i")
    scene.start_joining()
    scene.fail(UnsupportedVersionError("group_instance_id needs version 5"))
    assert isinstance(scene.membership.take_error(), UnsupportedVersionError)


def test_heartbeats_are_sent_one_at_a_time_and_each_response_begins_a_session(
    joined: ClassicScene,
) -> None:
    joined.wait(2_999)
    assert not joined.sent
    joined.wait(1)
    beat = joined.take(HeartbeatRequest)
    assert (beat.group_id, beat.generation_id, beat.member_id) == ("g", 1, "m-1")
    joined.wait(3_000)
    joined.take(HeartbeatRequest)
    joined.respond(HeartbeatResponse())
    joined.wait(SESSION_MS - 1)
    assert joined.coordinator.reasons == []
    joined.wait(1)
    assert len(joined.coordinator.reasons) == 1


@pytest.mark.parametrize("error", [NotCoordinatorError, CoordinatorNotAvailableError])
def test_a_heartbeat_follows_a_coordinator_that_moved(
    error: type[BrokerError], joined: ClassicScene
) -> None:
    joined.beat(error.code)
    assert joined.coordinator.reasons == [error.name]
    joined.wait(100)
    joined.take(HeartbeatRequest)
    assert joined.membership.state is ClassicState.STABLE


def test_heartbeats_that_are_lost_are_followed_by_others_ever_later(joined: ClassicScene) -> None:
    joined.wait(3_000)
    for delay_ms in (RETRY_MS, 2 * RETRY_MS):
        joined.fail(KafkaTimeoutError("late"))
        joined.wait(delay_ms - 1)
        assert not joined.sent
        joined.wait(1)
        joined.take(HeartbeatRequest)
    assert joined.coordinator.reasons == ["late", "late"]
    joined.respond(HeartbeatResponse())
    joined.wait(3_000)
    joined.fail(KafkaTimeoutError("late"))
    joined.wait(RETRY_MS)
    joined.take(HeartbeatRequest)


@pytest.mark.promise("`max_poll_interval_ms` and `session_timeout_ms` are enforced")
def test_a_session_without_a_response_leads_to_another_coordinator(joined: ClassicScene) -> None:
    joined.wait(3_000)
    joined.wait(SESSION_MS - 3_000)
    assert len(joined.coordinator.reasons) == 1
    assert "no response to a heartbeat" in joined.coordinator.reasons[0]
    assert joined.membership.can_commit, "it may still be a member"
    joined.sent.clear()
    joined.wait(0)
    joined.take(HeartbeatRequest)


@pytest.mark.parametrize("found", [NODE_ID, OTHER_NODE_ID])
def test_a_coordinator_that_is_found_after_a_session_gets_a_heartbeat(
    found: int, joined: ClassicScene
) -> None:
    joined.coordinator.known = None
    joined.wait(2 * SESSION_MS)
    joined.coordinator.known = found
    joined.wait(0)
    assert joined.coordinator.reasons == []
    joined.take(HeartbeatRequest)
    assert joined.membership.can_commit, "it may still be a member"
    joined.wait(SESSION_MS - 1)
    assert joined.coordinator.reasons == []
    joined.wait(1)
    assert len(joined.coordinator.reasons) == 1, "its session has begun, and ends"


def test_a_response_to_an_earlier_heartbeat_is_void(joined: ClassicScene) -> None:
    joined.wait(3_000)
    old = joined.sent.pop()
    joined.membership.request_join("again")
    joined.poll()
    joined.respond_to_join(generation=2)
    old.on_response(HeartbeatResponse(error_code=UnknownMemberIdError.code), joined.now_ms)
    joined.poll()
    joined.respond_to_sync()
    joined.poll()
    assert joined.membership.state is ClassicState.STABLE


def test_a_rebalance_of_a_generation_of_before_begins_no_other(joined: ClassicScene) -> None:
    joined.wait(3_000)
    old = joined.sent.pop()
    joined.join(generation=2)
    old.on_response(HeartbeatResponse(error_code=RebalanceInProgressError.code), joined.now_ms)
    joined.poll()
    assert joined.sent == []
    assert joined.membership.state is ClassicState.STABLE


@pytest.mark.parametrize("error", [UnknownMemberIdError, IllegalGenerationError])
def test_a_coordinator_that_was_replaced_ends_no_membership(
    error: type[BrokerError], joined: ClassicScene
) -> None:
    joined.wait(3_000)
    joined.coordinator.known = OTHER_NODE_ID
    joined.respond(HeartbeatResponse(error_code=error.code))
    assert joined.membership.can_commit
    joined.wait(100)
    joined.take(HeartbeatRequest)


def test_attempts_to_join_that_fail_alike_are_logged_once(
    scene: ClassicScene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    scene.start_joining()
    for _ in range(5):
        scene.fail(DisconnectedError("gone"))
        scene.poll(passed_ms=10_000)
    assert caplog.messages == [
        "(re)joining group 'g': a test wants it",
        "group 'g': joining as ''",
        "(re)joining group 'g': rebalance failed due to DisconnectedError",
    ]


def test_reasons_are_cut_to_what_coordinators_take(scene: ClassicScene) -> None:
    scene.membership.request_join("x" * 300)
    scene.poll()
    assert scene.take(JoinGroupRequest).reason == "x" * 255


def test_a_refused_commit_counts_for_the_membership(joined: ClassicScene) -> None:
    member = joined.membership.member
    before = member._replace(generation=0)
    joined.membership.on_commit_refused(before, IllegalGenerationError("g"))
    joined.poll()
    assert not joined.sent, "it was about another generation"
    joined.membership.on_commit_refused(member, RebalanceInProgressError("g"))
    joined.poll()
    assert joined.carried_out.events == ["revoke to join"]


def test_a_commit_of_a_stranger_ends_the_membership(joined: ClassicScene) -> None:
    joined.membership.on_commit_refused(joined.membership.member, UnknownMemberIdError("g"))
    assert not joined.membership.can_commit
    joined.poll()
    assert joined.carried_out.events == ["lose all"]


@pytest.mark.parametrize("field", ["type", "name"])
def test_another_protocol_than_ours_is_reported(field: str, scene: ClassicScene) -> None:
    scene.start_joining()
    scene.respond_to_join()
    scene.poll()
    response = SyncGroupResponse(protocol_type="consumer", protocol_name="range")
    if field == "type":
        response.protocol_type = "connect"
    else:
        response.protocol_name = "sticky"
    scene.respond(response)
    assert isinstance(scene.membership.take_error(), InconsistentGroupProtocolError)


# Leaving.


@pytest.mark.promise("`max_poll_interval_ms` and `session_timeout_ms` are enforced")
def test_a_member_that_is_late_leaves_the_group(joined: ClassicScene) -> None:
    joined.membership.leave_late()
    joined.wait(0)
    leave = joined.take(LeaveGroupRequest)
    [identity] = leave.members
    assert (identity.member_id, identity.reason) == ("m-1", "consumer poll timeout has expired.")
    joined.respond(LeaveGroupResponse())
    joined.wait(10_000)
    assert not joined.sent, "it joins when the application polls"
    assert not joined.membership.can_commit
    joined.poll()
    assert joined.carried_out.events == ["lose all"]
    assert joined.take(JoinGroupRequest).member_id == ""


def test_a_static_member_that_does_not_poll_sends_nothing() -> None:
    scene = ClassicScene(group_instance_id="i")
    scene.join()
    scene.membership.leave_late()
    scene.wait(0)
    assert not scene.sent
    assert not scene.membership.can_commit
    scene.poll()
    assert scene.take(JoinGroupRequest).group_instance_id == "i"


def test_a_member_whose_rebalance_was_interrupted_leaves_when_it_is_late(
    joined: ClassicScene,
) -> None:
    joined.carried_out.is_slow = True
    joined.membership.request_join("a test wants it")
    joined.poll()
    joined.membership.restart(joined.now_ms, is_wanted=True)
    joined.membership.leave_late()
    joined.wait(0)
    [identity] = joined.take(LeaveGroupRequest).members
    assert identity.member_id == "m-1"
    joined.respond(LeaveGroupResponse())
    joined.carried_out.events.clear()
    joined.poll()
    assert joined.carried_out.events == ["lose all"]


def test_what_a_late_member_was_about_to_revoke_is_lost(joined: ClassicScene) -> None:
    joined.carried_out.is_slow = True
    joined.membership.request_join("a test wants it")
    joined.poll()
    [revoking] = joined.carried_out.pending
    joined.membership.leave_late()
    assert revoking.is_cancelled
    joined.poll()
    assert joined.carried_out.events == ["revoke to join", "lose all"]


def test_leaving_gives_up_everything_first(joined: ClassicScene) -> None:
    joined.carried_out.is_slow = True
    left = joined.leave()
    joined.poll()
    assert not joined.sent
    assert joined.membership.can_commit
    joined.carried_out.finish()
    joined.poll()
    leave = joined.take(LeaveGroupRequest)
    [identity] = leave.members
    assert (leave.group_id, identity.member_id, identity.reason) == ("g", "m-1", "done")
    was_left = left.is_done
    joined.respond(LeaveGroupResponse())
    assert not was_left
    assert left.is_done
    assert joined.carried_out.events == ["revoke all"]
    joined.poll(passed_ms=60_000)
    assert not joined.sent


def test_a_leave_that_is_refused_or_lost_ends_well(joined: ClassicScene) -> None:
    for end in ("refused", "lost"):
        left = joined.leave()
        joined.poll()
        if end == "lost":
            joined.fail(DisconnectedError("gone"))
        else:
            unknown = MemberResponse(member_id="m-1", error_code=UnknownMemberIdError.code)
            joined.respond(LeaveGroupResponse(members=[unknown]))
        assert left.is_done
        joined.join()


def test_leaving_without_a_request_keeps_the_membership(joined: ClassicScene) -> None:
    left = joined.leave(sends=False)
    joined.poll()
    assert left.is_done
    assert not joined.sent


def test_leaving_in_the_middle_of_a_round_loses_what_is_held(joined: ClassicScene) -> None:
    joined.membership.request_join("again")
    joined.poll()
    joined.leave()
    late = joined.sent.pop()
    late.on_response(JoinGroupResponse(generation_id=2, member_id="m-1"), joined.now_ms)
    joined.poll()
    assert joined.carried_out.events == ["revoke to join", "lose all"]
    joined.take(LeaveGroupRequest)


@pytest.mark.promise(
    "closing revokes, commits, leaves or remains in the group (KIP-1092), and ends in time"
)
def test_leaving_is_not_held_up_by_a_join_that_waits_for_others(joined: ClassicScene) -> None:
    joined.membership.request_join("again")
    joined.poll()
    joined.sent.clear()
    joined.leave()
    joined.poll()
    [leave] = joined.sent
    assert leave.node_id == OTHER_NODE_ID


def refuse(scene: ClassicScene, error: type[BrokerError], *, is_syncing: bool) -> None:
    """Respond to the member's JoinGroup or SyncGroup with an error."""
    scene.start_joining()
    if not is_syncing:
        scene.respond(JoinGroupResponse(error_code=error.code))
        return
    scene.respond_to_join()
    scene.poll()
    scene.take(SyncGroupRequest)
    scene.respond(SyncGroupResponse(error_code=error.code))
