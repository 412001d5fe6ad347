"""Runs every scenario on the Spark cluster, and prints a table; part of `make chaos`.

After it, the table for `benchmarks/RESULTS.md`, section Spark under fire, is printed.

Environment variables limit the run:

`CHAOS_SPARK_SCENARIOS`   names of scenarios, separated by commas; default: all.
`CHAOS_SPARK_DELIVERIES`  deliveries of sinks (`AT_LEAST_ONCE`, `PER_TASK`, `PER_BATCH`); default:
                          the first two. The third differs only for rows of a decided batch that
                          brokers have aborted, which does not occur here.
`CHAOS_SPARK_BATCHES`     number of batches of each query, at least 5; default: 12.

The exit status is 1 if something was violated; the violations are printed.

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
    "| fault | query | delivery | records | lost | twice | written again | s |",
    "| --- | --- | --- | --: | --: | --: | --: | --: |",
)
UNKNOWN = "?"


class Row(NamedTuple):
    """Result of a query; only the time is known if it did not end normally."""

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
    """Return the scenarios named by the environment.

    Raises:
        ValueError: a scenario is unknown.
    """
    known = {scenario.name: scenario for scenario in SCENARIOS}
    names = environment.get("CHAOS_SPARK_SCENARIOS")
    if names is None:
        return list(known.values())
    if unknown := set(names.split(",")) - known.keys():
        raise ValueError(f"{sorted(unknown)} are none of {', '.join(known)}")
    return [known[name] for name in names.split(",")]


def chosen_deliveries(environment: Mapping[str, str]) -> list[Delivery]:
    """Return the deliveries named by the environment.

    Raises:
        ValueError: a delivery is unknown.
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
    except Exception as error:  # noqa: BLE001 - the query gets a row, and the table is written
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
    """Return the table, followed by the duration and the number of violations."""
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
