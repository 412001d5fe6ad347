"""Memory that Spark needs to read large records through ``format("pykafka")``.

One broker, one topic of two partitions, records of 500 kB, 1 GB in all, lz4, two local Spark
threads, the `noop` sink. In the first case each record is a batch of its own; in the second, forty
that compress well are one, which is 20 MB when it is decompressed. The kernel keeps the peak of
each Python worker; the JVM is asked every 20 ms for its direct memory, that of Netty included.

    python benchmarks/spark_memory.py [--records N] [--value-bytes N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from measuring.contest import in_turns
from measuring.machine import describe
from pykclient import Admin, NewTopic, Producer
from pykclient.testing import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = Path(__file__).parents[1]
PARTITION_COUNT: Final = 2
WORKER_BYTES_TARGET: Final = 256_000_000
DIRECT_BYTES_TARGET: Final = 128_000_000
LOOK_S: Final = 0.02


class Case(NamedTuple):
    """The way records are put into batches, and the share of a value that is random."""

    name: str
    topic: str
    records_per_batch: int
    random_part: float


CASES: Final = (
    Case("a record a batch", "single", records_per_batch=1, random_part=0.5),
    Case("forty records a batch", "dense", records_per_batch=40, random_part=0.02),
)


class Memory(NamedTuple):
    """Peaks of one case, in bytes: of the largest Python worker, and of the JVM's direct memory."""

    case: str
    worker_bytes: int
    direct_bytes: int

    @property
    def is_met(self) -> bool:
        """Tell whether both targets are met."""
        return self.worker_bytes <= WORKER_BYTES_TARGET and self.direct_bytes <= DIRECT_BYTES_TARGET


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description="Memory that Spark needs to read large records.")
    parser.add_argument("--records", type=int, default=2_000)
    parser.add_argument("--value-bytes", type=int, default=500_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    found = list(measure(record_count=options.records, value_bytes=options.value_bytes))
    machine = describe(["pykclient", "pyspark", "pyarrow"])
    table = Table(title=", ".join(f"{name} {value}" for name, value in machine.items()))
    for column in ("case", "Python worker", "JVM direct memory"):
        table.add_column(column)
    for memory in found:
        table.add_row(
            memory.case,
            f"{memory.worker_bytes / 1e6:.0f} MB of {WORKER_BYTES_TARGET / 1e6:.0f}",
            f"{memory.direct_bytes / 1e6:.0f} MB of {DIRECT_BYTES_TARGET / 1e6:.0f}",
        )
    Console().print(table)
    if options.json is not None:
        rows = [memory._asdict() for memory in found]
        options.json.write_text(json.dumps({"machine": machine, "memory": rows}))
    return 0 if all(memory.is_met for memory in found) else 1


def measure(
    *, record_count: int = 2_000, value_bytes: int = 500_000, turn_count: int = 1
) -> Iterator[Memory]:
    """Yield the peaks of each case; each turn is a new process, since a JVM keeps its memory."""
    # Spark's Python processes import this checkout, as they would the installed wheel.
    environ = {"PYSPARK_PYTHON": sys.executable, **os.environ, "PYTHONPATH": str(ROOT)}
    with KafkaCluster() as kafka:
        for case in CASES:
            fill(kafka.bootstrap_servers, case, record_count, value_bytes)
        for case in in_turns(CASES, turn_count):
            program = (
                f"import spark_memory as m; "
                f"m.read_case({kafka.bootstrap_servers!r}, {case.topic!r}, {record_count})"
            )
            done = subprocess.run(
                [sys.executable, "-c", program],
                cwd=Path(__file__).parent,
                env=environ,
                stdout=subprocess.PIPE,
                check=True,
            )
            worker_bytes, direct_bytes = map(int, done.stdout.split()[-2:])
            yield Memory(case.name, worker_bytes, direct_bytes)


def fill(bootstrap_servers: str, case: Case, record_count: int, value_bytes: int) -> None:
    """Produce the records of a case into its topic."""
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_topics(
            [NewTopic(case.topic, num_partitions=PARTITION_COUNT, replication_factor=1)]
        )
    random_bytes = int(value_bytes * case.random_part)
    batch_bytes = case.records_per_batch * (value_bytes + 1_000)
    with Producer(
        bootstrap_servers=bootstrap_servers,
        compression_type="lz4",
        batch_size=batch_bytes,
        max_request_size=2 * batch_bytes,
        buffer_memory=2**28,
        linger_ms=1_000,
    ) as producer:
        for number in range(record_count):
            value = random.randbytes(random_bytes) + b"x" * (value_bytes - random_bytes)
            # One partition after the other, so that batches are filled.
            producer.send(case.topic, value, partition=number * PARTITION_COUNT // record_count)


def read_case(bootstrap_servers: str, topic: str, record_count: int) -> None:
    """Read a topic twice, all columns, and print the two peaks."""
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("pykafka memory")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    reader = spark.read.format("pykafka").option("kafka.bootstrap.servers", bootstrap_servers)
    frame = reader.option("subscribe", topic).load()
    with Peaks(spark) as peaks:
        row_count = frame.count()
        frame.write.format("noop").mode("overwrite").save()
    if row_count != record_count:
        raise RuntimeError(f"Spark counted {row_count} rows of {record_count}.")
    print(peaks.worker_bytes, peaks.direct_bytes)
    spark.stop()


class Peaks:
    """The peaks of this process's JVM, which a thread watches, and of the workers below it."""

    def __init__(self, spark: SparkSession) -> None:
        self.worker_bytes = self.direct_bytes = 0
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no other way to it
        self._jvm = jvm
        self._is_over = Event()
        self._thread = Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        # Workers stay for a minute, and the kernel keeps their peaks.
        self.worker_bytes = max(worker_peaks_bytes())

    def _watch(self) -> None:
        pools = self._jvm.java.lang.management.ManagementFactory.getPlatformMXBeans(
            self._jvm.java.lang.Class.forName("java.lang.management.BufferPoolMXBean")
        )
        direct = next(pool for pool in pools if pool.getName() == "direct")
        # Netty's, which Arrow uses, does not count there.
        netty = self._jvm.io.netty.util.internal.PlatformDependent
        while not self._is_over.wait(LOOK_S):
            used_bytes = direct.getMemoryUsed() + max(netty.usedDirectMemory(), 0)
            self.direct_bytes = max(self.direct_bytes, used_bytes)


def worker_peaks_bytes() -> Iterator[int]:
    """Yield the largest resident memory so far of each Python process below this one."""
    parents: dict[int, int] = {}
    peaks_bytes: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            status = path.read_text()
        except OSError:  # it has ended
            continue
        number = int(path.parent.name)
        found = dict(re.findall(r"^(Name|PPid|VmHWM):\s+(\w+)", status, re.MULTILINE))
        parents[number] = int(found["PPid"])
        if found["Name"].startswith("python") and "VmHWM" in found:
            peaks_bytes[number] = int(found["VmHWM"]) * 1024
    for number, peak_bytes in peaks_bytes.items():
        parent = parents[number]
        while parent in parents and parent != os.getpid():
            parent = parents[parent]
        if parent == os.getpid():
            yield peak_bytes


if __name__ == "__main__":
    sys.exit(main())
