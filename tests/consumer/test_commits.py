"""Commits: in order, retried only where that is safe, in every version of the API."""

from __future__ import annotations

import logging

import pytest

from pykclient.consumer.offsets.commit import OffsetCommitCall
from pykclient.errors import (
    BrokerError,
    CommitFailedError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    DecodeError,
    DisconnectedError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    InvalidCommitOffsetSizeError,
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    RequestTimedOutError,
    StaleMemberEpochError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from pykclient.network.cluster.cluster import NO_TOPIC_ID
from pykclient.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pykclient.testing.fake.cluster import FakeCluster
from pykclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from tests.consumer.commit_scene import CommitScene, at, committed_in, response_of_broker
from tests.consumer.known_cluster import (
    RETRY_MS,
    START_MS,
    TOPIC_ID,
    is_outdated,
    refresh,
)

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
LATER_MS = START_MS + 60_000
INTERVAL_MS = 5_000

Completions = list[tuple[int, KafkaError | None]]


@pytest.fixture
def scene() -> CommitScene:
    return CommitScene()


def commit_async(scene: CommitScene, offset: int, completions: Completions) -> None:
    def callback(
        offsets: dict[TopicPartition, OffsetAndMetadata], error: KafkaError | None
    ) -> None:
        completions.append((offsets[P0].offset, error))

    scene.commits.commit_async({P0: at(offset)}, LATER_MS, callback)


# Waiting for success.


def test_a_commit_goes_to_the_coordinator_and_ends_with_its_response(scene: CommitScene) -> None:
    commit = scene.commits.commit({P0: OffsetAndMetadata(5, "note", 3), P1: at(6)}, LATER_MS)
    (request,) = scene.sent()
    assert request.node_id == scene.node_id
    assert committed_in(request) == {P0: 5, P1: 6}
    assert scene.sent() == []
    assert not commit.operation.is_done
    scene.respond(request)
    assert commit.operation.result() is None


def test_interceptors_get_what_was_committed(scene: CommitScene) -> None:
    scene.commits.commit({P0: at(5)}, LATER_MS)
    scene.commits.commit_async({P0: at(6)}, LATER_MS)
    (first,) = scene.sent()
    scene.respond(first)
    (second,) = scene.sent()
    scene.respond(second)
    scene.run_user_calls()
    assert scene.intercepted == [{P0: at(5)}, {P0: at(6)}]


def test_a_commit_waits_for_the_coordinator() -> None:
    scene = CommitScene(finds_coordinator=False)
    commit = scene.commits.commit({P0: at(5)}, LATER_MS)
    assert scene.sent() == []
    scene.find_coordinator(CoordinatorNotAvailableError.code)
    assert scene.sent() == []
    assert isinstance(commit.attempt.last_error, CoordinatorNotAvailableError)
    scene.find_coordinator(now_ms=START_MS + RETRY_MS)
    assert len(scene.sent()) == 1


def test_a_coordinator_that_is_refused_fails_what_waits() -> None:
    scene = CommitScene(finds_coordinator=False)
    commit = scene.commits.commit({P0: at(5)}, LATER_MS)
    scene.find_coordinator(GroupAuthorizationFailedError.code)
    scene.sent()
    assert isinstance(commit.operation.error, GroupAuthorizationFailedError)


@pytest.mark.promise(
    "`commit` retries within its deadline, `commit_async` never; callbacks run in order"
)
@pytest.mark.parametrize(
    ("error", "drops_coordinator"),
    [
        (CoordinatorLoadInProgressError, False),
        (UnknownTopicOrPartitionError, False),
        (CoordinatorNotAvailableError, True),
        (NotCoordinatorError, True),
        (RequestTimedOutError, True),
    ],
)
def test_what_may_pass_is_tried_again_after_a_back_off(
    scene: CommitScene, error: type[BrokerError], drops_coordinator: bool
) -> None:
    refresh(scene.metadata)
    commit = scene.commits.commit({P0: at(5), P1: at(6)}, LATER_MS)
    (request,) = scene.sent()
    scene.respond(request, error.code)
    assert isinstance(commit.attempt.last_error, error)
    assert "t-0 in group 'g'" in str(commit.attempt.last_error)
    assert (scene.node_id is None) is drops_coordinator
    assert is_outdated(scene.metadata) == (error is UnknownTopicOrPartitionError)
    if drops_coordinator:
        scene.find_coordinator(now_ms=START_MS + RETRY_MS)
    assert scene.sent() == []
    (again,) = scene.sent(START_MS + RETRY_MS)
    assert committed_in(again) == {P0: 5, P1: 6}
    scene.respond(again)
    assert commit.operation.error is None


def test_after_a_lost_connection_the_coordinator_is_looked_up_and_gets_the_request_again(
    scene: CommitScene,
) -> None:
    commit = scene.commits.commit({P0: at(5)}, LATER_MS)
    (request,) = scene.sent()
    request.on_failure(DisconnectedError("gone"), START_MS)
    assert scene.node_id is None
    scene.find_coordinator(now_ms=START_MS + RETRY_MS)
    (again,) = scene.sent(START_MS + RETRY_MS)
    scene.respond(again)
    assert commit.operation.error is None


def test_what_times_out_while_it_waits_has_the_cause() -> None:
    scene = CommitScene(finds_coordinator=False)
    commit = scene.commits.commit({P0: at(5)}, START_MS + 1_000)
    assert scene.commits.poll(START_MS).next_poll_ms == START_MS + 1_000
    scene.find_coordinator(CoordinatorNotAvailableError.code)
    scene.sent(START_MS + 999)
    scene.sent(START_MS + 1_000)
    assert isinstance(commit.operation.error, KafkaTimeoutError)
    assert "t-0 could not be committed in time: COORDINATOR_NOT_AVAILABLE" in str(
        commit.operation.error
    )


def test_one_that_was_given_up_is_not_sent_again(scene: CommitScene) -> None:
    commit = scene.commits.commit({P0: at(5)}, LATER_MS)
    (request,) = scene.sent()
    scene.commits.cancel(commit)
    scene.respond(request, CoordinatorLoadInProgressError.code)
    assert scene.sent(LATER_MS) == []
    waiting = scene.commits.commit({P0: at(5)}, LATER_MS)
    scene.commits.cancel(waiting)
    assert scene.sent() == []


@pytest.mark.parametrize(
    "error",
    [OffsetMetadataTooLargeError, InvalidCommitOffsetSizeError, TopicAuthorizationFailedError],
)
def test_what_no_attempt_cures_ends_it(scene: CommitScene, error: type[BrokerError]) -> None:
    commit = scene.commits.commit({P0: at(5), P1: at(6)}, LATER_MS)
    (request,) = scene.sent()
    scene.respond(request, 0, error.code)
    assert isinstance(commit.operation.error, error)
    assert "t-1 in group 'g'" in str(commit.operation.error)
    assert scene.membership.refusals == []


def test_what_concerns_the_group_is_reported_before_what_concerns_a_topic(
    scene: CommitScene,
) -> None:
    commit = scene.commits.commit({P0: at(5), P1: at(6)}, LATER_MS)
    (request,) = scene.sent()
    scene.respond(request, TopicAuthorizationFailedError.code, GroupAuthorizationFailedError.code)
    assert isinstance(commit.operation.error, GroupAuthorizationFailedError)


@pytest.mark.promise(
    "a refused commit says what, where and the cure; `poll` raises errors that are not retriable"
)
@pytest.mark.parametrize(
    "error", [UnknownMemberIdError, IllegalGenerationError, StaleMemberEpochError]
)
def test_a_former_member_that_commits_gets_commit_failed(
    scene: CommitScene, error: type[BrokerError]
) -> None:
    commit = scene.commits.commit({P0: at(5)}, LATER_MS)
    (request,) = scene.sent()
    scene.respond(request, error.code)
    assert [type(each) for each in scene.membership.refusals] == [error]
    failed = commit.operation.error
    assert isinstance(failed, CommitFailedError)
    assert isinstance(failed.__cause__, error)
    assert "max_poll_interval_ms" in str(failed)


def test_a_coordinator_that_was_replaced_ends_no_membership(scene: CommitScene) -> None:
    commit = scene.commits.commit({P0: at(5)}, LATER_MS)
    (request,) = scene.sent()
    scene.lose_coordinator()
    scene.respond(request, UnknownMemberIdError.code)
    assert scene.membership.refusals == []
    assert isinstance(commit.attempt.last_error, NotCoordinatorError)
    scene.find_coordinator(now_ms=START_MS + RETRY_MS)
    (again,) = scene.sent(START_MS + RETRY_MS)
    scene.respond(again)
    assert commit.operation.error is None


def test_a_fenced_instance_is_reported_as_such(scene: CommitScene) -> None:
    commit = scene.commits.commit({P0: at(5)}, LATER_MS)
    (request,) = scene.sent()
    scene.respond(request, FencedInstanceIdError.code)
    assert isinstance(commit.operation.error, FencedInstanceIdError)


def test_a_member_that_may_not_commit_now_gets_the_error_without_a_request(
    scene: CommitScene,
) -> None:
    scene.membership.commit_error = RebalanceInProgressError("poll first")
    commit = scene.commits.commit({P0: at(5)}, LATER_MS)
    assert scene.sent() == []
    assert commit.operation.error is scene.membership.commit_error


def test_a_second_unreadable_response_ends_it(scene: CommitScene) -> None:
    lost = DisconnectedError("given up")
    lost.__cause__ = DecodeError("nonsense")
    commit = scene.commits.commit({P0: at(5)}, LATER_MS)
    (request,) = scene.sent()
    request.on_failure(lost, START_MS)
    assert not commit.operation.is_done
    scene.find_coordinator(now_ms=START_MS + RETRY_MS)
    (again,) = scene.sent(START_MS + RETRY_MS)
    again.on_failure(lost, START_MS)
    assert commit.operation.error is lost.__cause__


def test_a_commit_of_nothing_ends_when_those_before_it_have(scene: CommitScene) -> None:
    completions: Completions = []
    commit_async(scene, 5, completions)
    empty = scene.commits.commit({}, LATER_MS)
    (request,) = scene.sent()
    assert not empty.operation.is_done
    scene.respond(request)
    assert scene.sent() == []
    assert empty.operation.is_done


# Without waiting.


@pytest.mark.promise(
    "`commit` retries within its deadline, `commit_async` never; callbacks run in order"
)
def test_callbacks_come_in_the_order_of_the_calls(scene: CommitScene) -> None:
    completions: Completions = []
    for offset in (1, 2, 3):
        commit_async(scene, offset, completions)
    first, second, third = scene.sent()
    scene.respond(first)
    scene.respond(second, CoordinatorLoadInProgressError.code)
    scene.respond(third)
    assert completions == []
    scene.run_user_calls()
    assert [offset for offset, _ in completions] == [1, 2, 3]
    assert completions[0][1] is None
    assert isinstance(completions[1][1], CoordinatorLoadInProgressError)
    assert completions[2][1] is None


@pytest.mark.promise(
    "`commit` retries within its deadline, `commit_async` never; callbacks run in order"
)
def test_one_without_waiting_is_never_sent_twice(scene: CommitScene) -> None:
    completions: Completions = []
    commit_async(scene, 1, completions)
    (request,) = scene.sent()
    request.on_failure(DisconnectedError("gone"), START_MS)
    scene.run_user_calls()
    ((_, error),) = completions
    assert error is not None
    assert error.retriable
    scene.find_coordinator(now_ms=START_MS + RETRY_MS)
    assert scene.sent(LATER_MS - 1) == []


def test_a_callback_is_held_back_until_those_before_it_were_called(scene: CommitScene) -> None:
    completions: Completions = []
    commit_async(scene, 1, completions)
    (request,) = scene.sent()
    scene.membership.commit_error = RebalanceInProgressError("poll first")
    commit_async(scene, 2, completions)
    scene.sent()
    scene.run_user_calls()
    assert completions == []
    scene.respond(request)
    scene.run_user_calls()
    assert [offset for offset, _ in completions] == [1, 2]


@pytest.mark.promise(
    "`commit` retries within its deadline, `commit_async` never; callbacks run in order"
)
def test_a_later_commit_does_not_overtake_one_that_is_tried_again(scene: CommitScene) -> None:
    completions: Completions = []
    scene.commits.commit({P0: at(1)}, LATER_MS)
    commit_async(scene, 2, completions)
    (first,) = scene.sent()
    assert scene.commits.poll(START_MS).next_poll_ms == LATER_MS
    scene.respond(first, CoordinatorLoadInProgressError.code)
    assert scene.commits.poll(START_MS).next_poll_ms == START_MS + RETRY_MS
    (again,) = scene.sent(START_MS + RETRY_MS)
    assert committed_in(again) == {P0: 1}
    scene.respond(again)
    (second,) = scene.sent(START_MS + RETRY_MS)
    assert committed_in(second) == {P0: 2}


def test_what_a_callback_raises_comes_out_of_the_call(scene: CommitScene) -> None:
    def callback(_: object, __: object) -> None:
        raise ValueError("the application's own")

    scene.commits.commit_async({P0: at(1)}, LATER_MS, callback)
    (request,) = scene.sent()
    scene.respond(request)
    *_, call = scene.user_calls
    with pytest.raises(ValueError, match="own"):
        call.on_done(ValueError("the application's own"))


def test_a_failure_without_a_callback_is_logged(
    scene: CommitScene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.commits.commit_async({P0: at(1)}, LATER_MS)
    (request,) = scene.sent()
    scene.respond(request, OffsetMetadataTooLargeError.code)
    (record,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert "the commit of t-0 failed: OFFSET_METADATA_TOO_LARGE" in record.getMessage()


def test_what_was_lost_meanwhile_is_not_committed_though_it_came_back() -> None:
    scene = CommitScene(auto_commit_interval_ms=INTERVAL_MS)
    scene.read(5, 6)
    scene.commits.commit_before_revocation(LATER_MS)
    (request,) = scene.sent()
    scene.respond(request, CoordinatorLoadInProgressError.code)
    scene.subscription.assign([P1])  # P0 is lost, and comes back: others may have gone on
    scene.subscription.assign([P0, P1])
    (again,) = scene.sent(START_MS + RETRY_MS)
    assert committed_in(again) == {P1: 6}


# One request.


ELSEWHERE = TopicPartition("u", 1)
LEADER_EPOCH_FROM_VERSION = 6
OFFSETS = {
    P0: OffsetAndMetadata(5, "note", 3),
    P1: OffsetAndMetadata(6),
    ELSEWHERE: OffsetAndMetadata(7),
}


def made(topic_ids: dict[str, bytes], member: GroupMetadata) -> OffsetCommitCall:
    return OffsetCommitCall(member, OFFSETS, topic_ids)


@pytest.mark.parametrize("version", range(2, 11))
def test_a_broker_takes_the_offsets_in_every_version(version: int) -> None:
    """Method: a fake broker receives a commit of this version, and the test checks its contents."""
    cluster = FakeCluster()
    for name in ("t", "u"):
        cluster.create_topic(name, 2)
    ids = {name: cluster.topics[name].topic_id for name in ("t", "u")}
    call = made(ids, GroupMetadata("g"))
    response = response_of_broker(cluster, call.message, version)
    call.check(response)
    assert call.refusals(response) == {}
    kept = {name: (each.offset, each.metadata) for name, each in cluster.group("g").offsets.items()}
    assert kept == {P0: (5, "note"), P1: (6, ""), ELSEWHERE: (7, "")}
    epoch = cluster.group("g").offsets[P0].leader_epoch
    assert epoch == (3 if version >= LEADER_EPOCH_FROM_VERSION else -1)


def test_a_request_has_the_ids_and_the_generation_of_the_member() -> None:
    call = made({"t": TOPIC_ID, "u": TOPIC_ID[::-1]}, GroupMetadata("g", 7, "m-1", "i"))
    message = call.message
    assert (message.group_id, message.generation_id_or_member_epoch) == ("g", 7)
    assert (message.member_id, message.group_instance_id) == ("m-1", "i")
    assert call.max_version is None


def test_topics_are_named_where_the_id_of_one_is_not_known() -> None:
    call = made({"t": TOPIC_ID, "u": NO_TOPIC_ID}, GroupMetadata("g"))
    assert call.max_version == 9


def commit_response(**codes: dict[int, int]) -> OffsetCommitResponse:
    """Return a response with these error codes, for the partitions of each topic."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name, partitions=[OffsetCommitResponsePartition(*each) for each in reported.items()]
            )
            for name, reported in codes.items()
        ]
    )


def test_what_was_refused_is_reported_by_partition() -> None:
    call = made({"t": TOPIC_ID, "u": TOPIC_ID[::-1]}, GroupMetadata("g"))
    unknown, gone = UnknownTopicOrPartitionError.code, UnknownMemberIdError.code
    response = commit_response(t={0: unknown, 1: 0}, u={1: gone})
    call.check(response)
    assert call.refusals(response) == {P0: unknown, ELSEWHERE: gone}


@pytest.mark.parametrize(
    "response",
    [
        commit_response(t={0: 0, 1: 0}),
        commit_response(t={0: 0, 1: 0, 2: 0}, u={1: 0}),
        commit_response(t={0: 0, 1: 0}, u={1: 0}, v={0: 0}),
        OffsetCommitResponse(),
    ],
)
def test_a_response_about_other_partitions_is_refused(response: OffsetCommitResponse) -> None:
    call = made({"t": TOPIC_ID, "u": TOPIC_ID[::-1]}, GroupMetadata("g"))
    with pytest.raises(DecodeError):
        call.check(response)
