"""PositionManager: initial positions of partitions, and reports of lost ones."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.offsets.list_offsets import EARLIEST, LATEST, OffsetLookups
from pykclient.consumer.offsets.reset import PositionManager
from pykclient.consumer.subscription import (
    AssignedPartition,
    OffsetReset,
    PositionState,
    SubscriptionState,
)
from pykclient.errors import (
    CoordinatorLoadInProgressError,
    DisconnectedError,
    GroupAuthorizationFailedError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)
from pykclient.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pykclient.types import IsolationLevel, OffsetAndMetadata, TopicPartition
from tests.consumer.commit_scene import CommitScene, offset_fetch_response
from tests.consumer.known_cluster import (
    RETRY_BACKOFF,
    RETRY_MS,
    START_MS,
    make_metadata,
    topic,
    update_metadata,
)

if TYPE_CHECKING:
    from pykclient.network.manager import Request


A, B, C = (TopicPartition("t", number) for number in range(3))
FROM_MS = 1_700_000_000_000


class Scene:
    """A subscription with its position manager, and a broker whose responses the test writes."""

    def __init__(self, reset: OffsetReset) -> None:
        metadata = make_metadata()
        update_metadata(metadata, topic("t", [1, 1]))
        self.subscription = SubscriptionState()
        self._lookups = OffsetLookups(
            metadata, isolation_level=IsolationLevel.READ_UNCOMMITTED, retry_backoff=RETRY_BACKOFF
        )
        self.positions = PositionManager(
            self.subscription,
            self._lookups,
            auto_offset_reset=reset,
            retry_backoff=RETRY_BACKOFF,
            reset_from_ms=lambda: FROM_MS,
        )

    def assign(self, partition: TopicPartition = A) -> AssignedPartition:
        self.subscription.assign([*self.subscription.partitions, partition])
        return self.subscription.require(partition)

    def step(self, now_ms: int = START_MS) -> list[Request]:
        assert not self.positions.poll(now_ms).requests, "look-ups have their own manager"
        return list(self._lookups.poll(now_ms).requests)


def requested(request: Request) -> list[tuple[int, int]]:
    assert isinstance(request.message, ListOffsetsRequest)
    (topic_request,) = request.message.topics
    return [
        (partition.partition_index, partition.timestamp) for partition in topic_request.partitions
    ]


def reply(request: Request, offsets: dict[int, int], *, code: int = 0) -> None:
    responses = [
        ListOffsetsPartitionResponse(
            partition_index=index, error_code=code, offset=offset, leader_epoch=6
        )
        for index, offset in offsets.items()
    ]
    request.on_response(
        ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=responses)]),
        START_MS,
    )


@pytest.mark.promise("`auto_offset_reset` is earliest, latest or none")
@pytest.mark.parametrize(
    ("reset", "timestamp"), [(OffsetReset.EARLIEST, EARLIEST), (OffsetReset.LATEST, LATEST)]
)
def test_a_new_partition_begins_where_the_setting_has_it(
    reset: OffsetReset, timestamp: int
) -> None:
    scene = Scene(reset)
    assigned = scene.assign()
    (request,) = scene.step()
    assert requested(request) == [(0, timestamp)]
    reply(request, {0: 17})
    assert (assigned.state, assigned.offset) == (PositionState.FETCHING, 17)
    assert assigned.leader_epoch is None, "the leader may never have written anything in its epoch"
    assert scene.step() == []


@pytest.mark.promise("offsets by time, lag, and reset by duration work")
@pytest.mark.parametrize(
    ("by_time", "expected"), [(17, 17), (-1, 30)], ids=["a record", "none so young"]
)
def test_a_reset_by_duration_begins_at_a_time_or_at_the_end(by_time: int, expected: int) -> None:
    scene = Scene(OffsetReset.BY_DURATION)
    assigned = scene.assign()
    requests = {requested(request)[0][1]: request for request in scene.step()}
    assert requests.keys() == {FROM_MS, LATEST}
    reply(requests[FROM_MS], {0: by_time})
    assert not assigned.has_position
    reply(requests[LATEST], {0: 30})
    assert (assigned.has_position, assigned.offset) == (True, expected)


def test_partitions_are_looked_up_together_and_each_goes_on_by_itself() -> None:
    scene = Scene(OffsetReset.EARLIEST)
    a, b = scene.assign(A), scene.assign(B)
    (request,) = scene.step()
    reply(request, {0: 3})
    assert a.has_position
    assert not b.has_position


@pytest.mark.promise("`auto_offset_reset` is earliest, latest or none")
def test_reset_none_raises_at_each_poll_and_sends_no_request() -> None:
    scene = Scene(OffsetReset.NONE)
    scene.assign()
    for _ in range(2):
        assert scene.step() == []
        error = scene.subscription.take_error()
        assert isinstance(error, NoOffsetForPartitionError)
        assert "t-0" in str(error)
        assert "seek()" in str(error)


def test_a_seek_goes_before_the_setting() -> None:
    scene = Scene(OffsetReset.NONE)
    scene.subscription.seek(scene.assign(), 5)
    assert scene.step() == []
    assert scene.subscription.take_error() is None


def test_a_response_from_before_a_seek_is_ignored() -> None:
    scene = Scene(OffsetReset.EARLIEST)
    assigned = scene.assign()
    (request,) = scene.step()
    scene.subscription.seek(assigned, 99)
    reply(request, {0: 3})
    assert assigned.offset == 99


def test_a_response_from_before_another_reset_is_ignored() -> None:
    scene = Scene(OffsetReset.EARLIEST)
    assigned = scene.assign()
    (first,) = scene.step()
    scene.subscription.await_reset(assigned, OffsetReset.LATEST)
    (second,) = scene.step()
    reply(first, {0: 3})
    assert not assigned.has_position
    reply(second, {0: 50})
    assert assigned.offset == 50


def test_a_response_after_an_unassign_is_ignored() -> None:
    scene = Scene(OffsetReset.EARLIEST)
    assigned = scene.assign()
    (request,) = scene.step()
    scene.subscription.assign([])
    reply(request, {0: 3})
    assert not assigned.has_position
    assert scene.step() == []


def test_a_failure_that_passes_is_tried_again() -> None:
    scene = Scene(OffsetReset.EARLIEST)
    assigned = scene.assign()
    (request,) = scene.step()
    lost = DisconnectedError("gone")
    request.on_failure(lost, START_MS)
    assert scene.step() == []
    assert scene.positions.last_error(assigned) is lost
    (again,) = scene.step(START_MS + RETRY_MS)
    reply(again, {0: 3})
    assert assigned.offset == 3


def test_a_refusal_is_raised_and_the_next_poll_sends_the_request_again() -> None:
    scene = Scene(OffsetReset.EARLIEST)
    assigned = scene.assign()
    for _ in range(2):
        (request,) = scene.step()
        reply(request, {0: -1}, code=TopicAuthorizationFailedError.code)
        assert isinstance(scene.subscription.take_error(), TopicAuthorizationFailedError)
        assert not assigned.has_position


@pytest.mark.parametrize(
    ("reset", "offset", "expected"),
    [
        (OffsetReset.EARLIEST, 130, ("t-0", "100", "130", "30 offsets")),
        (OffsetReset.LATEST, 40, ("t-0", "100", "40", "beyond the end")),
    ],
)
def test_a_position_outside_the_log_is_logged_with_what_it_skips(
    reset: OffsetReset, offset: int, expected: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(reset)
    assigned = scene.assign()
    scene.subscription.seek(assigned, 100)
    scene.subscription.lose_position(assigned, reset)
    with caplog.at_level(logging.WARNING, "pykclient.consumer"):
        reply(scene.step()[0], {0: offset})
    assert assigned.offset == offset
    (record,) = caplog.records
    assert all(part in record.getMessage() for part in expected)


def test_an_ordinary_start_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(OffsetReset.EARLIEST)
    scene.assign()
    with caplog.at_level(logging.WARNING, "pykclient.consumer"):
        reply(scene.step()[0], {0: 40})
    assert caplog.records == []


def test_without_a_reset_a_lost_position_is_raised_with_the_range_of_the_log() -> None:
    scene = Scene(OffsetReset.NONE)
    assigned = scene.assign()
    scene.subscription.seek(assigned, 100)
    scene.subscription.lose_position(assigned, OffsetReset.NONE)
    first, second = scene.step()
    assert [requested(first), requested(second)] == [[(0, EARLIEST)], [(0, LATEST)]]
    reply(first, {0: 130})
    assert not scene.subscription.has_error
    reply(second, {0: 180})
    error = scene.subscription.take_error()
    assert isinstance(error, OffsetOutOfRangeError)
    assert all(part in str(error) for part in ("t-0", "100", "130", "180", "seek()"))
    assert (assigned.has_position, assigned.offset) == (True, 100)
    assert assigned.retry_at_ms == START_MS + RETRY_MS


# In a group: the committed offset, otherwise a reset.


class PositionScene(CommitScene):
    """A group with assigned partitions."""

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

    def offset_fetches(self, now_ms: int = START_MS) -> list[Request]:
        """Return the requests to the coordinator now."""
        self.positions.poll(now_ms)
        return list(self.committed.poll(now_ms).requests)

    def assigned(self, partition: TopicPartition) -> AssignedPartition:
        return self.subscription.require(partition)


@pytest.fixture
def scene() -> PositionScene:
    scene = PositionScene()
    scene.subscription.assign([A, B])
    return scene


@pytest.mark.promise(
    "a consumer starts at its group's committed offsets, or else as `auto_offset_reset` says"
)
def test_a_partition_goes_on_at_its_committed_offset_and_the_others_are_reset(
    scene: PositionScene,
) -> None:
    (request,) = scene.offset_fetches()
    assert scene.offset_fetches() == []
    request.on_response(
        offset_fetch_response(request, {A: OffsetAndMetadata(42, leader_epoch=3)}), START_MS
    )
    first = scene.assigned(A)
    assert (first.has_offset, first.offset, first.leader_epoch) == (True, 42, 3)
    assert scene.assigned(B).state is PositionState.AWAITING_RESET
    assert scene.offset_fetches() == []


def test_what_is_sought_meanwhile_stays_there(scene: PositionScene) -> None:
    (request,) = scene.offset_fetches()
    scene.subscription.seek(scene.assigned(A), 7)
    request.on_response(offset_fetch_response(request, {A: OffsetAndMetadata(42)}), START_MS)
    assert scene.assigned(A).offset == 7


def test_a_new_assignment_is_requested_and_the_old_response_does_not_count(
    scene: PositionScene,
) -> None:
    (old,) = scene.offset_fetches()
    scene.subscription.assign([A, C])
    (new,) = scene.offset_fetches()
    old.on_response(offset_fetch_response(old, {A: OffsetAndMetadata(1)}), START_MS)
    assert not scene.assigned(A).has_offset
    response = offset_fetch_response(new, {A: OffsetAndMetadata(2), C: OffsetAndMetadata(3)})
    new.on_response(response, START_MS)
    assert [scene.assigned(each).offset for each in (A, C)] == [2, 3]


def test_a_smaller_assignment_waits_for_the_request_in_flight(scene: PositionScene) -> None:
    (request,) = scene.offset_fetches()
    scene.subscription.assign([A])
    assert scene.offset_fetches() == []
    response = offset_fetch_response(request, {A: OffsetAndMetadata(2), B: OffsetAndMetadata(3)})
    request.on_response(response, START_MS)
    assert scene.assigned(A).offset == 2


def test_what_no_attempt_cures_is_raised_once_and_requested_again_after_that(
    scene: PositionScene,
) -> None:
    (request,) = scene.offset_fetches()
    code = GroupAuthorizationFailedError.code
    request.on_response(offset_fetch_response(request, group_error=code), START_MS)
    assert isinstance(scene.subscription.take_error(), GroupAuthorizationFailedError)
    assert scene.subscription.take_error() is None
    assert len(scene.offset_fetches()) == 1


def test_nothing_committed_and_no_reset_is_raised_and_requested_with_a_back_off() -> None:
    scene = PositionScene(OffsetReset.NONE)
    scene.subscription.assign([A])
    (request,) = scene.offset_fetches()
    request.on_response(offset_fetch_response(request), START_MS)
    assert scene.offset_fetches() == []
    error = scene.subscription.take_error()
    assert isinstance(error, NoOffsetForPartitionError)
    assert len(scene.offset_fetches()) == 1


def test_the_reason_for_no_position_yet_is_available(scene: PositionScene) -> None:
    (request,) = scene.offset_fetches()
    code = CoordinatorLoadInProgressError.code
    request.on_response(offset_fetch_response(request, group_error=code), START_MS)
    error = scene.positions.last_error(scene.assigned(A))
    assert isinstance(error, CoordinatorLoadInProgressError)
    assert len(scene.offset_fetches(START_MS + RETRY_MS)) == 1
