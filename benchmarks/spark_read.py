"""How many rows a second does Spark read from Kafka through ``format("pykafka")``?

One broker, one topic of 6 partitions, 100-byte values with 8-byte keys, two local Spark threads,
the `noop` sink. The rows are counted once, before anything is timed; each query runs several times
after one to warm up, and the table shows medians.

    python benchmarks/spark_read.py [--records N] [--runs N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from measuring.machine import describe
from pykclient import Admin, NewTopic, Producer
from pykclient.testing import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

TOPIC = "rows"
PARTITION_COUNT = 6
VALUE = b"x" * 100
# Name of a query -> the schema that the user gives; the whole record when there is none.
QUERIES = {"all columns": None, "value only": "value BINARY"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill a topic, read it, print the table; 1 when rows are missing."""
    parser = argparse.ArgumentParser(description="Rows a second that Spark reads from Kafka.")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    # Spark's Python processes import this checkout, as they would the installed wheel.
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with KafkaCluster() as kafka:
        fill(kafka.bootstrap_servers, options.records)
        spark = start_spark()
        try:
            row_count = records(spark, kafka.bootstrap_servers).count()
            if row_count != options.records:
                sys.stderr.write(f"Spark counted {row_count} rows of {options.records}\n")
                return 1
            seconds = {
                name: timed(records(spark, kafka.bootstrap_servers, schema), options.runs)
                for name, schema in QUERIES.items()
            }
        finally:
            spark.stop()
    report({name: options.records / median(runs) for name, runs in seconds.items()}, options.json)
    return 0


def fill(bootstrap_servers: str, record_count: int) -> None:
    """Produce the records, evenly over the partitions."""
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITION_COUNT, replication_factor=1)])
    with Producer(bootstrap_servers=bootstrap_servers, batch_size=1_000_000) as producer:
        for number in range(record_count):
            delivery = producer.send(
                TOPIC, VALUE, b"%08d" % number, partition=number % PARTITION_COUNT
            )
        producer.flush()
        delivery.result(timeout=60)


def start_spark() -> SparkSession:
    """Two local threads, and Unix sockets to the Python workers."""
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("pykafka benchmark")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def records(spark: SparkSession, bootstrap_servers: str, schema: str | None = None) -> DataFrame:
    """The topic as a frame."""
    reader = spark.read.format("pykafka")
    if schema is not None:
        reader = reader.schema(schema)
    return (
        reader.option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", TOPIC)
        .load()
    )


def timed(frame: DataFrame, run_count: int) -> list[float]:
    """Seconds of each run, the first one left out."""
    seconds = []
    for _ in range(run_count + 1):
        started = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - started)
    return seconds[1:]


def report(rows_per_second: dict[str, float], file: Path | None) -> None:
    """Print the table, and write it as JSON if asked."""
    machine = describe(["pykclient", "pyspark", "pyarrow"])
    table = Table(title=", ".join(f"{name} {value}" for name, value in machine.items()))
    table.add_column("columns")
    table.add_column("rows/s", justify="right")
    for name, rate in rows_per_second.items():
        table.add_row(name, f"{rate:,.0f}")
    Console().print(table)
    if file is not None:
        file.write_text(json.dumps({"machine": machine, "rows_per_second": rows_per_second}))


if __name__ == "__main__":
    sys.exit(main())
