"""Result of a run of transactional copies.

Owner: none; it is immutable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.chaos.copies import Comparison


class Result(NamedTuple):
    """Number of faults, `open_count` of them on a process in its transaction.

    `aborted_count` is the number of records in aborted transactions; in a chain, the number of
    planned aborts.
    """

    judged: Comparison
    strike_count: int
    open_count: int
    aborted_count: int
    violations: list[str]
