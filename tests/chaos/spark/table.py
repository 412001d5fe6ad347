"""The load ``spark`` of `make chaos`: every scenario on the Spark cluster.

Environment variables limit the run:

`CHAOS_SPARK_SCENARIOS`   names of scenarios, separated by commas; default: all.
`CHAOS_SPARK_DELIVERIES`  deliveries of sinks (`AT_LEAST_ONCE`, `PER_TASK`, `PER_BATCH`); default:
                          the first two. The third differs only for rows of a decided batch that
                          brokers have aborted, which does not occur here.
`CHAOS_SPARK_BATCHES`     number of batches of each query, at least 5; default: 12.

Owner: the main thread.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from pykclient.cli.table import write_rows
from pykclient.testing import KafkaCluster, SparkCluster
from tests.chaos.campaign import attempt, cell, chosen, footer
from tests.chaos.spark.arena import BATCH_COUNT, BROKER_SETTINGS
from tests.chaos.spark.canary import SECURITY
from tests.chaos.spark.delivery import Delivery, Kind
from tests.chaos.spark.scenarios import SCENARIOS, Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SECTION = "Spark under fire"
HEAD = (
    "| fault | query | delivery | records | lost | twice | written again | s |",
    "| --- | --- | --- | --: | --: | --: | --: | --: |",
)


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


class Campaign(NamedTuple):
    """Scenarios, deliveries of their sinks, and the number of batches of each query."""

    scenarios: tuple[Scenario, ...] = SCENARIOS
    deliveries: tuple[Delivery, ...] = (Delivery.AT_LEAST_ONCE, Delivery.PER_TASK)
    batch_count: int = BATCH_COUNT

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Campaign:
        """Parse the environment.

        Raises:
            ValueError: a name is unknown.
        """
        names = {scenario.name: scenario for scenario in SCENARIOS}
        deliveries = environment.get("CHAOS_SPARK_DELIVERIES", "AT_LEAST_ONCE,PER_TASK")
        return cls(
            chosen(environment.get("CHAOS_SPARK_SCENARIOS"), names),
            chosen(deliveries, Delivery.__members__),
            int(environment.get("CHAOS_SPARK_BATCHES", BATCH_COUNT)),
        )


def row_of(
    kafka: KafkaCluster, spark: SparkCluster, scenario: Scenario, kind: Kind, *, batch_count: int
) -> Row:
    named = (scenario.name, kind.query, kind.delivery.value)
    result, seconds = attempt(
        ", ".join(named), lambda: scenario.run(kafka, spark, kind, batch_count=batch_count)
    )
    if result is None:
        return Row(*named, seconds)
    return Row(
        *named,
        seconds,
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
            *map(cell, counts),
            str(row.seconds),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, *footer(rows, "queries")])


def run(environment: Mapping[str, str]) -> tuple[str, int]:
    """Run the campaign; return its table and the number of violations."""
    scenarios, deliveries, batch_count = Campaign.of(environment)
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
    return markdown(rows), sum(row.violations for row in rows)
