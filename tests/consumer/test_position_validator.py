"""When a position is validated with the leader, and the result; recreated topics."""

from __future__ import annotations

import logging
from random import Random
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.fetch.buffer import FetchBuffer
from pykclient.consumer.fetch.completed_fetch import CompletedFetch, FetchedResponse
from pykclient.consumer.fetch.stalls import Stalls
from pykclient.consumer.offsets.former_topics import FORMER_MAX, FormerTopics
from pykclient.consumer.offsets.validate import (
    OLD_LEADER_LOOKS_MAX,
    PositionValidator,
)
from pykclient.consumer.subscription import (
    AssignedPartition,
    OffsetReset,
    PositionState,
    SubscriptionState,
)
from pykclient.errors import (
    BrokerError,
    ClusterAuthorizationFailedError,
    DisconnectedError,
    FencedLeaderEpochError,
    KafkaError,
    LeaderNotAvailableError,
    LogTruncationError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from pykclient.network.cluster.cluster import NO_TOPIC_ID
from pykclient.network.retry import Backoff
from pykclient.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from pykclient.types import TopicPartition
from tests.consumer.fetched_records import CONFIG, batch
from tests.consumer.known_cluster import (
    RETRY_BACKOFF,
    RETRY_MS,
    START_MS,
    TOPIC_ID,
    is_outdated,
    make_metadata,
    refresh,
    topic,
    update_metadata,
)
from tests.network.responding import respond_checked

if TYPE_CHECKING:
    from pykclient.network.manager import Request


A, B = (TopicPartition("t", number) for number in range(2))
OLD, NEW = 4, 6
"""Leader epochs."""


class Scene:
    """Broker 1 leads partition 0, broker 2 leads partition 1, both in epoch `OLD`."""

    def __init__(
        self,
        reset: OffsetReset = OffsetReset.EARLIEST,
        *,
        retry_backoff: Backoff = RETRY_BACKOFF,
    ) -> None:
        self.metadata = make_metadata()
        refresh(self.metadata)
        update_metadata(self.metadata, topic("t", [1, 2], leader_epoch=OLD))
        self.subscription = SubscriptionState()
        self.stalls = Stalls()
        self.buffer = FetchBuffer(RETRY_BACKOFF, parked_max_bytes=50_000)
        self.validator = PositionValidator(
            self.subscription,
            self.buffer,
            self.metadata,
            auto_offset_reset=reset,
            retry_backoff=retry_backoff,
            stalls=self.stalls,
            former_topics=FormerTopics(),
        )

    def read(self, *partitions: TopicPartition, epoch: int | None = OLD) -> AssignedPartition:
        """Set partitions to offset 50, after a record of an epoch; return the first."""
        self.subscription.assign(partitions)
        for assigned in self.subscription:
            self.subscription.seek(assigned, 50)
        assert self.requests() == []
        for assigned in self.subscription:
            assigned.leader_epoch = epoch
        return self.subscription.require(partitions[0])

    def elect(self) -> None:
        """Make the next broker the leader of each partition."""
        update_metadata(self.metadata, topic("t", [2, 3], leader_epoch=NEW))

    def requests(self, now_ms: int = START_MS) -> list[Request]:
        return list(self.validator.poll(now_ms).requests)

    def request(self, now_ms: int = START_MS) -> Request:
        (request,) = self.requests(now_ms)
        return request

    def request_after_election(self) -> tuple[AssignedPartition, Request]:
        assigned = self.read(A)
        self.elect()
        return assigned, self.request()


def requested(request: Request) -> list[tuple[int, int, int]]:
    assert isinstance(request.message, OffsetForLeaderEpochRequest)
    (topic_request,) = request.message.topics
    return [(p.partition, p.current_leader_epoch, p.leader_epoch) for p in topic_request.partitions]


def reply(request: Request, epoch: int, end_offset: int, *, index: int = 0, code: int = 0) -> None:
    response = EpochEndOffset(
        error_code=code, partition=index, leader_epoch=epoch, end_offset=end_offset
    )
    respond_checked(
        request,
        OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult("t", [response])]),
        START_MS,
    )


def test_nothing_is_requested_while_leaders_stay() -> None:
    scene = Scene()
    scene.read(A, B)
    update_metadata(scene.metadata, topic("t", [1, 2], leader_epoch=OLD))
    assert scene.requests() == []


def test_each_new_leader_validates_its_positions_which_are_not_read_meanwhile() -> None:
    scene = Scene()
    scene.read(A, B)
    scene.elect()
    requests = scene.requests()
    assert {r.node_id: requested(r) for r in requests} == {2: [(0, NEW, OLD)], 3: [(1, NEW, OLD)]}
    assert not any(assigned.is_fetching for assigned in scene.subscription)
    assert all(assigned.has_offset for assigned in scene.subscription)
    assert scene.requests() == []


