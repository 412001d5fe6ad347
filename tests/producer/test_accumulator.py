"""RecordAccumulator: where records go, what is ready, what is drained, and whose memory it is."""

from __future__ import annotations

import threading

import pytest

from pykclient.accel import Delivery
from pykclient.errors import ClosedError, SerializationError
from pykclient.network.cluster import Cluster, TopicInfo
from pykclient.network.manager import Operation
from pykclient.producer.accumulator import CHUNK_BYTES, Blocked, Need
from pykclient.producer.batch import BatchState, ProducerBatch
from pykclient.producer.buffer_pool import MemoryWaiter
from pykclient.producer.partitioner import partition_for_key
from pykclient.producer.record import SerializedRecord
from pykclient.types import TopicPartition
from tests.producer.sender_bench import TOPIC, SenderBench


def drain(bench: SenderBench, node_id: int = 1, size_bytes_max: int = 10**6) -> list[ProducerBatch]:
    """Look, and take what is ready for a node."""
    bench.accumulator.look(bench.now_ms)
    return bench.accumulator.drain(
        node_id, bench.now_ms, size_bytes_max=size_bytes_max, may_send=lambda _: True
    )


def values(batches: list[ProducerBatch]) -> list[list[bytes | None]]:
    return [list(batch._content.records().values) for batch in batches]


def test_an_unknown_topic_and_an_unknown_partition_wait_for_metadata() -> None:
    bench = SenderBench(leaders=(1, 1))
    assert bench.append(partition=2) == Blocked(Need.METADATA)
    bench.forget_topic()
    assert bench.append() == Blocked(Need.METADATA)
    bench.lead(1, 1, 1)
    assert isinstance(bench.append(partition=2), Delivery)


def test_a_topic_without_partitions_stays_unknown() -> None:
    bench = SenderBench()
    bench.learn(Cluster(topics=[TopicInfo("empty", bytes(16), False, ())]))
    assert bench.accumulator.partition_count("empty") is None


def test_a_key_decides_the_partition_and_an_explicit_one_beats_it() -> None:
    bench = SenderBench(leaders=[1] * 6)
    keyed = bench.send(key=b"UA", partition=None)
    explicit = bench.send(key=b"UA", partition=0)
    batches = {batch.partition.partition: batch for batch in drain(bench)}
    assert batches[partition_for_key(b"UA", 6)].outcome is keyed.batch
    assert batches[0].outcome is explicit.batch


def test_records_without_a_key_stick_to_one_partition_and_then_to_another() -> None:
    bench = SenderBench(leaders=[1] * 6, batch_size_bytes=1_000, linger_ms=5)
    taken: list[int] = []
    for _ in range(600):
        delivery = bench.send(bytes(90), partition=None)
        assert delivery.batch is not None
        taken.append(delivery.batch.partition.partition)  # type: ignore[attr-defined]
    turns = [taken[0]]
    for partition in taken:
        if partition != turns[-1]:
            turns.append(partition)
    # A batch holds 9 records; now and then a partition is drawn twice in a row.
    assert 0.7 * 600 / 9 < len(turns) < 600 / 9
    assert set(taken) == set(range(6))


def test_lingering_batches_do_not_end_a_turn_before_it_has_had_its_bytes() -> None:
    bench = SenderBench(leaders=[1] * 50, batch_size_bytes=1_000)
    partitions = set()
    for _ in range(5):
        bench.send(bytes(20), partition=None)
        (batch,) = drain(bench)
        partitions.add(batch.partition)
    assert len(partitions) == 1


def test_a_partition_that_loses_its_leader_gets_no_more_records_without_a_key() -> None:
    bench = SenderBench(leaders=[1] * 4)
    bench.send(partition=None)
    (batch,) = drain(bench)
    leaders: list[int | None] = [1] * 4
    leaders[batch.partition.partition] = None
    bench.lead(*leaders)
    for _ in range(20):
        bench.send(partition=None)
        assert all(other.partition != batch.partition for other in drain(bench))


def test_slow_nodes_get_no_records_without_a_key_while_others_are_there() -> None:
    bench = SenderBench(leaders=[1, 2], batch_size_bytes=1)
    bench.accumulator.on_slow_nodes(frozenset({1}))
    bench.send(partition=None)
    bench.now_ms += 100
    for _ in range(20):
        delivery = bench.send(partition=None)
        assert delivery.batch.partition == TopicPartition(TOPIC, 1)  # type: ignore[union-attr]


