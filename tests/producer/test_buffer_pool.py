"""BufferPool: what is reserved, who waits, and in which order they are served."""

from __future__ import annotations

import threading
from random import Random

import pytest

from pykclient.producer.buffer_pool import BufferPool, MemoryWaiter


def ignore() -> None:
    """Hear of a grant and do nothing."""


def test_memory_is_limited_and_comes_back() -> None:
    pool = BufferPool(100)
    assert pool.try_reserve(60)
    assert not pool.try_reserve(41)
    assert pool.try_reserve(40)
    assert pool.free_bytes == 0
    pool.release(60)
    assert pool.try_reserve(60)


def test_giving_back_more_than_was_taken_is_our_mistake() -> None:
    pool = BufferPool(100)
    with pytest.raises(AssertionError, match="twice"):
        pool.release(1)


def test_waiters_are_served_in_order_and_a_small_one_does_not_pass_a_large_one() -> None:
    pool = BufferPool(100)
    assert pool.try_reserve(100)
    granted: list[str] = []
    large = pool.wait_for(80, lambda: granted.append("large"))
    small = pool.wait_for(10, lambda: granted.append("small"))
    pool.release(50)
    assert granted == []
    pool.release(40)
    assert granted == ["large", "small"]
    assert (large.take(), small.take()) == (80, 10)
    assert pool.free_bytes == 0


def test_nobody_reserves_past_those_who_wait() -> None:
    pool = BufferPool(100)
    assert pool.try_reserve(60)
    waiter = pool.wait_for(70, ignore)
    assert not pool.try_reserve(10)
    pool.give_up(waiter)
    assert pool.try_reserve(10)


def test_giving_up_lets_the_next_one_have_its_turn() -> None:
    pool = BufferPool(100)
    assert pool.try_reserve(60)
    granted: list[str] = []
    first = pool.wait_for(70, lambda: granted.append("first"))
    pool.wait_for(40, lambda: granted.append("second"))
    pool.give_up(first)
    assert granted == ["second"]


def test_what_was_granted_and_not_taken_goes_back_on_giving_up() -> None:
    pool = BufferPool(100)
    waiter = pool.wait_for(100, ignore)
    assert waiter.is_granted
    pool.give_up(waiter)
    assert pool.free_bytes == 100


def test_what_was_taken_stays_taken_on_giving_up() -> None:
    pool = BufferPool(100)
    waiter = pool.wait_for(100, ignore)
    assert waiter.take() == 100
    pool.give_up(waiter)
    assert pool.free_bytes == 0


def test_closing_sends_everybody_away_with_nothing() -> None:
    pool = BufferPool(100)
    assert pool.try_reserve(100)
    told: list[str] = []
    early = pool.wait_for(10, lambda: told.append("early"))
    pool.close()
    late = pool.wait_for(10, lambda: told.append("late"))
    assert told == ["early", "late"]
    assert not early.is_granted
    assert not late.is_granted
    pool.give_up(early)
    pool.give_up(late)
    assert pool.free_bytes == 0


def test_waiting_for_more_than_there_is_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="never end"):
        BufferPool(100).wait_for(101, ignore)


@pytest.mark.parametrize("seed", range(20))
def test_random_use_keeps_the_sum_of_all_reservations(seed: int) -> None:
    random = Random(seed)
    pool = BufferPool(1_000)
    held: list[int] = []
    waiting: list[MemoryWaiter] = []
    for _ in range(500):
        size_bytes = random.randrange(1, 400)
        drawn = random.random()
        if drawn < 0.4 and pool.try_reserve(size_bytes):
            held.append(size_bytes)
        elif drawn < 0.6:
            waiting.append(pool.wait_for(size_bytes, ignore))
        elif drawn < 0.9 and held:
            pool.release(held.pop(random.randrange(len(held))))
        elif waiting:
            waiter = waiting.pop(0)
            if waiter.is_granted:
                held.append(waiter.take())
            pool.give_up(waiter)
        granted = sum(waiter.size_bytes for waiter in waiting if waiter.is_granted)
        assert pool.free_bytes + sum(held) + granted == 1_000
        assert not pool.has_waiters or pool.free_bytes < 400


def test_threads_that_wait_are_all_served_and_memory_is_whole_again() -> None:
    pool = BufferPool(100)
    served = []

    def work(size_bytes: int) -> None:
        for _ in range(200):
            gate = threading.Lock()
            gate.acquire()
            waiter = pool.wait_for(size_bytes, gate.release)
            assert gate.acquire(timeout=30)
            pool.release(waiter.take())
        served.append(size_bytes)

    threads = [threading.Thread(target=work, args=(size,)) for size in (100, 70, 30, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(served) == [1, 30, 70, 100]
    assert pool.free_bytes == 100
