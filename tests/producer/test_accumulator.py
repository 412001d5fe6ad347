"""RecordAccumulator: which batches are ready, drained and reenqueued."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient.accel.key_rule import MURMUR2
from pykclient.errors import ClosedError, DeliveryTimeoutError
from pykclient.network.cluster.cluster import Cluster, TopicInfo
from pykclient.network.manager import Operation
from pykclient.producer.accumulator.accumulator import Flushes
from pykclient.producer.accumulator.append import CHUNK_BYTES, Blocked, Need
from pykclient.producer.accumulator.batch import Leader
from pykclient.producer.accumulator.buffer_pool import MemoryWaiter
from pykclient.producer.accumulator.queues import NO_LEADER, PartitionQueue
from pykclient.types import TopicPartition
from tests.producer.sender_bench import TOPIC, SenderBench
from tests.producer.test_batch import new_batch

if TYPE_CHECKING:
    from pykclient.producer.accumulator.batch import ProducerBatch


def values(batches: list[ProducerBatch]) -> list[list[bytes | None]]:
    return [[record[3] for record in batch._content.records()] for batch in batches]


def test_a_topic_without_partitions_stays_unknown() -> None:
    bench = SenderBench()
    bench.metadata.take_over(Cluster(topics=[TopicInfo("empty", bytes(16), False, ())]))
    assert bench.accumulator.partition_count("empty") is None


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


def test_a_batch_that_is_sent_before_older_ones_keeps_its_own_back_off() -> None:
    bench = SenderBench(leaders=(1,), batch_size=100)
    for number in range(2):
        bench.send(b"%d" % number * 50)
    first, second = (*bench.drain(), *bench.drain())

    def drain() -> list[ProducerBatch]:
        bench.accumulator.look(bench.now_ms)
        return bench.accumulator.drain(
            1, bench.now_ms, size_bytes_max=1_000, may_send=lambda batch: batch is second
        )

    for batch, pause_ms in ((second, 100), (first, 0)):
        batch.base_sequence = batch.serial[0]
        batch.on_retry(ClosedError("any"), bench.now_ms + pause_ms)
        bench.accumulator.on_request_ended(batch)
        bench.accumulator.requeue(batch)
        bench.accumulator.look_at(batch.partition, bench.now_ms)
    assert drain() == []
    bench.now_ms += 99
    assert drain() == []
    bench.now_ms += 1
    assert drain() == [second]


def test_a_batch_whose_response_comes_first_is_done() -> None:
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
    bench = SenderBench(leaders=(1,), linger_ms=1_000)
    bench.send()
    assert bench.drain() == []
    bench.accumulator.flush(Operation())
    (batch,) = bench.drain()
    batch.on_retry(ClosedError("any"), bench.now_ms + 100)
    bench.accumulator.on_request_ended(batch)
    bench.accumulator.requeue(batch)
    bench.accumulator.look_at(batch.partition, bench.now_ms)
    assert bench.drain() == []
    assert bench.accumulator.next_look_ms() == bench.now_ms + 100
    bench.lead(2)
    assert bench.drain(node_id=2) == [batch]


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


def test_a_thread_that_waits_for_memory_makes_every_batch_ready() -> None:
    bench = SenderBench(leaders=(1, 1), linger_ms=1_000, buffer_memory=2 * CHUNK_BYTES)
    for partition in (0, 1):
        bench.send(partition=partition)
    assert bench.drain() == []
    bench.pool.wait_for(MemoryWaiter(CHUNK_BYTES, lambda: None))
    bench.accumulator.want_memory()
    assert len(bench.drain()) == 2


def test_threads_and_a_sender_lose_no_record_and_keep_each_threads_order() -> None:
    """Eight threads append while this one drains, with real locks."""
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
    bench.respond(request, error_code=10)
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


@pytest.mark.promise("`flush` waits for every record sent before it")
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


def test_a_flush_without_a_waiting_call_is_dropped() -> None:
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


@pytest.fixture
def bench() -> SenderBench:
    return SenderBench(leaders=(1, 2))


def test_a_topic_is_known_with_its_partitions_while_the_cluster_has_it(bench: SenderBench) -> None:
    assert bench.accumulator.partition_count(TOPIC) == 2
    assert set(bench.fast_topics) == {TOPIC}
    before = bench.fast_topics[TOPIC]
    bench.forget_topic()
    assert bench.accumulator.partition_count(TOPIC) is None
    assert bench.fast_topics == {}
    bench.lead(1, 2, 3)
    assert bench.accumulator.partition_count(TOPIC) == 3
    assert bench.fast_topics[TOPIC].open == [None] * 3
    assert len(before.open) == 2  # which a `send` may be reading
    assert bench.fast_topics[TOPIC].key_rule == before.key_rule == MURMUR2


ROUND_ROBIN_VECTORS = Path(__file__).parents[1] / "golden" / "producer" / "round_robin.tsv"
"""Generated by Java's own class; see RoundRobinVectors.java beside it."""