def test_a_batch_waits_for_company_until_it_is_full_or_old_enough() -> None:
    bench = SenderBench(batch_size_bytes=1_000, linger_ms=5)
    bench.send(b"first")
    assert drain(bench) == []
    assert bench.accumulator.next_look_ms() == bench.now_ms + 5
    bench.now_ms += 4
    assert drain(bench) == []
    bench.now_ms += 1
    assert values(drain(bench)) == [[b"first"]]
    for _ in range(12):
        bench.send(bytes(90))
    (full,) = drain(bench)
    assert full.record_count == 9
    assert drain(bench) == []


def test_one_batch_per_partition_is_drained_at_a_time_and_no_partition_starves() -> None:
    bench = SenderBench(leaders=[1] * 3, batch_size_bytes=300)
    for partition in (0, 0, 0, 1, 1, 2):
        bench.send(bytes(200), partition=partition)
    order = []
    while batches := drain(bench, size_bytes_max=600):
        order.append([batch.partition.partition for batch in batches])
    assert order == [[0, 1], [2, 0], [1, 0]]


def test_the_first_batch_is_drained_whatever_its_size() -> None:
    bench = SenderBench()
    bench.send(bytes(5_000))
    assert [batch.record_count for batch in drain(bench, size_bytes_max=100)] == [1]


def test_each_node_gets_what_it_leads_and_nobody_what_has_no_leader() -> None:
    bench = SenderBench(leaders=(1, 2, None))
    for partition in range(3):
        bench.send(partition=partition)
    bench.accumulator.look(bench.now_ms)
    assert sorted(bench.accumulator.ready_node_ids()) == [1, 2]
    assert bench.accumulator.leaderless_topics() == {TOPIC}
    assert [b.partition.partition for b in drain(bench, 2)] == [1]
    bench.lead(1, 2, 2)
    assert bench.accumulator.leaderless_topics() == set()
    assert [b.partition.partition for b in drain(bench, 2)] == [2]


def test_what_may_not_be_sent_is_passed_over_until_it_is_looked_at_again() -> None:
    bench = SenderBench()
    bench.send()
    bench.accumulator.look(bench.now_ms)
    drained = bench.accumulator.drain(
        1, bench.now_ms, size_bytes_max=1_000, may_send=lambda _: False
    )
    assert drained == []
    assert drain(bench) == []
    bench.accumulator.look_at(TopicPartition(TOPIC, 0), bench.now_ms)
    assert len(drain(bench)) == 1


def test_a_batch_that_comes_back_goes_in_front_of_the_younger_ones() -> None:
    bench = SenderBench(batch_size_bytes=100)
    for number in range(4):
        bench.send(b"%d" % number * 50)
    first = drain(bench)[0]
    second = drain(bench)[0]
    for batch in (second, first):
        batch.on_retry(ClosedError("any"), bench.now_ms)
        bench.accumulator.on_request_ended(batch)
        bench.accumulator.requeue(batch)
        bench.accumulator.look_at(batch.partition, bench.now_ms)
    order = [drain(bench)[0].serial for _ in range(4)]
    assert order == sorted(order)


def test_a_retry_waits_for_its_time_unless_the_leader_changes() -> None:
    bench = SenderBench(leaders=(1,))
    bench.send()
    (batch,) = drain(bench)
    batch.on_retry(ClosedError("any"), bench.now_ms + 100)
    bench.accumulator.on_request_ended(batch)
    bench.accumulator.requeue(batch)
    bench.accumulator.look_at(batch.partition, bench.now_ms)
    assert drain(bench) == []
    assert bench.accumulator.next_look_ms() == bench.now_ms + 100
    bench.lead(2)
    assert drain(bench, node_id=2) == [batch]


def test_a_flush_makes_everything_ready_and_ends_when_all_is_told() -> None:
    bench = SenderBench(linger_ms=1_000)
    bench.send()
    ended: list[str] = []
    bench.accumulator.flush(_ending("early", ended))
    (batch,) = drain(bench)
    bench.send()
    batch.succeed(0, None)
    bench.accumulator.on_request_ended(batch)
    bench.accumulator.finish(batch)
    bench.accumulator.flush(_ending("late", ended))
    (second,) = drain(bench)
    assert ended == []
    bench.accumulator.on_told(batch)
    assert ended == ["early"]
    second.succeed(1, None)
    bench.accumulator.finish(second)
    bench.accumulator.on_told(second)
    assert ended == ["early", "late"]


