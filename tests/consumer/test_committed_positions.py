"""Positions of a group's partitions, by numbers: where it has committed, or else a reset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.offsets.list_offsets import OffsetLookups
from pykclient.consumer.offsets.reset import PositionManager
from pykclient.consumer.subscription import OffsetReset, PositionState
from pykclient.errors import (
    CoordinatorLoadInProgressError,
    GroupAuthorizationFailedError,
    NoOffsetForPartitionError,
)
from pykclient.types import IsolationLevel, OffsetAndMetadata, TopicPartition
from tests.consumer.commit_scene import CommitScene, committed_answer
from tests.consumer.known_cluster import RETRY_BACKOFF, RETRY_MS, START_MS

if TYPE_CHECKING:
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.network.manager import Request

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


class PositionScene(CommitScene):
    """A group whose partitions are to be read."""

    def __init__(self, reset: OffsetReset = OffsetReset.EARLIEST) -> None:
        super().__init__()
        lookups = OffsetLookups(
            self.metadata,
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            retry_backoff=RETRY_BACKOFF,
        )
        self.positions = PositionManager(
            self.subscription,
            lookups,
            auto_offset_reset=reset,
            retry_backoff=RETRY_BACKOFF,
            committed=self.committed,
        )

    def asked(self, now_ms: int = START_MS) -> list[Request]:
        """What the coordinator is asked now."""
        self.positions.poll(now_ms)
        return list(self.committed.poll(now_ms).requests)

    def assigned(self, partition: TopicPartition) -> AssignedPartition:
        return self.subscription.require(partition)


@pytest.fixture
def scene() -> PositionScene:
    scene = PositionScene()
    scene.subscription.assign([P0, P1])
    return scene


@pytest.mark.promise(
    "a consumer goes on where its group committed, else where `auto_offset_reset` says"
)
def test_a_partition_goes_on_at_its_committed_offset_and_the_others_are_reset(
    scene: PositionScene,
) -> None:
    (request,) = scene.asked()
    assert scene.asked() == []
    request.on_response(
        committed_answer(request, {P0: OffsetAndMetadata(42, leader_epoch=3)}), START_MS
    )
    first = scene.assigned(P0)
    assert (first.has_offset, first.offset, first.leader_epoch) == (True, 42, 3)
    assert scene.assigned(P1).state is PositionState.AWAITING_RESET
    assert scene.asked() == []


def test_what_is_sought_meanwhile_stays_there(scene: PositionScene) -> None:
    (request,) = scene.asked()
    scene.subscription.seek(scene.assigned(P0), 7)
    request.on_response(committed_answer(request, {P0: OffsetAndMetadata(42)}), START_MS)
    assert scene.assigned(P0).offset == 7


def test_a_new_assignment_is_asked_about_and_the_old_answer_does_not_count(
    scene: PositionScene,
) -> None:
    (old,) = scene.asked()
    scene.subscription.assign([P0, P2])
    (new,) = scene.asked()
    old.on_response(committed_answer(old, {P0: OffsetAndMetadata(1)}), START_MS)
    assert not scene.assigned(P0).has_offset
    answer = committed_answer(new, {P0: OffsetAndMetadata(2), P2: OffsetAndMetadata(3)})
    new.on_response(answer, START_MS)
    assert [scene.assigned(each).offset for each in (P0, P2)] == [2, 3]


def test_a_smaller_assignment_waits_for_the_question_under_way(scene: PositionScene) -> None:
    (request,) = scene.asked()
    scene.subscription.assign([P0])
    assert scene.asked() == []
    answer = committed_answer(request, {P0: OffsetAndMetadata(2), P1: OffsetAndMetadata(3)})
    request.on_response(answer, START_MS)
    assert scene.assigned(P0).offset == 2


def test_what_no_attempt_cures_is_told_once_and_asked_again_after_that(
    scene: PositionScene,
) -> None:
    (request,) = scene.asked()
    code = GroupAuthorizationFailedError.code
    request.on_response(committed_answer(request, group_error=code), START_MS)
    assert isinstance(scene.subscription.take_error(), GroupAuthorizationFailedError)
    assert scene.subscription.take_error() is None
    assert len(scene.asked()) == 1


def test_nothing_committed_and_no_reset_is_told_and_not_asked_at_full_speed() -> None:
    scene = PositionScene(OffsetReset.NONE)
    scene.subscription.assign([P0])
    (request,) = scene.asked()
    request.on_response(committed_answer(request), START_MS)
    assert scene.asked() == []
    error = scene.subscription.take_error()
    assert isinstance(error, NoOffsetForPartitionError)
    assert len(scene.asked()) == 1


def test_why_there_is_no_position_yet_can_be_told(scene: PositionScene) -> None:
    (request,) = scene.asked()
    code = CoordinatorLoadInProgressError.code
    request.on_response(committed_answer(request, group_error=code), START_MS)
    error = scene.positions.last_error(scene.assigned(P0))
    assert isinstance(error, CoordinatorLoadInProgressError)
    assert len(scene.asked(START_MS + RETRY_MS)) == 1
