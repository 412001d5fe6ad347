"""OpenBatches: which partition a record goes to, how batches grow, and what a record waits for."""

from __future__ import annotations

import pytest

from pykclient.accel import Delivery, partition_of_key
from pykclient.errors import SerializationError
from pykclient.producer.accumulator.append import CHUNK_BYTES, Blocked, Need, SenderMailbox
from pykclient.producer.accumulator.batch import BatchState
from pykclient.producer.accumulator.buffer_pool import MemoryWaiter
from pykclient.producer.record import SerializedRecord
from tests.producer.sender_bench import TOPIC, SenderBench


def test_an_unknown_topic_and_an_unknown_partition_wait_for_metadata() -> None:
    bench = SenderBench(leaders=(1, 1))
    assert bench.append(partition=2) == Blocked(Need.METADATA)
    bench.forget_topic()
    assert bench.append() == Blocked(Need.METADATA)
    bench.lead(1, 1, 1)
    assert isinstance(bench.append(partition=2), Delivery)


def test_a_key_decides_the_partition_and_an_explicit_one_beats_it() -> None:
    bench = SenderBench(leaders=[1] * 6)
    keyed = bench.send(key=b"UA", partition=None)
    explicit = bench.send(key=b"UA", partition=0)
    batches = {batch.partition.partition: batch for batch in bench.drain()}
    assert batches[partition_of_key(b"UA", 6)].result is keyed.batch
    assert batches[0].result is explicit.batch


def test_records_without_a_key_stick_to_one_partition_and_then_to_another() -> None:
    bench = SenderBench(leaders=[1] * 6, batch_size=1_000, linger_ms=5)
    taken: list[int] = []
    for _ in range(600):
        delivery = bench.send(bytes(90), partition=None)
        assert delivery.batch is not None
        taken.append(delivery.batch.partition.partition)  # type: ignore[attr-defined]
    turns = [taken[0]]
    for partition in taken:
        if partition != turns[-1]:
            turns.append(partition)
    # A batch holds 9 records; sometimes a partition is drawn twice in a row.
    assert 0.7 * 600 / 9 < len(turns) < 600 / 9
    assert set(taken) == set(range(6))


def test_lingering_batches_do_not_end_a_turn_before_it_has_had_its_bytes() -> None:
    bench = SenderBench(leaders=[1] * 50, batch_size=1_000)
    partitions = set()
    for _ in range(5):
        bench.send(bytes(20), partition=None)
        (batch,) = bench.drain()
        partitions.add(batch.partition)
    assert len(partitions) == 1


def test_turns_of_rows_that_are_divided_first_are_those_of_send() -> None:
    bench = SenderBench(leaders=[1] * 50, batch_size=1_000, linger_ms=1_000)
    first, room_bytes = bench.accumulator.take_turn(TOPIC, 0)
    assert room_bytes == 1_000
    assert bench.accumulator.take_turn(TOPIC, 400) == (first, 600)
    delivery = bench.send(bytes(20), partition=None)
    assert delivery.batch is not None
    assert delivery.batch.partition.partition == first  # type: ignore[attr-defined]
    second, room_bytes = bench.accumulator.take_turn(TOPIC, 600)
    assert (second != first, room_bytes) == (True, 1_000)
    delivery = bench.send(bytes(20), partition=None)
    assert delivery.batch is not None
    assert delivery.batch.partition.partition == second  # type: ignore[attr-defined]


def test_a_topic_that_is_gone_has_no_turns_and_waits_when_it_is_appended_to() -> None:
    bench = SenderBench(batch_size=1_000)
    bench.forget_topic()
    assert bench.accumulator.take_turn(TOPIC, 5) == (0, 1_000)


def test_a_partition_that_loses_its_leader_gets_no_more_records_without_a_key() -> None:
    bench = SenderBench(leaders=[1] * 4)
    bench.send(partition=None)
    (batch,) = bench.drain()
    leaders: list[int | None] = [1] * 4
    leaders[batch.partition.partition] = None
    bench.lead(*leaders)
    for _ in range(20):
        bench.send(partition=None)
        assert all(other.partition != batch.partition for other in bench.drain())


@pytest.mark.promise("the producer's memory is bounded")
def test_a_batch_reserves_chunks_as_it_grows_and_gives_all_of_it_back() -> None:
    bench = SenderBench(batch_size=100_000, linger_ms=1_000)
    reserved = []
    for _ in range(90):
        bench.send(bytes(1_000))
        reserved.append(bench.pool.size_bytes - bench.pool.free_bytes)
    assert reserved[0] == CHUNK_BYTES
    assert sorted(set(reserved)) == [CHUNK_BYTES, 2 * CHUNK_BYTES, 4 * CHUNK_BYTES, 100_000]
    bench.now_ms += 1_000
    (batch,) = bench.drain()
    batch.succeed(0, None)
    bench.accumulator.finish(batch)
    assert bench.pool.free_bytes < bench.pool.size_bytes  # the request still carries it
    bench.accumulator.on_request_ended(batch)
    assert bench.pool.free_bytes == bench.pool.size_bytes


