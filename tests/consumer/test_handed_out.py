"""HandedOut: what counts as processed after a poll, in an iteration, and after a seek."""

from __future__ import annotations

import pytest

from pykclient.consumer.offsets.processed import HandedOut
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


def test_without_anything_handed_out_the_position_counts(assigned: AssignedPartition) -> None:
    assert HandedOut().processed(assigned) == OffsetAndMetadata(FIRST_OFFSET, leader_epoch=3)


def test_what_a_poll_returned_does_not_count_until_the_next(assigned: AssignedPartition) -> None:
    handed_out = HandedOut()
    for offset in (15, 20):  # two runs of one poll
        handed_out.add(assigned, assigned.offset)
        assigned.offset, assigned.leader_epoch = offset, 4
    assert handed_out.processed(assigned) == OffsetAndMetadata(FIRST_OFFSET, leader_epoch=3)
    handed_out.clear()
    assert handed_out.processed(assigned).offset == 20


def test_an_iteration_counts_record_by_record(assigned: AssignedPartition) -> None:
    handed_out = HandedOut()
    handed_out.add_by_record(assigned, assigned.offset)
    assert handed_out.processed(assigned).offset == FIRST_OFFSET
    for offset in (11, 12, 15):
        assigned.offset = offset
        assert handed_out.processed(assigned).offset == offset - 1


def test_an_iteration_counts_with_the_epoch_of_the_record_before(
    assigned: AssignedPartition,
) -> None:
    handed_out = HandedOut()
    handed_out.add_by_record(assigned, FIRST_OFFSET)
    assigned.leader_epoch = 4  # that of the run which is iterated
    assigned.offset = FIRST_OFFSET + 1
    assert handed_out.processed(assigned) == OffsetAndMetadata(FIRST_OFFSET, leader_epoch=3)
    assigned.offset = FIRST_OFFSET + 2
    assert handed_out.processed(assigned) == OffsetAndMetadata(FIRST_OFFSET + 1, leader_epoch=4)


def test_an_epoch_that_is_not_known_any_more_is_none(assigned: AssignedPartition) -> None:
    handed_out = HandedOut()
    assigned.offset, assigned.leader_epoch = FIRST_OFFSET + 5, 4
    handed_out.add(assigned, FIRST_OFFSET)
    assert handed_out.processed(assigned) == OffsetAndMetadata(FIRST_OFFSET)


def test_a_seek_counts_at_once(
    subscription: SubscriptionState, assigned: AssignedPartition
) -> None:
    handed_out = HandedOut()
    handed_out.add(assigned, assigned.offset)
    subscription.seek(assigned, 5)
    assert handed_out.processed(assigned).offset == 5


def test_a_position_that_the_user_moved_ahead_counts(
    subscription: SubscriptionState, assigned: AssignedPartition
) -> None:
    handed_out = HandedOut()
    handed_out.add(assigned, assigned.offset)
    subscription.skip_to(assigned, 12)
    handed_out.forget(assigned)
    assert handed_out.processed(assigned).offset == 12
