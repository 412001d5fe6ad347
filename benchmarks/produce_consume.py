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
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.table import Table

from contestants.job import Job
from machine import describe
from pykclient import Admin, Consumer, NewTopic, TopicPartition, accel
from pykclient.testing import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FOLDER = Path(__file__).parent
KAFKA_VERSION = "4.3.1"
PARTITION_COUNT = 6
VALUE_BYTES = 100
ACTIONS = ("produce", "consume")


class Client(NamedTuple):
    """Where a client is found: its package, and the distribution that has the version."""

    package: str
    distribution: str


CLIENTS = {
    "pykclient": Client("pykclient", "pykclient"),
    "kafka_python": Client("kafka", "kafka-python"),
    "confluent_kafka": Client("confluent_kafka", "confluent-kafka"),
}
BASELINE = "kafka_python"


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
        self._topic_count = 0

    def runs(self, clients: Sequence[str], run_count: int) -> Iterator[Run]:
        """Let each client produce and consume `run_count` times."""
        shared = self.new_topic("consumed")
        self._run("pykclient", "produce", shared)
        for turn in range(run_count):
            first = turn % len(clients)
            for client in [*clients[first:], *clients[:first]]:
                topic = self.new_topic("produced")
                yield self._run(client, "produce", topic)
                self.check_arrival(topic)
                self._delete(topic)
                yield self._run(client, "consume", shared)
        self._delete(shared)

    def new_topic(self, stem: str) -> str:
        """Create a topic and return its name."""
        self._topic_count += 1
        name = f"bench-{stem}-{os.getpid()}-{self._topic_count}"
        with Admin(bootstrap_servers=self._servers) as admin:
            admin.create_topics(
                [NewTopic(name, num_partitions=PARTITION_COUNT, replication_factor=1)]
            )
        return name

    def check_arrival(self, topic: str) -> None:
        """Raise unless the broker has every record of a run."""
        partitions = [TopicPartition(topic, index) for index in range(PARTITION_COUNT)]
        with Consumer(bootstrap_servers=self._servers) as consumer:
            arrived_count = sum(consumer.end_offsets(partitions).values())
        if arrived_count != self._record_count:
            raise RuntimeError(f"{arrived_count} of {self._record_count} records are in {topic}")

    def _delete(self, topic: str) -> None:
        with Admin(bootstrap_servers=self._servers) as admin:
            admin.delete_topics([topic])

    def _run(self, client: str, action: str, topic: str) -> Run:
        job = Job(self._servers, topic, PARTITION_COUNT, self._record_count, VALUE_BYTES)
        settings = json.dumps(asdict(job))
        process = subprocess.run(
            [sys.executable, "-m", "contestants", f"with_{client}", action, settings],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, _import_path()))},
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


def _import_path() -> list[Path]:
    """Where a run finds the contestants, and this very pykclient."""
    return [FOLDER, Path(accel.__file__).parents[2]]


def comparison(runs: Sequence[Run], clients: Sequence[str]) -> list[tuple[str, ...]]:
    """The table's rows: job, client, records/s with its ratio to the baseline, CPU with its."""
    rows: list[tuple[str, ...]] = []
    for action in ACTIONS:
        baseline = _medians(runs, BASELINE, action) if BASELINE in clients else None
        for client in clients:
            rate, cpu = _medians(runs, client, action)
            ratios = ("", "")
            if baseline is not None:
                ratios = (f"{rate / baseline[0]:.2f}x", f"{cpu / baseline[1]:.2f}x")
            rows.append((action, client, f"{rate:,.0f}", ratios[0], f"{cpu:.2f}", ratios[1]))
    return rows


def _medians(runs: Sequence[Run], client: str, action: str) -> tuple[float, float]:
    of_client = [run for run in runs if (run.client, run.action) == (client, action)]
    return (
        median(run.records_per_second for run in of_client),
        median(run.cpu_seconds_per_million for run in of_client),
    )


def write_json(path: Path, machine: Mapping[str, str], runs: Sequence[Run]) -> None:
    """Write every run, and what it ran on."""
    content = {"machine": machine, "runs": [asdict(run) for run in runs]}
    path.write_text(json.dumps(content, indent=1))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and write the JSON if it was asked for."""
    installed = [name for name, client in CLIENTS.items() if find_spec(client.package)]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=100_000, help="records per run")
    parser.add_argument("--runs", type=int, default=5, help="runs per client and job")
    parser.add_argument("--clients", nargs="+", choices=installed, default=installed)
    parser.add_argument("--json", type=Path, help="write every run, the machine and the versions")
    options = parser.parse_args(arguments)

    machine = {
        **describe([CLIENTS[client].distribution for client in options.clients]),
        "Kafka": KAFKA_VERSION,
        "pykclient.accel": accel.implementation,
    }
    console = Console()
    console.print(", ".join(f"{name} {value}" for name, value in machine.items()))
    runs = []
    with KafkaCluster(version=KAFKA_VERSION) as kafka:
        for run in Arena(kafka.bootstrap_servers, options.records).runs(
            options.clients, options.runs
        ):
            console.print(
                f"{run.action} {run.client}: {run.records_per_second:,.0f} records/s, "
                f"{run.cpu_seconds_per_million:.2f} CPU s per million"
            )
            runs.append(run)
    table = Table("job", "client", "records/s", "", "CPU s per million", "")
    table.title = f"Medians, with the ratio to {CLIENTS[BASELINE].distribution}"
    for row in comparison(runs, options.clients):
        table.add_row(*row)
    console.print(table)
    if options.json:
        write_json(options.json, machine, runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
