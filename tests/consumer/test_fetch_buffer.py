"""FetchBuffer: records are taken in fair turns, positions move with them, errors stay in place."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pykclient.consumer.deserializers import RecordDeserializer
from pykclient.consumer.fetch import buffer as fetch_buffer
from pykclient.consumer.fetch.buffer import FetchBuffer
from pykclient.consumer.fetch.completed_fetch import CompletedFetch, FetchedResponse
from pykclient.consumer.subscription import AssignedPartition, SubscriptionState
from pykclient.errors import CorruptRecordError, RecordDeserializationError
from pykclient.records.compression import Codec
from pykclient.records.control import AbortedTransactions
from pykclient.types import TopicPartition
from tests.consumer.fetched_records import (
    COMMIT_KEY,
    CONFIG,
    LEADER_EPOCH_AT,
    aborted_batch,
    batch,
    empty_batch,
    marker,
    thinned,
    value_at,
)
from tests.consumer.known_cluster import RETRY_BACKOFF, RETRY_MS, START_MS
from tests.records.batches import header_changed

if TYPE_CHECKING:
    from pykclient.consumer.fetch.buffer import Read
    from pykclient.consumer.record import RecordSpan

A, B, C = (TopicPartition("t", number) for number in range(3))
NODE = 1


def refuse(_: str, value: bytes) -> str:
    if value == value_at(3):
        raise ValueError("no threes")
    return value.decode()


REFUSE_THREE = RecordDeserializer(None, refuse)


class Scene:
    """A buffer, and the subscription whose positions it moves."""

    def __init__(self, *partitions: TopicPartition, parked_max_bytes: int = 1_000_000) -> None:
        self.subscription = SubscriptionState()
        self.subscription.assign(partitions)
        for assigned in self.subscription:
            self.subscription.seek(assigned, 0)
        self.buffer = FetchBuffer(RETRY_BACKOFF, parked_max_bytes=parked_max_bytes)

    def __getitem__(self, partition: TopicPartition) -> AssignedPartition:
        return self.subscription.require(partition)

    def add(self, *parts: tuple[TopicPartition, bytes], node_id: int = NODE) -> None:
        """Add one response with these partitions."""
        response = FetchedResponse(node_id, sum(len(data) for _, data in parts))
        for partition, data in parts:
            offset = self.buffer.fetch_offset(self[partition])
            assert offset is not None
            fetched = CompletedFetch(partition, offset, data, CONFIG, response=response)
            self.buffer.add(self[partition], fetched)

    def pause(self, partition: TopicPartition) -> None:
        self.subscription.pause(self[partition])
        self.buffer.refresh(self[partition])

    def resume(self, partition: TopicPartition) -> None:
        self.subscription.resume(self[partition])
        self.buffer.refresh(self[partition])

    def take(
        self, count_max: int = 100, read: Read | None = None, size_bytes_max: int | None = None
    ) -> list[RecordSpan]:
        return self.buffer.take(count_max, START_MS, read, size_bytes_max=size_bytes_max)


def in_epoch(leader_epoch: int, data: bytes) -> bytes:
    return header_changed(data, LEADER_EPOCH_AT, leader_epoch, 4)


def offsets_of(spans: list[RecordSpan]) -> list[tuple[int, list[int]]]:
    return [(span.partition.partition, list(span.columns.offsets)) for span in spans]


def offsets_together(spans: list[RecordSpan]) -> list[tuple[int, list[int]]]:
    """Return partitions and offsets; consecutive spans of one partition are merged."""
    by_partition = groupby(spans, lambda span: span.partition.partition)
    return [(index, [o for span in of for o in span.columns.offsets]) for index, of in by_partition]


@pytest.mark.parametrize(
    "passed",
    [
        marker(2, 1, key=COMMIT_KEY),
        aborted_batch([2], 1),
        empty_batch(2, 2),
    ],
    ids=["marker", "aborted", "compacted"],
)
def test_a_batch_that_is_passed_gives_the_position_its_leader_epoch(passed: bytes) -> None:
    """As in Java's `CompletedFetch`; otherwise the former leader's epoch seems to end before it."""
    scene = Scene(A)
    response = FetchedResponse(NODE, 1)
    data = in_epoch(4, batch(range(2))) + in_epoch(6, passed)
    aborted = AbortedTransactions([(1, 2)])
    fetched = CompletedFetch(A, 0, data, CONFIG, response=response, aborted=aborted)
    scene.buffer.add(scene[A], fetched)
    assert offsets_of(scene.take(1)) == [(0, [0])]
    assert (scene[A].offset, scene[A].leader_epoch) == (1, 4)
    assert offsets_of(scene.take(1)) == [(0, [1])]
    assert scene.take() == []
    assert (scene[A].offset, scene[A].leader_epoch) == (3, 6)


def test_positions_go_over_what_compaction_has_taken_out_of_a_batch() -> None:
    scene = Scene(A)
    scene.add((A, thinned(range(10), kept=[0, 5, 9])))
    for count_max, offsets, position in [(2, [0, 5], 6), (100, [9], 10)]:
        assert offsets_of(scene.take(count_max)) == [(0, offsets)]
        assert scene[A].offset == position


def test_after_each_response_of_a_partition_the_others_have_their_turn() -> None:
    scene = Scene(A, B)
    scene.add((A, batch(range(2)) + batch(range(2, 4))), (B, batch([0])))
    scene.add((A, batch([4])))
    assert offsets_together(scene.take(100)) == [(0, [0, 1, 2, 3]), (1, [0]), (0, [4])]


def test_a_response_is_in_use_until_all_its_parts_are_taken() -> None:
    scene = Scene(A, B)
    scene.add((A, batch([0])), (B, batch([0])))
    scene.add((B, batch([1])), node_id=2)
    assert [scene.buffer.response_count(node) for node in (1, 2, 3)] == [1, 1, 0]
    scene.take(1)
    assert scene.buffer.response_count(1) == 1
    scene.take(1)
    assert [scene.buffer.response_count(node) for node in (1, 2)] == [0, 1]


def test_a_paused_partition_keeps_what_is_buffered_and_does_not_hold_up_its_node() -> None:
    scene = Scene(A, B)
    scene.add((A, batch(range(2))), (B, batch([0])))
    scene.pause(A)
    assert offsets_of(scene.take()) == [(1, [0])]
    assert scene.buffer.response_count(NODE) == 0
    scene.add((A, batch([2])))
    assert scene.take() == []
    scene.resume(A)
    assert scene.buffer.response_count(NODE) == 2
    assert offsets_of(scene.take()) == [(0, [0, 1]), (0, [2])]
    assert scene.buffer.response_count(NODE) == 0


def test_of_what_is_parked_the_oldest_is_dropped_when_it_is_too_much() -> None:
    data = batch(range(4))
    scene = Scene(A, B, C, parked_max_bytes=2 * len(data))
    for partition in (A, B, C):
        scene.add((partition, data))
    for partition in (A, B, C):
        scene.pause(partition)
    assert scene.buffer.parked_bytes == 2 * len(data)
    assert [scene.buffer.fetch_offset(scene[partition]) for partition in (A, B, C)] == [0, 4, 4]
    for partition in (A, B, C):
        scene.resume(partition)
    assert scene.buffer.parked_bytes == 0
    assert offsets_of(scene.take()) == [(1, [0, 1, 2, 3]), (2, [0, 1, 2, 3])]


def test_a_response_counts_whole_as_long_as_a_part_of_it_is_parked() -> None:
    scene = Scene(A, B)
    size_bytes = len(batch(range(4)) + batch([0]))
    scene.add((A, batch(range(4))), (B, batch([0])))
    scene.pause(A)
    assert scene.buffer.parked_bytes == 0, "it is still read from"
    scene.take()
    assert scene.buffer.parked_bytes == size_bytes
    scene.resume(A)
    assert scene.buffer.parked_bytes == 0
    scene.pause(A)
    scene.buffer.drop(scene[A])
    assert scene.buffer.parked_bytes == 0


def test_the_last_response_is_kept_however_large_it_is() -> None:
    scene = Scene(A, parked_max_bytes=1)
    scene.add((A, batch(range(4))))
    scene.take(1)
    scene.pause(A)
    scene.resume(A)
    assert offsets_of(scene.take()) == [(0, [1, 2, 3])]


def test_what_comes_for_a_paused_partition_counts_too() -> None:
    scene = Scene(A, B, parked_max_bytes=1)
    scene.pause(A)
    scene.pause(B)
    scene.add((A, batch(range(4))))
    scene.add((B, batch(range(4))))
    assert [scene.buffer.fetch_offset(scene[partition]) for partition in (A, B)] == [0, 4]


def test_a_limit_inside_a_hole_is_reached_without_a_record() -> None:
    scene = Scene(A)
    scene.subscription.set_limits({A: 5})
    scene.add((A, in_epoch(4, batch(range(2))) + in_epoch(6, batch(range(8, 10)))))
    assert offsets_of(scene.take()) == [(0, [0, 1])]
    assert scene[A].offset == 5
    assert scene[A].leader_epoch is None, "it is not known in which epoch the hole was"
    assert scene[A].has_reached_limit
    scene.subscription.set_limits({})
    scene.buffer.refresh(scene[A])
    assert offsets_of(scene.take()) == [(0, [8, 9])]


def test_what_is_given_back_is_read_again() -> None:
    scene = Scene(A)
    scene.add((A, in_epoch(4, batch(range(4))) + in_epoch(5, batch(range(4, 6)))))
    scene.take(2)
    scene.take(4)
    assert (scene[A].offset, scene[A].leader_epoch) == (6, 5)
    scene.buffer.give_back()
    assert (scene[A].offset, scene[A].leader_epoch) == (2, 4)
    scene.add((A, batch(range(6))))
    assert offsets_of(scene.take()) == [(0, [2, 3, 4, 5])]


def test_what_the_user_has_moved_since_is_not_given_back() -> None:
    scene = Scene(A, B, C)
    parts = [(partition, batch(range(4))) for partition in (A, B, C)]
    scene.add(*parts)
    scene.take(10)
    scene.subscription.seek(scene[A], 7)
    scene.subscription.skip_to(scene[C], 3)
    scene.buffer.forgive(scene[C])
    scene.buffer.give_back()
    assert [scene[partition].offset for partition in (A, B, C)] == [7, 0, 3]


def test_a_position_that_is_being_validated_keeps_an_epoch_when_it_is_given_back() -> None:
    scene = Scene(A)
    scene.add((A, in_epoch(5, batch(range(2)))))
    scene.take()
    scene.subscription.await_validation(scene[A])
    scene.buffer.give_back()
    assert (scene[A].offset, scene[A].leader_epoch) == (0, 5)


# Errors.


def damaged(offsets: range) -> bytes:
    data = bytearray(batch(offsets))
    data[-1] ^= 1
    return bytes(data)


def test_a_corrupt_batch_is_raised_when_nothing_stands_before_it_and_fetched_anew() -> None:
    scene = Scene(A)
    scene.add((A, batch(range(3)) + damaged(range(3, 6))))
    assert offsets_of(scene.take()) == [(0, [0, 1, 2])]
    with pytest.raises(CorruptRecordError) as raised:
        scene.take()
    assert raised.value.offset == 3
    assert scene[A].offset == 3
    assert scene[A].retry_at_ms == START_MS + RETRY_MS
    assert scene.buffer.fetch_offset(scene[A]) == 3
    assert scene.take() == []
    scene.add((A, batch(range(3, 6))))
    assert offsets_of(scene.take()) == [(0, [3, 4, 5])]


def test_nothing_is_fetched_behind_a_batch_that_is_known_to_be_corrupt() -> None:
    scene = Scene(A)
    broken = bytearray(batch(range(3, 6), codec=Codec.GZIP))
    broken[-1] ^= 1
    scene.add((A, batch(range(3)) + bytes(broken)))
    assert scene.buffer.fetch_offset(scene[A]) is None


def test_a_corrupt_partition_does_not_stop_the_others() -> None:
    scene = Scene(A, B)
    scene.add((A, damaged(range(3))), (B, batch(range(2))))
    with pytest.raises(CorruptRecordError):
        scene.take()
    assert offsets_of(scene.take()) == [(1, [0, 1])]


def test_a_bad_record_stops_its_partition_only_and_does_not_hold_up_the_node() -> None:
    scene = Scene(A, B)
    scene.add((A, batch(range(3, 4))), (B, batch(range(2))))
    scene[A].offset = 3

    def read(_: AssignedPartition, span: RecordSpan) -> RecordSpan:
        return REFUSE_THREE.apply(span)

    with pytest.raises(RecordDeserializationError):
        scene.take(read=read)
    assert offsets_of(scene.take(read=read)) == [(1, [0, 1])]
    assert scene.buffer.response_count(NODE) == 0
    with pytest.raises(RecordDeserializationError):
        scene.take(read=read)


def test_a_take_ends_before_it_unfolds_too_much_and_the_next_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(A, B)
    compressed = batch(range(3, 6), codec=Codec.GZIP)
    scene.add((A, batch(range(3)) + compressed), (B, batch(range(3))))
    monkeypatch.setattr(fetch_buffer, "TAKEN_SIZE_BYTES_MAX", 50)
    assert offsets_of(scene.take()) == [(0, [0, 1, 2])]
    assert scene[A].offset == 3
    assert offsets_of(scene.take()) == [(0, [3, 4, 5])]
    monkeypatch.setattr(fetch_buffer, "TAKEN_SIZE_BYTES_MAX", 1)
    assert offsets_of(scene.take()) == [(1, [0])]
    monkeypatch.undo()
    assert offsets_of(scene.take(size_bytes_max=1)) == [(1, [1])]
    assert scene[B].offset == 2
    assert offsets_of(scene.take(size_bytes_max=50)) == [(1, [2])]


RESPONSE_BYTES = 100
PARKED_MAX_BYTES = 4 * RESPONSE_BYTES


class Reading(RuleBasedStateMachine):
    """Records come once and in order, whatever is fetched, taken, returned, paused or sought.

    Hypothesis generates events for a buffer and its positions; both must agree after each event.
    At the end the buffer must count nothing that it no longer contains.
    """

    partitions = st.sampled_from([A, B, C])

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene(A, B, C, parked_max_bytes=PARKED_MAX_BYTES)
        self.taken: dict[TopicPartition, list[int]] = {A: [], B: [], C: []}

    @rule(wanted=st.sets(partitions, min_size=1), node_id=st.integers(1, 2))
    def fetch(self, wanted: set[TopicPartition], node_id: int) -> None:
        buffer = self.scene.buffer
        starts = {p: buffer.fetch_offset(self.scene[p]) for p in sorted(wanted)}
        response = FetchedResponse(node_id, len(starts) * RESPONSE_BYTES)
        for partition, start in starts.items():
            # As in `Fetcher`: records of one partition may have replaced those of another.
            if start is not None and start == buffer.fetch_offset(self.scene[partition]):
                data = batch(range(start, start + 2)) + batch(range(start + 2, start + 5))
                fetched = CompletedFetch(partition, start, data, CONFIG, response=response)
                buffer.add(self.scene[partition], fetched)

    @rule(count_max=st.integers(1, 6))
    def take(self, count_max: int) -> None:
        spans = self.scene.take(count_max)
        assert sum(span.record_count for span in spans) <= count_max
        for span in spans:
            self.taken[span.partition] += span.columns.offsets

    @rule(count_max=st.integers(1, 6))
    def take_and_give_back(self, count_max: int) -> None:
        self.scene.take(count_max)
        self.scene.buffer.give_back()

    @rule(partition=partitions)
    def pause(self, partition: TopicPartition) -> None:
        self.scene.pause(partition)

    @rule(partition=partitions)
    def resume(self, partition: TopicPartition) -> None:
        self.scene.resume(partition)

    @rule(partition=partitions)
    def seek_to_where_it_is(self, partition: TopicPartition) -> None:
        assigned = self.scene[partition]
        self.scene.buffer.drop(assigned)
        self.scene.subscription.seek(assigned, assigned.offset)

    @rule(limits=st.dictionaries(partitions, st.integers(0, 30)))
    def limit(self, limits: dict[TopicPartition, int]) -> None:
        for assigned in self.scene.subscription.set_limits(limits):
            self.scene.buffer.refresh(assigned)

    @invariant()
    def nothing_is_missing_or_doubled(self) -> None:
        for partition, offsets in self.taken.items():
            assert offsets == list(range(len(offsets)))
            assert self.scene[partition].offset == len(offsets)

    @invariant()
    def what_is_parked_is_not_too_much(self) -> None:
        assert self.scene.buffer.parked_bytes <= PARKED_MAX_BYTES

    def teardown(self) -> None:
        for assigned in self.scene.subscription:
            self.scene.buffer.drop(assigned)
        assert self.scene.buffer.parked_bytes == 0
        assert [self.scene.buffer.response_count(node) for node in (1, 2)] == [0, 0]


Reading.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestReading = Reading.TestCase
