"""What a query has left in its sink, judged.

Partition p of the source had the numbers 0, 1, 2 ...; the sink's has them too, or the states that
had them, as lists in JSON.

Owner: none; it holds no state.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

PARTITION_COUNT = 3


class Result(NamedTuple):
    """So many numbers were lost, are more than once where that must not be (in a state; in what is
    committed), and were written to the sink again: numbers, or states."""

    record_count: int
    lost_count: int
    twice_count: int
    again_count: int
    violations: list[str]


def judged_rows(wanted: list[str], found: Mapping[int, list[str]]) -> Result:
    """Each number must be there, in order where it comes first."""
    lost = 0
    violations = []
    for partition in range(PARTITION_COUNT):
        first = list(dict.fromkeys(found.get(partition, [])))
        lost += len(set(wanted) - set(first))
        if first != sorted(first, key=int):
            violations.append(f"partition {partition} is out of order: {first}")
        if strange := set(first) - set(wanted):
            violations.append(f"partition {partition} has what was never read: {strange}")
    if lost:
        violations.append(f"{lost} records were lost")
    return Result(PARTITION_COUNT * len(wanted), lost, 0, repeated_rows(found), violations)


def judged_state(wanted: list[str], found: Mapping[int, list[str]]) -> Result:
    """No state may hold a number twice, and the last one must hold each."""
    lost = twice = 0
    violations = []
    for partition in range(PARTITION_COUNT):
        states = _states(found, partition)
        last = max(states, key=len, default=[])
        lost += len(set(wanted) - set(last))
        for state in states:
            if len(state) != len(set(state)):
                twice += len(state) - len(set(state))
                violations.append(f"the state of partition {partition} has a number twice: {state}")
    if lost:
        violations.append(f"{lost} records were lost")
    return Result(PARTITION_COUNT * len(wanted), lost, twice, repeated_states(found), violations)


def judged_committed_rows(wanted: list[str], committed: Mapping[int, list[str]]) -> Result:
    """Each number must be there once, in order."""
    result = judged_rows(wanted, committed)
    violations = [*result.violations]
    for partition in range(PARTITION_COUNT):
        rows = committed.get(partition, [])
        if len(rows) > len(set(rows)):
            repeated = sorted({row for row in rows if rows.count(row) > 1}, key=int)
            violations.append(f"partition {partition} has numbers twice: {repeated}")
    return result._replace(twice_count=result.again_count, violations=violations)


def judged_committed_state(
    wanted: list[str], committed: Mapping[int, list[str]], batch_count: int
) -> Result:
    """Each batch must have written its state once, and none may be older than the one before it.

    A batch without new numbers in a partition writes the state of the one before.
    """
    result = judged_state(wanted, committed)
    violations = [*result.violations]
    twice = result.twice_count
    for partition in range(PARTITION_COUNT):
        sizes = [len(state) for state in _states(committed, partition)]
        if sizes != sorted(sizes):
            violations.append(f"the states of partition {partition} are out of order: {sizes}")
        if len(sizes) > batch_count:
            twice += len(sizes) - batch_count
            violations.append(
                f"partition {partition} has {len(sizes)} states of {batch_count} batches: {sizes}"
            )
    return result._replace(twice_count=twice, violations=violations)


def repeated_rows(found: Mapping[int, list[str]]) -> int:
    """How many numbers are there again."""
    return sum(len(rows) - len(set(rows)) for rows in found.values())


def repeated_states(found: Mapping[int, list[str]]) -> int:
    """How many states are there again, as a batch that is repeated, or a late attempt, writes."""
    return sum(
        len(states) - len({len(state) for state in states})
        for states in (_states(found, partition) for partition in found)
    )


def _states(found: Mapping[int, list[str]], partition: int) -> list[list[str]]:
    return [json.loads(value) for value in found.get(partition, [])]
