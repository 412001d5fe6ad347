"""Turns: one after the other, however they call each other."""

from __future__ import annotations

import pytest

from pykclient.testing.fake.timers import Turns


def test_each_waits_for_the_one_before_and_is_told_the_time() -> None:
    turns = Turns()
    told: list[tuple[str, int]] = []

    def first(now_ms: int) -> None:
        turns.take(second, now_ms + 1)
        told.append(("first", now_ms))

    def second(now_ms: int) -> None:
        turns.take(third, now_ms)
        told.append(("second", now_ms))

    def third(now_ms: int) -> None:
        told.append(("third", now_ms))

    turns.take(first, 7)
    assert told == [("first", 7), ("second", 7), ("third", 7)]


def test_what_one_raises_keeps_nobody_from_a_later_turn() -> None:
    turns = Turns()
    told: list[int] = []

    def fail(now_ms: int) -> None:
        turns.take(told.append, now_ms)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        turns.take(fail, 1)
    turns.take(told.append, 2)
    assert told == [2, 2]
