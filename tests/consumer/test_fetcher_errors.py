"""Fetcher: which errors are retried, and which are raised."""

from __future__ import annotations

import logging

import pytest

from pykclient.consumer.subscription import OffsetReset, PositionState
from pykclient.errors import (
    BrokerError,
    CorruptMessageError,
    CorruptRecordError,
    DecodeError,
    DisconnectedError,
    FencedLeaderEpochError,
    FrameTooLargeError,
    InconsistentTopicIdError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    ReplicaNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownLeaderEpochError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from pykclient.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
)
from tests.consumer.fetch_scene import OTHER_ID, REPLICA_MS, A, C, Scene, named, part, reply
from tests.consumer.fetched_records import batch
from tests.consumer.known_cluster import (
    RETRY_MS,
    START_MS,
    TOPIC_ID,
    is_outdated,
    topic,
    update_metadata,
)
from tests.network.responding import respond_checked

PASSING = [
    NotLeaderOrFollowerError,
    ReplicaNotAvailableError,
    KafkaStorageError,
    FencedLeaderEpochError,
    UnknownLeaderEpochError,
    OffsetNotAvailableError,
    UnknownTopicOrPartitionError,
    UnknownTopicIdError,
    InconsistentTopicIdError,
]


@pytest.mark.parametrize("kind", PASSING)
def test_what_newer_metadata_may_cure_is_tried_again_unreported_after_a_back_off(
    kind: type[BrokerError],
) -> None:
    scene = Scene(A, C)
    reply(scene.fetch(), part(0, code=kind.code), part(2))
    assert is_outdated(scene.metadata)
    assert scene.subscription.take_error() is None
    request = scene.fetch()
    assert named(request) == [("t", 2, 0)]
    reply(request, part(2))
    assert ("t", 0, 0) in named(scene.fetch(START_MS + RETRY_MS))


def test_an_error_of_the_whole_response_concerns_all_its_partitions() -> None:
    scene = Scene(A, C)
    reply(scene.fetch(), error_code=UnknownTopicIdError.code)
    assert scene.poll() == []
    assert len(named(scene.fetch(START_MS + RETRY_MS))) == 2


def test_a_brokers_unexplained_failure_is_logged_once_a_partition_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(A, C)
    with caplog.at_level(logging.WARNING, "pykclient.consumer"):
        for now_ms in (START_MS, START_MS + 10_000):
            failures = [part(number, code=UnknownServerError.code) for number in (0, 2)]
            reply(scene.fetch(now_ms), *failures, now_ms=now_ms)
            assert scene.subscription.take_error() is None
    assert len(caplog.records) == 2
    assert "t-0" in caplog.text


def test_a_refusal_is_raised_and_tried_again_later() -> None:
    scene = Scene(A, offset=5)
    reply(scene.fetch(), part(0, code=TopicAuthorizationFailedError.code))
    error = scene.subscription.take_error()
    assert isinstance(error, TopicAuthorizationFailedError)
    assert "t-0 at offset 5" in str(error)
    assert scene.poll() == []
    assert len(scene.poll(START_MS + RETRY_MS)) == 1


def test_a_brokers_own_corrupt_log_is_reported_with_its_place() -> None:
    scene = Scene(A, offset=5)
    reply(scene.fetch(), part(0, code=CorruptMessageError.code))
    error = scene.subscription.take_error()
    assert isinstance(error, CorruptRecordError)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 5)


@pytest.mark.parametrize("reset", list(OffsetReset))
def test_a_position_outside_the_log_is_reset_by_the_setting(reset: OffsetReset) -> None:
    scene = Scene(reset=reset)
    assigned = scene.read(A, offset=5)
    reply(scene.fetch(), part(0, code=OffsetOutOfRangeError.code))
    assert assigned.state is PositionState.AWAITING_RESET
    assert (assigned.reset_to, assigned.lost_offset) == (reset, 5)


def test_a_fetch_ahead_that_is_out_of_range_waits_until_reading_gets_there() -> None:
    scene = Scene()
    assigned = scene.read(A)
    reply(scene.fetch(), part(0, batch(range(3))))
    reply(scene.fetch(), part(0, code=OffsetOutOfRangeError.code))
    assert scene.taken() == [0, 1, 2]
    reply(scene.fetch(START_MS + RETRY_MS), part(0, code=OffsetOutOfRangeError.code))
    assert (assigned.state, assigned.lost_offset) == (PositionState.AWAITING_RESET, 3)


