"""Automatic commits: which offsets they commit, and when."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.offsets.outer import Loop
from pykclient.consumer.subscription import AssignedPartition, SubscriptionState
from pykclient.errors import (
    BrokerError,
    CommitFailedError,
    CoordinatorLoadInProgressError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from pykclient.network.log import REPEAT_MS
from pykclient.network.manager import NEVER_MS
from pykclient.types import OffsetAndMetadata, TopicPartition
from tests.consumer.commit_scene import CommitScene, at, committed_in, unprocessed_of
from tests.consumer.fetched_records import span
from tests.consumer.known_cluster import RETRY_MS, START_MS

if TYPE_CHECKING:
    from pykclient.consumer.offsets.unprocessed import Unprocessed

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
LATER_MS = START_MS + 60_000
INTERVAL_MS = 5_000


@pytest.fixture
def scene() -> CommitScene:
    return CommitScene()


@pytest.fixture
def automatic() -> CommitScene:
    """Two partitions, read up to 10 and 20; the application is in poll."""
    scene = CommitScene(auto_commit_interval_ms=INTERVAL_MS)
    scene.read(10, 20)
    scene.commits.begin_poll(START_MS)
    return scene


def hand_out(scene: CommitScene, count: int) -> None:
    """Return records of the first partition from a poll."""
    assigned = next(iter(scene.subscription))
    first_offset = assigned.offset
    assigned.offset += count
    scene.commits.unprocessed.add(assigned, first_offset)
    scene.commits.end_poll()


def test_positions_are_committed_when_the_interval_is_over(automatic: CommitScene) -> None:
    assert automatic.commits.poll(START_MS).next_poll_ms == START_MS + INTERVAL_MS
    assert automatic.sent(START_MS + INTERVAL_MS - 1) == []
    (request,) = automatic.sent(START_MS + INTERVAL_MS)
    assert committed_in(request) == {P0: 10, P1: 20}
    automatic.respond(request)
    assert automatic.sent(START_MS + 2 * INTERVAL_MS - 1) == []
    assert len(automatic.sent(START_MS + 2 * INTERVAL_MS)) == 1


def test_a_position_that_a_new_leader_has_yet_to_confirm_is_committed_too(
    automatic: CommitScene,
) -> None:
    """Java's leaves it out without logging: the record is read again after a restart."""
    for assigned in automatic.subscription:
        automatic.subscription.await_validation(assigned)
    (request,) = automatic.sent(START_MS + INTERVAL_MS)
    assert committed_in(request) == {P0: 10, P1: 20}
    assert set(automatic.commits.consumed()) == {P0, P1}


def test_the_timer_is_looked_at_only_in_poll(automatic: CommitScene) -> None:
    hand_out(automatic, 5)
    assert automatic.commits.poll(START_MS).next_poll_ms == NEVER_MS
    assert automatic.sent(START_MS + 3 * INTERVAL_MS) == []
    automatic.commits.begin_poll(START_MS + 3 * INTERVAL_MS)
    assert len(automatic.sent(START_MS + 3 * INTERVAL_MS)) == 1


def test_what_a_poll_returned_is_committed_by_the_next_one(automatic: CommitScene) -> None:
    hand_out(automatic, 5)
    automatic.commits.begin_poll(START_MS + INTERVAL_MS)
    (request,) = automatic.sent(START_MS + INTERVAL_MS)
    assert committed_in(request) == {P0: 15, P1: 20}


@pytest.mark.promise("automatic commits cover processed records and nothing else")
def test_what_the_same_poll_is_about_to_return_is_not_committed(automatic: CommitScene) -> None:
    assigned = next(iter(automatic.subscription))
    assigned.offset += 5
    automatic.commits.unprocessed.add(assigned, 10)
    (request,) = automatic.sent(START_MS + INTERVAL_MS)
    assert committed_in(request) == {P0: 10, P1: 20}


def test_before_partitions_are_dropped_by_hand_what_is_finished_is_committed_if_it_is_time(
    automatic: CommitScene,
) -> None:
    hand_out(automatic, 3)
    due_ms = START_MS + INTERVAL_MS
    assert not automatic.commits.commit_if_due(due_ms - 1, LATER_MS)
    assert automatic.commits.commit_if_due(due_ms, LATER_MS)
    automatic.subscription.assign([P1])
    (request,) = automatic.sent(due_ms)
    assert committed_in(request) == {P0: 10, P1: 20}
    assert not automatic.commits.commit_if_due(due_ms, LATER_MS)