def _ending(name: str, ended: list[str]) -> Operation[None]:
    operation: Operation[None] = Operation()
    operation.on_done(lambda _: ended.append(name))
    return operation


def test_closing_refuses_what_comes_and_sends_what_is_there() -> None:
    bench = SenderBench(leaders=(1, 1), linger_ms=1_000)
    bench.send(b"there", partition=0)
    bench.accumulator.close(ClosedError("closed"), bench.now_ms)
    assert bench.fast_topics == {}
    for partition in (0, 1):
        with pytest.raises(ClosedError):
            bench.append(partition=partition)
    bench.lead(1, 1, 1)
    assert bench.fast_topics == {}
    with pytest.raises(ClosedError):
        bench.append(partition=2)
    assert values(drain(bench)) == [[b"there"]]


def test_withdrawing_takes_out_everything_but_what_is_in_flight() -> None:
    bench = SenderBench(leaders=(1, 1))
    bench.send(partition=0)
    (in_flight,) = drain(bench)
    bench.send(partition=0)
    bench.send(partition=1)
    bench.accumulator.close(ClosedError("closed"), bench.now_ms)
    withdrawn = bench.accumulator.withdraw_all(bench.now_ms)
    assert len(withdrawn) == 3
    assert in_flight in withdrawn
    assert drain(bench) == []


def test_overdue_batches_are_taken_out_the_oldest_first() -> None:
    bench = SenderBench(leaders=(1, 1, None), linger_ms=0, delivery_timeout_ms=100)
    bench.send(partition=0)
    (in_flight,) = drain(bench)
    bench.now_ms += 10
    bench.send(partition=2)
    bench.now_ms += 10
    bench.send(partition=1)
    bench.accumulator.look(bench.now_ms)
    assert bench.accumulator.next_look_ms() == bench.now_ms + 80
    bench.now_ms += 90
    overdue = bench.accumulator.overdue(bench.now_ms)
    assert [batch.partition.partition for batch in overdue] == [0, 2]
    assert overdue[0] is in_flight
    assert bench.accumulator.leaderless_topics() == set()
    assert [batch.partition.partition for batch in drain(bench)] == [1]


def test_a_topic_that_shrinks_keeps_what_waits_and_takes_nothing_new_there() -> None:
    bench = SenderBench(leaders=(1, 1))
    bench.send(partition=1)
    bench.lead(1)
    assert bench.append(partition=1) == Blocked(Need.METADATA)
    for _ in range(10):
        assert bench.send(partition=None).batch.partition.partition == 0  # type: ignore[union-attr]
    bench.accumulator.look(bench.now_ms)
    assert bench.accumulator.leaderless_topics() == {TOPIC}
    bench.lead(1, 1)
    assert sorted(batch.partition.partition for batch in drain(bench)) == [0, 1]


# Memory.


def test_a_batch_reserves_chunks_as_it_grows_and_gives_all_of_it_back() -> None:
    bench = SenderBench(batch_size_bytes=100_000, linger_ms=1_000)
    reserved = []
    for _ in range(90):
        bench.send(bytes(1_000))
        reserved.append(bench.pool.size_bytes - bench.pool.free_bytes)
    assert reserved[0] == CHUNK_BYTES
    assert sorted(set(reserved)) == [CHUNK_BYTES, 2 * CHUNK_BYTES, 4 * CHUNK_BYTES, 100_000]
    bench.now_ms += 1_000
    (batch,) = drain(bench)
    batch.succeed(0, None)
    bench.accumulator.finish(batch)
    assert bench.pool.free_bytes < bench.pool.size_bytes  # the request still carries it
    bench.accumulator.on_request_ended(batch)
    assert bench.pool.free_bytes == bench.pool.size_bytes


def test_a_record_larger_than_a_batch_gets_a_batch_of_its_own() -> None:
    bench = SenderBench(batch_size_bytes=1_000)
    bench.send(bytes(50))
    bench.send(bytes(5_000))
    bench.send(bytes(50))
    assert [drain(bench)[0].record_count for _ in range(3)] == [1, 1, 1]


