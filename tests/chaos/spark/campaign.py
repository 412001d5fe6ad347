"""Does every scenario to queries on the Spark cluster, and prints a table; a part of `make chaos`.

Below that it prints the table of `benchmarks/RESULTS.md`, section Spark under fire.

The environment says what, where it is to be less:

`CHAOS_SPARK_SCENARIOS`   which ones, by name, with commas between; all.
`CHAOS_SPARK_DELIVERIES`  what sinks promise (`AT_LEAST_ONCE`, `PER_TASK`, `PER_BATCH`); the first
                          two, since the third is the same but for the rows of a decided batch that
                          brokers have aborted, of which there are none.
`CHAOS_SPARK_BATCHES`     so many batches each query has, at least 5; 12.

It ends with status 1 when something was not as it must be, and says what.

Owner: the main thread.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from pykclient.cli.table import write_rows
from pykclient.testing import KafkaCluster, SparkCluster
from tests.chaos.spark.arena import BATCH_COUNT, BROKER_SETTINGS
from tests.chaos.spark.canary import SECURITY
from tests.chaos.spark.delivery import Delivery, Kind
from tests.chaos.spark.scenarios import SCENARIOS, Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HEAD = (
    "| what happens | query | delivery | records | lost | twice | written again | s |",
    "| --- | --- | --- | --: | --: | --: | --: | --: |",
)
UNKNOWN = "?"


class Row(NamedTuple):
    """One query; of one that did not come to its end only the time is known."""

    scenario: str
    query: str
    delivery: str
    seconds: int
    records: int | None = None
    lost: int | None = None
    twice: int | None = None
    again: int | None = None
    violations: int = 1


def chosen(environment: Mapping[str, str]) -> list[Scenario]:
    """The scenarios that the environment names.

    Raises:
        ValueError: it names one that there is not.
    """
    known = {scenario.name: scenario for scenario in SCENARIOS}
    names = environment.get("CHAOS_SPARK_SCENARIOS")
    if names is None:
        return list(known.values())
    if unknown := set(names.split(",")) - known.keys():
        raise ValueError(f"{sorted(unknown)} are none of {', '.join(known)}")
    return [known[name] for name in names.split(",")]


def chosen_deliveries(environment: Mapping[str, str]) -> list[Delivery]:
    """What the sinks of the queries promise that the environment names.

    Raises:
        ValueError: it names one that there is not.
    """
    names = environment.get("CHAOS_SPARK_DELIVERIES")
    if names is None:
        return [Delivery.AT_LEAST_ONCE, Delivery.PER_TASK]
    if unknown := set(names.split(",")) - Delivery.__members__.keys():
        raise ValueError(f"{sorted(unknown)} are none of {', '.join(Delivery.__members__)}")
    return [Delivery[name] for name in names.split(",")]


def row_of(
    kafka: KafkaCluster, spark: SparkCluster, scenario: Scenario, kind: Kind, *, batch_count: int
) -> Row:
    named = (scenario.name, kind.query, kind.delivery.value)
    title, started_s = ", ".join(named), time.monotonic()
    try:
        result = scenario.run(kafka, spark, kind, batch_count=batch_count)
    except Exception as error:  # noqa: BLE001 - a row of its own; the table is written all the same
        sys.stderr.write(f"{title}: {error!r}\n")
        return Row(*named, round(time.monotonic() - started_s))
    for violation in result.violations:
        sys.stderr.write(f"{title}: {violation}\n")
    return Row(
        *named,
        round(time.monotonic() - started_s),
        records=result.record_count,
        lost=result.lost_count,
        twice=result.twice_count,
        again=result.again_count,
        violations=len(result.violations),
    )


def markdown(rows: Sequence[Row]) -> str:
    """The table, and below it how long it took and what was not as it must be."""
    titles = {scenario.name: scenario.title for scenario in SCENARIOS}
    lines = [*HEAD]
    for row in rows:
        counts = (row.records, row.lost, row.twice, row.again)
        cells = [
            titles[row.scenario],
            row.query,
            row.delivery,
            *map(_cell, counts),
            str(row.seconds),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    minutes = sum(row.seconds for row in rows) / 60
    violations = sum(row.violations for row in rows)
    lines += ["", f"{len(rows)} queries, {minutes:.0f} min; violations: {violations}"]
    return "\n".join(lines)


def main() -> int:
    scenarios, deliveries = chosen(os.environ), chosen_deliveries(os.environ)
    batch_count = int(os.environ.get("CHAOS_SPARK_BATCHES", BATCH_COUNT))
    rows: list[Row] = []
    with (
        KafkaCluster(brokers=3, config=BROKER_SETTINGS, proxied=True, security=SECURITY) as kafka,
        SparkCluster() as spark,
    ):
        for scenario in scenarios:
            for kind in scenario.kinds:
                if kind.delivery in deliveries:
                    row = row_of(kafka, spark, scenario, kind, batch_count=batch_count)
                    sys.stderr.write(
                        f"{row.scenario}, {row.query}, {row.delivery}, {row.seconds} s: "
                        f"{row.violations} violations\n"
                    )
                    rows.append(row)
    write_rows("scenario", [row._asdict() for row in rows], is_json=False)
    sys.stdout.write(
        f"\nFor benchmarks/RESULTS.md, section Spark under fire:\n\n{markdown(rows)}\n"
    )
    return int(any(row.violations for row in rows))


def _cell(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count:,}"


if __name__ == "__main__":
    sys.exit(main())
