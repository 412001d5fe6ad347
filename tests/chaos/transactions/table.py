"""The load ``transactions`` of `make chaos`.

It bounces copiers and brokers as Kafka's system tests do, breaks a chain of `ExactlyOnce`, and
stalls applications between the calls of a transaction.

The environment can restrict it:

    `CHAOS_TRANSACTIONS_RUNS`   names of runs, separated by commas; all.
    `CHAOS_VERSIONS`            versions of Kafka; all tested ones.
    `CHAOS_TRANSACTIONS_SHORT`  if set: fewer records, and one bounce or stall of each copier.

Owner: the main thread.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from pykclient.cli.table import write_rows
from pykclient.testing import KafkaCluster
from pykclient.testing.cluster.jars import KAFKA_VERSIONS
from tests.chaos.arena import BROKER_SETTINGS
from tests.chaos.campaign import UNKNOWN, attempt, cell, chosen, footer, versions_of
from tests.chaos.transactions.bounces import BOUNCES, FULL, SHORT, Bounce
from tests.chaos.transactions.chain import CHAINS, FULL_CHAIN, SHORT_CHAIN, Chain
from tests.chaos.transactions.stalls import FULL_STALLS, SHORT_STALLS, STALLS, Stall

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.chaos.transactions.result import Result

Run = Bounce | Chain | Stall

HEAD = (
    "| what copies | what is struck | Kafka | records | struck (in a transaction) | aborted "
    "| lost | doubled | out of order | s |",
    "| --- | --- | --- | --: | --: | --: | --: | --: | --: | --: |",
)
SECTION = "Transactions under fire"
RUNS: tuple[Run, ...] = (*BOUNCES, *CHAINS, *STALLS)


class Row(NamedTuple):
    """A run on a version; if it did not end, only the time is known."""

    run: str
    version: str
    seconds: int
    records: int | None = None
    struck: int | None = None
    open: int | None = None
    aborted: int | None = None
    lost: int | None = None
    doubled: int | None = None
    swapped: int | None = None
    violations: int = 1


class Campaign(NamedTuple):
    """Runs, Kafka versions, and whether the runs are short."""

    runs: tuple[Run, ...] = RUNS
    versions: tuple[str, ...] = KAFKA_VERSIONS
    is_short: bool = False

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Campaign:
        """Parse the environment.

        Raises:
            ValueError: a name is unknown.
        """
        return cls(
            chosen(environment.get("CHAOS_TRANSACTIONS_RUNS"), {run.name: run for run in RUNS}),
            versions_of(environment),
            bool(environment.get("CHAOS_TRANSACTIONS_SHORT")),
        )

    def result(self, kafka: KafkaCluster, run: Run) -> Result:
        if isinstance(run, Bounce):
            return run.run(kafka, SHORT if self.is_short else FULL)
        if isinstance(run, Stall):
            return run.run(kafka, SHORT_STALLS if self.is_short else FULL_STALLS)
        return run.run(kafka, SHORT_CHAIN if self.is_short else FULL_CHAIN)


def row_of(campaign: Campaign, kafka: KafkaCluster, run: Run) -> Row:
    result, seconds = attempt(f"{run.name}, {kafka.version}", lambda: campaign.result(kafka, run))
    if result is None:
        return Row(run.name, kafka.version, seconds)
    judged = result.judged
    return Row(
        run.name,
        kafka.version,
        seconds,
        records=judged.record_count,
        struck=result.strike_count,
        open=result.open_count,
        aborted=result.aborted_count,
        lost=judged.lost_count,
        doubled=judged.doubled_count,
        swapped=judged.swapped_count,
        violations=len(result.violations),
    )


def markdown(rows: Sequence[Row]) -> str:
    """Return the table, followed by the duration and the number of violations."""
    return "\n".join([*HEAD, *map(_line, rows), *footer(rows, "runs")])


def run(environment: Mapping[str, str]) -> tuple[str, int]:
    """Run the campaign; return its table and the number of violations."""
    campaign = Campaign.of(environment)
    rows: list[Row] = []
    for version in campaign.versions:
        runs = [each for each in campaign.runs if each.is_for(version)]
        if not runs:
            continue
        with KafkaCluster(3, version, BROKER_SETTINGS, proxied=True) as kafka:
            for each in runs:
                row = row_of(campaign, kafka, each)
                sys.stderr.write(f"{row.run}: {row.violations} violations\n{_line(row)}\n")
                rows.append(row)
    write_rows("run", [row._asdict() for row in rows], is_json=False)
    return markdown(rows), sum(row.violations for row in rows)


def _line(row: Row) -> str:
    run = next(each for each in RUNS if each.name == row.run)
    struck = UNKNOWN if row.struck is None else f"{row.struck} ({row.open})"
    cells = (
        *(run.title, run.strikes, row.version, cell(row.records), struck),
        *map(cell, (row.aborted, row.lost, row.doubled, row.swapped)),
        str(row.seconds),
    )
    return f"| {' | '.join(cells)} |"