def test_a_record_larger_than_a_batch_gets_a_batch_of_its_own() -> None:
    bench = SenderBench(batch_size=1_000)
    bench.send(bytes(50))
    bench.send(bytes(5_000))
    bench.send(bytes(50))
    assert [bench.drain()[0].record_count for _ in range(3)] == [1, 1, 1]


def test_a_batch_that_cannot_grow_is_sent_and_the_record_waits_for_memory() -> None:
    bench = SenderBench(batch_size=60_000, linger_ms=1_000, buffer_memory=20_000)
    for _ in range(16):
        bench.send(bytes(1_000))
    blocked = bench.append(bytes(1_000))
    assert isinstance(blocked, Blocked)
    assert blocked == Blocked(Need.MEMORY, CHUNK_BYTES)
    assert [batch.state for batch in bench.drain()] == [BatchState.IN_FLIGHT]


def test_memory_that_was_waited_for_starts_a_batch_or_goes_back() -> None:
    bench = SenderBench(leaders=(1, 1), linger_ms=1_000)
    record = bench.send(partition=0)
    assert isinstance(record, Delivery)
    waiter = MemoryWaiter(CHUNK_BYTES, lambda: None)
    bench.pool.wait_for(waiter)
    there = SerializedRecord(TOPIC, b"v", None, 0, 0, (), None, 100)
    assert isinstance(bench.accumulator.append(there, waiter), Delivery)
    assert waiter.size_bytes == CHUNK_BYTES  # the open batch had room
    new = there._replace(partition=1)
    assert isinstance(bench.accumulator.append(new, waiter), Delivery)
    bench.pool.give_up(waiter)
    assert bench.pool.size_bytes - bench.pool.free_bytes == 2 * CHUNK_BYTES


def test_a_record_that_cannot_be_written_leaves_no_batch_and_no_memory_behind() -> None:
    bench = SenderBench()
    with pytest.raises(SerializationError):
        bench.send("text")  # type: ignore[arg-type]
    assert bench.pool.free_bytes == bench.pool.size_bytes
    assert bench.accumulator.is_empty
    assert bench.drain() == []


def test_send_finds_the_open_batch_until_it_is_drained() -> None:
    bench = SenderBench(leaders=(1, 1))
    appenders = bench.fast_topics[TOPIC]
    assert appenders.open == [None, None]
    keyless = bench.send(partition=None)
    partition = keyless.batch.partition.partition  # type: ignore[union-attr]
    assert appenders.sticky is appenders.open[partition]
    assert appenders.sticky is not None
    assert appenders.sticky.append(0, None, b"fast") is not None
    assert [batch.record_count for batch in bench.drain()] == [2]
    assert appenders.open == [None, None]
    assert appenders.sticky is None


# SenderMailbox: which append wakes the sender, and which need not.


def test_the_sender_is_woken_once_and_only_for_what_it_would_not_send_in_time() -> None:
    bench = SenderBench(leaders=(1, 1), batch_size=500, linger_ms=10)
    bench.accumulator.look(bench.now_ms)
    bench.send(partition=0)
    assert bench.wakeup_count == 1  # a first batch: its deadline is known to no thread
    bench.send(partition=1)
    assert bench.wakeup_count == 1  # it has been woken already
    bench.accumulator.look(bench.now_ms)
    bench.drain()
    bench.now_ms += 3
    bench.send(bytes(400), partition=0)
    assert bench.wakeup_count == 1  # it will look at the first deadline, which is earlier
    bench.send(bytes(400), partition=0)
    assert bench.wakeup_count == 2  # a full batch does not wait


def test_what_interrupts_a_wake_up_wakes_the_sender_itself() -> None:
    """A signal handler that flushes here waits for the sender, which no other thread wakes."""
    wakeups: list[str] = []

    def wakeup() -> None:
        if not wakeups:
            wakeups.append("handler")
            mailbox.wake(0)
        wakeups.append("woken")

    mailbox = SenderMailbox(wakeup)
    mailbox.wake(0)
    assert wakeups == ["handler", "woken", "woken"]
    mailbox.wake(0)
    assert wakeups.count("woken") == 2  # nothing was interrupted: once is enough