def test_a_batch_that_cannot_grow_is_sent_and_the_record_waits_for_memory() -> None:
    bench = SenderBench(batch_size_bytes=60_000, linger_ms=1_000, buffer_memory=20_000)
    for _ in range(16):
        bench.send(bytes(1_000))
    blocked = bench.append(bytes(1_000))
    assert isinstance(blocked, Blocked)
    assert blocked == Blocked(Need.MEMORY, CHUNK_BYTES)
    assert [batch.state for batch in drain(bench)] == [BatchState.IN_FLIGHT]


def test_somebody_who_waits_for_memory_makes_every_batch_ready() -> None:
    bench = SenderBench(leaders=(1, 1), linger_ms=1_000, buffer_memory=2 * CHUNK_BYTES)
    for partition in (0, 1):
        bench.send(partition=partition)
    assert drain(bench) == []
    bench.pool.wait_for(MemoryWaiter(CHUNK_BYTES, lambda: None))
    bench.accumulator.want_memory()
    assert len(drain(bench)) == 2


def test_memory_that_was_waited_for_starts_a_batch_or_goes_back() -> None:
    bench = SenderBench(leaders=(1, 1), linger_ms=1_000)
    record = bench.send(partition=0)
    assert isinstance(record, Delivery)
    waiter = MemoryWaiter(CHUNK_BYTES, lambda: None)
    bench.pool.wait_for(waiter)
    there = SerializedRecord(TOPIC, b"v", None, 0, 0, (), None)
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
    assert drain(bench) == []


# Finding appenders, and waking the sender.


def test_send_finds_the_open_batch_until_it_is_drained() -> None:
    bench = SenderBench(leaders=(1, 1))
    appenders = bench.fast_topics[TOPIC]
    assert appenders.open == [None, None]
    keyless = bench.send(partition=None)
    partition = keyless.batch.partition.partition  # type: ignore[union-attr]
    assert appenders.sticky is appenders.open[partition]
    assert appenders.sticky is not None
    assert appenders.sticky.append(0, None, b"fast") is not None
    assert [batch.record_count for batch in drain(bench)] == [2]
    assert appenders.open == [None, None]
    assert appenders.sticky.append(0, None, b"too late") is None


def test_the_sender_is_woken_once_and_only_for_what_it_would_not_see_in_time() -> None:
    bench = SenderBench(leaders=(1, 1), batch_size_bytes=500, linger_ms=10)
    bench.accumulator.look(bench.now_ms)
    bench.send(partition=0)
    assert bench.wakeup_count == 1  # a first batch: nobody knows of its deadline
    bench.send(partition=1)
    assert bench.wakeup_count == 1  # it has been woken already
    bench.accumulator.look(bench.now_ms)
    drain(bench)
    bench.now_ms += 3
    bench.send(bytes(400), partition=0)
    assert bench.wakeup_count == 1  # it will look at the first deadline, which is earlier
    bench.send(bytes(400), partition=0)
    assert bench.wakeup_count == 2  # a full batch does not wait


def test_threads_and_a_sender_lose_no_record_and_keep_each_threads_order() -> None:
    """Eight threads append while this one drains; the real locks are at work here."""
    bench = SenderBench(leaders=[1] * 3, batch_size_bytes=2_000, is_idempotent=False)
    count, thread_count = 2_000, 8
    done = threading.Barrier(thread_count + 1)

    def work(number: int) -> None:
        for index in range(count):
            bench.send(b"%d %d" % (number, index), partition=number % 3)
        done.wait(timeout=60)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(thread_count)]
    for thread in threads:
        thread.start()
    seen: dict[int, list[int]] = {number: [] for number in range(thread_count)}
    while sum(map(len, seen.values())) < count * thread_count:
        for batch in drain(bench):
            for value in batch._content.records().values:
                assert value is not None
                number, index = map(int, value.split())
                seen[number].append(index)
            batch.succeed(0, None)
            bench.accumulator.finish(batch)
            bench.accumulator.on_request_ended(batch)
            bench.accumulator.on_told(batch)
    done.wait(timeout=60)
    for thread in threads:
        thread.join()
    assert all(indexes == list(range(count)) for indexes in seen.values())
    assert bench.pool.free_bytes == bench.pool.size_bytes
    bench.accumulator.look(bench.now_ms)
    assert bench.accumulator.is_empty