def test_dropping_partitions_commits_nothing_where_nothing_is_automatic(scene: CommitScene) -> None:
    scene.read(10)
    scene.commits.begin_poll(START_MS)
    assert not scene.commits.commit_if_due(LATER_MS, LATER_MS)


def test_one_automatic_commit_is_under_way_at_a_time(automatic: CommitScene) -> None:
    (request,) = automatic.sent(START_MS + INTERVAL_MS)
    assert automatic.sent(START_MS + 2 * INTERVAL_MS) == []
    automatic.respond(request, now_ms=START_MS + 2 * INTERVAL_MS)
    assert len(automatic.sent(START_MS + 2 * INTERVAL_MS)) == 1


def test_one_that_may_succeed_soon_is_repeated_soon(automatic: CommitScene) -> None:
    (request,) = automatic.sent(START_MS + INTERVAL_MS)
    failed_ms = START_MS + INTERVAL_MS
    automatic.respond(request, CoordinatorLoadInProgressError.code, now_ms=failed_ms)
    assert automatic.sent(failed_ms + RETRY_MS - 1) == []
    assert len(automatic.sent(failed_ms + RETRY_MS)) == 1
    assert automatic.commits.take_error() is None


@pytest.mark.promise(
    "a refused commit says what, where and the cure; `poll` raises errors that are not retriable"
)
@pytest.mark.parametrize(
    "error",
    [GroupAuthorizationFailedError, TopicAuthorizationFailedError, FencedInstanceIdError],
)
def test_what_will_never_succeed_is_raised(
    automatic: CommitScene, error: type[BrokerError]
) -> None:
    (request,) = automatic.sent(START_MS + INTERVAL_MS)
    automatic.respond(request, error.code)
    assert automatic.commits.has_error
    assert isinstance(automatic.commits.take_error(), error)
    assert not automatic.commits.has_error


def test_what_a_rebalance_refuses_is_only_logged(
    automatic: CommitScene, caplog: pytest.LogCaptureFixture
) -> None:
    (request,) = automatic.sent(START_MS + INTERVAL_MS)
    automatic.respond(request, UnknownMemberIdError.code)
    assert not automatic.commits.has_error
    assert "an automatic commit failed" in caplog.text


def test_what_is_gone_by_the_time_it_is_sent_is_left_out(automatic: CommitScene) -> None:
    automatic.lose_coordinator()
    assert automatic.sent(START_MS + INTERVAL_MS) == []
    automatic.subscription.assign([P1])
    automatic.find_coordinator(now_ms=START_MS + INTERVAL_MS)
    (request,) = automatic.sent(START_MS + INTERVAL_MS)
    assert committed_in(request) == {P1: 20}


def test_without_a_position_there_is_nothing_to_commit() -> None:
    scene = CommitScene(auto_commit_interval_ms=INTERVAL_MS)
    scene.subscription.assign([P0])
    scene.commits.begin_poll(START_MS)
    assert scene.sent(START_MS + INTERVAL_MS) == []


def test_a_revocation_commits_what_is_finished_and_is_tried_again(automatic: CommitScene) -> None:
    hand_out(automatic, 5)
    operation = automatic.commits.commit_before_revocation(LATER_MS)
    (request,) = automatic.sent()
    assert committed_in(request) == {P0: 10, P1: 20}
    automatic.respond(request, CoordinatorLoadInProgressError.code)
    (again,) = automatic.sent(START_MS + RETRY_MS)
    automatic.respond(again)
    assert operation.is_done


def test_before_a_revocation_a_newer_epoch_will_do(automatic: CommitScene) -> None:
    """No other member gets the partitions before the revocation has ended (KIP-848)."""
    automatic.membership.has_newer_epoch = True
    operation = automatic.commits.commit_before_revocation(LATER_MS)
    (request,) = automatic.sent()
    automatic.respond(request, StaleMemberEpochError.code)
    assert not operation.is_done
    (again,) = automatic.sent(START_MS + RETRY_MS)
    automatic.respond(again)
    assert operation.error is None


