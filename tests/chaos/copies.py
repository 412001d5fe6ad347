"""Compare written or copied records with the expected ones, partition by partition.

Owner: none; it holds no state.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHOWN_MAX = 5


class Comparison(NamedTuple):
    """Number of expected records, and of those lost, doubled, out of order or not expected.

    The order is that of first copies.
    """

    record_count: int
    lost_count: int
    doubled_count: int
    swapped_count: int
    strange_count: int
    violations: list[str]

    def combined(self, other: Comparison) -> Comparison:
        """Return the sum of both."""
        return Comparison(
            self.record_count + other.record_count,
            self.lost_count + other.lost_count,
            self.doubled_count + other.doubled_count,
            self.swapped_count + other.swapped_count,
            self.strange_count + other.strange_count,
            [*self.violations, *other.violations],
        )


def compare(
    wanted: Mapping[int, Sequence[int]],
    found: Mapping[int, Sequence[int]],
    what: str,
    *,
    possible: Mapping[int, Sequence[int]] | None = None,
) -> Comparison:
    """Compare the found records with the wanted ones, which are ascending, in each partition.

    `possible` are records that may exist in addition; None means none.
    """
    total = Comparison(0, 0, 0, 0, 0, [])
    for partition in sorted(wanted.keys() | found.keys()):
        allowed = None if possible is None else possible.get(partition, ())
        total = total.combined(
            _compared(
                wanted.get(partition, ()), found.get(partition, ()), f"{what}-{partition}", allowed
            )
        )
    return total


def _compared(
    wanted: Sequence[int], found: Sequence[int], where: str, possible: Sequence[int] | None
) -> Comparison:
    wanted_set, found_set = set(wanted), set(found)
    first = list(dict.fromkeys(found))
    lost = sorted(wanted_set - found_set)
    strange = sorted(found_set - wanted_set - set(possible or ()))
    swapped = [(before, after) for before, after in pairwise(first) if after < before]
    doubled_count = len(found) - len(found_set)
    counted = Counter(found) if doubled_count else {}
    doubled = [each for each, times in counted.items() if times > 1]
    violations = [
        f"{where}: {len(those)} records {how}, {those[:SHOWN_MAX]}"
        for those, how in (
            (lost, "are lost"),
            (doubled, "are there again"),
            (swapped, "are before their predecessors"),
            (strange, "should not be there"),
        )
        if those
    ]
    return Comparison(len(wanted), len(lost), doubled_count, len(swapped), len(strange), violations)
