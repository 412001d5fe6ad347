"""A KIP-848 member: what it sends, when, and how it handles responses."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest

from pykclient.consumer.group.kip848.membership import (
    HEARTBEAT_INTERVAL_MAX_MS,
    HEARTBEAT_INTERVAL_MIN_MS,
    MemberState,
)
from pykclient.consumer.group.metadata import AT_ONCE_COUNT
from pykclient.errors import (
    BrokerError,
    BrokerUnsupportedVersionError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    DecodeError,
    DisconnectedError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    NotCoordinatorError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)
from pykclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from pykclient.types import TopicPartition
from tests.consumer.group.member_scene import (
    COUNT,
    INTERVAL_MS,
    MAX_POLL_MS,
    OTHER_NODE_ID,
    RETRY_MS,
    A,
    B,
    Kip848Scene,
)
from tests.consumer.known_cluster import is_outdated

MEMBER_ID_LENGTH = 22
C = bytes(15) + b"c"


@pytest.fixture
def scene() -> Kip848Scene:
    return Kip848Scene()


@pytest.fixture
def stable() -> Kip848Scene:
    """Provide a member that has partitions 0 and 1 of topic a."""
    scene = Kip848Scene()
    scene.join({A: (0, 1)})
    assert scene.is_in(MemberState.STABLE)
    return scene


# Joining.


def test_nothing_is_sent_before_it_is_to_join(scene: Kip848Scene) -> None:
    scene.poll()
    assert scene.sent == []


def test_the_first_heartbeat_has_everything() -> None:
    scene = Kip848Scene("instance", "range")
    scene.membership.request_join()
    scene.poll()
    heartbeat = scene.heartbeat()
    assert (heartbeat.group_id, heartbeat.member_epoch, heartbeat.instance_id) == (
        "g",
        0,
        "instance",
    )
    assert len(heartbeat.member_id) == MEMBER_ID_LENGTH
    assert (heartbeat.rebalance_timeout_ms, heartbeat.rack_id) == (MAX_POLL_MS, "rack")
    assert heartbeat.server_assignor == "range"
    assert heartbeat.subscribed_topic_names == ["a", "b"]
    assert heartbeat.subscribed_topic_regex is None
    assert heartbeat.topic_partitions == []


def test_what_is_assigned_is_taken_and_acknowledged_at_once(scene: Kip848Scene) -> None:
    scene.membership.request_join()
    scene.poll()
    scene.respond(3, {A: (0, 1)})
    assert scene.is_in(MemberState.RECONCILING)
    scene.poll()
    assert scene.carried_out.events == ["assign a0 a1"]
    heartbeat = scene.heartbeat()
    assert (heartbeat.member_epoch, heartbeat.subscribed_topic_names) == (3, None)
    assert heartbeat.topic_partitions == [RequestTopicPartitions(A, [0, 1])]
    scene.respond(3)
    assert scene.is_in(MemberState.STABLE)
    assert (scene.membership.member.generation, scene.membership.can_commit) == (3, True)


def test_a_first_assignment_of_nothing_is_carried_out_like_any_other(scene: Kip848Scene) -> None:
    scene.membership.request_join()
    scene.poll()
    scene.respond(1, {})
    assert scene.membership.wants_turn(scene.now_ms)
    scene.poll()
    assert scene.carried_out.events == ["assign nothing"]
    scene.respond(1)
    assert scene.is_in(MemberState.STABLE)
    scene.poll()
    assert scene.carried_out.events == ["assign nothing"]
    assert not scene.sent


def test_a_first_assignment_of_topics_without_names_waits_for_them(scene: Kip848Scene) -> None:
    scene.membership.request_join()
    scene.poll()
    scene.respond(1, {C: (0,)})
    scene.poll()
    assert not scene.membership.wants_turn(scene.now_ms)
    assert scene.carried_out.events == []
    scene.poll(passed_ms=INTERVAL_MS)
    scene.respond(2, {})
    scene.poll()
    assert scene.carried_out.events == ["assign nothing"]


def test_a_member_without_partitions_is_stable(scene: Kip848Scene) -> None:
    scene.join()
    assert scene.is_in(MemberState.STABLE)
    scene.poll(passed_ms=INTERVAL_MS - 1)
    assert scene.sent == []


# Heartbeats.


def test_heartbeats_come_at_the_coordinators_interval_and_have_only_news(
    stable: Kip848Scene,
) -> None:
    stable.poll(passed_ms=INTERVAL_MS - 1)
    assert stable.sent == []
    stable.wait(1)
    heartbeat = stable.heartbeat()
    assert (heartbeat.subscribed_topic_names, heartbeat.topic_partitions) == (None, None)
    assert heartbeat.rebalance_timeout_ms == -1
    stable.wait(INTERVAL_MS)
    assert len(stable.sent) == 1
    stable.respond()


@pytest.mark.parametrize(
    ("response_ms", "kept_ms"),
    [
        (-1, HEARTBEAT_INTERVAL_MIN_MS),
        (0, HEARTBEAT_INTERVAL_MIN_MS),
        (HEARTBEAT_INTERVAL_MAX_MS, HEARTBEAT_INTERVAL_MAX_MS),
        (2**31 - 1, HEARTBEAT_INTERVAL_MAX_MS),
    ],
)
def test_heartbeats_neither_flood_a_coordinator_nor_end(
    response_ms: int, kept_ms: int, stable: Kip848Scene
) -> None:
    stable.poll(passed_ms=INTERVAL_MS)
    stable.respond(interval_ms=response_ms)
    stable.poll()
    stable.now_ms += kept_ms - 1
    stable.poll()
    assert stable.sent == []
    stable.poll(passed_ms=1)
    stable.heartbeat()


def test_a_change_of_the_subscription_is_sent_at_once(stable: Kip848Scene) -> None:
    stable.subscription.subscribe(["b"])
    stable.poll()
    assert stable.heartbeat().subscribed_topic_names == ["b"]
    stable.respond()
    stable.subscription.unsubscribe()
    stable.subscription.subscribe_broker_pattern("b.*")
    stable.poll()
    heartbeat = stable.heartbeat()
    assert (heartbeat.subscribed_topic_names, heartbeat.subscribed_topic_regex) == ([], "b.*")
    stable.respond()
    stable.subscription.unsubscribe()
    stable.subscription.subscribe(["b"])
    stable.poll()
    assert stable.heartbeat().subscribed_topic_regex == ""


def test_after_a_lost_response_everything_is_sent_again(stable: Kip848Scene) -> None:
    stable.wait(INTERVAL_MS)
    stable.fail(DisconnectedError("gone"))
    assert stable.coordinator.reasons == ["gone"]
    stable.wait(RETRY_MS - 1)
    assert stable.sent == []
    stable.wait(1)
    heartbeat = stable.heartbeat()
    assert heartbeat.subscribed_topic_names == ["a", "b"]
    assert heartbeat.topic_partitions == [RequestTopicPartitions(A, [0, 1])]


@pytest.mark.parametrize("error", [NotCoordinatorError, CoordinatorNotAvailableError])
def test_another_coordinator_gets_a_heartbeat_as_soon_as_it_is_found(
    stable: Kip848Scene, error: type[BrokerError]
) -> None:
    stable.wait(INTERVAL_MS)
    stable.respond(code=error.code)
    assert stable.coordinator.reasons == [error.name]
    stable.poll()
    assert stable.heartbeat().member_epoch == 1


def test_a_coordinator_that_loads_gets_heartbeats_at_growing_intervals(
    stable: Kip848Scene,
) -> None:
    stable.wait(INTERVAL_MS)
    for delay_ms in (RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS):
        stable.respond(code=CoordinatorLoadInProgressError.code)
        stable.wait(delay_ms - 1)
        assert stable.sent == []
        stable.wait(1)
    assert stable.is_in(MemberState.STABLE)


# Reconciling.


@pytest.mark.promise(
    "revoked partitions are committed, passed to the listener and dropped before the heartbeat"
)
def test_what_is_given_up_is_acknowledged_only_when_it_is_gone(stable: Kip848Scene) -> None:
    stable.carried_out.is_slow = True
    stable.wait(INTERVAL_MS)
    stable.respond(2, {A: (0,)})
    stable.poll()
    assert stable.carried_out.events == ["assign a0"]
    assert stable.sent == []
    stable.wait(INTERVAL_MS)
    assert stable.heartbeat().topic_partitions is None
    stable.respond(2)
    stable.carried_out.finish()
    stable.wait(1)
    assert stable.sent == []
    stable.poll()
    assert stable.heartbeat().topic_partitions == [RequestTopicPartitions(A, [0])]


def test_nothing_is_revoked_or_assigned_while_the_application_is_away(stable: Kip848Scene) -> None:
    stable.wait(INTERVAL_MS)
    stable.respond(2, {A: (0,)})
    stable.wait(10)
    assert stable.carried_out.events == []
    assert stable.membership.wants_turn(stable.now_ms)
    stable.poll()
    assert stable.carried_out.events == ["assign a0"]


def test_a_target_that_changes_meanwhile_is_reconciled_after_the_first(
    stable: Kip848Scene,
) -> None:
    stable.carried_out.is_slow = True
    stable.wait(INTERVAL_MS)
    stable.respond(2, {A: (0,)})
    stable.poll()
    stable.wait(INTERVAL_MS)
    stable.respond(2, {A: (0,), B: (5,)})
    stable.carried_out.finish()
    stable.poll()
    assert stable.heartbeat().topic_partitions == [RequestTopicPartitions(A, [0])]
    stable.respond(2)
    stable.poll()
    stable.carried_out.finish()
    stable.poll()
    assert stable.carried_out.events == ["assign a0", "assign a0 b5"]
    assert len(stable.heartbeat().topic_partitions or ()) == 2


def test_a_topic_without_a_name_waits_for_metadata_and_the_others_do_not(
    stable: Kip848Scene,
) -> None:
    stable.update_metadata("a")
    stable.wait(INTERVAL_MS)
    stable.respond(2, {A: (0,), B: (5,)})
    stable.poll()
    assert stable.carried_out.events == ["assign a0"]
    assert is_outdated(stable.metadata)
    assert stable.heartbeat().topic_partitions == [RequestTopicPartitions(A, [0])]
    stable.respond(2)
    assert stable.is_in(MemberState.RECONCILING)
    assert not stable.membership.wants_turn(stable.now_ms)
    shown = urlsafe_b64encode(B).decode().rstrip("=")
    assert stable.membership.unlisted == [TopicPartition(f"the topic with id {shown}", 5)]
    stable.update_metadata("a", "b")
    assert stable.membership.unlisted == []
    stable.poll()
    assert stable.carried_out.events[-1] == "assign a0 b5"
    assert stable.is_in(MemberState.STABLE)


def test_a_partition_that_metadata_do_not_list_waits_for_them(stable: Kip848Scene) -> None:
    stable.wait(INTERVAL_MS)
    stable.respond(2, {A: (0, 1, COUNT, COUNT)})
    stable.poll()
    assert is_outdated(stable.metadata)
    assert stable.carried_out.events == []
    assert stable.membership.unlisted == [TopicPartition("a", COUNT)]
    assert stable.heartbeat().topic_partitions == [RequestTopicPartitions(A, [0, 1])]
    stable.respond(2)
    assert stable.is_in(MemberState.RECONCILING)
    stable.update_metadata("a", "b", count=COUNT + 1)
    stable.poll()
    assert stable.carried_out.events == [f"assign a0 a1 a{COUNT}"]
    assert stable.heartbeat().topic_partitions == [RequestTopicPartitions(A, [0, 1, COUNT])]
    stable.respond(2)
    assert stable.is_in(MemberState.STABLE)
    # Owned partitions stay, whatever metadata lists.
    stable.update_metadata("b")
    stable.wait(INTERVAL_MS)
    stable.respond(3, {A: (1, COUNT)})
    stable.poll()
    assert stable.carried_out.events[-1] == f"assign a1 a{COUNT}"


@pytest.mark.parametrize(
    ("member_id", "epoch", "reason"),
    [
        ("m" * 150_000, 2, "a member id of 150000 bytes"),
        ("m", -77, "the generation, or epoch, -77"),
    ],
)
def test_what_cannot_be_sent_back_is_an_error_at_once(
    stable: Kip848Scene, member_id: str, epoch: int, reason: str
) -> None:
    stable.wait(INTERVAL_MS)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member_id, member_epoch=epoch, heartbeat_interval_ms=INTERVAL_MS
    )
    stable.sent.pop().on_response(response, stable.now_ms)
    error = stable.membership.take_error()
    assert isinstance(error, DecodeError)
    assert f"the response to ConsumerGroupHeartbeat has {reason}" in str(error)
    assert stable.is_in(MemberState.FATAL)
    stable.poll()
    assert stable.carried_out.events == ["lose all"]


def test_the_same_assignment_again_changes_nothing(stable: Kip848Scene) -> None:
    stable.wait(INTERVAL_MS)
    stable.respond(2, {A: (1, 0)})
    stable.poll()
    assert stable.carried_out.events == []
    assert stable.sent == []


@pytest.mark.parametrize("is_known", [True, False])
def test_what_was_taken_back_before_it_was_taken_is_acknowledged_all_the_same(
    stable: Kip848Scene, is_known: bool
) -> None:
    """The coordinator assigns it to another member only after this one has acknowledged."""
    stable.wait(INTERVAL_MS)
    stable.respond(2, {A: (0, 1), B: (5,)})
    stable.wait(INTERVAL_MS)
    assert stable.heartbeat().topic_partitions is None
    # The topic that replaces it may have no name yet.
    stable.update_metadata("a")
    stable.respond(2, {A: (0, 1)} if is_known else {A: (0, 1), C: (0,)})
    stable.wait(0)
    assert stable.heartbeat().topic_partitions == [RequestTopicPartitions(A, [0, 1])]
    stable.respond(3)
    assert stable.carried_out.events == []
    stable.wait(0)
    assert stable.sent == [], "it is sent once"


# Fenced members.


@pytest.mark.parametrize("error", [FencedMemberEpochError, UnknownMemberIdError])
def test_a_fenced_member_loses_everything_and_joins_again_under_its_id(
    stable: Kip848Scene, error: type[BrokerError]
) -> None:
    member_id = stable.membership.member.member_id
    stable.wait(INTERVAL_MS)
    stable.respond(code=error.code)
    assert not stable.membership.can_commit
    stable.wait(INTERVAL_MS)
    assert stable.sent == []
    assert stable.carried_out.events == []
    stable.poll()
    assert stable.carried_out.events == ["lose all"]
    heartbeat = stable.heartbeat()
    assert (heartbeat.member_epoch, heartbeat.member_id, heartbeat.topic_partitions) == (
        0,
        member_id,
        [],
    )
    assert heartbeat.subscribed_topic_names == ["a", "b"]


def test_a_member_that_is_fenced_again_and_again_pauses(stable: Kip848Scene) -> None:
    """Some coordinators respond with errors as fast as requests come."""
    stable.wait(INTERVAL_MS)
    stable.respond(code=FencedMemberEpochError.code)
    for _ in range(AT_ONCE_COUNT):
        stable.poll()
        stable.respond(code=FencedMemberEpochError.code)
    stable.poll()
    assert stable.sent == []
    assert isinstance(stable.membership.rejection, FencedMemberEpochError)
    due_ms = stable.membership.poll(stable.now_ms, may_rebalance=True).next_poll_ms
    assert due_ms <= stable.now_ms + RETRY_MS, "a back-off, not a heartbeat's interval"
    stable.poll(passed_ms=RETRY_MS)
    assert stable.heartbeat().member_epoch == 0
    stable.respond()
    assert stable.membership.rejection is None


@pytest.mark.parametrize("error", [FencedMemberEpochError, UnknownMemberIdError])
def test_a_broker_that_is_coordinator_no_more_removes_no_member(
    stable: Kip848Scene, error: type[BrokerError]
) -> None:
    stable.wait(INTERVAL_MS)
    stable.coordinator.known = OTHER_NODE_ID
    stable.respond(code=error.code)
    assert stable.is_in(MemberState.STABLE)
    stable.poll()
    assert stable.sent[0].node_id == OTHER_NODE_ID


def test_a_member_fenced_while_it_gives_up_acknowledges_nothing(stable: Kip848Scene) -> None:
    stable.carried_out.is_slow = True
    stable.wait(INTERVAL_MS)
    stable.respond(2, {A: (0,)})
    stable.poll()
    stable.wait(INTERVAL_MS)
    stable.respond(code=FencedMemberEpochError.code)
    assert stable.carried_out.pending.pop().is_cancelled
    stable.poll()
    stable.carried_out.finish()
    stable.poll()
    assert stable.carried_out.events == ["assign a0", "lose all"]
    assert stable.heartbeat().member_epoch == 0


def test_a_member_that_is_late_leaves_and_joins_again(stable: Kip848Scene) -> None:
    stable.membership.leave_late()
    stable.wait(0)
    assert stable.heartbeat().member_epoch == -1
    assert stable.is_in(MemberState.STALE)
    stable.respond()
    stable.wait(INTERVAL_MS)
    assert stable.sent == []
    stable.poll()
    assert stable.carried_out.events == ["lose all"]
    assert stable.heartbeat().member_epoch == 0


@pytest.mark.parametrize(
    "error", [GroupAuthorizationFailedError, UnsupportedAssignorError, FencedInstanceIdError]
)
def test_what_no_attempt_cures_is_raised_and_costs_the_partitions(
    stable: Kip848Scene, error: type[BrokerError]
) -> None:
    stable.wait(INTERVAL_MS)
    stable.respond(code=error.code)
    stable.poll()
    assert stable.carried_out.events == ["lose all"]
    raised = stable.membership.take_error()
    assert isinstance(raised, error)
    assert "group 'g'" in str(raised)


def test_after_a_refusal_another_poll_tries_again_but_not_after_a_fatal_one() -> None:
    for error in (GroupAuthorizationFailedError, FencedInstanceIdError):
        scene = Kip848Scene()
        scene.join()
        scene.wait(INTERVAL_MS)
        scene.respond(code=error.code)
        scene.poll(passed_ms=RETRY_MS)
        assert scene.sent == []
        scene.membership.take_error()
        scene.poll()
        assert len(scene.sent) == (0 if error.fatal else 1)
        assert scene.membership.has_error == error.fatal


def test_a_name_that_is_not_free_yet_is_raised_and_tried_again() -> None:
    scene = Kip848Scene("instance")
    scene.membership.request_join()
    scene.poll()
    for delay_ms in (RETRY_MS, 2 * RETRY_MS):
        scene.respond(code=UnreleasedInstanceIdError.code)
        assert isinstance(scene.membership.take_error(), UnreleasedInstanceIdError)
        assert not scene.membership.has_error
        scene.poll(passed_ms=delay_ms)
    scene.respond(1, {})
    scene.poll()
    assert scene.is_in(MemberState.STABLE)


def test_a_topic_that_may_not_be_read_is_raised_and_the_rest_goes_on(stable: Kip848Scene) -> None:
    stable.wait(INTERVAL_MS)
    stable.respond(code=TopicAuthorizationFailedError.code)
    assert isinstance(stable.membership.take_error(), TopicAuthorizationFailedError)
    assert stable.is_in(MemberState.STABLE)
    stable.wait(RETRY_MS)
    assert stable.heartbeat().member_epoch == 1


def test_brokers_without_such_groups_are_reported_as_such() -> None:
    """Old brokers do not have the API; on others it is disabled."""
    old, off = Kip848Scene(), Kip848Scene()
    for scene in (old, off):
        scene.membership.request_join()
        scene.poll()
    old.fail(UnsupportedVersionError("no such API"))
    off.respond(code=BrokerUnsupportedVersionError.code)
    for scene in (old, off):
        error = scene.membership.take_error()
        assert isinstance(error, UnsupportedVersionError)
        assert "group_protocol=classic" in str(error)
        assert "the feature group.version enabled" in str(error)


def test_a_classic_group_that_is_not_converted_is_reported_as_such(scene: Kip848Scene) -> None:
    """Goal: the group exists; the error says why it cannot be joined, and how it can."""
    scene.membership.request_join()
    scene.poll()
    scene.respond(code=GroupIdNotFoundError.code)
    error = scene.membership.take_error()
    assert isinstance(error, GroupIdNotFoundError)
    assert "group 'g': the group has classic members, and its coordinator does not" in str(error)
    assert "group.consumer.migration.policy" in str(error)
    assert "group_protocol=classic or auto" in str(error)
    assert "no such group" not in str(error)


# Leaving.


@pytest.mark.parametrize(
    ("instance_id", "sends", "epoch"),
    [(None, True, -1), (None, False, None), ("i", True, -1), ("i", False, -2)],
)
def test_leaving_gives_up_first_and_then_notifies(
    instance_id: str | None, sends: bool, epoch: int | None
) -> None:
    scene = Kip848Scene(instance_id)
    scene.join({A: (0,)})
    scene.carried_out.is_slow = True
    left = scene.leave(sends=sends)
    scene.poll()
    assert scene.sent == []
    assert scene.membership.can_commit
    scene.carried_out.finish()
    scene.poll()
    assert scene.is_in(MemberState.UNSUBSCRIBED)
    assert not scene.membership.member.is_member
    if epoch is None:
        assert scene.sent == []
    else:
        assert scene.heartbeat().member_epoch == epoch
        scene.respond()
    assert left.is_done


def test_heartbeats_go_on_while_everything_is_given_up(stable: Kip848Scene) -> None:
    stable.carried_out.is_slow = True
    stable.leave()
    stable.poll()
    assert stable.sent == []
    stable.wait(INTERVAL_MS)
    assert stable.heartbeat().member_epoch == 1
    stable.respond(2, {B: (0,)})
    assert stable.membership.can_commit
    stable.carried_out.finish()
    stable.poll()
    assert stable.carried_out.events == ["revoke all"]
    assert stable.heartbeat().member_epoch == -1


def test_leaving_ends_also_when_the_response_is_lost_or_no_coordinator_is_known(
    stable: Kip848Scene,
) -> None:
    left = stable.leave()
    stable.poll()
    stable.fail(DisconnectedError("gone"))
    assert left.is_done
    alone = Kip848Scene()
    alone.join({A: (0,)})
    alone.coordinator.known = None
    alone_left = alone.leave()
    alone.poll()
    assert alone_left.is_done
    assert alone.is_in(MemberState.UNSUBSCRIBED)


def test_one_that_is_to_join_while_it_leaves_joins_after_that(stable: Kip848Scene) -> None:
    stable.carried_out.is_slow = True
    stable.leave()
    stable.poll()
    stable.membership.request_join()
    stable.carried_out.finish()
    stable.poll(times=1)
    assert stable.heartbeat().member_epoch == -1
    stable.respond()
    stable.poll()
    assert stable.heartbeat().member_epoch == 0


def test_leaving_ends_what_was_fatal() -> None:
    scene = Kip848Scene("instance")
    scene.membership.request_join()
    scene.poll()
    scene.respond(code=FencedInstanceIdError.code)
    scene.poll()
    scene.leave()
    scene.poll()
    scene.membership.request_join()
    scene.poll(passed_ms=RETRY_MS)
    assert not scene.membership.has_error
    assert scene.heartbeat().member_epoch == 0


def test_one_fenced_while_it_gives_up_has_nothing_to_leave(stable: Kip848Scene) -> None:
    stable.wait(INTERVAL_MS)
    stable.carried_out.is_slow = True
    left = stable.leave()
    stable.respond(code=UnknownMemberIdError.code)
    stable.poll()
    stable.carried_out.finish()
    stable.poll()
    assert stable.sent == []
    assert left.is_done


@pytest.mark.parametrize("has_response", [False, True])
def test_one_whose_first_heartbeat_has_no_response_yet_leaves(has_response: bool) -> None:
    """The coordinator knows it, and would keep its partitions for a whole session."""
    scene = Kip848Scene()
    scene.carried_out.is_slow = True
    scene.membership.request_join()
    scene.poll()
    assert scene.heartbeat().member_epoch == 0
    left = scene.leave()
    assert scene.carried_out.events == ["lose all"]
    if has_response:
        scene.respond(1, {A: (0,)})
    scene.carried_out.finish()
    scene.poll()
    assert scene.last_epoch() == -1
    assert scene.is_in(MemberState.UNSUBSCRIBED)
    scene.sent.pop().on_failure(DisconnectedError("gone"), scene.now_ms)
    assert left.is_done


def test_one_whose_first_heartbeat_was_lost_leaves() -> None:
    scene = Kip848Scene()
    scene.membership.request_join()
    scene.poll()
    scene.fail(DisconnectedError("gone"))
    scene.leave()
    scene.poll()
    assert scene.heartbeat().member_epoch == -1


def test_one_that_joins_and_does_not_poll_leaves_before_a_response() -> None:
    scene = Kip848Scene()
    scene.membership.request_join()
    scene.poll()
    assert scene.heartbeat().member_epoch == 0
    scene.membership.leave_late()
    scene.wait(0)
    assert scene.last_epoch() == -1
    assert scene.is_in(MemberState.STALE)


def test_a_static_member_that_does_not_poll_leaves_for_a_while() -> None:
    scene = Kip848Scene("instance")
    scene.join({A: (0,)})
    scene.membership.leave_late()
    scene.wait(0)
    assert scene.last_epoch() == -2
    assert scene.is_in(MemberState.STALE)


@pytest.mark.parametrize("error", [UnreleasedInstanceIdError, CoordinatorLoadInProgressError])
def test_one_that_was_never_let_in_has_nothing_to_leave(error: type[BrokerError]) -> None:
    scene = Kip848Scene("instance")
    scene.membership.request_join()
    scene.poll()
    scene.respond(code=error.code)
    left = scene.leave()
    scene.poll()
    assert scene.sent == []
    assert left.is_done
