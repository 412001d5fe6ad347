"""Timers fire once and in order; waiting operations end once; turns run one after another."""

from __future__ import annotations

from random import Random

import pytest

from pykclient.testing.fake.timers import DelayedOperation, Purgatory, Timer, TimingWheel, Turns

TIMER_COUNT = 1_000
HORIZON_MS = 200_000


@pytest.mark.parametrize("seed", range(10))
def test_a_thousand_timers_fire_as_from_a_sorted_list(seed: int) -> None:
    """Method: random adds, cancels and advances, from a time within a slot."""
    random = Random(seed)
    now_ms = random.randrange(10_000)
    wheel = TimingWheel(now_ms)
    fired: list[int] = []
    waiting: dict[int, tuple[int, Timer]] = {}
    added = 0
    while added < TIMER_COUNT or waiting:
        for _ in range(random.randrange(20)):
            if added == TIMER_COUNT:
                break
            deadline_ms = now_ms + random.choice((0, 1, random.randrange(HORIZON_MS)))
            number = added
            timer = wheel.add(deadline_ms, lambda _, number=number: fired.append(number))  # type: ignore[misc]
            waiting[number] = (deadline_ms, timer)
            added += 1
        if waiting and random.random() < 0.3:
            number = random.choice(list(waiting))
            waiting.pop(number)[1].cancel()
        first_ms = min((deadline for deadline, _ in waiting.values()), default=None)
        next_ms = wheel.next_deadline_ms()
        assert (next_ms is None) == (first_ms is None)
        assert next_ms is None or first_ms is None or next_ms <= first_ms
        now_ms += random.choice((0, 1, 7, random.randrange(HORIZON_MS // 10)))
        wheel.advance(now_ms)
        due = sorted((d, n) for n, (d, _) in waiting.items() if d <= now_ms)
        assert fired == [number for _, number in due]
        fired.clear()
        for _, number in due:
            assert not waiting.pop(number)[1].is_waiting


def test_a_timer_gets_its_own_time_however_far_the_clock_jumps() -> None:
    wheel = TimingWheel()
    times: list[int] = []
    for deadline_ms in (90_000, 5, 700):
        wheel.add(deadline_ms, times.append)
    wheel.advance(3_600_000)
    assert times == [5, 700, 90_000]


def test_a_timer_that_is_added_by_a_timer_fires_in_the_same_advance() -> None:
    wheel = TimingWheel()
    times: list[int] = []

    def again(now_ms: int) -> None:
        times.append(now_ms)
        if len(times) < 5:
            wheel.add(now_ms + 400, again)

    wheel.add(400, again)
    wheel.advance(10_000)
    assert times == [400, 800, 1_200, 1_600, 2_000]


def test_a_timer_that_is_due_when_it_is_added_fires_in_the_next_advance() -> None:
    wheel = TimingWheel(100)
    times: list[int] = []
    wheel.add(50, times.append)
    assert times == []
    assert wheel.next_deadline_ms() == 50
    wheel.advance(100)
    assert times == [100]


def test_walking_from_deadline_to_deadline_reaches_every_timer() -> None:
    wheel = TimingWheel()
    times: list[int] = []
    wheel.add(123_456, times.append)
    steps = 0
    while (next_ms := wheel.next_deadline_ms()) is not None:
        wheel.advance(next_ms)
        steps += 1
        assert steps < 10
    assert times == [123_456]


DEADLINE_MS = 10


def test_an_operation_whose_response_moves_the_clock_does_not_time_out_as_well() -> None:
    """The response makes a connection serve its next request, which advances the cluster."""
    timers = TimingWheel()
    purgatory = Purgatory(timers)
    expired: list[int] = []
    is_ready = False

    def try_complete(_: int) -> bool:
        if is_ready:
            timers.advance(DEADLINE_MS)
        return is_ready

    operation = DelayedOperation(try_complete, expired.append)
    purgatory.complete_or_watch(operation, ["key"], deadline_ms=DEADLINE_MS, now_ms=0)
    is_ready = True
    purgatory.check("key", DEADLINE_MS)
    assert expired == []
    assert purgatory.waiting_count() == 0


def test_each_waits_for_the_one_before_and_gets_the_time() -> None:
    turns = Turns()
    noted: list[tuple[str, int]] = []

    def first(now_ms: int) -> None:
        turns.take(second, now_ms + 1)
        noted.append(("first", now_ms))

    def second(now_ms: int) -> None:
        turns.take(third, now_ms)
        noted.append(("second", now_ms))

    def third(now_ms: int) -> None:
        noted.append(("third", now_ms))

    turns.take(first, 7)
    assert noted == [("first", 7), ("second", 7), ("third", 7)]


def test_what_one_raises_keeps_no_other_from_a_later_turn() -> None:
    turns = Turns()
    noted: list[int] = []

    def fail(now_ms: int) -> None:
        turns.take(noted.append, now_ms)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        turns.take(fail, 1)
    turns.take(noted.append, 2)
    assert noted == [2, 2]
