"""What a run of copies in transactions has come to.

Owner: none; it never changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.chaos.copies import Comparison


class Result(NamedTuple):
    """So many strikes there were, `open_count` of them on a process in its transaction.

    `aborted_count` is of records, whether their transactions were aborted at random or by a strike
    (in a chain, of transactions that were to be aborted).
    """

    judged: Comparison
    strike_count: int
    open_count: int
    aborted_count: int
    violations: list[str]
