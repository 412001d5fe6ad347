"""Fetcher by numbers: whom it asks, from where, when again, and what it makes of answers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykclient.consumer.fetch_buffer import FetchBuffer
from pykclient.consumer.fetcher import Fetcher, FetchSettings
from pykclient.consumer.subscription import (
    AssignedPartition,
    OffsetReset,
    PositionState,
    SubscriptionState,
)
from pykclient.errors import (
    BrokerError,
    CorruptMessageError,
    CorruptRecordError,
    DecodeError,
    DisconnectedError,
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    KafkaError,
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
from pykclient.network.manager import NEVER_MS
from pykclient.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pykclient.types import IsolationLevel, TopicPartition
from tests.consumer.fetched_records import SETTINGS, aborted_batch, batch, marker
from tests.consumer.known_cluster import (
    RETRY_BACKOFF,
    RETRY_MS,
    START_MS,
    TOPIC_ID,
    is_outdated,
    know,
    make_metadata,
    refresh,
    topic,
)

if TYPE_CHECKING:
    from pykclient.network.manager import Request

A, B, C = (TopicPartition("t", number) for number in range(3))
OTHER_ID = bytes(reversed(range(16)))
REPLICA_MS = 300_000


class Nodes:
    """Which nodes wait out a back-off, and until when."""

    def __init__(self) -> None:
        self.retry_ms: dict[int, int] = {}

    def is_unavailable(self, node_id: int, now_ms: int) -> bool:
        return self.next_ready_ms(node_id, now_ms) > now_ms

    def next_ready_ms(self, node_id: int, now_ms: int) -> int:
        return self.retry_ms.get(node_id, now_ms)


class Scene:
    """A fetcher with what it works on. Partition 0 and 2 are led by broker 1, 1 by broker 2."""

    def __init__(
        self,
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        rack: str = "",
        reset: OffsetReset = OffsetReset.EARLIEST,
    ) -> None:
        self.metadata = make_metadata()
        refresh(self.metadata)
        know(self.metadata, topic("t", [1, 2, 1]))
        self.nodes = Nodes()
        self.subscription = SubscriptionState()
        self.buffer = FetchBuffer(None, RETRY_BACKOFF)
        self.fetcher = Fetcher(
            subscription=self.subscription,
            buffer=self.buffer,
            metadata=self.metadata,
            client=self.nodes,
            settings=FetchSettings(
                min_bytes=1,
                max_wait_ms=500,
                max_bytes=50_000,
                partition_max_bytes=1_000,
                isolation_level=isolation_level,
                rack=rack,
                read_replica_ms=REPLICA_MS,
                auto_offset_reset=reset,
                decode=SETTINGS,
            ),
            retry_backoff=RETRY_BACKOFF,
        )

    def read(self, *partitions: TopicPartition, offset: int = 0) -> AssignedPartition:
        """Assign partitions, all at one offset; return the first."""
        self.subscription.assign(partitions)
        for assigned in self.subscription:
            self.subscription.seek(assigned, offset)
        return self.subscription.require(partitions[0])

    def poll(self, now_ms: int = START_MS) -> list[Request]:
        return list(self.fetcher.poll(now_ms).requests)

    def fetch(self, now_ms: int = START_MS) -> Request:
        (request,) = self.poll(now_ms)
        return request

    def taken(self, count_max: int = 100) -> list[int]:
        return [
            offset
            for run in self.buffer.take(count_max, START_MS)
            for offset in run.columns.offsets
        ]


def message_of(request: Request) -> FetchRequest:
    assert isinstance(request.message, FetchRequest)
    return request.message


def asked(request: Request) -> list[tuple[str, int, int]]:
    return [
        (asked_topic.topic, partition.partition, partition.fetch_offset)
        for asked_topic in message_of(request).topics
        for partition in asked_topic.partitions
    ]


def part(
    index: int,
    records: bytes = b"",
    *,
    code: int = 0,
    high_watermark: int = 1_000,
    last_stable_offset: int = -1,
    replica: int = -1,
) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1 if code else high_watermark,
        last_stable_offset=last_stable_offset,
        preferred_read_replica=replica,
        records=records or None,
    )


def reply(
    request: Request,
    *parts: PartitionData,
    now_ms: int = START_MS,
    topic_id: bytes = TOPIC_ID,
    error_code: int = 0,
) -> None:
    # A newer broker names the topic by its id alone.
    responses = [FetchableTopicResponse(topic_id=topic_id, partitions=list(parts))]
    request.on_response(FetchResponse(error_code=error_code, responses=responses), now_ms)


# Whom to ask for what.


def test_each_leader_is_asked_once_for_all_its_partitions() -> None:
    scene = Scene()
    scene.read(A, B, C, offset=7)
    assert {request.node_id: asked(request) for request in scene.poll()} == {
        1: [("t", 0, 7), ("t", 2, 7)],
        2: [("t", 1, 7)],
    }


def test_a_fetch_says_what_the_settings_say() -> None:
    scene = Scene(isolation_level=IsolationLevel.READ_COMMITTED, rack="r1")
    scene.read(A)
    message = message_of(scene.fetch())
    assert (message.min_bytes, message.max_wait_ms, message.max_bytes) == (1, 500, 50_000)
    assert (message.session_id, message.session_epoch) == (0, -1)
    assert (message.isolation_level, message.rack_id) == (IsolationLevel.READ_COMMITTED, "r1")
    (asked_topic,) = message.topics
    (partition,) = asked_topic.partitions
    assert (asked_topic.topic, asked_topic.topic_id) == ("t", TOPIC_ID)
    assert (partition.current_leader_epoch, partition.partition_max_bytes) == (4, 1_000)


def test_a_topic_without_an_id_is_asked_for_by_name() -> None:
    scene = Scene()
    scene.read(A)
    assert scene.fetch().max_version is None
    scene = Scene()
    know(scene.metadata, topic("t", [1], topic_id=bytes(16)))
    scene.read(A)
    assert scene.fetch().max_version == 12


def test_partitions_without_a_position_or_paused_are_not_fetched() -> None:
    scene = Scene()
    scene.read(A, C)
    scene.subscription.await_reset(scene.subscription.require(A), OffsetReset.LATEST)
    scene.subscription.pause(scene.subscription.require(C))
    assert scene.poll() == []
    scene.subscription.resume(scene.subscription.require(C))
    assert asked(scene.fetch()) == [("t", 2, 0)]


def test_a_node_has_one_fetch_in_flight() -> None:
    scene = Scene()
    scene.read(A)
    request = scene.fetch()
    assert scene.poll() == []
    reply(request, part(0))
    assert asked(scene.fetch()) == [("t", 0, 0)]


def test_the_next_fetch_goes_out_while_one_answer_waits_to_be_read_not_two() -> None:
    scene = Scene()
    scene.read(A)
    reply(scene.fetch(), part(0, batch(range(5))))
    second = scene.fetch()
    assert asked(second) == [("t", 0, 5)]
    reply(second, part(0, batch(range(5, 9))))
    assert scene.poll() == []
    assert scene.taken(5) == [0, 1, 2, 3, 4]
    assert asked(scene.fetch()) == [("t", 0, 9)]


def test_no_fetch_waits_at_the_end_of_the_log_while_records_are_left_to_be_read() -> None:
    scene = Scene()
    scene.read(A, C)
    reply(scene.fetch(), part(0, batch(range(5)), high_watermark=5), part(2, high_watermark=0))
    assert scene.poll() == []
    scene.taken()
    assert asked(scene.fetch()) == [("t", 2, 0), ("t", 0, 5)]


def test_a_reader_of_committed_records_has_its_own_end_of_the_log() -> None:
    scene = Scene(isolation_level=IsolationLevel.READ_COMMITTED)
    scene.read(A)
    reply(scene.fetch(), part(0, batch(range(5)), high_watermark=9, last_stable_offset=5))
    assert scene.poll() == []


def test_a_node_in_back_off_is_left_alone_until_it_is_over() -> None:
    scene = Scene()
    scene.read(A)
    scene.nodes.retry_ms[1] = START_MS + 50
    result = scene.fetcher.poll(START_MS)
    assert (list(result.requests), result.next_poll_ms) == ([], START_MS + 50)
    assert asked(scene.fetch(START_MS + 50)) == [("t", 0, 0)]


def test_new_leaders_are_followed() -> None:
    scene = Scene()
    scene.read(A)
    know(scene.metadata, topic("t", [3, 2, 1]))
    assert scene.fetch().node_id == 3


def test_a_partition_that_the_topic_lacks_asks_for_metadata() -> None:
    scene = Scene()
    scene.read(TopicPartition("t", 9))
    assert scene.poll() == []
    assert is_outdated(scene.metadata)


def test_partitions_that_had_their_turn_come_last_in_the_next_request() -> None:
    scene = Scene()
    know(scene.metadata, topic("t", [1, 1, 1]))
    scene.read(A, B, C)
    reply(scene.fetch(), part(0, batch([0])), part(1), part(2))
    assert [partition for _, partition, _ in asked(scene.fetch())] == [1, 2, 0]


def test_nothing_beyond_a_limit_is_fetched() -> None:
    scene = Scene()
    scene.read(A, C)
    scene.subscription.set_limits({A: 5})
    reply(scene.fetch(), part(0, batch(range(5))), part(2))
    assert asked(scene.fetch()) == [("t", 2, 0)]


# Answers.


def test_records_are_buffered_and_the_log_is_noted() -> None:
    scene = Scene()
    assigned = scene.read(A)
    reply(
        scene.fetch(),
        part(0, batch(range(3)), high_watermark=9, last_stable_offset=8),
    )
    assert scene.taken() == [0, 1, 2]
    assert (assigned.high_watermark, assigned.last_stable_offset) == (9, 8)


def test_an_older_broker_names_the_topic() -> None:
    scene = Scene()
    scene.read(A)
    responses = [FetchableTopicResponse(topic="t", partitions=[part(0, batch([0]))])]
    scene.fetch().on_response(FetchResponse(responses=responses), START_MS)
    assert scene.taken() == [0]


def test_what_makes_no_sense_about_the_log_changes_nothing() -> None:
    scene = Scene()
    assigned = scene.read(A)
    reply(scene.fetch(), part(0, batch([0]), high_watermark=-1))
    assert assigned.high_watermark is None
    assert scene.taken() == [0]


def test_records_of_aborted_transactions_are_left_out_for_read_committed() -> None:
    data = aborted_batch([0], 7) + marker(1, 7) + batch([2])
    answer = part(0, data)
    answer.aborted_transactions = [AbortedTransaction(7, 0)]
    for level, expected in (
        (IsolationLevel.READ_COMMITTED, [2]),
        (IsolationLevel.READ_UNCOMMITTED, [0, 2]),
    ):
        scene = Scene(isolation_level=level)
        scene.read(A)
        reply(scene.fetch(), answer)
        assert scene.taken() == expected


def test_an_answer_from_before_a_seek_is_thrown_away() -> None:
    scene = Scene()
    assigned = scene.read(A)
    request = scene.fetch()
    scene.subscription.seek(assigned, 50)
    reply(request, part(0, batch(range(3))))
    assert scene.taken() == []
    assert asked(scene.fetch()) == [("t", 0, 50)]


def test_an_answer_from_before_an_unassign_is_thrown_away() -> None:
    scene = Scene()
    scene.read(A)
    request = scene.fetch()
    scene.subscription.assign([])
    scene.read(A, offset=0)
    reply(request, part(0, batch(range(3)), high_watermark=77))
    assert scene.taken() == []
    assert scene.subscription.require(A).high_watermark is None


def test_an_answer_that_came_from_two_leaders_is_used_once() -> None:
    scene = Scene()
    scene.read(A)
    old = scene.fetch()
    know(scene.metadata, topic("t", [3, 2, 1]))
    new = scene.fetch()
    reply(old, part(0, batch(range(3))))
    reply(new, part(0, batch(range(3))))
    assert scene.taken() == [0, 1, 2]


def test_what_was_not_asked_for_and_what_comes_twice_is_logged_and_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.read(A)
    request = scene.fetch()
    with caplog.at_level(logging.WARNING, "pykclient.consumer"):
        reply(request, part(0, batch([0])), part(0, batch([0])), part(8, batch([0])))
    assert scene.taken() == [0]
    assert len(caplog.records) == 2


def test_an_unknown_topic_id_is_ignored_and_what_is_missing_backs_off() -> None:
    scene = Scene()
    scene.read(A)
    reply(scene.fetch(), part(0, batch([0])), topic_id=OTHER_ID)
    assert scene.taken() == []
    result = scene.fetcher.poll(START_MS)
    assert (list(result.requests), result.next_poll_ms) == ([], START_MS + RETRY_MS)


# Errors.

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
def test_what_newer_metadata_may_cure_is_tried_again_in_silence(kind: type[BrokerError]) -> None:
    scene = Scene()
    scene.read(A, C)
    reply(scene.fetch(), part(0, code=kind.code), part(2))
    assert is_outdated(scene.metadata)
    assert scene.subscription.take_error() is None
    assert asked(scene.fetch()) == [("t", 2, 0)]


@pytest.mark.parametrize("kind", PASSING)
def test_the_partition_is_back_after_its_back_off(kind: type[BrokerError]) -> None:
    scene = Scene()
    scene.read(A)
    reply(scene.fetch(), part(0, code=kind.code))
    assert scene.fetcher.poll(START_MS).next_poll_ms == START_MS + RETRY_MS
    assert asked(scene.fetch(START_MS + RETRY_MS)) == [("t", 0, 0)]


def test_an_error_of_the_whole_answer_concerns_all_its_partitions() -> None:
    scene = Scene()
    scene.read(A, C)
    reply(scene.fetch(), error_code=UnknownTopicIdError.code)
    assert scene.poll() == []
    assert len(asked(scene.fetch(START_MS + RETRY_MS))) == 2


def test_a_brokers_unexplained_failure_is_logged_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.read(A)
    with caplog.at_level(logging.WARNING, "pykclient.consumer"):
        reply(scene.fetch(), part(0, code=UnknownServerError.code))
    assert "t-0" in caplog.text
    assert scene.subscription.take_error() is None
    assert len(scene.poll(START_MS + RETRY_MS)) == 1


@pytest.mark.parametrize("kind", [TopicAuthorizationFailedError])
def test_a_refusal_is_told_and_tried_again_later(kind: type[BrokerError]) -> None:
    scene = Scene()
    scene.read(A, offset=5)
    reply(scene.fetch(), part(0, code=kind.code))
    error = scene.subscription.take_error()
    assert isinstance(error, kind)
    assert "t-0 at offset 5" in str(error)
    assert scene.poll() == []
    assert len(scene.poll(START_MS + RETRY_MS)) == 1


def test_a_brokers_own_corrupt_log_is_told_with_its_place() -> None:
    scene = Scene()
    scene.read(A, offset=5)
    reply(scene.fetch(), part(0, code=CorruptMessageError.code))
    error = scene.subscription.take_error()
    assert isinstance(error, CorruptRecordError)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 5)


@pytest.mark.parametrize("reset", list(OffsetReset))
def test_a_position_outside_the_log_is_reset_as_the_setting_says(reset: OffsetReset) -> None:
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


def test_a_lost_connection_backs_off_and_asks_who_leads_now() -> None:
    scene = Scene()
    scene.read(A)
    scene.fetch().on_failure(DisconnectedError("gone"), START_MS)
    assert is_outdated(scene.metadata)
    assert scene.subscription.take_error() is None
    assert scene.poll() == []
    assert len(scene.poll(START_MS + RETRY_MS)) == 1


def test_back_offs_grow_and_end_with_success() -> None:
    scene = Scene()
    scene.read(A)
    now_ms, waits_ms = START_MS, []
    for _ in range(3):
        reply(scene.fetch(now_ms), part(0, code=NotLeaderOrFollowerError.code), now_ms=now_ms)
        waits_ms.append(scene.fetcher.poll(now_ms).next_poll_ms - now_ms)
        now_ms += waits_ms[-1]
    assert waits_ms == [RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS]
    reply(scene.fetch(now_ms), part(0), now_ms=now_ms)
    reply(scene.fetch(now_ms), part(0, code=NotLeaderOrFollowerError.code), now_ms=now_ms)
    assert scene.fetcher.poll(now_ms).next_poll_ms == now_ms + RETRY_MS


def test_what_no_attempt_cures_is_told() -> None:
    scene = Scene()
    scene.read(A)
    error = UnsupportedVersionError("too old")
    scene.fetch().on_failure(error, START_MS)
    assert scene.subscription.take_error() is error


def test_an_answer_that_cannot_be_read_is_told_once_for_all_partitions() -> None:
    scene = Scene()
    scene.read(A, C)
    error = DisconnectedError("given up")
    error.__cause__ = DecodeError("garbage")
    scene.fetch().on_failure(error, START_MS)
    assert scene.subscription.take_error() is error.__cause__
    assert scene.subscription.take_error() is None
    assert len(scene.poll(START_MS + RETRY_MS)) == 1


def test_nobody_is_told_of_a_failure_after_an_unassign() -> None:
    scene = Scene()
    scene.read(A)
    request = scene.fetch()
    scene.subscription.assign([])
    request.on_failure(UnsupportedVersionError("too old"), START_MS)
    assert scene.subscription.take_error() is None


# Reading from a follower (KIP-392).


def test_the_replica_that_the_leader_names_is_read_from_for_a_while() -> None:
    scene = Scene(rack="r1")
    scene.read(A)
    reply(scene.fetch(), part(0, replica=3))
    assert scene.fetch().node_id == 3
    scene = Scene(rack="r1")
    scene.read(A)
    reply(scene.fetch(), part(0, replica=3))
    assert scene.fetch(START_MS + REPLICA_MS).node_id == 1


def test_a_replica_that_left_the_cluster_is_not_read_from() -> None:
    scene = Scene(rack="r1")
    scene.read(A)
    reply(scene.fetch(), part(0, replica=9))
    assert scene.fetch().node_id == 1


@pytest.mark.parametrize(
    "code", [OffsetOutOfRangeError.code, NotLeaderOrFollowerError.code, UnknownServerError.code]
)
def test_after_an_error_of_a_replica_the_leader_is_asked(code: int) -> None:
    scene = Scene(rack="r1")
    assigned = scene.read(A)
    reply(scene.fetch(), part(0, replica=3))
    reply(scene.fetch(), part(0, code=code))
    assert assigned.state is PositionState.FETCHING
    assert scene.fetch(START_MS + RETRY_MS).node_id == 1


# Whatever a broker sends.

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
def test_whatever_a_broker_answers_only_our_errors_come_of_it_and_it_goes_on(
    topics: list[FetchableTopicResponse], error_code: int
) -> None:
    scene = Scene(isolation_level=IsolationLevel.READ_COMMITTED)
    know(scene.metadata, topic("t", [1, 1, 1]))
    scene.read(A, B, C)
    request = scene.fetch()
    request.on_response(FetchResponse(error_code=error_code, responses=topics), START_MS)
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
    assert {TopicPartition(name, index) for r in again for name, index, _ in asked(r)} == waiting