@pytest.mark.parametrize("error", [UnknownTopicOrPartitionError, UnknownTopicIdError])
def test_a_revocation_does_not_wait_for_a_topic_that_was_deleted(
    automatic: CommitScene, error: type[BrokerError]
) -> None:
    operation = automatic.commits.commit_before_revocation(LATER_MS)
    (request,) = automatic.sent()
    automatic.respond(request, error.code)
    assert isinstance(operation.error, error)
    assert automatic.sent(START_MS + RETRY_MS) == []


def test_a_commit_of_the_application_is_not_repeated_in_a_newer_epoch(scene: CommitScene) -> None:
    """Another member may own the partitions by now; its offsets must stay."""
    scene.membership.has_newer_epoch = True
    commit = scene.commits.commit({P0: at(5)}, LATER_MS)
    (request,) = scene.sent()
    scene.respond(request, StaleMemberEpochError.code)
    assert isinstance(commit.operation.error, CommitFailedError)


def test_a_revocation_takes_the_place_of_an_automatic_commit_that_waits(
    automatic: CommitScene,
) -> None:
    automatic.lose_coordinator()
    assert automatic.sent(START_MS + INTERVAL_MS) == []
    automatic.commits.commit_before_revocation(LATER_MS)
    automatic.find_coordinator(now_ms=START_MS + INTERVAL_MS)
    assert len(automatic.sent(START_MS + INTERVAL_MS)) == 1


def test_a_revocation_commits_nothing_where_nothing_is_automatic(scene: CommitScene) -> None:
    scene.read(10)
    assert scene.commits.commit_before_revocation(LATER_MS).is_done
    assert scene.sent() == []


def test_a_revocation_commits_nothing_that_is_committed(automatic: CommitScene) -> None:
    """Goal: nothing is left to lose, so nothing is waited for and nothing is reported."""
    automatic.commits.end_poll()
    automatic.commits.commit(None, LATER_MS)
    (request,) = automatic.sent()
    automatic.respond(request)
    assert automatic.commits.commit_before_revocation(LATER_MS).is_done
    assert automatic.sent() == []
    hand_out(automatic, 5)
    automatic.commits.begin_poll(START_MS)
    assert not automatic.commits.commit_before_revocation(LATER_MS).is_done
    (request,) = automatic.sent()
    assert committed_in(request) == {P0: 15, P1: 20}


@pytest.mark.parametrize("reason", ["in flight", "lower", "failed", "sought", "recreated"])
def test_a_revocation_commits_what_may_not_be_committed(
    automatic: CommitScene, reason: str
) -> None:
    offsets = {P0: at(3), P1: at(20)} if reason == "lower" else None
    automatic.commits.end_poll()
    automatic.commits.commit_async(offsets, LATER_MS)
    (request,) = automatic.sent()
    if reason == "failed":
        automatic.respond(request, CoordinatorLoadInProgressError.code)
    elif reason != "in flight":
        automatic.respond(request)
    if reason == "sought":
        automatic.subscription.seek(automatic.subscription.require(P0), 10)
    elif reason == "recreated":
        automatic.read(10, 20)
        automatic.subscription.assign([])
        automatic.read(10, 20)
    assert not automatic.commits.commit_before_revocation(LATER_MS).is_done
    (request,) = automatic.sent()
    assert committed_in(request) == {P0: 10, P1: 20}


@pytest.mark.parametrize("reason", ["sent", "unknown", "earlier", "refused"])
def test_a_commit_that_is_late_says_why(automatic: CommitScene, reason: str) -> None:
    """Goal: it never says that the coordinator was not found where it was."""
    commits = automatic.commits
    commits.end_poll()
    if reason == "unknown":
        automatic.lose_coordinator()
    if reason == "earlier":
        commits.commit(None, LATER_MS + 1)
        assert automatic.sent()
    late = commits.commit(None, START_MS if reason == "sent" else LATER_MS)
    if reason == "refused":
        (request,) = automatic.sent()
        automatic.respond(request, CoordinatorLoadInProgressError.code)
    expected = {
        "sent": "there was no time to send them",
        "unknown": "the coordinator of the group is not known yet",
        "earlier": "an earlier commit has no response yet",
        "refused": CoordinatorLoadInProgressError.name,
    }[reason]
    first = "broker-2:9092 (id 2, as coordinator) has not responded to OffsetCommit yet"
    assert (first if reason == "earlier" else expected) in commits.describe_wait()
    commits.poll(LATER_MS)
    assert expected in str(late.operation.error)
    assert "was not found" not in str(late.operation.error)
    assert commits.describe_wait() == (first if reason == "earlier" else "")


