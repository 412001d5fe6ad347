"""The table of a campaign for `benchmarks/RESULTS.md`: a scenario a row, for all kinds of groups.

Owner: no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.chaos.scenarios import Scenario

__all__ = ["Row", "markdown"]

HEAD = (
    "| what happens | records | lost | read twice | longest stall, s: {kinds} | longest close, s |",
    "| --- | --: | --: | --: | --: | --: |",
)
TITLES = {"modern": "KIP-848"}
UNKNOWN = "?"
MS_PER_S = 1_000


class Row(NamedTuple):
    """What one group has gone through; of one that did not get over it only the time is known."""

    scenario: str
    group: str
    rounds: int
    seconds: int
    records: int | None = None
    lost: int | None = None
    repeated: int | None = None
    generations: int | None = None
    failed_commits: int | None = None
    longest_stall_ms: int | None = None
    longest_close_ms: int | None = None
    violations: int = 1


def markdown(scenarios: Iterable[Scenario], rows: Sequence[Row]) -> str:
    """Return the table, and below it how long it took and what was not as it must be."""
    kinds = dict.fromkeys(row.group for row in rows)
    titles = ", ".join(TITLES.get(kind, kind) for kind in kinds)
    lines = [line.format(kinds=titles) for line in HEAD]
    for scenario in scenarios:
        own = [row for row in rows if row.scenario == scenario.name]
        cells = [
            scenario.title,
            *(_sum(counts) for counts in zip(*map(_counts, own), strict=True)),
            ", ".join(_seconds(row.longest_stall_ms) for row in own),
            _longest(row.longest_close_ms for row in own),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    minutes = sum(row.seconds for row in rows) / 60
    rounds = max((row.rounds for row in rows), default=0)
    violations = sum(row.violations for row in rows)
    lines += [
        "",
        f"{len(rows)} groups, {rounds} rounds, {minutes:.0f} min; violations: {violations}",
    ]
    return "\n".join(lines)


def _counts(row: Row) -> tuple[int | None, int | None, int | None]:
    return row.records, row.lost, row.repeated


def _sum(counts: Iterable[int | None]) -> str:
    known = list(counts)
    return UNKNOWN if None in known else f"{sum(count or 0 for count in known):,}"


def _longest(durations_ms: Iterable[int | None]) -> str:
    known = [each for each in durations_ms if each is not None]
    return _seconds(max(known, default=None))


def _seconds(duration_ms: int | None) -> str:
    return UNKNOWN if duration_ms is None else f"{duration_ms / MS_PER_S:.1f}"