def test_a_lost_connection_backs_off_and_requests_metadata() -> None:
    scene = Scene(A)
    scene.fetch().on_failure(DisconnectedError("gone"), START_MS)
    assert is_outdated(scene.metadata)
    assert scene.subscription.take_error() is None
    assert scene.poll() == []
    assert len(scene.poll(START_MS + RETRY_MS)) == 1


def test_a_leader_that_is_late_is_doubted_and_a_new_one_is_read_from() -> None:
    scene = Scene()
    assigned = scene.read(A)
    first = scene.fetcher.poll(START_MS)
    late_ms = first.next_poll_ms
    assert START_MS + 500 < late_ms < START_MS + 5_000
    scene.poll(late_ms - 1)
    assert not is_outdated(scene.metadata)
    assert scene.poll(late_ms) == []
    assert is_outdated(scene.metadata)
    update_metadata(scene.metadata, topic("t", [3, 2, 1]))
    assert [request.node_id for request in scene.poll(late_ms)] == [3]
    (old,) = first.requests
    reply(old, part(0, batch(range(3))))
    assert scene.taken() == [0, 1, 2]
    assert assigned.offset == 3


def test_an_application_that_was_away_does_not_make_a_leader_late() -> None:
    scene = Scene(A)
    late_ms = scene.fetcher.poll(START_MS).next_poll_ms
    back_ms = late_ms + 60_000
    next_ms = scene.fetcher.poll(back_ms).next_poll_ms
    assert not is_outdated(scene.metadata)
    scene.poll(next_ms)
    assert is_outdated(scene.metadata)


def test_a_leader_that_the_refusal_names_is_fetched_from_at_once() -> None:
    """KIP-951: without waiting for metadata or a back-off."""
    scene = Scene(A, C)
    refusal = part(0, code=NotLeaderOrFollowerError.code)
    refusal.current_leader = LeaderIdAndEpoch(2, leader_epoch=9)
    reply(scene.fetch(), refusal, part(2, code=NotLeaderOrFollowerError.code))
    (request,) = scene.poll()
    assert (request.node_id, named(request)) == (2, [("t", 0, 0)])
    assert {r.node_id for r in scene.poll(START_MS + RETRY_MS)} == {1}


def test_back_offs_grow_and_end_with_success() -> None:
    scene = Scene(A)
    now_ms, waits_ms = START_MS, []
    for _ in range(3):
        reply(scene.fetch(now_ms), part(0, code=NotLeaderOrFollowerError.code), now_ms=now_ms)
        waits_ms.append(scene.fetcher.poll(now_ms).next_poll_ms - now_ms)
        now_ms += waits_ms[-1]
    assert waits_ms == [RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS]
    reply(scene.fetch(now_ms), part(0), now_ms=now_ms)
    reply(scene.fetch(now_ms), part(0, code=NotLeaderOrFollowerError.code), now_ms=now_ms)
    assert scene.fetcher.poll(now_ms).next_poll_ms == now_ms + RETRY_MS


def test_what_no_attempt_cures_is_reported() -> None:
    scene = Scene(A)
    error = UnsupportedVersionError("too old")
    scene.fetch().on_failure(error, START_MS)
    assert scene.subscription.take_error() is error


def test_a_response_that_cannot_be_read_is_requested_again_and_then_reported_once() -> None:
    """Another connection cures a flipped bit; a second malformed response is no accident."""
    scene = Scene(A, C)
    error = DisconnectedError("given up")
    error.__cause__ = DecodeError("garbage")
    scene.fetch().on_failure(error, START_MS)
    assert scene.subscription.take_error() is None
    scene.fetch(START_MS + RETRY_MS).on_failure(error, START_MS + RETRY_MS)
    assert scene.subscription.take_error() is error.__cause__
    assert scene.subscription.take_error() is None
    assert len(scene.poll(START_MS + 10 * RETRY_MS)) == 1