def test_failures_of_one_kind_are_logged_once_in_a_while(
    automatic: CommitScene, caplog: pytest.LogCaptureFixture
) -> None:
    """A member that was removed fails at each interval until its application polls."""
    caplog.set_level(logging.INFO)
    automatic.membership.commit_error = CommitFailedError("no member any more")
    last_ms = START_MS + REPEAT_MS - INTERVAL_MS
    for now_ms in range(START_MS, last_ms, INTERVAL_MS):
        automatic.commits.begin_poll(now_ms)
        automatic.sent(now_ms)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["an automatic commit failed: no member any more"]
    automatic.membership.commit_error = RebalanceInProgressError("poll on")
    automatic.commits.begin_poll(last_ms)
    automatic.sent(last_ms)
    assert len(caplog.records) == 2, "another reason is logged at once"


# Processed records.


FIRST_OFFSET = 10


@pytest.fixture
def subscription() -> SubscriptionState:
    return SubscriptionState()


@pytest.fixture
def assigned(subscription: SubscriptionState) -> AssignedPartition:
    """Return a partition at its first offset."""
    subscription.assign([TopicPartition("t", 0)])
    (assigned,) = subscription
    subscription.seek(assigned, FIRST_OFFSET, 3)
    return assigned


@pytest.fixture
def unprocessed(subscription: SubscriptionState) -> Unprocessed:
    return unprocessed_of(subscription)


def test_without_unprocessed_records_the_position_counts(
    unprocessed: Unprocessed, assigned: AssignedPartition
) -> None:
    assert unprocessed.processed(assigned) == OffsetAndMetadata(FIRST_OFFSET, leader_epoch=3)


def test_what_a_poll_returned_does_not_count_until_the_next(
    unprocessed: Unprocessed, assigned: AssignedPartition
) -> None:
    for offset in (15, 20):  # two runs of one poll
        unprocessed.add(assigned, assigned.offset)
        assigned.offset, assigned.leader_epoch = offset, 4
    assert unprocessed.processed(assigned) == OffsetAndMetadata(FIRST_OFFSET, leader_epoch=3)
    unprocessed.clear()
    assert unprocessed.processed(assigned).offset == 20


def test_an_iteration_counts_record_by_record(
    unprocessed: Unprocessed, assigned: AssignedPartition
) -> None:
    unprocessed.add_to_loop(assigned, span(P0, [FIRST_OFFSET]), Loop())
    assert unprocessed.processed(assigned).offset == FIRST_OFFSET
    for offset in (11, 12, 15):
        assigned.offset = offset
        assert unprocessed.processed(assigned).offset == offset - 1


def test_an_iteration_counts_with_the_epoch_of_the_record_before(
    unprocessed: Unprocessed, assigned: AssignedPartition
) -> None:
    unprocessed.add_to_loop(assigned, span(P0, [FIRST_OFFSET]), Loop())
    assigned.leader_epoch = 4  # that of the run which is iterated
    assigned.offset = FIRST_OFFSET + 1
    assert unprocessed.processed(assigned) == OffsetAndMetadata(FIRST_OFFSET, leader_epoch=3)
    assigned.offset = FIRST_OFFSET + 2
    assert unprocessed.processed(assigned) == OffsetAndMetadata(FIRST_OFFSET + 1, leader_epoch=4)


def test_an_epoch_that_is_not_known_any_more_is_none(
    unprocessed: Unprocessed, assigned: AssignedPartition
) -> None:
    assigned.offset, assigned.leader_epoch = FIRST_OFFSET + 5, 4
    unprocessed.add(assigned, FIRST_OFFSET)
    assert unprocessed.processed(assigned) == OffsetAndMetadata(FIRST_OFFSET)


def test_a_seek_counts_at_once(
    subscription: SubscriptionState, unprocessed: Unprocessed, assigned: AssignedPartition
) -> None:
    unprocessed.add(assigned, assigned.offset)
    subscription.seek(assigned, 5)
    assert unprocessed.processed(assigned).offset == 5


def test_a_position_that_the_user_moved_ahead_counts(
    subscription: SubscriptionState, unprocessed: Unprocessed, assigned: AssignedPartition
) -> None:
    unprocessed.add(assigned, assigned.offset)
    subscription.skip_to(assigned, 12)
    unprocessed.forget(assigned)
    assert unprocessed.processed(assigned).offset == 12