def test_round_robin_chooses_the_partitions_that_java_chooses() -> None:
    """Goal: the counter continues when partitions are added, removed, or lose their leaders.

    Java's counter restarts after 2**31 records of a topic, ours after 2**32: that turn is short.
    """
    header, *rows = ROUND_ROBIN_VECTORS.read_text().splitlines()
    assert header == "led\tpartitions"
    assert len(rows) == 60
    bench = SenderBench(leaders=(1,), partitioner="round_robin")
    for row in rows:
        led, partitions = row.split("\t")
        bench.lead(*[1 if sign == "+" else None for sign in led])
        wanted = [int(partition) for partition in partitions.split(" ")]
        assert [bench.accumulator.next_choice(TOPIC) for _ in wanted] == wanted, row


def test_round_robin_has_no_choice_in_a_topic_that_is_gone() -> None:
    bench = SenderBench(leaders=(1, 1), partitioner="round_robin")
    bench.forget_topic()
    assert bench.accumulator.next_choice(TOPIC) == -1


def test_a_queue_has_the_leader_that_the_metadata_names_and_lists(bench: SenderBench) -> None:
    table = bench.accumulator._topics
    bench.lead(1, None)
    leaders = [table.queue(TopicPartition(TOPIC, number)).leader for number in range(3)]
    assert leaders == [Leader(1, 2), Leader(None, 2), NO_LEADER]
    cluster = bench.metadata.cluster
    bench.metadata.take_over(type(cluster)(topics=cluster.topics.values(), nodes=()))
    assert table.queue(TopicPartition(TOPIC, 0)).leader.node_id is None


def test_the_sticky_partition_is_always_one_that_there_is(bench: SenderBench) -> None:
    bench.lead(*[1] * 50)
    for count in (50, 3, 1, 7):
        bench.lead(*[1] * count)
        topic = bench.accumulator._topics.get(TOPIC)
        assert topic is not None
        assert 0 <= topic.sticky.partition < count


def test_a_topic_of_many_partitions_costs_queues_for_those_that_are_sent_to() -> None:
    bench = SenderBench(leaders=[1] * 20_000)
    topic = bench.accumulator._topics.get(TOPIC)
    assert topic is not None
    assert topic.used_queues() == []
    bench.send(b"v", partition=19_999)
    (request,) = bench.poll()
    assert request.node_id == 1
    assert [queue.key.partition for queue in topic.used_queues()] == [19_999]


def test_threads_that_need_the_same_queue_get_the_same_one() -> None:
    topic = SenderBench(leaders=[1] * 1_000).accumulator._topics.get(TOPIC)
    assert topic is not None
    queues = topic.queues
    barrier = threading.Barrier(4)

    def use() -> list[PartitionQueue]:
        barrier.wait()
        return [queues[number] for number in range(1_000)]

    with ThreadPoolExecutor(4) as threads:
        first, *others = [each.result() for each in [threads.submit(use) for _ in range(4)]]
    assert all(other == first for other in others)


def test_a_queue_made_while_the_leader_changed_goes_to_the_new_one(bench: SenderBench) -> None:
    # 1. A thread that sends looks up the partition's leader; 2. the sender thread learns of
    # another leader, with no queue to notify; 3. the thread puts its queue into the table.
    topic = bench.accumulator._topics.get(TOPIC)
    assert topic is not None
    queue = topic.queues[1]
    del topic.queues[1]
    bench.lead(1, 3)
    topic.queues[1] = queue
    bench.send(b"v", partition=1)
    (request,) = bench.poll()
    assert request.node_id == 3
