"""PositionValidator by numbers: when a leader is asked about a position, and what comes of it."""

from __future__ import annotations

import logging
from random import Random

import pytest

from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.fetch.completed_fetch import CompletedFetch, FetchedResponse
from pykclient.consumer.offsets.validate import OLD_LEADER_LOOKS_MAX
from pykclient.consumer.subscription import OffsetReset
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
    UnsupportedVersionError,
)
from pykclient.network.retry import Backoff
from pykclient.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.consumer.fetched_records import CONFIG, batch
from tests.consumer.known_cluster import RETRY_MS, START_MS, is_outdated, know, topic
from tests.consumer.validator_scene import NEW, OLD, A, B, Scene, asked, reply
from tests.network.answering import answer_checked


def test_nothing_is_asked_while_leaders_stay() -> None:
    scene = Scene()
    scene.read(A, B)
    know(scene.metadata, topic("t", [1, 2], leader_epoch=OLD))
    assert scene.requests() == []


def test_each_new_leader_is_asked_about_its_positions_which_are_not_read_meanwhile() -> None:
    scene = Scene()
    scene.read(A, B)
    scene.elect()
    requests = scene.requests()
    assert {r.node_id: asked(r) for r in requests} == {2: [(0, NEW, OLD)], 3: [(1, NEW, OLD)]}
    assert not any(assigned.is_fetching for assigned in scene.subscription)
    assert all(assigned.has_offset for assigned in scene.subscription)
    assert scene.requests() == []


def test_a_position_that_the_log_reaches_is_read_on_from() -> None:
    scene = Scene()
    assigned, request = scene.asked_after_election()
    reply(request, OLD, 50)
    assert (assigned.is_fetching, assigned.offset, assigned.leader_epoch) == (True, 50, OLD)
    assert assigned.epoch == 1
    assert scene.requests() == []


def test_where_the_log_was_cut_reading_goes_back_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    assigned, request = scene.asked_after_election()
    with caplog.at_level(logging.WARNING, "pykclient.consumer"):
        reply(request, 3, 40)
    assert (assigned.is_fetching, assigned.offset, assigned.leader_epoch) == (True, 40, 3)
    assert "t-0: the log was cut at offset 40, before the position 50" in caplog.text
    assert scene.requests() == []


def test_without_a_reset_it_is_told_each_time_until_the_user_seeks() -> None:
    scene = Scene(OffsetReset.NONE)
    assigned, request = scene.asked_after_election()
    for number in (1, 2):
        reply(request, 3, 40)
        error = scene.subscription.take_error()
        assert isinstance(error, LogTruncationError)
        assert isinstance(error, OffsetOutOfRangeError)
        told = (error.topic, error.partition, error.offset, error.diverging_offset)
        assert told == ("t", 0, 50, 40)
        assert "t-0: the position is 50" in str(error)
        assert "seek() to 40" in str(error)
        assert scene.requests() == []
        request = scene.ask(START_MS + 10 * number * RETRY_MS)
    scene.subscription.seek(assigned, 40)
    reply(request, 3, 40)
    assert scene.requests() == []
    assert assigned.is_fetching
    assert scene.subscription.take_error() is None


