"""Benchmark: one thing that is measured, as a script of its own and as a part of the suite.

Each benchmark's file has a function that measures: it gets an arena and the settings, lets the
clients take turns, and yields measurements. `run_benchmark` is the command line around it.

Owner: the thread that measures.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from measuring.arena import Arena
from measuring.client import CLIENTS
from measuring.figures import figures_text
from measuring.machine import describe
from measuring.measurement import Measurement, Run, write_run
from measuring.tables import figures_table, targets_table
from pykclient import accel
from pykclient.testing import KafkaCluster
from pykclient.testing.cluster.java import find_java

if TYPE_CHECKING:
    from measuring.client import Client

KAFKA_VERSION = "4.3.1"
SLOW_SHARE = 10


@dataclass(frozen=True, slots=True)
class Settings:
    """The size of a run: records of one job, turns of each client, and which clients."""

    record_count: int
    run_count: int
    clients: frozenset[str]

    def able(self, action: str, clients: Sequence[Client]) -> list[Client]:
        """Choose the wanted clients that can do it, and name the others on stderr."""
        able = []
        for client in clients:
            if client.name not in self.clients:
                continue
            reason = client.missing(action)
            if reason is None:
                able.append(client)
            else:
                sys.stderr.write(f"left out: {client.name}, {action}: {reason}\n")
        return able

    def records_for(self, client: Client) -> int:
        """Return the number of records for a client."""
        return self.record_count // SLOW_SHARE if client.is_slow else self.record_count


Measure = Callable[[Arena, Settings], Iterator[Measurement]]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Its name in results, its title, and the function that measures."""

    name: str
    text: str
    measure: Measure


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return the options that all benchmarks have."""
    names = [client.name for client in CLIENTS]
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--records", type=_count, default=1_000_000, help="records of one job, 1,000,000"
    )
    parser.add_argument("--runs", type=_count, default=5, help="turns of each client, 5")
    parser.add_argument("--clients", nargs="+", choices=names, default=names)
    parser.add_argument("--json", type=Path, help="write every figure, the machine and versions")
    return parser


def run_benchmark(
    benchmark: Benchmark, description: str | None, arguments: Sequence[str] | None = None
) -> int:
    """Run one benchmark as a script: measure, print its table; with `--json` write a file."""
    run_benchmarks([benchmark], parser_of(description).parse_args(arguments))
    return 0


def run_benchmarks(benchmarks: Sequence[Benchmark], options: argparse.Namespace) -> Run:
    """Run one benchmark after the other at one broker, print what comes, and write the JSON.

    Raises:
        ContestantFailedError: a client failed; the benchmarks before are in the JSON.
    """
    settings = Settings(options.records, options.runs, frozenset(options.clients))
    measurements: list[Measurement] = []
    run = Run(_command(), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", _machine(), measurements)
    console = Console()
    console.print(", ".join(f"{name} {value}" for name, value in run.machine.items()))
    with KafkaCluster(version=KAFKA_VERSION) as kafka:
        arena = Arena(kafka.bootstrap_servers)
        for benchmark in benchmarks:
            console.rule(benchmark.text)
            start_s = time.perf_counter()
            for measurement in benchmark.measure(arena, settings):
                measurements.append(measurement)
                text = figures_text(measurement.figures)
                console.print(f"{measurement.case}: {measurement.client}: {text}", highlight=False)
            console.print(
                f"[{benchmark.name}: {time.perf_counter() - start_s:.0f} s]", markup=False
            )
            if options.json:  # after each benchmark, so that a failure later loses only its own
                write_run(options.json, run)
    for benchmark in benchmarks:
        console.print(figures_table(benchmark, measurements))
    console.print(targets_table([run]))
    return run


def _machine() -> dict[str, str]:
    distributions = {client.distribution for client in CLIENTS if client.missing("") is None}
    return {
        **describe(sorted(distributions)),
        "Kafka": KAFKA_VERSION,
        "Java": str(find_java().major_version),
        "pykclient.accel": accel.implementation,
    }


def _command() -> str:
    """Return the command as a reader can repeat it, from the folder of the project."""
    script = Path(sys.argv[0])
    shown = f"benchmarks/{script.name}" if script.suffix == ".py" else script.name
    return shlex.join(["python", shown, *sys.argv[1:]])


def _count(text: str) -> int:
    number = int(text.replace(",", "").replace("_", ""))
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number