def test_a_position_that_the_log_reaches_is_read_on_from() -> None:
    scene = Scene()
    assigned, request = scene.request_after_election()
    reply(request, OLD, 50)
    assert (assigned.is_fetching, assigned.offset, assigned.leader_epoch) == (True, 50, OLD)
    assert assigned.epoch == 1
    assert scene.requests() == []


def test_where_the_log_was_cut_reading_goes_back_and_logs_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    assigned, request = scene.request_after_election()
    with caplog.at_level(logging.WARNING, "pykclient.consumer"):
        reply(request, 3, 40)
    assert (assigned.is_fetching, assigned.offset, assigned.leader_epoch) == (True, 40, 3)
    assert "t-0: the log was truncated at offset 40, before the position 50" in caplog.text
    assert scene.requests() == []


def test_without_a_reset_it_is_raised_each_time_until_the_user_seeks() -> None:
    scene = Scene(OffsetReset.NONE)
    assigned, request = scene.request_after_election()
    for number in (1, 2):
        reply(request, 3, 40)
        error = scene.subscription.take_error()
        assert isinstance(error, LogTruncationError)
        assert isinstance(error, OffsetOutOfRangeError)
        fields = (error.topic, error.partition, error.offset, error.diverging_offset)
        assert fields == ("t", 0, 50, 40)
        assert "t-0: the position is 50" in str(error)
        assert "seek() to 40" in str(error)
        assert scene.requests() == []
        request = scene.request(START_MS + 10 * number * RETRY_MS)
    scene.subscription.seek(assigned, 40)
    reply(request, 3, 40)
    assert scene.requests() == []
    assert assigned.is_fetching
    assert scene.subscription.take_error() is None


