"""`make chaos`: does every scenario to groups of every kind, a few times over, and prints a table.

Below that it prints the table of `benchmarks/RESULTS.md`, section Under fire, to be put there.

The environment says what, where it is to be less or more:

`CHAOS_ROUNDS`     how often a scenario is done to a group, one after the other; 3.
`CHAOS_SCENARIOS`  which ones, by name, with commas between; all.
`CHAOS_KINDS`      groups of which kinds: ``eager``, ``cooperative``, ``modern``; all.

It ends with status 1 when something was not as it must be, and says what.

Owner: the main thread.
"""

from __future__ import annotations

import os
import sys
import time
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pykclient.cli.table import write_rows
from pykclient.testing import KafkaCluster
from tests.chaos.arena import BROKER_SETTINGS, GroupKind
from tests.chaos.scenarios import SCENARIOS, Scenario
from tests.chaos.table import Row, markdown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Campaign", "main"]

ROUND_COUNT = 3
T = TypeVar("T")


class Campaign(NamedTuple):
    """What is to be done."""

    scenarios: tuple[Scenario, ...] = SCENARIOS
    kinds: tuple[GroupKind, ...] = tuple(GroupKind)
    round_count: int = ROUND_COUNT

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Campaign:
        """What the environment asks for.

        Raises:
            ValueError: it asks for what there is not.
        """
        scenarios = {scenario.name: scenario for scenario in SCENARIOS}
        kinds = {kind.name.lower(): kind for kind in GroupKind}
        return cls(
            tuple(_chosen(environment.get("CHAOS_SCENARIOS"), scenarios)),
            tuple(_chosen(environment.get("CHAOS_KINDS"), kinds)),
            int(environment.get("CHAOS_ROUNDS", ROUND_COUNT)),
        )

    def rows(self, kafka: KafkaCluster) -> Iterator[Row]:
        """Do it, and tell what came of it, one group after the other; violations at once."""
        for scenario in self.scenarios:
            for kind in self.kinds:
                yield self._row(kafka, scenario, kind)

    def _row(self, kafka: KafkaCluster, scenario: Scenario, kind: GroupKind) -> Row:
        name, started_s = kind.name.lower(), time.monotonic()
        try:
            judged = scenario.run(kafka, kind, round_count=self.round_count)
        except (AssertionError, TimeoutExpired) as error:
            sys.stderr.write(f"{scenario.name}, {name}: {error}\n")
            return Row(scenario.name, name, self.round_count, round(time.monotonic() - started_s))
        for violation in judged.violations:
            sys.stderr.write(f"{scenario.name}, {name}: {violation}\n")
        return Row(
            scenario.name,
            name,
            self.round_count,
            round(time.monotonic() - started_s),
            records=judged.record_count,
            lost=judged.lost_count,
            repeated=judged.processed_count - judged.record_count,
            generations=len(judged.generations),
            failed_commits=judged.failed_commit_count,
            longest_stall_ms=judged.stall_ms,
            longest_close_ms=judged.close_ms,
            violations=len(judged.violations),
        )


def main() -> int:
    """Run what the environment asks for; the exit status."""
    campaign = Campaign.of(os.environ)
    rows: list[Row] = []
    with KafkaCluster(brokers=3, config=BROKER_SETTINGS, proxied=True) as kafka:
        for row in campaign.rows(kafka):
            sys.stderr.write(f"{row.scenario}, {row.group}: {row.violations} violations\n")
            rows.append(row)
    write_rows("scenario", rows, is_json=False)
    table = markdown(campaign.scenarios, rows)
    sys.stdout.write(f"\nFor benchmarks/RESULTS.md, section Under fire:\n\n{table}\n")
    return int(any(row.violations for row in rows))


def _chosen(names: str | None, choices: Mapping[str, T]) -> list[T]:
    if names is None:
        return list(choices.values())
    unknown = set(names.split(",")) - choices.keys()
    if unknown:
        raise ValueError(f"{sorted(unknown)} are none of {', '.join(choices)}")
    return [choices[name] for name in names.split(",")]


if __name__ == "__main__":
    sys.exit(main())
