"""RecordAccumulator: what is ready, what is drained, and what comes back."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from pykclient.errors import ClosedError, DeliveryTimeoutError
from pykclient.network.cluster.cluster import Cluster, TopicInfo
from pykclient.network.manager import Operation
from pykclient.producer.accumulator.accumulator import Flushes
from pykclient.producer.accumulator.append import CHUNK_BYTES, Blocked, Need
from pykclient.producer.accumulator.buffer_pool import MemoryWaiter
from pykclient.types import TopicPartition
from tests.producer.sender_bench import TOPIC, SenderBench
from tests.producer.test_batch import new_batch

if TYPE_CHECKING:
    from pykclient.producer.accumulator.batch import ProducerBatch


def values(batches: list[ProducerBatch]) -> list[list[bytes | None]]:
    return [[record[3] for record in batch._content.records()] for batch in batches]


def test_a_topic_without_partitions_stays_unknown() -> None:
    bench = SenderBench()
    bench.learn(Cluster(topics=[TopicInfo("empty", bytes(16), False, ())]))
    assert bench.accumulator.partition_count("empty") is None


def test_slow_nodes_get_no_records_without_a_key_while_others_are_there() -> None:
    bench = SenderBench(leaders=[1, 2], batch_size=1)
    bench.accumulator.on_slow_nodes(frozenset({1}))
    bench.send(partition=None)
    bench.now_ms += 100
    for _ in range(20):
        delivery = bench.send(partition=None)
        assert delivery.batch.partition == TopicPartition(TOPIC, 1)  # type: ignore[union-attr]


def test_a_batch_waits_for_company_until_it_is_full_or_old_enough() -> None:
    bench = SenderBench(batch_size=1_000, linger_ms=5)
    bench.send(b"first")
    assert bench.drain() == []
    assert bench.accumulator.next_look_ms() == bench.now_ms + 5
    bench.now_ms += 4
    assert bench.drain() == []
    bench.now_ms += 1
    assert values(bench.drain()) == [[b"first"]]
    for _ in range(12):
        bench.send(bytes(90))
    (full,) = bench.drain()
    assert full.record_count == 9
    assert bench.drain() == []


def test_one_batch_per_partition_is_drained_at_a_time_and_no_partition_starves() -> None:
    bench = SenderBench(leaders=[1] * 3, batch_size=300)
    for partition in (0, 0, 0, 1, 1, 2):
        bench.send(bytes(200), partition=partition)
    order = []
    while batches := bench.drain(size_bytes_max=600):
        order.append([batch.partition.partition for batch in batches])
    assert order == [[0, 1], [2, 0], [1, 0]]


def test_the_first_batch_is_drained_whatever_its_size() -> None:
    bench = SenderBench()
    bench.send(bytes(5_000))
    assert [batch.record_count for batch in bench.drain(size_bytes_max=100)] == [1]


def test_each_node_gets_what_it_leads_and_nobody_what_has_no_leader() -> None:
    bench = SenderBench(leaders=(1, 2, None))
    for partition in range(3):
        bench.send(partition=partition)
    bench.accumulator.look(bench.now_ms)
    assert sorted(bench.accumulator.ready_node_ids()) == [1, 2]
    assert bench.accumulator.leaderless_topics() == {TOPIC}
    assert [b.partition.partition for b in bench.drain(2)] == [1]
    bench.lead(1, 2, 2)
    assert bench.accumulator.leaderless_topics() == set()
    assert [b.partition.partition for b in bench.drain(2)] == [2]


def test_what_may_not_be_sent_is_passed_over_until_it_is_looked_at_again() -> None:
    bench = SenderBench()
    bench.send()
    bench.accumulator.look(bench.now_ms)
    drained = bench.accumulator.drain(
        1, bench.now_ms, size_bytes_max=1_000, may_send=lambda _: False
    )
    assert drained == []
    assert bench.drain() == []
    bench.accumulator.look_at(TopicPartition(TOPIC, 0), bench.now_ms)
    assert len(bench.drain()) == 1


def test_a_batch_that_comes_back_goes_in_front_of_the_younger_ones() -> None:
    bench = SenderBench(batch_size=100)
    for number in range(4):
        bench.send(b"%d" % number * 50)
    first = bench.drain()[0]
    second = bench.drain()[0]
    for batch in (second, first):
        batch.on_retry(ClosedError("any"), bench.now_ms)
        bench.accumulator.on_request_ended(batch)
        bench.accumulator.requeue(batch)
        bench.accumulator.look_at(batch.partition, bench.now_ms)
    order = [bench.drain()[0].serial for _ in range(4)]
    assert order == sorted(order)


def test_a_batch_that_is_answered_before_it_was_looked_at_is_done() -> None:
    bench = SenderBench(batch_size=100)
    bench.send(bytes(60))
    bench.accumulator.look(bench.now_ms)
    bench.send(bytes(60))
    for _ in range(2):
        (batch,) = bench.accumulator.drain(
            1, bench.now_ms, size_bytes_max=1_000, may_send=lambda _: True
        )
        bench.accumulator.on_request_ended(batch)
        batch.succeed(1, None)
        bench.accumulator.finish(batch)
        bench.accumulator.on_reported(batch)
    bench.accumulator.look(bench.now_ms)
    assert bench.accumulator.is_empty


def test_a_retry_waits_for_its_time_unless_the_leader_changes() -> None:
    bench = SenderBench(leaders=(1,))
    bench.send()
    (batch,) = bench.drain()
    batch.on_retry(ClosedError("any"), bench.now_ms + 100)
    bench.accumulator.on_request_ended(batch)
    bench.accumulator.requeue(batch)
    bench.accumulator.look_at(batch.partition, bench.now_ms)
    assert bench.drain() == []
    assert bench.accumulator.next_look_ms() == bench.now_ms + 100
    bench.lead(2)
    assert bench.drain(node_id=2) == [batch]


def test_a_flush_makes_everything_ready_and_ends_when_all_is_told() -> None:
    bench = SenderBench(linger_ms=1_000)
    bench.send()
    ended: list[str] = []
    bench.accumulator.flush(_ending("early", ended))
    (batch,) = bench.drain()
    bench.send()
    batch.succeed(0, None)
    bench.accumulator.on_request_ended(batch)
    bench.accumulator.finish(batch)
    bench.accumulator.flush(_ending("late", ended))
    (second,) = bench.drain()
    assert ended == []
    bench.accumulator.on_reported(batch)
    assert ended == ["early"]
    second.succeed(1, None)
    bench.accumulator.finish(second)
    bench.accumulator.on_reported(second)
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
    assert values(bench.drain()) == [[b"there"]]


def test_withdrawing_takes_out_everything_but_what_is_in_flight() -> None:
    bench = SenderBench(leaders=(1, 1))
    bench.send(partition=0)
    (in_flight,) = bench.drain()
    bench.send(partition=0)
    bench.send(partition=1)
    bench.accumulator.close(ClosedError("closed"), bench.now_ms)
    withdrawn = bench.accumulator.withdraw_all(bench.now_ms)
    assert len(withdrawn) == 3
    assert in_flight in withdrawn
    assert bench.drain() == []


def test_overdue_batches_are_taken_out_the_oldest_first() -> None:
    bench = SenderBench(leaders=(1, 1, None), linger_ms=0, delivery_timeout_ms=100)
    bench.send(partition=0)
    (in_flight,) = bench.drain()
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
    assert [batch.partition.partition for batch in bench.drain()] == [1]


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
    assert sorted(batch.partition.partition for batch in bench.drain()) == [0, 1]


def test_somebody_who_waits_for_memory_makes_every_batch_ready() -> None:
    bench = SenderBench(leaders=(1, 1), linger_ms=1_000, buffer_memory=2 * CHUNK_BYTES)
    for partition in (0, 1):
        bench.send(partition=partition)
    assert bench.drain() == []
    bench.pool.wait_for(MemoryWaiter(CHUNK_BYTES, lambda: None))
    bench.accumulator.want_memory()
    assert len(bench.drain()) == 2


def test_threads_and_a_sender_lose_no_record_and_keep_each_threads_order() -> None:
    """Eight threads append while this one drains; the real locks are at work here."""
    bench = SenderBench(leaders=[1] * 3, batch_size=2_000, enable_idempotence=False)
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
        for batch in bench.drain():
            for *_, value, _ in batch._content.records():
                assert value is not None
                number, index = map(int, value.split())
                seen[number].append(index)
            batch.succeed(0, None)
            bench.accumulator.finish(batch)
            bench.accumulator.on_request_ended(batch)
            bench.accumulator.on_reported(batch)
    done.wait(timeout=60)
    for thread in threads:
        thread.join()
    assert all(indexes == list(range(count)) for indexes in seen.values())
    assert bench.pool.free_bytes == bench.pool.size_bytes
    bench.accumulator.look(bench.now_ms)
    assert bench.accumulator.is_empty


def test_parts_of_a_split_batch_do_not_hide_that_older_ones_are_overdue() -> None:
    bench = SenderBench(leaders=(None, 1), batch_size=1_000, delivery_timeout_ms=10_000)
    oldest = bench.send(partition=0)
    bench.poll(after_ms=4_000)
    young = [bench.send(partition=1) for _ in range(2)]
    (request,) = bench.poll()
    bench.answer(request, error_code=10)
    assert bench.accumulator.next_look_ms() <= 11_000
    (request,) = bench.poll(after_ms=6_000)
    assert isinstance(oldest.exception(0), DeliveryTimeoutError)
    assert not young[0].done()
    bench.poll(after_ms=4_000)
    bench.poll()  # in between, what has arrived was read
    assert isinstance(young[1].exception(0), DeliveryTimeoutError)


# Flushes: which batches each one waits for, and how it ends.


def wanted(flushes: Flushes) -> Operation[None]:
    operation: Operation[None] = Operation()
    flushes.want(operation)
    return operation


def test_a_flush_of_nothing_ends_at_once() -> None:
    flushes = Flushes()
    operation = wanted(flushes)
    flushes.begin(flushes.take_wanted(), ())
    assert operation.is_done
    assert operation.error is None


@pytest.mark.promise("`flush` waits for every record that was sent before it")
def test_a_flush_waits_for_the_batches_of_its_moment_only() -> None:
    flushes = Flushes()
    first, second, later = (new_batch(1) for _ in range(3))
    operation = wanted(flushes)
    flushes.begin(flushes.take_wanted(), [first, second])
    flushes.on_done(later)
    flushes.on_done(second)
    assert not operation.is_done
    flushes.on_done(first)
    assert operation.is_done


@pytest.mark.promise("a flush that timed out leaves nothing behind")
def test_a_flush_that_nobody_waits_for_is_forgotten() -> None:
    flushes = Flushes()
    batch = new_batch(1)
    forgotten, awaited = wanted(flushes), wanted(flushes)
    flushes.begin(flushes.take_wanted(), [batch])
    flushes.forget(forgotten)
    flushes.on_done(batch)
    assert (forgotten.is_done, awaited.is_done) == (False, True)


def test_a_failure_ends_all_flushes_those_to_come_as_well() -> None:
    flushes = Flushes()
    under_way = wanted(flushes)
    flushes.begin(flushes.take_wanted(), [new_batch(1)])
    early = wanted(flushes)
    flushes.fail(ClosedError("closed"))
    for operation in (under_way, early, wanted(flushes)):
        with pytest.raises(ClosedError):
            operation.result()
