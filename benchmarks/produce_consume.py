"""How many records a second does each client produce and consume, and what does it cost in CPU?

One broker, one topic of 6 partitions per run, 100-byte values without keys. Each run is a process
of its own; the clients take turns, and the order turns too. A produce run counts only when the
broker's end offsets say that every record arrived. The table shows medians.

    python benchmarks/produce_consume.py [--records N] [--runs N] [--clients ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from contestants.job import Job
from machine import describe
from pykclient import Admin, Consumer, NewTopic, TopicPartition, accel
from pykclient.testing import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDER = Path(__file__).parent
# Client -> the package that must be importable, and its distribution's name.
CLIENTS = {
    "pykclient": ("pykclient", "pykclient"),
    "kafka_python": ("kafka", "kafka-python"),
    "confluent_kafka": ("confluent_kafka", "confluent-kafka"),
}
BASELINE = "kafka_python"
KAFKA_VERSION = "4.3.1"
PARTITION_COUNT = 6
VALUE_BYTES = 100


@dataclass(frozen=True, slots=True)
class Run:
    """One client doing one job once."""

    client: str
    action: str
    records_per_second: float
    cpu_seconds_per_million: float


class Arena:
    """A broker, and the clients that take turns at it."""

    def __init__(self, bootstrap_servers: str, record_count: int) -> None:
        self._servers = bootstrap_servers
        self._record_count = record_count

    def runs(self, clients: Sequence[str], run_count: int) -> Iterator[Run]:
        """Let each client produce and consume `run_count` times."""
        shared = self._topic("consumed")
        self._run("pykclient", "produce", shared)
        for turn in range(run_count):
            first = turn % len(clients)
            for client in [*clients[first:], *clients[:first]]:
                topic = self._topic(f"produced-{turn}-{client}")
                yield self._run(client, "produce", topic)
                self._check_arrival(topic)
                with Admin(bootstrap_servers=self._servers) as admin:
                    admin.delete_topics([topic])
                yield self._run(client, "consume", shared)

    def _topic(self, name: str) -> str:
        with Admin(bootstrap_servers=self._servers) as admin:
            admin.create_topics(
                [NewTopic(name, num_partitions=PARTITION_COUNT, replication_factor=1)]
            )
        return name

    def _run(self, client: str, action: str, topic: str) -> Run:
        job = Job(self._servers, topic, PARTITION_COUNT, self._record_count, VALUE_BYTES)
        settings = json.dumps(asdict(job))
        process = subprocess.run(
            [sys.executable, "-m", "contestants", f"with_{client}", action, settings],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(_python_path())},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        taken = json.loads(process.stdout)
        return Run(
            client,
            action,
            records_per_second=self._record_count / taken["seconds"],
            cpu_seconds_per_million=taken["cpu_seconds"] / self._record_count * 1e6,
        )

    def _check_arrival(self, topic: str) -> None:
        partitions = [TopicPartition(topic, index) for index in range(PARTITION_COUNT)]
        with Consumer(bootstrap_servers=self._servers) as consumer:
            arrived_count = sum(consumer.end_offsets(partitions).values())
        if arrived_count != self._record_count:
            raise RuntimeError(f"{arrived_count} of {self._record_count} records are in {topic}")


def _python_path() -> list[str]:
    inherited = os.environ.get("PYTHONPATH")
    return [str(FOLDER), *([inherited] if inherited else [])]


def _table(runs: Sequence[Run], clients: Sequence[str]) -> Table:
    table = Table(title="Medians; in brackets the ratio to kafka-python")
    for heading in ("job", "client", "records/s", "", "client CPU s per million", ""):
        table.add_column(heading, justify="right" if "s" in heading else "left")
    for action in ("produce", "consume"):
        base_rate, base_cpu = _medians(runs, BASELINE, action) if BASELINE in clients else (0, 0)
        for client in clients:
            rate, cpu = _medians(runs, client, action)
            table.add_row(
                action,
                client,
                f"{rate:,.0f}",
                f"({rate / base_rate:.2f}x)" if base_rate else "",
                f"{cpu:.2f}",
                f"({cpu / base_cpu:.2f}x)" if base_cpu else "",
            )
    return table


def _medians(runs: Sequence[Run], client: str, action: str) -> tuple[float, float]:
    of_client = [run for run in runs if (run.client, run.action) == (client, action)]
    return (
        median(run.records_per_second for run in of_client),
        median(run.cpu_seconds_per_million for run in of_client),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and write the JSON if it was asked for."""
    installed = [name for name, (package, _) in CLIENTS.items() if find_spec(package)]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=100_000, help="records per run")
    parser.add_argument("--runs", type=int, default=5, help="runs per client and job")
    parser.add_argument("--clients", nargs="+", choices=installed, default=installed)
    parser.add_argument("--json", type=Path, help="write every run, the machine and the versions")
    options = parser.parse_args(arguments)

    machine = describe([CLIENTS[client][1] for client in options.clients])
    machine |= {"Kafka": KAFKA_VERSION, "pykclient.accel": accel.implementation}
    console = Console()
    console.print(", ".join(f"{name} {value}" for name, value in machine.items()))
    runs = []
    with KafkaCluster(version=KAFKA_VERSION) as kafka:
        arena = Arena(kafka.bootstrap_servers, options.records)
        for run in arena.runs(options.clients, options.runs):
            console.print(
                f"{run.action} {run.client}: {run.records_per_second:,.0f} records/s, "
                f"{run.cpu_seconds_per_million:.2f} CPU s per million"
            )
            runs.append(run)
    console.print(_table(runs, options.clients))
    if options.json:
        options.json.write_text(
            json.dumps({"machine": machine, "runs": [asdict(run) for run in runs]}, indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