def test_a_response_too_large_is_reported_with_its_cure_and_requested_again_only_after_that() -> (
    None
):
    scene = Scene(A, C)
    error = DisconnectedError("given up")
    error.__cause__ = FrameTooLargeError("broker-1:9092: a frame of 200 bytes; raise the limit")
    now_ms = START_MS
    for _ in range(2):
        scene.fetch(now_ms).on_failure(error, now_ms)
        now_ms += 100 * RETRY_MS
        assert scene.poll(now_ms) == []
        raised = scene.subscription.take_error()
        assert isinstance(raised, FrameTooLargeError)
        assert raised.__cause__ is error.__cause__
        assert str(raised) == (
            "the response of broker 1 to a Fetch of 2 partition(s), t-0 the first, is too large: "
            "broker-1:9092: a frame of 200 bytes; raise the limit; or lower fetch_max_bytes "
            "(50000) and max_partition_fetch_bytes (1000)"
        )
        assert scene.subscription.take_error() is None


def test_no_failure_is_reported_after_an_unassign() -> None:
    scene = Scene(A)
    request = scene.fetch()
    scene.subscription.assign([])
    request.on_failure(UnsupportedVersionError("too old"), START_MS)
    assert scene.subscription.take_error() is None


# Reading from a follower (KIP-392).


@pytest.mark.promise(
    "the consumer reads from the replica in its rack, and from the leader if that fails"
)
def test_the_replica_that_the_leader_names_is_read_from_for_a_while() -> None:
    scene = Scene(A, rack="r1")
    reply(scene.fetch(), part(0, replica=3))
    assert scene.fetch().node_id == 3
    scene = Scene(A, rack="r1")
    reply(scene.fetch(), part(0, replica=3))
    assert scene.fetch(START_MS + REPLICA_MS).node_id == 1


def test_a_replica_that_left_the_cluster_is_not_read_from() -> None:
    scene = Scene(A, rack="r1")
    reply(scene.fetch(), part(0, replica=9))
    assert scene.fetch().node_id == 1


@pytest.mark.promise(
    "the consumer reads from the replica in its rack, and from the leader if that fails"
)
@pytest.mark.parametrize(
    "code", [OffsetOutOfRangeError.code, NotLeaderOrFollowerError.code, UnknownServerError.code]
)
def test_after_an_error_of_a_replica_the_leader_is_fetched_from(code: int) -> None:
    scene = Scene(rack="r1")
    assigned = scene.read(A)
    reply(scene.fetch(), part(0, replica=3))
    reply(scene.fetch(), part(0, code=code))
    assert assigned.state is PositionState.FETCHING
    assert scene.fetch(START_MS + RETRY_MS).node_id == 1


@pytest.mark.parametrize(
    ("indexes", "topic_id"),
    [([1], TOPIC_ID), ([0, 1], TOPIC_ID), ([0, 2, 0], TOPIC_ID), ([0], OTHER_ID)],
    ids=["another", "one_too_many", "twice", "another_topic"],
)
def test_a_response_that_contradicts_its_request_counts_as_none_and_is_requested_again(
    indexes: list[int], topic_id: bytes
) -> None:
    scene = Scene(A, C)
    topics = [
        FetchableTopicResponse(
            topic_id=topic_id, partitions=[part(index, batch([0])) for index in indexes]
        )
    ]
    error = respond_checked(scene.fetch(), FetchResponse(responses=topics), START_MS)
    assert "twice, or it was not requested" in str(error)
    assert scene.taken() == []
    assert scene.subscription.take_error() is None
    assert named(scene.fetch(START_MS + RETRY_MS)) == [("t", 0, 0), ("t", 2, 0)]


def test_a_partition_that_a_response_leaves_out_is_requested_again_after_a_back_off() -> None:
    """A broker that throttles us names no partitions; that is not a contradiction."""
    scene = Scene(A, C)
    reply(scene.fetch(), part(0, batch([0])))
    assert scene.taken() == [0]
    assert named(scene.fetch()) == [("t", 0, 1)]
    result = scene.fetcher.poll(START_MS + RETRY_MS)
    assert result.requests == []
    scene = Scene(A)
    reply(scene.fetch())
    assert scene.poll() == []
    assert named(scene.fetch(START_MS + RETRY_MS)) == [("t", 0, 0)]