@pytest.mark.promise(
    "an idle topic whose leaders change loses no position; each batch gives it its epoch"
)
@pytest.mark.parametrize(
    ("epoch", "end_offset", "belongs_to"),
    [(3, 60, OLD), (3, 50, OLD), (-1, -1, None), (3, -1, None)],
)
@pytest.mark.parametrize("reset", [OffsetReset.LATEST, OffsetReset.EARLIEST, OffsetReset.NONE])
def test_a_position_stays_where_the_log_knows_nothing_of_its_epoch(
    epoch: int,
    end_offset: int,
    belongs_to: int | None,
    reset: OffsetReset,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An epoch in which nothing was written is known to its leader alone."""
    scene = Scene(reset)
    assigned, request = scene.asked_after_election()
    reply(request, epoch, end_offset)
    assert (assigned.is_fetching, assigned.offset, assigned.epoch) == (True, 50, 1)
    assert assigned.leader_epoch == belongs_to, "another replica may know an earlier one"
    assert scene.subscription.take_error() is None
    assert "t-0: the log has nothing of leader epoch 4, to which the position 50" in caplog.text
    assert scene.requests() == []


def test_a_position_that_moved_while_its_leader_was_asked_is_asked_about_anew() -> None:
    scene = Scene()
    assigned, request = scene.asked_after_election()
    assigned.offset, assigned.leader_epoch = 51, 5  # an iteration had one more record at hand
    reply(request, OLD, 50)
    assert (assigned.is_fetching, assigned.offset) == (False, 51)
    again = scene.ask()
    assert asked(again) == [(0, NEW, 5)]
    reply(again, 5, 51)
    assert (assigned.is_fetching, assigned.offset, assigned.leader_epoch) == (True, 51, 5)


def test_a_position_sought_with_its_epoch_is_held_against_the_log() -> None:
    scene = Scene()
    assigned = scene.read(A)
    scene.subscription.seek(assigned, 70, OLD)
    assert asked(scene.ask()) == [(0, OLD, OLD)]


def test_a_position_whose_epoch_is_not_known_is_taken_as_it_is() -> None:
    scene = Scene()
    assigned = scene.read(A, epoch=None)
    scene.elect()
    assert scene.requests() == []
    assert assigned.is_fetching
    assigned.leader_epoch = NEW
    assert scene.requests() == []


@pytest.mark.promise(
    "an idle topic whose leaders change loses no position; each batch gives it its epoch"
)
def test_what_a_former_leader_sent_is_dropped_where_no_epoch_is_known() -> None:
    """Else it moves the position under the new leader, whose log may have lost it."""
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


def test_an_answer_from_before_a_seek_or_an_unassign_changes_nothing() -> None:
    scene = Scene()
    assigned, request = scene.asked_after_election()
    scene.subscription.seek(assigned, 7)
    reply(request, 3, 5)
    assert assigned.offset == 7
    scene = Scene(OffsetReset.NONE)
    assigned, request = scene.asked_after_election()
    scene.subscription.assign([])
    reply(request, 3, 5)
    assert scene.subscription.take_error() is None


@pytest.mark.parametrize("kind", [FencedLeaderEpochError, NotLeaderOrFollowerError])
def test_what_newer_metadata_may_cure_is_asked_again(kind: type[BrokerError]) -> None:
    scene = Scene()
    assigned, request = scene.asked_after_election()
    reply(request, -1, -1, code=kind.code)
    assert is_outdated(scene.metadata)
    assert scene.validator.poll(START_MS).next_poll_ms == START_MS + RETRY_MS
    know(scene.metadata, topic("t", [3, 1], leader_epoch=NEW + 1))
    again = scene.ask(START_MS + RETRY_MS)
    assert (again.node_id, asked(again)) == (3, [(0, NEW + 1, OLD)])
    reply(again, OLD, 80)
    assert assigned.is_fetching


def test_a_lost_connection_is_asked_again() -> None:
    scene = Scene()
    _, request = scene.asked_after_election()
    request.on_failure(DisconnectedError("gone"), START_MS)
    assert scene.requests() == []
    assert asked(scene.ask(START_MS + RETRY_MS)) == [(0, NEW, OLD)]


def test_a_refusal_is_told() -> None:
    scene = Scene()
    assigned, request = scene.asked_after_election()
    reply(request, -1, -1, code=TopicAuthorizationFailedError.code)
    assert isinstance(scene.subscription.take_error(), TopicAuthorizationFailedError)
    assert not assigned.is_fetching


@pytest.mark.parametrize(
    "error", [ClusterAuthorizationFailedError("no"), UnsupportedVersionError()]
)
def test_a_broker_too_old_to_tell_is_read_from_all_the_same(error: KafkaError) -> None:
    scene = Scene()
    assigned, request = scene.asked_after_election()
    request.on_failure(error, START_MS)
    assert (assigned.is_fetching, assigned.offset) == (True, 50)
    assert scene.requests() == []


@pytest.mark.parametrize("indexes", [[], [1], [0, 0], [0, 1]])
def test_an_answer_that_contradicts_its_question_counts_as_none(indexes: list[int]) -> None:
    scene = Scene()
    assigned, request = scene.asked_after_election()
    answers = [EpochEndOffset(partition=i, leader_epoch=OLD, end_offset=80) for i in indexes]
    response = OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult("t", answers)])
    assert answer_checked(request, response, START_MS) is not None
    assert not assigned.is_fetching
    assert len(scene.requests(START_MS + RETRY_MS)) == 1


# Positions of newer leaders than are known.


@pytest.mark.promise("a deposed leader validates nothing that its successor wrote")
def test_a_leader_that_was_deposed_is_not_asked_about_what_its_successor_wrote() -> None:
    scene = Scene()
    scene.read(A)
    assigned = scene.subscription.require(A)
    scene.subscription.seek(assigned, 70, NEW)
    assert scene.requests() == []
    assert is_outdated(scene.metadata)
    assert not assigned.is_fetching
    scene.elect()
    later_ms = START_MS + RETRY_MS
    request = scene.ask(later_ms)
    assert (request.node_id, asked(request)) == (2, [(0, NEW, NEW)])
    reply(request, NEW, 100)
    assert (assigned.is_fetching, assigned.offset) == (True, 70)


@pytest.mark.promise("a deposed leader validates nothing that its successor wrote")
def test_when_nobody_knows_of_a_newer_leader_who_leads_is_asked() -> None:
    scene = Scene()
    scene.read(A)
    scene.subscription.seek(scene.subscription.require(A), 70, NEW)
    now_ms = START_MS
    for _ in range(OLD_LEADER_LOOKS_MAX):
        assert scene.requests(now_ms) == []
        now_ms += 100 * RETRY_MS
    assert asked(scene.ask(now_ms)) == [(0, OLD, NEW)]


class Shortest(Random):
    """A source of jitter that makes each delay as short as may be."""

    def uniform(self, a: float, b: float) -> float:
        del b
        return a


@pytest.mark.promise("a deposed leader validates nothing that its successor wrote")
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


# What is told.


def trouble(scene: Scene) -> str:
    found = scene.stalls.oldest()
    assert found is not None
    assert found[1].since_ms == START_MS
    return str(found[1].reason)


def test_a_position_that_nobody_can_be_asked_about_stalls() -> None:
    scene = Scene()
    scene.read(A)
    know(scene.metadata, topic("t", [None, None], leader_epoch=NEW))
    assert scene.requests() == []
    assert trouble(scene) == "it has no leader"
    know(scene.metadata, errors={"t": LeaderNotAvailableError("no leader yet")})
    assert scene.requests(START_MS + RETRY_MS) == []
    assert trouble(scene) == "no leader yet"


def test_a_position_of_which_only_a_former_leader_is_known_stalls() -> None:
    scene = Scene()
    scene.subscription.seek(scene.read(A), 70, NEW)
    assert scene.requests() == []
    assert trouble(scene) == "brokers name only a former leader"
