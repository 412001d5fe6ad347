"""The judge of copies finds a lost, doubled, swapped or unexpected record."""

from __future__ import annotations

import pytest

from tests.chaos.copies import compare
from tests.chaos.numbers import Numbers, numbers_of

COUNT = 3_000
WANTED = numbers_of(3, COUNT)


def damaged() -> Numbers:
    """Return a copy of the numbers, to be changed."""
    return {partition: list(numbers) for partition, numbers in WANTED.items()}


def test_what_is_equal_has_no_violation() -> None:
    judged = compare(WANTED, damaged(), "t")
    assert judged == (COUNT, 0, 0, 0, 0, [])


@pytest.mark.parametrize("at", [0, 500, 999])
def test_a_lost_record_is_noticed(at: int) -> None:
    found = damaged()
    number = found[1].pop(at)
    judged = compare(WANTED, found, "t")
    assert judged == (COUNT, 1, 0, 0, 0, [f"t-1: 1 records are lost, [{number}]"])


@pytest.mark.parametrize("at", [0, 500, 999])
@pytest.mark.parametrize("to", [0, 400, 1000])
def test_a_doubled_record_is_noticed(at: int, to: int) -> None:
    found = damaged()
    number = found[2][at]
    found[2].insert(to, number)
    judged = compare(WANTED, found, "t")
    assert (judged.lost_count, judged.doubled_count) == (0, 1)
    assert f"t-2: 1 records are there again, [{number}]" in judged.violations


@pytest.mark.parametrize("at", [0, 500, 998])
def test_two_records_that_changed_places_are_noticed(at: int) -> None:
    found = damaged()
    numbers = found[0]
    numbers[at], numbers[at + 1] = numbers[at + 1], numbers[at]
    judged = compare(WANTED, found, "t")
    assert judged[1:5] == (0, 0, 1, 0)
    assert judged.violations == [
        f"t-0: 1 records are before their predecessors, [({numbers[at]}, {numbers[at + 1]})]"
    ]


def test_a_record_in_the_wrong_partition_is_lost_there_and_strange_here() -> None:
    found = damaged()
    found[1].append(found[0].pop())
    judged = compare(WANTED, found, "t")
    assert (judged.lost_count, judged.strange_count) == (1, 1)


def test_what_may_be_there_need_not_be() -> None:
    found = damaged()
    found[0].append(COUNT)
    possible = {0: [COUNT, COUNT + 3]}
    assert compare(WANTED, found, "t", possible=possible).violations == []
    found[0].append(COUNT + 6)
    assert compare(WANTED, found, "t", possible=possible).strange_count == 1


def test_an_empty_topic_has_lost_everything() -> None:
    assert compare(WANTED, {}, "t").lost_count == COUNT
