"""Calls from code that interrupts another call in its own thread, e.g. a signal handler.

The test forces the interruption: a method that runs at the critical moment makes the call.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from pykclient.network.manager import Operation
from pykclient.producer.accumulator.append import OpenBatches
from pykclient.producer.accumulator.queues import PartitionQueue
from pykclient.records.batch import iterate_batches
from tests.producer.scripted_producer import ScriptedProducer
from tests.producer.sender_bench import SenderBench

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Lock

    from pykclient.accel import Delivery
    from pykclient.producer.record import RecordMetadata

TICK_MS = 100


@pytest.fixture
def producer() -> ScriptedProducer:
    producer = ScriptedProducer(batch_size=1_000)
    producer.await_metadata("t")
    return producer


def values_of(producer: ScriptedProducer, partition: int) -> list[bytes | None]:
    """Return the values sent to the broker for a partition, in order."""
    return [
        value
        for request in producer.produced
        for topic in request.topic_data
        for data in topic.partition_data
        if data.index == partition
        for batch in iterate_batches(memoryview(bytes(data.records or b"")), topic="t", partition=0)
        for value in batch.records().values
    ]


def interrupt(
    monkeypatch: pytest.MonkeyPatch, kind: type, method: str, handler: Callable[[], object]
) -> None:
    """Make the next call of a method call `handler` first, once."""
    real = getattr(kind, method)

    def interrupted(*args: object, **keywords: object) -> object:
        monkeypatch.setattr(kind, method, real)
        handler()
        return real(*args, **keywords)

    monkeypatch.setattr(kind, method, interrupted)


@pytest.mark.parametrize("method", ["_begin", "_end_full", "_new_batch", "install"])
@pytest.mark.parametrize("inner", [0, 1], ids=["same partition", "another one"])
def test_send_in_a_handler_that_interrupted_send_goes_through(
    producer: ScriptedProducer, monkeypatch: pytest.MonkeyPatch, method: str, inner: int
) -> None:
    first = producer.send("t", bytes(900), partition=0)
    more: list[Delivery[RecordMetadata]] = []

    def handler() -> None:
        more.extend(producer.send("t", b"inner %d" % number, partition=inner) for number in (1, 2))

    kind = PartitionQueue if method == "install" else OpenBatches
    interrupt(monkeypatch, kind, method, handler)
    outer = producer.send("t", bytes(500), partition=0)
    after = producer.send("t", b"after", partition=inner)
    producer.turn(9, after_ms=TICK_MS)
    assert all(delivery.done() for delivery in (first, outer, *more, after))
    inner_values = [value for value in values_of(producer, inner) if value and value[0]]
    assert inner_values == [b"inner 1", b"inner 2", b"after"]
    assert producer.core.pool.free_bytes == producer.core.pool.size_bytes
    assert not producer.core.accumulator.inside


def test_the_sender_goes_on_with_others_while_a_thread_holds_a_lock() -> None:
    bench = SenderBench(leaders=(1, 1), delivery_timeout_ms=1_000)
    held, free = bench.send(partition=0), bench.send(partition=1)
    lock: Lock = bench.accumulator._topics.get("t").queues[0].lock  # type: ignore[union-attr]
    with lock:
        (request,) = bench.poll()
        bench.respond(request)
        assert (held.done(), free.done()) == (False, True)
        assert bench.poll() == []
        assert bench.now_ms < bench.next_poll_ms <= bench.now_ms + TICK_MS
    (request,) = bench.poll(after_ms=TICK_MS)
    bench.respond(request)
    assert held.done()


def test_a_held_batch_does_not_keep_others_from_expiring() -> None:
    bench = SenderBench(leaders=(None, None), delivery_timeout_ms=1_000)
    held, free = bench.send(partition=0), bench.send(partition=1)
    with bench.accumulator._topics.get("t").queues[0].lock:  # type: ignore[union-attr]
        bench.poll(after_ms=2_000)
        assert (held.done(), free.done()) == (False, True)
        assert bench.next_poll_ms > bench.now_ms
    bench.poll(after_ms=TICK_MS)
    assert held.done()


class Watched(deque[Any]):
    """A deque that calls a function when its length is read."""

    def __init__(self, on_look: Callable[[], None]) -> None:
        super().__init__()
        self._on_look = on_look

    def __bool__(self) -> bool:
        self._on_look()
        return len(self) > 0


@pytest.mark.promise("`flush` waits for every record sent before it")
def test_flush_waits_for_what_its_thread_sent_before_whenever_the_sender_looks(
    producer: ScriptedProducer,
) -> None:
    operation: Operation[None] = Operation()
    deliveries: list[Delivery[RecordMetadata]] = []

    def another_thread() -> None:
        """Send and flush, after the sender has taken the new batches out of its mailbox."""
        if not deliveries:
            deliveries.append(producer.send("t", b"v", partition=1))
            producer.core.accumulator.flush(operation)

    producer.core.accumulator._mailbox.sealed = Watched(another_thread)
    producer.turn()
    assert deliveries
    for _ in range(20):
        producer.turn()
        assert operation.is_done == deliveries[0].done()
    assert operation.is_done
