"""Positions in topics that were deleted and made anew, and brokers that lag, by numbers."""

from __future__ import annotations

import pytest

from pykclient.consumer.offsets.validate import GONE_IDS_MAX, OLD_LEADER_LOOKS_MAX
from pykclient.consumer.subscription import AssignedPartition, OffsetReset, PositionState
from pykclient.errors import LogTruncationError, UnknownTopicOrPartitionError
from pykclient.network.cluster.cluster import NO_TOPIC_ID
from tests.consumer.known_cluster import RETRY_MS, START_MS, know, topic
from tests.consumer.validator_scene import OLD, A, B, Scene, reply

OTHER_ID = bytes(reversed(range(16)))


def make_anew(scene: Scene) -> None:
    """Delete the topic, and make one of the same name, whose leaders begin anew as well."""
    know(scene.metadata, errors={"t": UnknownTopicOrPartitionError("t")})
    assert scene.requests() == []
    know(scene.metadata, topic("t", [1, 2], topic_id=OTHER_ID, leader_epoch=0))


@pytest.mark.promise(
    "a topic that is deleted and created again is read from its beginning, completely"
)
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
    assert "t-0: its topic was deleted and made anew" in caplog.text


def test_a_topic_that_is_unknown_for_a_while_is_the_same_one() -> None:
    scene = Scene()
    assigned = scene.read(A)
    know(scene.metadata, errors={"t": UnknownTopicOrPartitionError("t")})
    assert scene.requests() == []
    know(scene.metadata, topic("t", [1, 2], leader_epoch=OLD))
    assert scene.requests() == []
    assert (assigned.is_fetching, assigned.offset) == (True, 50)


def reset(scene: Scene, assigned: AssignedPartition) -> None:
    """Let the leader of the new topic say where it begins."""
    scene.subscription.complete_reset(assigned, 0)
    assert scene.requests() == []
    assigned.offset, assigned.leader_epoch = 1, 0  # a record was read


@pytest.mark.promise(
    "a topic that is deleted and created again is read from its beginning, completely"
)
def test_a_broker_that_lags_does_not_lose_the_position_again() -> None:
    scene = Scene()
    assigned = scene.read(A)
    make_anew(scene)
    scene.requests()
    reset(scene, assigned)
    epoch = assigned.epoch
    know(scene.metadata, topic("t", [1, 2], leader_epoch=OLD))
    assert scene.requests() == [], "the old topic's leaders know nothing of the new one"
    know(scene.metadata, topic("t", [1, 2], topic_id=OTHER_ID, leader_epoch=0))
    reply(scene.ask(START_MS + RETRY_MS), 0, 10)
    assert (assigned.is_fetching, assigned.epoch) == (True, epoch)


def test_a_partition_that_comes_while_a_broker_lags_stands_in_the_new_topic() -> None:
    scene = Scene()
    scene.read(A)
    make_anew(scene)
    scene.requests()
    know(scene.metadata, topic("t", [1, 2], leader_epoch=OLD))
    assigned = scene.read(A, B, epoch=None)
    know(scene.metadata, topic("t", [1, 2], topic_id=OTHER_ID, leader_epoch=0))
    assert scene.requests() == []
    assert (scene.subscription.require(B).is_fetching, assigned.is_fetching) == (True, True)


def test_an_id_that_stays_is_that_of_the_newer_topic_whatever_came_first() -> None:
    scene = Scene()
    assigned = scene.read(A)
    make_anew(scene)
    scene.requests()
    reset(scene, assigned)
    know(scene.metadata, topic("t", [1, 2], leader_epoch=OLD))
    now_ms = START_MS
    for _ in range(OLD_LEADER_LOOKS_MAX):
        assert scene.requests(now_ms) == []
        now_ms += 100 * RETRY_MS
    scene.ask(now_ms)
    know(scene.metadata, topic("t", [1, 2], leader_epoch=OLD))
    assert scene.requests(now_ms) == []
    assert assigned.state is PositionState.AWAITING_RESET


def test_ids_of_former_topics_are_forgotten_in_the_end() -> None:
    scene = Scene()
    scene.read(A)
    for number in range(1, GONE_IDS_MAX + 2):
        know(scene.metadata, topic("t", [1, 2], topic_id=number.to_bytes(16), leader_epoch=OLD))
        scene.requests()
    know(scene.metadata, topic("t", [1, 2], leader_epoch=OLD))
    assigned = scene.subscription.require(A)
    scene.subscription.seek(assigned, 7)
    scene.requests()
    assert assigned.state is PositionState.AWAITING_RESET


def test_without_ids_nobody_can_tell() -> None:
    scene = Scene()
    assigned = scene.read(A)
    know(scene.metadata, topic("t", [1, 2], topic_id=NO_TOPIC_ID, leader_epoch=OLD))
    assert scene.requests() == []
    assert assigned.is_fetching


def test_a_partition_that_comes_later_stands_in_the_new_topic() -> None:
    scene = Scene()
    scene.read(A)
    make_anew(scene)
    scene.requests()
    assert scene.read(B).is_fetching


@pytest.mark.parametrize("is_being_asked_about", [False, True])
def test_without_a_reset_a_topic_made_anew_is_told_until_a_seek(
    is_being_asked_about: bool,
) -> None:
    scene = Scene(OffsetReset.NONE)
    assigned = scene.read(A)
    request = None
    if is_being_asked_about:
        scene.elect()
        request = scene.ask()
    make_anew(scene)
    scene.requests()
    if request is not None:
        reply(request, OLD, 50)
        assert not assigned.is_fetching
        scene.requests()
    for now_ms in (START_MS + 10 * RETRY_MS, START_MS + 30 * RETRY_MS):
        error = scene.subscription.take_error()
        assert isinstance(error, LogTruncationError)
        assert "made anew" in str(error)
        assert (error.offset, error.diverging_offset) == (50, None)
        assert scene.subscription.take_error() is None
        assert scene.requests(now_ms) == []
    scene.subscription.seek(assigned, 3)
    assert scene.requests(START_MS + 60 * RETRY_MS) == []
    assert scene.subscription.take_error() is None
    assert (assigned.is_fetching, assigned.offset) == (True, 3)