@pytest.mark.parametrize(
    ("epoch", "end_offset", "belongs_to"),
    [(3, 60, OLD), (3, 50, OLD), (-1, -1, None), (3, -1, None)],
)
@pytest.mark.parametrize("reset", [OffsetReset.LATEST, OffsetReset.EARLIEST, OffsetReset.NONE])
def test_a_position_stays_where_the_log_has_nothing_of_its_epoch(
    epoch: int,
    end_offset: int,
    belongs_to: int | None,
    reset: OffsetReset,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Only its leader knows an epoch in which nothing was written."""
    scene = Scene(reset)
    assigned, request = scene.request_after_election()
    reply(request, epoch, end_offset)
    assert (assigned.is_fetching, assigned.offset, assigned.epoch) == (True, 50, 1)
    assert assigned.leader_epoch == belongs_to, "another replica may have an earlier one"
    assert scene.subscription.take_error() is None
    assert "t-0: the log has nothing of leader epoch 4, to which the position 50" in caplog.text
    assert scene.requests() == []


def test_a_position_that_moved_during_the_request_is_validated_anew() -> None:
    scene = Scene()
    assigned, request = scene.request_after_election()
    assigned.offset, assigned.leader_epoch = 51, 5  # an iteration had one more record at hand
    reply(request, OLD, 50)
    assert (assigned.is_fetching, assigned.offset) == (False, 51)
    again = scene.request()
    assert requested(again) == [(0, NEW, 5)]
    reply(again, 5, 51)
    assert (assigned.is_fetching, assigned.offset, assigned.leader_epoch) == (True, 51, 5)


def test_a_position_sought_with_its_epoch_is_held_against_the_log() -> None:
    scene = Scene()
    assigned = scene.read(A)
    scene.subscription.seek(assigned, 70, OLD)
    assert requested(scene.request()) == [(0, OLD, OLD)]


def test_a_position_whose_epoch_is_not_known_is_taken_as_it_is() -> None:
    scene = Scene()
    assigned = scene.read(A, epoch=None)
    scene.elect()
    assert scene.requests() == []
    assert assigned.is_fetching
    assigned.leader_epoch = NEW
    assert scene.requests() == []


def test_what_a_former_leader_sent_is_dropped_where_no_epoch_is_known() -> None:
    """Otherwise it moves the position under the new leader, whose log may have lost the records."""
    scene = Scene()
    assigned = scene.read(A, epoch=None)
    response = FetchedResponse(1, 1)
    fetched = CompletedFetch(A, 50, batch([50, 51]), CONFIG, response=response)
    scene.buffer.add(assigned, fetched)
    fetch_epoch = assigned.fetch_epoch
    scene.elect()
    assert scene.requests() == []
    assert not scene.buffer.has(assigned)
    assert assigned.fetch_epoch != fetch_epoch, "nor is that used which is still to come"
    assert (assigned.is_fetching, assigned.offset, assigned.epoch) == (True, 50, 1)


def test_a_response_from_before_a_seek_or_an_unassign_changes_nothing() -> None:
    scene = Scene()
    assigned, request = scene.request_after_election()
    scene.subscription.seek(assigned, 7)
    reply(request, 3, 5)
    assert assigned.offset == 7
    scene = Scene(OffsetReset.NONE)
    assigned, request = scene.request_after_election()
    scene.subscription.assign([])
    reply(request, 3, 5)
    assert scene.subscription.take_error() is None


@pytest.mark.parametrize("kind", [FencedLeaderEpochError, NotLeaderOrFollowerError])
def test_what_newer_metadata_may_cure_is_requested_again(kind: type[BrokerError]) -> None:
    scene = Scene()
    assigned, request = scene.request_after_election()
    reply(request, -1, -1, code=kind.code)
    assert is_outdated(scene.metadata)
    assert scene.validator.poll(START_MS).next_poll_ms == START_MS + RETRY_MS
    update_metadata(scene.metadata, topic("t", [3, 1], leader_epoch=NEW + 1))
    again = scene.request(START_MS + RETRY_MS)
    assert (again.node_id, requested(again)) == (3, [(0, NEW + 1, OLD)])
    reply(again, OLD, 80)
    assert assigned.is_fetching


def test_a_request_on_a_lost_connection_is_sent_again() -> None:
    scene = Scene()
    _, request = scene.request_after_election()
    request.on_failure(DisconnectedError("gone"), START_MS)
    assert scene.requests() == []
    assert requested(scene.request(START_MS + RETRY_MS)) == [(0, NEW, OLD)]


def test_a_refusal_is_reported() -> None:
    scene = Scene()
    assigned, request = scene.request_after_election()
    reply(request, -1, -1, code=TopicAuthorizationFailedError.code)
    assert isinstance(scene.subscription.take_error(), TopicAuthorizationFailedError)
    assert not assigned.is_fetching


@pytest.mark.parametrize(
    "error", [ClusterAuthorizationFailedError("no"), UnsupportedVersionError()]
)
def test_a_broker_without_epoch_end_offsets_is_read_from_all_the_same(error: KafkaError) -> None:
    scene = Scene()
    assigned, request = scene.request_after_election()
    request.on_failure(error, START_MS)
    assert (assigned.is_fetching, assigned.offset) == (True, 50)
    assert scene.requests() == []


@pytest.mark.parametrize("indexes", [[], [1], [0, 0], [0, 1]])
def test_a_response_that_contradicts_its_request_counts_as_none(indexes: list[int]) -> None:
    scene = Scene()
    assigned, request = scene.request_after_election()
    responses = [EpochEndOffset(partition=i, leader_epoch=OLD, end_offset=80) for i in indexes]
    response = OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult("t", responses)])
    assert respond_checked(request, response, START_MS) is not None
    assert not assigned.is_fetching
    assert len(scene.requests(START_MS + RETRY_MS)) == 1


# Positions with a newer epoch than the metadata.


def test_a_former_leader_gets_no_request_about_what_its_successor_wrote() -> None:
    scene = Scene()
    scene.read(A)
    assigned = scene.subscription.require(A)
    scene.subscription.seek(assigned, 70, NEW)
    assert scene.requests() == []
    assert is_outdated(scene.metadata)
    assert not assigned.is_fetching
    scene.elect()
    later_ms = START_MS + RETRY_MS
    request = scene.request(later_ms)
    assert (request.node_id, requested(request)) == (2, [(0, NEW, NEW)])
    reply(request, NEW, 100)
    assert (assigned.is_fetching, assigned.offset) == (True, 70)


def test_without_a_newer_leader_the_known_one_gets_the_request() -> None:
    scene = Scene()
    scene.read(A)
    scene.subscription.seek(scene.subscription.require(A), 70, NEW)
    now_ms = START_MS
    for _ in range(OLD_LEADER_LOOKS_MAX):
        assert scene.requests(now_ms) == []
        now_ms += 100 * RETRY_MS
    assert requested(scene.request(now_ms)) == [(0, OLD, NEW)]


class Shortest(Random):
    """A source of jitter that makes each delay as short as possible."""

    def uniform(self, a: float, b: float) -> float:
        del b
        return a


def test_a_leader_that_was_deposed_has_a_session_to_find_it_out() -> None:
    config = ConsumerConfig.from_settings(bootstrap_servers="broker:9092")
    scene = Scene(
        retry_backoff=Backoff(
            config.retry_backoff_ms, config.retry_backoff_max_ms, random=Shortest()
        )
    )
    scene.read(A)
    scene.subscription.seek(scene.subscription.require(A), 70, NEW)
    now_ms = START_MS
    while not (result := scene.validator.poll(now_ms)).requests:
        assert result.next_poll_ms > now_ms
        now_ms = result.next_poll_ms
    assert 20_000 <= now_ms - START_MS <= 30_000


# Reports.


def stall_reason(scene: Scene) -> str:
    found = scene.stalls.oldest()
    assert found is not None
    assert found[1].since_ms == START_MS
    return str(found[1].reason)


def test_a_position_without_a_leader_stalls() -> None:
    scene = Scene()
    scene.read(A)
    update_metadata(scene.metadata, topic("t", [None, None], leader_epoch=NEW))
    assert scene.requests() == []
    assert stall_reason(scene) == "it has no leader"
    update_metadata(scene.metadata, errors={"t": LeaderNotAvailableError("no leader yet")})
    assert scene.requests(START_MS + RETRY_MS) == []
    assert stall_reason(scene) == "no leader yet"


def test_a_position_of_which_only_a_former_leader_is_known_stalls() -> None:
    scene = Scene()
    scene.subscription.seek(scene.read(A), 70, NEW)
    assert scene.requests() == []
    assert stall_reason(scene) == "brokers name only a former leader"


# Recreated topics, and brokers with stale metadata.


OTHER_ID = bytes(reversed(range(16)))


def make_anew(scene: Scene) -> None:
    """Delete the topic and recreate it; the leaders' epochs restart as well."""
    update_metadata(scene.metadata, errors={"t": UnknownTopicOrPartitionError("t")})
    assert scene.requests() == []
    update_metadata(scene.metadata, topic("t", [1, 2], topic_id=OTHER_ID, leader_epoch=0))


@pytest.mark.promise("a recreated topic is read completely, from its beginning")
@pytest.mark.parametrize(
    "reset", [OffsetReset.EARLIEST, OffsetReset.LATEST, OffsetReset.BY_DURATION]
)
def test_a_position_does_not_outlive_its_topic(
    reset: OffsetReset, caplog: pytest.LogCaptureFixture
) -> None:
    """All records of the new topic came after those that were read: none is skipped."""
    scene = Scene(reset)
    assigned = scene.read(A)
    make_anew(scene)
    assert scene.requests() == []
    assert assigned.state is PositionState.AWAITING_RESET
    assert assigned.reset_to is OffsetReset.EARLIEST
    assert "t-0: its topic was deleted and recreated" in caplog.text


def test_a_topic_that_is_unknown_for_a_while_is_the_same_one() -> None:
    scene = Scene()
    assigned = scene.read(A)
    update_metadata(scene.metadata, errors={"t": UnknownTopicOrPartitionError("t")})
    assert scene.requests() == []
    update_metadata(scene.metadata, topic("t", [1, 2], leader_epoch=OLD))
    assert scene.requests() == []
    assert (assigned.is_fetching, assigned.offset) == (True, 50)


def begin_anew(scene: Scene, assigned: AssignedPartition) -> None:
    """Respond as the new topic's leader with its first offset."""
    scene.subscription.complete_reset(assigned, 0)
    assert scene.requests() == []
    assigned.offset, assigned.leader_epoch = 1, 0  # a record was read


@pytest.mark.promise("a recreated topic is read completely, from its beginning")
def test_a_broker_that_lags_does_not_lose_the_position_again() -> None:
    scene = Scene()
    assigned = scene.read(A)
    make_anew(scene)
    scene.requests()
    begin_anew(scene, assigned)
    epoch = assigned.epoch
    update_metadata(scene.metadata, topic("t", [1, 2], leader_epoch=OLD))
    assert scene.requests() == [], "the old topic's leaders have nothing of the new one"
    update_metadata(scene.metadata, topic("t", [1, 2], topic_id=OTHER_ID, leader_epoch=0))
    reply(scene.request(START_MS + RETRY_MS), 0, 10)
    assert (assigned.is_fetching, assigned.epoch) == (True, epoch)


def test_a_partition_that_comes_while_a_broker_lags_stands_in_the_new_topic() -> None:
    scene = Scene()
    scene.read(A)
    make_anew(scene)
    scene.requests()
    update_metadata(scene.metadata, topic("t", [1, 2], leader_epoch=OLD))
    assigned = scene.read(A, B, epoch=None)
    update_metadata(scene.metadata, topic("t", [1, 2], topic_id=OTHER_ID, leader_epoch=0))
    assert scene.requests() == []
    assert (scene.subscription.require(B).is_fetching, assigned.is_fetching) == (True, True)


def test_an_id_that_stays_is_that_of_the_newer_topic_whatever_came_first() -> None:
    scene = Scene()
    assigned = scene.read(A)
    make_anew(scene)
    scene.requests()
    begin_anew(scene, assigned)
    update_metadata(scene.metadata, topic("t", [1, 2], leader_epoch=OLD))
    now_ms = START_MS
    for _ in range(OLD_LEADER_LOOKS_MAX):
        assert scene.requests(now_ms) == []
        now_ms += 100 * RETRY_MS
    scene.request(now_ms)
    update_metadata(scene.metadata, topic("t", [1, 2], leader_epoch=OLD))
    assert scene.requests(now_ms) == []
    assert assigned.state is PositionState.AWAITING_RESET


def test_ids_of_former_topics_are_forgotten_in_the_end() -> None:
    scene = Scene()
    scene.read(A)
    for number in range(1, FORMER_MAX + 2):
        update_metadata(
            scene.metadata, topic("t", [1, 2], topic_id=number.to_bytes(16), leader_epoch=OLD)
        )
        scene.requests()
    assigned = scene.subscription.require(A)
    scene.subscription.seek(assigned, 7)
    scene.requests()
    update_metadata(scene.metadata, topic("t", [1, 2], leader_epoch=OLD))
    scene.requests()
    assert assigned.state is PositionState.AWAITING_RESET


def test_a_position_of_the_old_topic_stays_one_until_the_user_seeks() -> None:
    scene = Scene(OffsetReset.NONE)
    assigned = scene.read(A)
    make_anew(scene)
    scene.requests()
    assert (assigned.offset, assigned.topic_id) == (50, TOPIC_ID), (
        "no commit takes it for a new one"
    )
    scene.subscription.seek(assigned, 3)
    scene.requests()
    assert (assigned.offset, assigned.topic_id) == (3, OTHER_ID)


@pytest.mark.parametrize("reset", [OffsetReset.NONE, OffsetReset.EARLIEST])
def test_a_position_that_the_user_gives_outlives_a_topic_that_only_old_metadata_have(
    reset: OffsetReset,
) -> None:
    scene = Scene(reset)
    assigned = scene.read(A)
    scene.subscription.seek(assigned, 3)
    scene.subscription.await_serving(assigned, scene.metadata.cluster.version)
    assert scene.requests() == []
    make_anew(scene)
    assert scene.requests() == []
    assert (assigned.is_fetching, assigned.offset) == (True, 3)
    # Once a broker has served the position, it belongs to one topic.
    scene.subscription.accept_topic(assigned, OTHER_ID)
    update_metadata(scene.metadata, topic("t", [1, 2], topic_id=bytes(15) + b"3", leader_epoch=0))
    scene.requests()
    assert not assigned.is_fetching


def test_without_ids_a_topic_made_anew_is_not_noticed() -> None:
    scene = Scene()
    assigned = scene.read(A)
    update_metadata(scene.metadata, topic("t", [1, 2], topic_id=NO_TOPIC_ID, leader_epoch=OLD))
    assert scene.requests() == []
    assert assigned.is_fetching


def test_a_partition_that_comes_later_stands_in_the_new_topic() -> None:
    scene = Scene()
    scene.read(A)
    make_anew(scene)
    scene.requests()
    assert scene.read(B).is_fetching


@pytest.mark.parametrize("has_request_in_flight", [False, True])
def test_without_a_reset_a_topic_made_anew_is_raised_until_a_seek(
    has_request_in_flight: bool,
) -> None:
    scene = Scene(OffsetReset.NONE)
    assigned = scene.read(A)
    request = None
    if has_request_in_flight:
        scene.elect()
        request = scene.request()
    make_anew(scene)
    scene.requests()
    if request is not None:
        reply(request, OLD, 50)
        assert not assigned.is_fetching
        scene.requests()
    for now_ms in (START_MS + 10 * RETRY_MS, START_MS + 30 * RETRY_MS):
        error = scene.subscription.take_error()
        assert isinstance(error, LogTruncationError)
        assert "recreated" in str(error)
        assert (error.offset, error.diverging_offset) == (50, None)
        assert scene.subscription.take_error() is None
        assert scene.requests(now_ms) == []
    scene.subscription.seek(assigned, 3)
    assert scene.requests(START_MS + 60 * RETRY_MS) == []
    assert scene.subscription.take_error() is None
    assert (assigned.is_fetching, assigned.offset) == (True, 3)
