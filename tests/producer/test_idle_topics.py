"""Idle topics: a producer keeps little for them, and loses no record or sequence number.

A topic that the metadata has removed is dropped once it has no batch. The critical case is a thread
that has just looked up the topic: its clock stalls here, in the middle of `append`, while the
sender thread continues.
"""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING
from weakref import ref

import pytest

from pykclient.types import TopicPartition
from tests.producer.scripted_producer import ScriptedProducer
from tests.producer.sender_bench import TOPIC, SenderBench, batches_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.producer.accumulator.batch import ProducerBatch
    from pykclient.protocol.messages.metadata import MetadataResponseTopic

PARTITION = TopicPartition(TOPIC, 0)
IDLE_TOPIC_BYTES_MAX = 2_500
"""1,600 on CPython 3.11; with the queues of an idle topic it would be 4,500."""


class StallingBench(SenderBench):
    """A bench whose clock runs `while_stalled` when it is next read."""

    while_stalled: Callable[[], object] | None = None
    _now_ms = 0

    @property
    def now_ms(self) -> int:
        run, self.while_stalled = self.while_stalled, None
        if run is not None:
            run()
        return self._now_ms

    @now_ms.setter
    def now_ms(self, value: int) -> None:
        self._now_ms = value


def values(batches: list[ProducerBatch]) -> list[bytes | None]:
    return [record[3] for batch in batches for record in batch._content.records()]


def is_let_go(bench: SenderBench) -> bool:
    """Return whether the topic is dropped: no one else refers to its queue."""
    gc.collect()
    return bench.accumulator._topics.find_queue(PARTITION) is None


def test_a_topic_that_idles_is_let_go_and_its_sequence_goes_on() -> None:
    bench = SenderBench()
    for _ in range(2):
        bench.send_batch()
        bench.respond(bench.requests[-1])
    topic = ref(bench.accumulator._topics.queue(PARTITION).topic)
    bench.forget_topic()
    gc.collect()
    assert topic() is None
    bench.lead(1)
    bench.send_batch()
    (request,) = bench.requests
    assert batches_of(request)[PARTITION].base_sequence == 2


def test_a_topic_whose_batches_wait_or_are_in_flight_is_kept() -> None:
    bench = SenderBench(delivery_timeout_ms=1_000)
    waiting = bench.send()
    bench.forget_topic()
    assert not is_let_go(bench)
    bench.lead(1)
    bench.poll()
    bench.forget_topic()
    assert not is_let_go(bench)
    bench.poll(1_000)
    bench.poll()  # the first turn reads what may have arrived
    assert waiting.done()
    bench.forget_topic()
    assert not is_let_go(bench)  # its time has run out, and a request still carries it
    bench.respond(bench.requests[-1])
    bench.forget_topic()
    assert is_let_go(bench)


def test_a_partition_of_a_topic_that_was_let_go_is_looked_at_without_harm() -> None:
    bench = SenderBench()
    bench.send_batch()
    bench.respond(bench.requests[-1])
    bench.forget_topic()
    bench.accumulator.look_at(PARTITION, bench.now_ms)
    assert is_let_go(bench)


@pytest.mark.parametrize("is_back", [False, True])
def test_a_thread_that_stalls_in_append_while_its_topic_is_let_go_loses_nothing(
    is_back: bool,
) -> None:
    bench = StallingBench(batch_size=100)
    sent = []

    def let_go() -> None:
        bench.forget_topic()
        gc.collect()
        if is_back:
            bench.lead(1)
            sent.append(bench.send(b"s" * 50))

    bench.while_stalled = let_go
    sent.append(bench.send(b"f" * 50))
    bench.accumulator.look(bench.now_ms)
    gc.collect()
    bench.lead(1)
    sent.append(bench.send(b"t" * 50))
    drained = []
    while batches := bench.drain():
        assert len(batches) == 1, "two batches of a partition in one request"
        drained += batches
    expected = [b"s" * 50] * is_back + [b"f" * 50, b"t" * 50]
    assert values(drained) == expected
    assert len(sent) == len(expected)


def test_an_idle_topic_costs_little_memory() -> None:
    producer = _ManyTopics(metadata_max_idle_ms=5_000, linger_ms=0)
    producer.use(100)
    gc.collect()
    tracemalloc.start(1)
    try:
        before, _ = tracemalloc.get_traced_memory()
        producer.use(100)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / 100 < IDLE_TOPIC_BYTES_MAX


class _ManyTopics(ScriptedProducer):
    """A producer that sends one record to each of many topics, and then leaves them idle."""

    used_count = 0

    def use(self, topic_count: int) -> None:
        names = [f"topic-{self.used_count + number}" for number in range(topic_count)]
        self.used_count += topic_count
        self.partition_counts = dict.fromkeys(names, 1)
        for name in names:
            self.core.want_topic(name)
        self.turn(8, after_ms=1)
        self.turn(4, after_ms=2_000)
        deliveries = [self.send(name, b"value") for name in names]
        self.turn(8, after_ms=1)
        assert all(delivery.done() for delivery in deliveries)
        self.partition_counts = {}
        self.produced.clear()
        self.core.metadata.request_update()
        self.turn(4, after_ms=6_000)
        assert not self.core.topics

    def _topic(self, name: str) -> MetadataResponseTopic:
        topic = super()._topic(name)
        topic.topic_id = name.encode().ljust(16, b"\0")[:16]
        return topic
