"""Whatever is fetched, taken, given back, paused and sought, records come once and in order.

Hypothesis makes up a history of a buffer and its positions, which must agree after each event; at
the end nothing may be counted that is no longer there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pykclient.consumer.fetch.completed_fetch import CompletedFetch, FetchedResponse
from tests.consumer.fetched_records import CONFIG, batch
from tests.consumer.test_fetch_buffer import A, B, C, Scene

if TYPE_CHECKING:
    from pykclient.types import TopicPartition

ANSWERED_BYTES = 100
PARKED_MAX_BYTES = 4 * ANSWERED_BYTES


class Reading(RuleBasedStateMachine):
    """Whatever happens, no record is skipped, doubled or out of order."""

    partitions = st.sampled_from([A, B, C])

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene(A, B, C, parked_max_bytes=PARKED_MAX_BYTES)
        self.taken: dict[TopicPartition, list[int]] = {A: [], B: [], C: []}

    @rule(wanted=st.sets(partitions, min_size=1), node_id=st.integers(1, 2))
    def fetch(self, wanted: set[TopicPartition], node_id: int) -> None:
        buffer = self.scene.buffer
        starts = {p: buffer.fetch_offset(self.scene[p]) for p in sorted(wanted)}
        response = FetchedResponse(node_id, len(starts) * ANSWERED_BYTES)
        for partition, start in starts.items():
            # As in `Fetcher`: what came for one may have pushed out what was there of another.
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
pytest.mark.promise("a fetch returns the records of the partitions that were assigned")(TestReading)
