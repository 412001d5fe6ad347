"""Unprocessed: what counts as processed after a poll, in an iteration, and after a seek."""

from __future__ import annotations

import pytest

from pykclient.consumer.offsets.commit import Unprocessed
from pykclient.consumer.subscription import AssignedPartition, SubscriptionState
from pykclient.types import OffsetAndMetadata, TopicPartition

FIRST_OFFSET = 10


@pytest.fixture
def subscription() -> SubscriptionState:
    return SubscriptionState()


@pytest.fixture
def assigned(subscription: SubscriptionState) -> AssignedPartition:
    """A partition at its first offset."""
    subscription.assign([TopicPartition("t", 0)])
    (assigned,) = subscription
    subscription.seek(assigned, FIRST_OFFSET, 3)
    return assigned


def test_without_unprocessed_records_the_position_counts(assigned: AssignedPartition) -> None:
    assert Unprocessed().processed(assigned) == OffsetAndMetadata(FIRST_OFFSET, leader_epoch=3)


def test_what_a_poll_returned_does_not_count_until_the_next(assigned: AssignedPartition) -> None:
    unprocessed = Unprocessed()
    for offset in (15, 20):  # two runs of one poll
        unprocessed.add(assigned, assigned.offset)
        assigned.offset, assigned.leader_epoch = offset, 4
    assert unprocessed.processed(assigned) == OffsetAndMetadata(FIRST_OFFSET, leader_epoch=3)
    unprocessed.clear()
    assert unprocessed.processed(assigned).offset == 20


def test_an_iteration_counts_record_by_record(assigned: AssignedPartition) -> None:
    unprocessed = Unprocessed()
    unprocessed.add_by_record(assigned, assigned.offset)
    assert unprocessed.processed(assigned).offset == FIRST_OFFSET
    for offset in (11, 12, 15):
        assigned.offset = offset
        assert unprocessed.processed(assigned).offset == offset - 1


def test_an_iteration_counts_with_the_epoch_of_the_record_before(
    assigned: AssignedPartition,
) -> None:
    unprocessed = Unprocessed()
    unprocessed.add_by_record(assigned, FIRST_OFFSET)
    assigned.leader_epoch = 4  # that of the run which is iterated
    assigned.offset = FIRST_OFFSET + 1
    assert unprocessed.processed(assigned) == OffsetAndMetadata(FIRST_OFFSET, leader_epoch=3)
    assigned.offset = FIRST_OFFSET + 2
    assert unprocessed.processed(assigned) == OffsetAndMetadata(FIRST_OFFSET + 1, leader_epoch=4)


def test_an_epoch_that_is_not_known_any_more_is_none(assigned: AssignedPartition) -> None:
    unprocessed = Unprocessed()
    assigned.offset, assigned.leader_epoch = FIRST_OFFSET + 5, 4
    unprocessed.add(assigned, FIRST_OFFSET)
    assert unprocessed.processed(assigned) == OffsetAndMetadata(FIRST_OFFSET)


def test_a_seek_counts_at_once(
    subscription: SubscriptionState, assigned: AssignedPartition
) -> None:
    unprocessed = Unprocessed()
    unprocessed.add(assigned, assigned.offset)
    subscription.seek(assigned, 5)
    assert unprocessed.processed(assigned).offset == 5


def test_a_position_that_the_user_moved_ahead_counts(
    subscription: SubscriptionState, assigned: AssignedPartition
) -> None:
    unprocessed = Unprocessed()
    unprocessed.add(assigned, assigned.offset)
    subscription.skip_to(assigned, 12)
    unprocessed.forget(assigned)
    assert unprocessed.processed(assigned).offset == 12
