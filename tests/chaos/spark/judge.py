"""Checks of what a query has written to its sink.

Partition p of the source had the numbers 0, 1, 2 ...; the sink has the same numbers, or states
that contain them, as JSON lists.
Owner: none; it holds no state.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

PARTITION_COUNT = 3


class Result(NamedTuple):
    """Counts of numbers lost, numbers doubled against the guarantee, and records written again.

    Doubled is a number that is twice in a state, or is committed twice. Written again are numbers,
    or states.
    """

    record_count: int
    lost_count: int
    twice_count: int
    again_count: int
    violations: list[str]


def judged_rows(wanted: list[str], found: Mapping[int, list[str]]) -> Result:
    """Check that each number is there, and that first copies are in order."""
    lost = 0
    violations = []
    for partition in range(PARTITION_COUNT):
        first = list(dict.fromkeys(found.get(partition, [])))
        lost += len(set(wanted) - set(first))
        if first != sorted(first, key=int):
            violations.append(f"partition {partition} is out of order: {first}")
        if strange := set(first) - set(wanted):
            violations.append(f"partition {partition} has values that were never read: {strange}")
    if lost:
        violations.append(f"{lost} records were lost")
    return Result(PARTITION_COUNT * len(wanted), lost, 0, repeated_rows(found), violations)


def judged_state(wanted: list[str], found: Mapping[int, list[str]]) -> Result:
    """Check that no state holds a number twice, and that the last state holds each."""
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
    """Check that each number is there exactly once, in order."""
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
    """Check that each batch wrote its state once, and that no state is older than the one before.

    A batch without new numbers in a partition writes the previous state again.
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
    """Return the number of repeated numbers."""
    return sum(len(rows) - len(set(rows)) for rows in found.values())


def repeated_states(found: Mapping[int, list[str]]) -> int:
    """Return the number of repeated states, which repeated batches or late attempts write."""
    return sum(
        len(states) - len({len(state) for state in states})
        for states in (_states(found, partition) for partition in found)
    )


def _states(found: Mapping[int, list[str]], partition: int) -> list[list[str]]:
    return [json.loads(value) for value in found.get(partition, [])]
