"""BufferPool: how much is reserved, which calls wait, and in which order they are served."""

from __future__ import annotations

import threading
from random import Random
from typing import TYPE_CHECKING

import pytest

from pykclient.producer.accumulator.batch import Leader
from pykclient.producer.accumulator.buffer_pool import BufferPool, MemoryWaiter
from tests.producer.test_batch import new_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.producer.accumulator.batch import ProducerBatch


@pytest.fixture
def pool() -> BufferPool:
    return BufferPool(100)


def holder(reserved_bytes: int = 0) -> ProducerBatch:
    """Return a batch that has reserved bytes."""
    batch = new_batch(1)
    batch.reserved_bytes = reserved_bytes
    return batch


def reserved(pool: BufferPool, size_bytes: int) -> bool:
    """Try to reserve bytes for a new caller."""
    batch = holder()
    is_there = pool.try_reserve(size_bytes, batch)
    assert batch.reserved_bytes == (size_bytes if is_there else 0)
    return is_there


def waiting(
    pool: BufferPool, size_bytes: int, on_granted: Callable[[], None] = lambda: None
) -> MemoryWaiter:
    """Queue up for bytes."""
    waiter = MemoryWaiter(size_bytes, on_granted)
    pool.wait_for(waiter)
    return waiter


def taken(pool: BufferPool, waiter: MemoryWaiter) -> int:
    """Return a waiter's grant, and reset it."""
    batch = holder()
    pool.hand_to(waiter, batch)
    return batch.reserved_bytes


def test_memory_is_limited_and_comes_back(pool: BufferPool) -> None:
    assert reserved(pool, 60)
    assert not reserved(pool, 41)
    assert reserved(pool, 40)
    assert pool.free_bytes == 0
    pool.release(holder(60))
    assert reserved(pool, 60)


def test_giving_back_more_than_was_taken_is_our_mistake(pool: BufferPool) -> None:
    with pytest.raises(AssertionError, match="twice"):
        pool.release(holder(1))


def test_the_parts_of_a_batch_have_what_they_need_and_the_batch_keeps_the_rest() -> None:
    pool = BufferPool(5_000)
    batch = new_batch(4, reserved_bytes=5_000)
    assert reserved(pool, 5_000)
    batch.seal()
    batch.on_sent(Leader(1, 1))
    parts = first, second = batch.split(threading.Lock())
    pool.divide(batch, parts)
    assert [part.reserved_bytes for part in parts] == [first.size_bytes, second.size_bytes]
    assert batch.reserved_bytes == 5_000 - first.size_bytes - second.size_bytes
    assert pool.free_bytes == 0


def test_waiters_are_served_in_order_and_a_small_one_does_not_pass_a_large_one(
    pool: BufferPool,
) -> None:
    assert reserved(pool, 100)
    granted: list[str] = []
    large = waiting(pool, 80, lambda: granted.append("large"))
    small = waiting(pool, 10, lambda: granted.append("small"))
    pool.release(holder(50))
    assert granted == []
    pool.release(holder(40))
    assert granted == ["large", "small"]
    assert (taken(pool, large), taken(pool, small)) == (80, 10)
    assert pool.free_bytes == 0


def test_a_reservation_does_not_overtake_those_that_wait(pool: BufferPool) -> None:
    assert reserved(pool, 60)
    waiter = waiting(pool, 70)
    assert not reserved(pool, 10)
    pool.give_up(waiter)
    assert reserved(pool, 10)


def test_giving_up_lets_the_next_one_have_its_turn(pool: BufferPool) -> None:
    assert reserved(pool, 60)
    granted: list[str] = []
    first = waiting(pool, 70, lambda: granted.append("first"))
    waiting(pool, 40, lambda: granted.append("second"))
    pool.give_up(first)
    assert granted == ["second"]


def test_what_was_granted_and_not_taken_goes_back_on_giving_up(pool: BufferPool) -> None:
    waiter = waiting(pool, 100)
    assert waiter.is_granted
    pool.give_up(waiter)
    assert pool.free_bytes == 100


def test_closing_sends_everybody_away_with_nothing(pool: BufferPool) -> None:
    assert reserved(pool, 100)
    woken: list[str] = []
    early = waiting(pool, 10, lambda: woken.append("early"))
    pool.close()
    late = waiting(pool, 10, lambda: woken.append("late"))
    assert woken == ["early", "late"]
    assert not early.is_granted
    assert not late.is_granted
    pool.give_up(early)
    pool.give_up(late)
    assert pool.free_bytes == 0


def test_waiting_for_more_than_there_is_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="never be granted"):
        waiting(BufferPool(100), 101)


@pytest.mark.promise("the producer's memory is bounded")
@pytest.mark.parametrize("seed", range(20))
def test_random_use_keeps_the_sum_of_all_reservations(seed: int) -> None:
    random = Random(seed)
    pool = BufferPool(1_000)
    held: list[int] = []
    queued: list[MemoryWaiter] = []
    for _ in range(500):
        size_bytes = random.randrange(1, 400)
        drawn = random.random()
        if drawn < 0.4 and reserved(pool, size_bytes):
            held.append(size_bytes)
        elif drawn < 0.6:
            queued.append(waiting(pool, size_bytes))
        elif drawn < 0.9 and held:
            pool.release(holder(held.pop(random.randrange(len(held)))))
        elif queued:
            waiter = queued.pop(0)
            if waiter.is_granted:
                held.append(taken(pool, waiter))
            pool.give_up(waiter)
        granted = sum(waiter.size_bytes for waiter in queued if waiter.is_granted)
        assert pool.free_bytes + sum(held) + granted == 1_000
        assert pool.free_bytes >= 0
        assert not pool.has_waiters or pool.free_bytes < 400


def test_threads_that_wait_are_all_served_and_memory_is_whole_again(pool: BufferPool) -> None:
    served = []

    def work(size_bytes: int) -> None:
        for _ in range(200):
            gate = threading.Lock()
            gate.acquire()
            waiter = waiting(pool, size_bytes, gate.release)
            assert gate.acquire(timeout=30)
            pool.release(holder(taken(pool, waiter)))
        served.append(size_bytes)

    threads = [threading.Thread(target=work, args=(size,)) for size in (100, 70, 30, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(served) == [1, 30, 70, 100]
    assert pool.free_bytes == 100
