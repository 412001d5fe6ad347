"""StoredOffsets: how far everything is stored, whatever the order and the events between."""

from __future__ import annotations

import pytest

from pykclient.consumer.offsets.stored import StoredOffsets
from pykclient.consumer.subscription import OffsetReset, SubscriptionState
from pykclient.types import OffsetAndMetadata
from tests.consumer.fetched_records import A, B, span


class Scene:
    """Two partitions whose records are returned and stored."""

    def __init__(self) -> None:
        self.subscription = SubscriptionState()
        self.subscription.assign([A, B])
        self.assigned = self.subscription.require(A)
        self.subscription.seek(self.assigned, 0, 4)
        self.stored = StoredOffsets(self.subscription)

    def returns(self, *offsets: int) -> None:
        self.stored.add(self.assigned, span(A, offsets))
        self.assigned.offset = offsets[-1] + 1
        self.assigned.leader_epoch = 5

    def stores(self, *offsets: int) -> None:
        for offset in offsets:
            self.stored.note(A, offset, offset + 1)
        self.stored.update()

    @property
    def committed(self) -> int:
        return self.stored.processed(self.assigned).offset


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_before_anything_is_returned_it_is_the_position(scene: Scene) -> None:
    assert scene.stored.processed(scene.assigned) == OffsetAndMetadata(0, leader_epoch=4)


def test_it_goes_up_to_the_first_record_that_is_missing(scene: Scene) -> None:
    scene.returns(0, 1, 2)
    scene.returns(3, 4)
    for offset, committed in ((1, 0), (4, 0), (0, 2), (3, 2), (2, 5)):
        scene.stores(offset)
        assert scene.committed == committed


def test_what_has_no_record_is_no_gap(scene: Scene) -> None:
    scene.returns(2, 5, 9)
    scene.stores(2, 5)
    assert scene.committed == 9
    scene.stores(9)
    scene.assigned.offset = 12  # behind a marker, say
    assert scene.committed == 12


def test_a_record_that_was_not_returned_does_not_count(scene: Scene) -> None:
    scene.returns(2, 5)
    scene.stores(1, 3, 9)
    scene.stored.note(B, 2, 3)
    scene.stores()
    assert scene.committed == 2


def test_the_epoch_is_that_of_the_record_before(scene: Scene) -> None:
    scene.returns(0, 1)
    scene.returns(2, 3)
    assert scene.stored.processed(scene.assigned) == OffsetAndMetadata(0)
    scene.stores(0)
    assert scene.stored.processed(scene.assigned) == OffsetAndMetadata(1, leader_epoch=5)
    scene.stores(1)
    assert scene.stored.processed(scene.assigned) == OffsetAndMetadata(2, leader_epoch=5)


def test_what_is_returned_again_is_stored_again(scene: Scene) -> None:
    """As after a loop that was left, or a call that was interrupted."""
    scene.returns(0, 1, 2, 3)
    scene.returns(4, 5)
    scene.stores(0, 1, 2, 3, 4, 5)
    scene.stored.forget(scene.assigned)
    scene.returns(0, 1, 2, 3)
    scene.returns(4, 5)
    scene.stores(0, 1)
    scene.returns(2, 3)
    scene.returns(4, 5)
    assert scene.committed == 2
    scene.stores(2, 4, 5)
    assert scene.committed == 3
    scene.stores(3)
    assert scene.committed == 6


def test_a_new_position_of_the_user_forgets_what_was_returned_before(scene: Scene) -> None:
    scene.returns(0, 1, 2)
    scene.stored.forget(scene.assigned)
    scene.subscription.seek(scene.assigned, 50)
    assert scene.committed == 50
    scene.returns(50, 51)
    scene.stores(0, 1, 2, 50)
    assert scene.committed == 51


def test_a_log_that_was_cut_keeps_what_it_still_has_and_is_not_stored(scene: Scene) -> None:
    scene.returns(0, 1, 2, 3)
    scene.stores(0, 3)
    scene.subscription.await_validation(scene.assigned)
    scene.subscription.complete_validation(scene.assigned, 2, 4, 6)
    assert scene.committed == 1
    scene.stores(1)
    assert scene.committed == 2
    scene.returns(2, 3)
    assert scene.committed == 2
    scene.stores(2)
    assert scene.committed == 3


@pytest.mark.parametrize("offset", [2, 50])
def test_a_position_that_was_lost_and_reset_passes_nothing_over(scene: Scene, offset: int) -> None:
    scene.returns(0, 1, 2, 3)
    scene.subscription.lose_position(scene.assigned, OffsetReset.EARLIEST)
    scene.subscription.complete_reset(scene.assigned, offset)
    scene.returns(offset, offset + 1)
    scene.stores(0, offset)
    assert scene.committed == 1


def test_after_a_reset_the_epoch_of_the_record_before_is_not_known(scene: Scene) -> None:
    """With an older epoch, the log would seem truncated when the group resumes from the commit."""
    scene.returns(0, 1)
    scene.stores(0, 1)
    assert scene.committed == 2
    scene.subscription.lose_position(scene.assigned, OffsetReset.EARLIEST)
    scene.subscription.complete_reset(scene.assigned, 50)
    scene.returns(50, 51)
    assert scene.stored.processed(scene.assigned) == OffsetAndMetadata(50)


def test_a_seek_past_a_bad_record_keeps_what_was_returned_and_nothing_else(scene: Scene) -> None:
    """The records of an unfinished loop or an interrupted call were not returned."""
    scene.returns(0, 1, 2, 3)
    scene.assigned.offset = 2
    scene.stored.forget(scene.assigned, from_offset=2)
    scene.subscription.seek(scene.assigned, 4)
    scene.stores(0)
    assert scene.committed == 1
    scene.stores(1)
    assert scene.committed == 4


def test_a_partition_that_was_given_up_begins_anew(scene: Scene) -> None:
    scene.returns(0, 1)
    scene.subscription.assign([B])
    scene.stores(0, 1)
    scene.subscription.assign([A, B])
    scene.assigned = scene.subscription.require(A)
    scene.subscription.seek(scene.assigned, 0)
    scene.returns(0, 1)
    assert scene.committed == 0
