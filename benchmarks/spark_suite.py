"""The Spark connector beside Spark's own Kafka source and sink: the run of ``make bench-spark``.

One broker for all that is timed and one behind a proxy for what is counted, a session of two
local threads with Unix sockets to its Python workers, then sessions with executors of their own. It
prints what it measures and the table of targets. The full form takes some twenty minutes on two
quiet cores; ``--quick`` is for development: fewer records, fewer turns.

    python benchmarks/spark_suite.py [--quick] [--only ...] [--records N] [--json FILE]
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from measuring.benchmark import KAFKA_VERSION
from measuring.figures import figures_text
from measuring.machine import describe
from measuring.measurement import Run, write_run
from measuring.tables import figures_rows, targets_table
from pykclient import accel
from pykclient.testing import KafkaCluster
from pykclient.testing.cluster.java import find_spark_java
from spark.arena import Settings, SparkArena, session
from spark.ceiling import CeilingDataSource
from spark.executors import executors
from spark.memory import memory
from spark.reading import read, small_topic
from spark.streaming import exactly_once, idle, micro_batch, stream_requests
from spark.targets import TARGETS
from spark.writing import write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from measuring.measurement import Measurement

    Benchmark = Callable[[SparkArena, Settings], Iterator[Measurement]]

TIMED: dict[str, Benchmark] = {
    "read": read,
    "small topic": small_topic,
    "write": write,
    "micro-batch": micro_batch,
    "exactly once": exactly_once,
}
COUNTED: dict[str, Benchmark] = {"stream requests": stream_requests, "idle query": idle}
EXECUTORS, MEMORY = "executors", "memory"
BENCHMARKS = (*TIMED, *COUNTED, EXECUTORS, MEMORY)
FULL = Settings(5_000_000, 1_000_000, 5, 8)
QUICK = Settings(1_000_000, 300_000, 2, 8)


class Measuring:
    """A suite that runs benchmarks, prints their results, and keeps them in the run."""

    def __init__(self, settings: Settings, run: Run, json: Path | None) -> None:
        self._settings = settings
        self._run = run
        self._json = json
        self._console = Console()
        self.has_failed = False

    def run(self, name: str, measurements: Iterator[Measurement]) -> None:
        """Keep the measurements of one benchmark, up to an error; the others run all the same."""
        self._console.rule(name)
        found, started = [], time.perf_counter()
        try:
            for measurement in measurements:
                found.append(measurement)
                text = figures_text(measurement.figures)
                self._console.print(
                    f"{measurement.case}: {measurement.client}: {text}", highlight=False
                )
        except Exception:  # noqa: BLE001 (it is printed, and the status says so)
            self.has_failed = True
            self._console.print_exception()
        self._console.print(f"[{name}: {time.perf_counter() - started:.0f} s]", markup=False)
        self._run.measurements.extend(found)
        if self._json:  # after each benchmark, so that a failure later loses only its own
            write_run(self._json, self._run)

    def run_all(self, benchmarks: dict[str, Benchmark], arena: SparkArena) -> None:
        """Run several in one arena."""
        for name, benchmark in benchmarks.items():
            self.run(name, benchmark(arena, self._settings))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables, with `--json` write a file; 1 when a benchmark failed."""
    options = _parsed(arguments)
    chosen = QUICK if options.quick else FULL
    settings = Settings(
        options.records or chosen.record_count,
        chosen.written_count,
        options.turns or chosen.turn_count,
        chosen.batch_count,
    )
    run = Run(
        shlex.join(["python", "benchmarks/spark_suite.py", *(arguments or sys.argv[1:])]),
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        {
            **describe(["pykclient", "pyspark", "pyarrow"]),
            "Spark's own source": "4.2.0",
            "Kafka": KAFKA_VERSION,
            "Java": str(find_spark_java().major_version),
            "pykclient.accel": accel.implementation,
        },
        [],
    )
    measuring = Measuring(settings, run, options.json)
    timed = {name: TIMED[name] for name in TIMED if name in options.only}
    counted = {name: COUNTED[name] for name in COUNTED if name in options.only}
    if timed:
        with _arena() as arena:
            measuring.run_all(timed, arena)
    if counted:
        with _arena(proxied=True) as arena:
            measuring.run_all(counted, arena)
    if EXECUTORS in options.only:
        with KafkaCluster(version=KAFKA_VERSION) as kafka:
            measuring.run(EXECUTORS, executors(kafka, settings))
    if MEMORY in options.only:
        measuring.run(MEMORY, memory(settings))
    _report(run)
    return 1 if measuring.has_failed else 0


@contextmanager
def _arena(*, proxied: bool = False) -> Iterator[SparkArena]:
    with (
        KafkaCluster(version=KAFKA_VERSION, proxied=proxied) as kafka,
        session("local[2]") as spark,
    ):
        spark.dataSource.register(CeilingDataSource)
        yield SparkArena(spark, kafka)


def _report(run: Run) -> None:
    console = Console(width=160)
    for benchmark in dict.fromkeys(one.benchmark for one in run.measurements):
        headings, *rows = figures_rows(benchmark, run.measurements)
        table = Table(*headings, title=f"{benchmark}: medians (smallest to largest)")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    console.print(targets_table([run], TARGETS))


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer records and turns")
    parser.add_argument("--records", type=int, help="records that a read has, 5,000,000")
    parser.add_argument("--turns", type=int, help="turns of each contender, 5")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=BENCHMARKS)
    parser.add_argument("--json", type=Path, help="write every figure, the machine and versions")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
