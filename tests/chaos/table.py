"""The load ``groups`` of `make chaos`: every scenario with groups of every kind, several times.

The environment can restrict or extend it:

`CHAOS_ROUNDS`     rounds of each scenario for a group; 3.
`CHAOS_SCENARIOS`  names of scenarios, separated by commas; all.
`CHAOS_KINDS`      kinds of groups: ``eager``, ``cooperative``, ``modern``; all.

Owner: the main thread.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from pykclient.cli.table import write_rows
from pykclient.testing import KafkaCluster
from tests.chaos.arena import BROKER_SETTINGS, GroupKind
from tests.chaos.campaign import UNKNOWN, attempt, cell, chosen, footer
from tests.chaos.scenarios import SCENARIOS, Scenario

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

SECTION = "Under fire"
ROUND_COUNT = 3

HEAD = (
    "| fault | records | lost | read twice | longest stall, s: {kinds} | longest close, s |",
    "| --- | --: | --: | --: | --: | --: |",
)
TITLES = {"modern": "KIP-848"}
MS_PER_S = 1_000


class Row(NamedTuple):
    """Results of a group; if it did not recover, only the time is known."""

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


class Campaign(NamedTuple):
    scenarios: tuple[Scenario, ...] = SCENARIOS
    kinds: tuple[GroupKind, ...] = tuple(GroupKind)
    round_count: int = ROUND_COUNT

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Campaign:
        """Parse the environment.

        Raises:
            ValueError: a name is unknown.
        """
        scenarios = {scenario.name: scenario for scenario in SCENARIOS}
        kinds = {kind.name.lower(): kind for kind in GroupKind}
        return cls(
            chosen(environment.get("CHAOS_SCENARIOS"), scenarios),
            chosen(environment.get("CHAOS_KINDS"), kinds),
            int(environment.get("CHAOS_ROUNDS", ROUND_COUNT)),
        )

    def rows(self, kafka: KafkaCluster) -> Iterator[Row]:
        for scenario in self.scenarios:
            for kind in self.kinds:
                yield self._row(kafka, scenario, kind)

    def _row(self, kafka: KafkaCluster, scenario: Scenario, kind: GroupKind) -> Row:
        name = kind.name.lower()
        judged, seconds = attempt(
            f"{scenario.name}, {name}",
            lambda: scenario.run(kafka, kind, round_count=self.round_count),
        )
        if judged is None:
            return Row(scenario.name, name, self.round_count, seconds)
        return Row(
            scenario.name,
            name,
            self.round_count,
            seconds,
            records=judged.record_count,
            lost=judged.lost_count,
            repeated=judged.processed_count - judged.record_count,
            generations=len(judged.generations),
            failed_commits=judged.failed_commit_count,
            longest_stall_ms=judged.stall_ms,
            longest_close_ms=judged.close_ms,
            violations=len(judged.violations),
        )


def run(environment: Mapping[str, str]) -> tuple[str, int]:
    """Run the campaign; return its table and the number of violations."""
    campaign = Campaign.of(environment)
    rows: list[Row] = []
    with KafkaCluster(brokers=3, config=BROKER_SETTINGS, proxied=True) as kafka:
        for row in campaign.rows(kafka):
            sys.stderr.write(f"{row.scenario}, {row.group}: {row.violations} violations\n")
            rows.append(row)
    write_rows("scenario", [row._asdict() for row in rows], is_json=False)
    return markdown(campaign.scenarios, rows), sum(row.violations for row in rows)


def markdown(scenarios: Iterable[Scenario], rows: Sequence[Row]) -> str:
    """Return the table, followed by the duration and the number of violations."""
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
    rounds = max((row.rounds for row in rows), default=0)
    return "\n".join([*lines, *footer(rows, f"groups, {rounds} rounds")])


def _counts(row: Row) -> tuple[int | None, int | None, int | None]:
    return row.records, row.lost, row.repeated


def _sum(counts: Iterable[int | None]) -> str:
    known = list(counts)
    return cell(None if None in known else sum(count or 0 for count in known))


def _longest(durations_ms: Iterable[int | None]) -> str:
    known = [each for each in durations_ms if each is not None]
    return _seconds(max(known, default=None))


def _seconds(duration_ms: int | None) -> str:
    return UNKNOWN if duration_ms is None else f"{duration_ms / MS_PER_S:.1f}"
