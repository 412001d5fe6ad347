"""Fetcher: which nodes get requests, from which offset and when, and how it handles responses."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykclient.consumer.subscription import AssignedPartition, OffsetReset, PositionState
from pykclient.errors import (
    BrokerError,
    CorruptRecordError,
    DisconnectedError,
    FetchSessionIdNotFoundError,
    InvalidFetchSessionEpochError,
    KafkaError,
    NotLeaderOrFollowerError,
    UnknownTopicIdError,
)
from pykclient.network.cluster.cluster import NO_TOPIC_ID
from pykclient.network.manager import NEVER_MS
from pykclient.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from pykclient.types import IsolationLevel, TopicPartition
from tests.consumer.fetch_scene import OTHER_ID, A, B, C, Scene, message_of, named, part, reply
from tests.consumer.fetched_records import aborted_batch, batch, marker
from tests.consumer.known_cluster import (
    RETRY_MS,
    START_MS,
    TOPIC_ID,
    is_outdated,
    topic,
    update_metadata,
)
from tests.network.responding import respond_checked

# Nodes and their partitions.


def test_each_leader_is_fetched_from_once_for_all_its_partitions() -> None:
    scene = Scene(A, B, C, offset=7)
    assert {request.node_id: named(request) for request in scene.poll()} == {
        1: [("t", 0, 7), ("t", 2, 7)],
        2: [("t", 1, 7)],
    }


def test_a_fetch_request_has_the_limits_of_the_settings() -> None:
    scene = Scene(A, isolation_level=IsolationLevel.READ_COMMITTED, rack="r1")
    request = scene.fetch()
    message = message_of(request)
    assert request.held_ms == message.max_wait_ms
    assert (message.min_bytes, message.max_wait_ms, message.max_bytes) == (3, 500, 50_000)
    assert (message.session_id, message.session_epoch) == (0, 0)
    assert (message.isolation_level, message.rack_id) == (IsolationLevel.READ_COMMITTED, "r1")
    (requested_topic,) = message.topics
    (partition,) = requested_topic.partitions
    assert (requested_topic.topic, requested_topic.topic_id) == ("t", TOPIC_ID)
    assert (partition.current_leader_epoch, partition.partition_max_bytes) == (4, 1_000)


def test_the_nodes_share_one_budget_of_bytes() -> None:
    scene = Scene(A, B, C)
    assert [message_of(request).max_bytes for request in scene.poll()] == [25_000, 25_000]
    scene = Scene(A, C)
    assert message_of(scene.fetch()).max_bytes == 50_000


def test_a_topic_without_an_id_is_requested_by_name() -> None:
    scene = Scene(A)
    assert scene.fetch().max_version is None
    scene = Scene()
    update_metadata(scene.metadata, topic("t", [1], topic_id=bytes(16)))
    scene.read(A)
    assert scene.fetch().max_version == 12


def test_partitions_without_a_position_or_paused_are_not_fetched() -> None:
    scene = Scene(A, C)
    scene.subscription.await_reset(scene.subscription.require(A), OffsetReset.LATEST)
    scene.subscription.pause(scene.subscription.require(C))
    assert scene.poll() == []
    scene.subscription.resume(scene.subscription.require(C))
    assert named(scene.fetch()) == [("t", 2, 0)]


def test_a_node_has_one_fetch_in_flight() -> None:
    scene = Scene(A)
    request = scene.fetch()
    assert scene.poll() == []
    reply(request, part(0))
    assert named(scene.fetch()) == [("t", 0, 0)]


def test_the_next_fetch_goes_out_while_one_response_waits_to_be_read_not_two() -> None:
    scene = Scene(A)
    reply(scene.fetch(), part(0, batch(range(5))))
    second = scene.fetch()
    assert named(second) == [("t", 0, 5)]
    reply(second, part(0, batch(range(5, 9))))
    assert scene.poll() == []
    assert scene.taken(5) == [0, 1, 2, 3, 4]
    assert named(scene.fetch()) == [("t", 0, 9)]


def test_no_fetch_waits_at_the_end_of_the_log_while_records_are_left_to_be_read() -> None:
    scene = Scene(A, C)
    reply(scene.fetch(), part(0, batch(range(5)), high_watermark=5), part(2, high_watermark=0))
    assert scene.poll() == []
    scene.taken()
    assert named(scene.fetch()) == [("t", 2, 0), ("t", 0, 5)]


@pytest.mark.parametrize("change", ["seek", "drop", "resume", "limit"])
def test_what_becomes_known_meanwhile_is_fetched_ahead(change: str) -> None:
    scene = Scene()
    update_metadata(scene.metadata, topic("t", [1, 1, 2]))
    scene.read(A, B)
    _, b = scene.subscription
    if change == "resume":
        scene.subscription.pause(b)
    if change == "limit":
        scene.subscription.set_limits({B: 0})
    parts = [part(0, batch(range(5)), high_watermark=5)]
    if not b.is_paused and b.limit is None:
        parts.append(part(1, batch(range(5)), high_watermark=5))
    reply(scene.fetch(), *parts)
    assert scene.poll() == []
    if change == "seek":
        scene.buffer.drop(b)
        scene.subscription.seek(b, 2)
    elif change == "drop":
        scene.buffer.drop(b)
    elif change == "resume":
        scene.subscription.resume(b)
    else:
        scene.subscription.set_limits({})
    assert len(scene.poll()) == 1


def test_a_back_off_that_ends_is_noticed_while_records_are_left_to_be_read() -> None:
    scene = Scene(A, C)
    reply(
        scene.fetch(),
        part(0, batch(range(5)), high_watermark=5),
        part(2, code=NotLeaderOrFollowerError.code),
    )
    for _ in range(2):
        result = scene.fetcher.poll(START_MS)
        assert (list(result.requests), result.next_poll_ms) == ([], START_MS + RETRY_MS)
    assert ("t", 2, 0) in named(scene.fetch(START_MS + RETRY_MS))


def test_a_reader_of_committed_records_has_its_own_end_of_the_log() -> None:
    scene = Scene(A, isolation_level=IsolationLevel.READ_COMMITTED)
    reply(scene.fetch(), part(0, batch(range(5)), high_watermark=9, last_stable_offset=5))
    assert scene.poll() == []


def test_a_node_in_back_off_is_left_alone_until_it_is_over() -> None:
    scene = Scene(A)
    scene.nodes.retry_ms[1] = START_MS + 50
    result = scene.fetcher.poll(START_MS)
    assert (list(result.requests), result.next_poll_ms) == ([], START_MS + 50)
    assert named(scene.fetch(START_MS + 50)) == [("t", 0, 0)]


def test_a_partition_that_the_topic_lacks_requests_metadata() -> None:
    scene = Scene()
    scene.read(TopicPartition("t", 9))
    assert scene.poll() == []
    assert is_outdated(scene.metadata)


def test_partitions_that_had_their_turn_come_last_in_the_next_request() -> None:
    scene = Scene()
    update_metadata(scene.metadata, topic("t", [1, 1, 1]))
    scene.read(A, B, C)
    reply(scene.fetch(), part(0, batch([0])), part(1), part(2))
    assert [partition for _, partition, _ in named(scene.fetch())] == [1, 2, 0]


def test_nothing_beyond_a_limit_is_fetched() -> None:
    scene = Scene(A, C)
    scene.subscription.set_limits({A: 5})
    reply(scene.fetch(), part(0, batch(range(5))), part(2))
    assert named(scene.fetch()) == [("t", 2, 0)]


# Responses.


@pytest.mark.parametrize(("reported", "noted"), [((9, 8), (9, 8)), ((-1, -1), (None, None))])
def test_records_are_buffered_and_of_the_log_is_noted_what_makes_sense(
    reported: tuple[int, int], noted: tuple[int | None, int | None]
) -> None:
    scene = Scene()
    assigned = scene.read(A)
    high_watermark, last_stable_offset = reported
    log = part(
        0, batch(range(3)), high_watermark=high_watermark, last_stable_offset=last_stable_offset
    )
    reply(scene.fetch(), log)
    assert scene.taken() == [0, 1, 2]
    assert (assigned.high_watermark, assigned.last_stable_offset) == noted


def test_an_older_broker_names_the_topic() -> None:
    scene = Scene(A)
    responses = [FetchableTopicResponse(topic="t", partitions=[part(0, batch([0]))])]
    scene.fetch().on_response(FetchResponse(responses=responses), START_MS)
    assert scene.taken() == [0]


# The topic of a position set by the user.


def seek_as_user(scene: Scene, assigned: AssignedPartition, offset: int) -> None:
    scene.subscription.seek(assigned, offset)
    scene.subscription.await_serving(assigned, scene.metadata.cluster.version)


def test_a_sought_position_stands_in_the_topic_that_a_broker_serves_by_its_id() -> None:
    scene = Scene()
    assigned = scene.read(A)
    seek_as_user(scene, assigned, 3)
    reply(scene.fetch(), part(0, code=UnknownTopicIdError.code))
    assert assigned.topic_id == NO_TOPIC_ID
    update_metadata(scene.metadata, topic("t", [1], topic_id=OTHER_ID))
    reply(scene.fetch(START_MS + RETRY_MS), part(0), topic_id=OTHER_ID)
    assert assigned.topic_id == OTHER_ID


def test_a_sought_position_that_a_session_leaves_out_is_served() -> None:
    scene = begun()
    assigned = scene.subscription.require(A)
    seek_as_user(scene, assigned, 5)
    reply(scene.fetch(), part(1, batch([0])), session_id=9)
    assert assigned.topic_id == TOPIC_ID


def serve_by_name(scene: Scene) -> None:
    responses = [FetchableTopicResponse(topic="t", partitions=[part(0)])]
    scene.fetch().on_response(FetchResponse(responses=responses), START_MS)


def test_a_name_says_which_topic_it_is_with_metadata_that_are_newer_than_the_seek() -> None:
    scene = Scene()
    assigned = scene.read(A)
    seek_as_user(scene, assigned, 3)
    assert not is_outdated(scene.metadata)
    serve_by_name(scene)
    assert assigned.topic_id == NO_TOPIC_ID
    assert is_outdated(scene.metadata)
    update_metadata(scene.metadata, topic("t", [1], topic_id=OTHER_ID))
    serve_by_name(scene)
    assert assigned.topic_id == OTHER_ID


def test_a_topic_without_an_id_is_asked_for_none() -> None:
    scene = Scene()
    update_metadata(scene.metadata, topic("t", [1], topic_id=NO_TOPIC_ID))
    seek_as_user(scene, scene.read(A), 3)
    serve_by_name(scene)
    assert not scene.subscription.sought
    assert not is_outdated(scene.metadata)


def test_a_response_from_before_the_seek_does_not_say_which_topic_it_is() -> None:
    scene = Scene()
    assigned = scene.read(A)
    request = scene.fetch()
    seek_as_user(scene, assigned, 3)
    reply(request, part(0, batch(range(3))))
    assert assigned.topic_id == NO_TOPIC_ID
    scene.subscription.assign([B])
    assert not scene.subscription.sought


def test_records_of_aborted_transactions_are_left_out_for_read_committed() -> None:
    data = aborted_batch([0], 7) + marker(1, 7) + batch([2])
    data_part = part(0, data)
    data_part.aborted_transactions = [AbortedTransaction(7, 0)]
    for level, expected in (
        (IsolationLevel.READ_COMMITTED, [2]),
        (IsolationLevel.READ_UNCOMMITTED, [0, 2]),
    ):
        scene = Scene(A, isolation_level=level)
        reply(scene.fetch(), data_part)
        assert scene.taken() == expected


@pytest.mark.parametrize("sought", [2, 50])
def test_a_response_from_before_a_seek_is_thrown_away(sought: int) -> None:
    scene = Scene()
    assigned = scene.read(A, offset=10)
    request = scene.fetch()
    scene.subscription.seek(assigned, sought)
    reply(request, part(0, batch(range(10, 13))))
    assert scene.taken() == []
    assert named(scene.fetch()) == [("t", 0, sought)]


def test_a_response_for_another_offset_than_is_due_is_not_kept() -> None:
    """Records that were taken and returned come first again; no seek discards the prefetch."""
    scene = Scene()
    assigned = scene.read(A)
    reply(scene.fetch(), part(0, batch(range(3)), high_watermark=9))
    assert scene.taken() == [0, 1, 2]
    ahead = scene.fetch()
    assert named(ahead) == [("t", 0, 3)]
    fetch_epoch = assigned.fetch_epoch
    scene.buffer.give_back()
    reply(ahead, part(0, batch(range(3, 6))))
    assert assigned.fetch_epoch == fetch_epoch
    assert scene.taken() == []
    assert named(scene.fetch()) == [("t", 0, 0)]


def test_a_response_from_before_a_validation_is_not_used_though_the_position_stays() -> None:
    """The new leader may have lost the records that the former one returned."""
    scene = Scene()
    assigned = scene.read(A, offset=10)
    request = scene.fetch()
    scene.subscription.await_validation(assigned)
    scene.subscription.complete_validation(assigned, 10, 4, 5)
    reply(request, part(0, batch(range(10, 13)), high_watermark=77))
    assert scene.taken() == []
    assert assigned.high_watermark is None
    assert named(scene.fetch()) == [("t", 0, 10)]


def test_a_response_from_before_an_unassign_is_thrown_away() -> None:
    scene = Scene(A)
    request = scene.fetch()
    scene.subscription.assign([])
    scene.read(A, offset=0)
    reply(request, part(0, batch(range(3)), high_watermark=77))
    assert scene.taken() == []
    assert scene.subscription.require(A).high_watermark is None


def test_a_response_that_came_from_two_leaders_is_used_once() -> None:
    scene = Scene(A)
    old = scene.fetch()
    update_metadata(scene.metadata, topic("t", [3, 2, 1]))
    new = scene.fetch()
    reply(old, part(0, batch(range(3))))
    reply(new, part(0, batch(range(3))))
    assert scene.taken() == [0, 1, 2]


# Any response.

NUMBERS = st.integers(-(2**31), 2**31 - 1) | st.integers(-1, 4)
RECORDS = st.sampled_from([b"", batch(range(3)), batch(range(3)) + batch(range(3, 6)), b"junk"])
PARTS = st.builds(
    PartitionData,
    partition_index=st.integers(0, 3) | NUMBERS,
    error_code=st.sampled_from([0, 0, 0]) | st.integers(-1, 140),
    high_watermark=NUMBERS,
    last_stable_offset=NUMBERS,
    log_start_offset=NUMBERS,
    preferred_read_replica=NUMBERS,
    records=RECORDS | st.binary(max_size=100),
)


@settings(max_examples=200)
@given(
    st.lists(
        st.builds(
            FetchableTopicResponse,
            topic_id=st.sampled_from([TOPIC_ID, OTHER_ID]),
            partitions=st.lists(PARTS, max_size=5),
        ),
        max_size=3,
    ),
    st.sampled_from([0, 0, 0, 70, 71, 100, 999]),
)
def test_whatever_a_broker_responds_only_our_errors_come_of_it_and_it_goes_on(
    topics: list[FetchableTopicResponse], error_code: int
) -> None:
    scene = Scene(isolation_level=IsolationLevel.READ_COMMITTED)
    update_metadata(scene.metadata, topic("t", [1, 1, 1]))
    scene.read(A, B, C)
    request = scene.fetch()
    respond_checked(request, FetchResponse(error_code=error_code, responses=topics), START_MS)
    for _ in range(20):
        try:
            scene.taken()
        except KafkaError as error:
            assert isinstance(error, CorruptRecordError)  # noqa: PT017
    waiting = {
        assigned.partition
        for assigned in scene.subscription
        if assigned.state is PositionState.FETCHING
    }
    again = scene.poll(START_MS + NEVER_MS // 2)
    assert {TopicPartition(name, index) for r in again for name, index, _ in named(r)} == waiting


def test_a_response_is_as_large_as_all_that_came_in_it() -> None:
    scene = Scene()
    a = scene.read(A, C)
    first, second = batch(range(5)), batch(range(3))
    reply(scene.fetch(), part(0, first), part(2, second))
    for assigned in (a, scene.subscription.require(C)):
        scene.subscription.pause(assigned)
        scene.buffer.refresh(assigned)
    assert scene.buffer.parked_bytes == len(first) + len(second)


def test_what_is_furthest_behind_is_named_first_where_that_is_wanted() -> None:
    scene = Scene(prefers_lag=True)
    update_metadata(scene.metadata, topic("t", [1, 1, 1]))
    scene.read(A, B, C)
    request = scene.fetch()
    assert message_of(request).session_epoch == -1
    ends = [part(0, high_watermark=10), part(1, high_watermark=30), part(2, high_watermark=20)]
    reply(request, *ends)
    assert named(scene.fetch()) == [("t", 1, 0), ("t", 2, 0), ("t", 0, 0)]


def begun() -> Scene:
    """Three partitions of one broker in a session, the first with records that were taken."""
    scene = Scene()
    update_metadata(scene.metadata, topic("t", [1, 1, 1]))
    scene.read(A, B, C)
    reply(scene.fetch(), part(0, batch(range(5))), part(1), part(2), session_id=9)
    assert scene.taken() == [0, 1, 2, 3, 4]
    return scene


def test_a_partition_that_a_session_leaves_out_is_named_when_it_changes() -> None:
    scene = begun()
    reply(scene.fetch(), session_id=9)
    reply(scene.fetch(), part(1, batch(range(3))), session_id=9)
    assert scene.taken() == [0, 1, 2]
    assert named(scene.fetch()) == [("t", 1, 3)]


def test_what_is_paused_is_forgotten_and_named_again_when_it_is_resumed() -> None:
    scene = begun()
    b = scene.subscription.require(B)
    scene.subscription.pause(b)
    request = scene.fetch()
    (forgotten,) = message_of(request).forgotten_topics_data
    assert forgotten.partitions == [1]
    reply(request, session_id=9)
    scene.subscription.resume(b)
    assert named(scene.fetch()) == [("t", 1, 0)]


@pytest.mark.parametrize(
    ("kind", "session_id"),
    [(FetchSessionIdNotFoundError, 0), (InvalidFetchSessionEpochError, 9)],
)
def test_a_lost_session_is_begun_anew_at_once(kind: type[BrokerError], session_id: int) -> None:
    scene = begun()
    reply(scene.fetch(), error_code=kind.code)
    request = scene.fetch()
    message = message_of(request)
    assert (message.session_id, message.session_epoch) == (session_id, 0)
    assert set(named(request)) == {("t", 0, 5), ("t", 1, 0), ("t", 2, 0)}


def test_a_broker_that_refuses_a_new_session_too_is_left_alone_for_a_while() -> None:
    scene = begun()
    reply(scene.fetch(), error_code=FetchSessionIdNotFoundError.code)
    reply(scene.fetch(), error_code=FetchSessionIdNotFoundError.code)
    assert scene.poll() == []
    assert len(named(scene.fetch(START_MS + RETRY_MS))) == 3


def test_after_a_lost_connection_everything_is_named() -> None:
    scene = begun()
    scene.fetch().on_failure(DisconnectedError("gone"), START_MS)
    request = scene.fetch(START_MS + RETRY_MS)
    assert (message_of(request).session_id, message_of(request).session_epoch) == (9, 0)
    assert len(named(request)) == 3


def test_at_the_end_brokers_that_owe_nothing_forget_us() -> None:
    scene = begun()
    (request,) = scene.fetcher.end_sessions(START_MS)
    message = message_of(request)
    assert (request.node_id, message.session_id, message.session_epoch) == (1, 9, -1)
    assert message.topics == []
    scene = begun()
    scene.fetch()
    assert scene.fetcher.end_sessions(START_MS) == []
