"""CommittedOffsets: requested in every version, retried or reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.errors import (
    BrokerError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    DecodeError,
    DisconnectedError,
    GroupAuthorizationFailedError,
    NotCoordinatorError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnstableOffsetCommitError,
)
from pykclient.protocol.messages.offset_fetch import OffsetFetchRequest
from pykclient.testing.fake.cluster import FakeCluster
from pykclient.types import OffsetAndMetadata, TopicPartition
from tests.consumer.commit_scene import (
    GROUP,
    CommitScene,
    offset_fetch_response,
    response_of_broker,
)
from tests.consumer.known_cluster import RETRY_MS, START_MS, is_outdated, refresh

if TYPE_CHECKING:
    from pykclient.network.manager import Request

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def scene() -> CommitScene:
    return CommitScene()


def sent(scene: CommitScene, now_ms: int = START_MS) -> list[Request]:
    return list(scene.committed.poll(now_ms).requests)


@pytest.mark.parametrize("offset", [0, 5])
def test_what_is_committed_is_returned_and_none_where_nothing_is(
    scene: CommitScene, offset: int
) -> None:
    lookup = scene.committed.start([P0, P1])
    (request,) = sent(scene)
    assert request.node_id == scene.node_id
    committed = OffsetAndMetadata(offset, "note", 3)
    request.on_response(offset_fetch_response(request, {P0: committed}), START_MS)
    assert lookup.operation.result() == {P0: committed, P1: None}
    assert sent(scene) == []


def test_it_waits_for_the_coordinator() -> None:
    scene = CommitScene(finds_coordinator=False)
    lookup = scene.committed.start([P0])
    assert sent(scene) == []
    scene.find_coordinator(CoordinatorNotAvailableError.code)
    sent(scene)
    assert isinstance(lookup.attempt.last_error, CoordinatorNotAvailableError)
    scene.find_coordinator(now_ms=START_MS + RETRY_MS)
    assert len(sent(scene)) == 1


def test_a_coordinator_that_is_refused_fails_it() -> None:
    scene = CommitScene(finds_coordinator=False)
    lookup = scene.committed.start([P0])
    scene.find_coordinator(GroupAuthorizationFailedError.code)
    sent(scene)
    assert isinstance(lookup.operation.error, GroupAuthorizationFailedError)


@pytest.mark.parametrize(
    ("error", "drops_coordinator"),
    [
        (CoordinatorLoadInProgressError, False),
        (NotCoordinatorError, True),
        (CoordinatorNotAvailableError, True),
    ],
)
def test_what_may_pass_is_requested_again(
    scene: CommitScene, error: type[BrokerError], drops_coordinator: bool
) -> None:
    lookup = scene.committed.start([P0])
    (request,) = sent(scene)
    request.on_response(offset_fetch_response(request, group_error=error.code), START_MS)
    assert isinstance(lookup.attempt.last_error, error)
    assert (scene.node_id is None) is drops_coordinator
    assert scene.committed.poll(START_MS).next_poll_ms == START_MS + RETRY_MS
    if drops_coordinator:
        scene.find_coordinator(now_ms=START_MS + RETRY_MS)
    assert len(sent(scene, START_MS + RETRY_MS)) == 1


@pytest.mark.parametrize("error", [UnstableOffsetCommitError, UnknownTopicIdError])
def test_a_partition_without_offsets_yet_is_requested_again(
    scene: CommitScene, error: type[BrokerError]
) -> None:
    refresh(scene.metadata)
    lookup = scene.committed.start([P0, P1])
    (request,) = sent(scene)
    request.on_response(offset_fetch_response(request, errors={P1: error.code}), START_MS)
    assert "t-1 in group 'g'" in str(lookup.attempt.last_error)
    assert is_outdated(scene.metadata) is error.refresh_metadata
    assert len(sent(scene, START_MS + RETRY_MS)) == 1


def test_what_no_attempt_cures_ends_it(scene: CommitScene) -> None:
    lookup = scene.committed.start([P0, P1])
    (request,) = sent(scene)
    errors = {P0: UnstableOffsetCommitError.code, P1: TopicAuthorizationFailedError.code}
    request.on_response(offset_fetch_response(request, errors=errors), START_MS)
    assert isinstance(lookup.operation.error, TopicAuthorizationFailedError)
    assert sent(scene, START_MS + RETRY_MS) == []


def test_a_lost_connection_has_the_coordinator_looked_up(scene: CommitScene) -> None:
    scene.committed.start([P0])
    (request,) = sent(scene)
    request.on_failure(DisconnectedError("gone"), START_MS)
    assert scene.node_id is None


def test_a_second_unreadable_response_ends_it(scene: CommitScene) -> None:
    lost = DisconnectedError("given up")
    lost.__cause__ = DecodeError("nonsense")
    lookup = scene.committed.start([P0])
    sent(scene)[0].on_failure(lost, START_MS)
    sent(scene, START_MS + RETRY_MS)[0].on_failure(lost, START_MS)
    assert lookup.operation.error is lost.__cause__


def test_one_that_was_given_up_is_not_requested_again(scene: CommitScene) -> None:
    lookup = scene.committed.start([P0])
    (request,) = sent(scene)
    scene.committed.cancel(lookup)
    request.on_failure(DisconnectedError("gone"), START_MS)
    assert sent(scene, START_MS + RETRY_MS) == []


def test_offsets_of_open_transactions_are_waited_for() -> None:
    """From version 7; older brokers return the last committed offset."""
    scene = CommitScene()
    scene.committed.start([P0])
    (request,) = sent(scene)
    assert request.build is not None
    built = {version: request.build(version) for version in range(1, 11)}
    assert all(isinstance(message, OffsetFetchRequest) for message in built.values())
    stable = {v for v, m in built.items() if isinstance(m, OffsetFetchRequest) and m.require_stable}
    assert stable == {7, 8, 9, 10}


@pytest.mark.parametrize("version", range(1, 11))
def test_a_broker_reads_the_request_in_every_version(version: int) -> None:
    """Method: a fake broker that supports only this version responds about two topics."""
    cluster = FakeCluster()
    for name in ("t", "u"):
        cluster.create_topic(name, 2)
    scene = CommitScene(topics={name: cluster.topics[name].topic_id for name in ("t", "u")})
    partitions = [P0, P1, TopicPartition("u", 1)]
    lookup = scene.committed.start(partitions)
    (request,) = sent(scene)
    assert request.build is not None
    response = response_of_broker(cluster, request.build(version), version)
    assert request.check is not None
    request.check(response)
    request.on_response(response, START_MS)
    assert lookup.operation.result() == dict.fromkeys(partitions)


@pytest.mark.parametrize(
    "change", ["another group", "another partition", "a partition twice", "a partition less"]
)
def test_a_response_that_contradicts_its_request_ends_the_connection(
    scene: CommitScene, change: str
) -> None:
    scene.committed.start([P0, P1])
    (request,) = sent(scene)
    response = offset_fetch_response(request)
    (group,) = response.groups
    partitions = group.topics[0].partitions
    if change == "another group":
        group.group_id = f"not {GROUP}"
    elif change == "another partition":
        partitions[0].partition_index = 9
    elif change == "a partition twice":
        partitions[0].partition_index = 1
    else:
        del partitions[0]
    assert request.check is not None
    with pytest.raises(DecodeError):
        request.check(response)
