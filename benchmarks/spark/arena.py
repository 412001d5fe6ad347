"""SparkArena: a Spark session beside a Kafka cluster, and what benchmarks need of both.

Owner: the thread that made it.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from measuring.arena import PARTITION_COUNT, VALUE_BYTES, Arena
from pykclient import Consumer, Producer, TopicPartition
from spark.processes import CpuMeter
from tests.spark.official_connector import official_classpath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pykclient.testing import KafkaCluster

ROOT = Path(__file__).parents[2]
SESSION_CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
IMPORT_PATH = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])
CHUNK_ROWS = 100_000
BATCH_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """The size of a run.

    It has the records of a read, the rows of a write, the turns of each contender, and the batches
    in a turn of a stream.
    """

    record_count: int
    written_count: int
    turn_count: int
    batch_count: int


@contextmanager
def session(master: str, config: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Open a session with Unix sockets to its Python workers and the jars of Spark's source."""
    # Its Python processes import this checkout, as they would the installed wheel.
    os.environ["PYTHONPATH"] = IMPORT_PATH
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("pykafka benchmark")
    jars = {"spark.driver.extraClassPath": official_classpath()}
    for name, value in {**SESSION_CONFIG, **jars, **(config or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


class SparkArena:
    """A Spark session and a Kafka cluster at which contenders take turns."""

    def __init__(self, spark: SparkSession, kafka: KafkaCluster) -> None:
        self.spark = spark
        self.kafka = kafka
        self.servers = kafka.bootstrap_servers
        self._topics = Arena(self.servers)
        self._jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # noqa: SLF001 (PySpark has no public name for it)

    @contextmanager
    def topic(self, partition_count: int = PARTITION_COUNT) -> Iterator[str]:
        """Provide a new topic, which is deleted afterwards."""
        with self._topics.topic(partition_count) as name:
            yield name

    @contextmanager
    def filled_topic(self, record_count: int, compression: str = "none") -> Iterator[str]:
        """Provide a new topic with records of 8 and 100 bytes, evenly in its partitions."""
        with self.topic() as name:
            settings = {"batch.size": BATCH_BYTES, "compression.type": compression}
            with Producer(settings, bootstrap_servers=self.servers) as producer:
                for first in range(0, record_count, CHUNK_ROWS):
                    count = min(CHUNK_ROWS, record_count - first)
                    producer.send_arrow(name, records(first, count)).result()
            if (arrived := self.record_count(name)) != record_count:
                raise RuntimeError(f"{arrived} of {record_count} records arrived in {name}")
            yield name

    def record_count(self, topic: str) -> int:
        """Count a topic's records by its end offsets."""
        with Consumer(bootstrap_servers=self.servers) as consumer:
            parts = [
                TopicPartition(topic, part.partition) for part in consumer.partitions_for(topic)
            ]
            return sum(consumer.end_offsets(parts).values())

    def timed(self, job: Callable[[], None]) -> dict[str, float]:
        """Wall time and CPU of a job: Spark's with its Python processes, and all others'."""
        spark, others = self.spark_meter(), CpuMeter(os.getpid(), but=self._jvm)
        started = time.perf_counter()
        job()
        seconds = time.perf_counter() - started
        return {
            "seconds": seconds,
            "spark_cpu_s": spark.seconds(),
            "other_cpu_s": others.seconds(),
        }

    def spark_meter(self) -> CpuMeter:
        """Return a meter of the JVM and its Python processes."""
        return CpuMeter(self._jvm)


def records(first: int, count: int) -> pa.Table:
    """Build records as applications send them: keys of 8 bytes, values of 100, half noise."""
    numbers = pa.array(range(first, first + count))
    text = numbers.cast(pa.string())
    key = pc.utf8_lpad(text, 8, "0")
    noise = pc.utf8_slice_codeunits(
        pc.floor(pc.multiply(pc.random(count), 1e15)).cast(pa.int64()).cast(pa.string()), 0, 15
    )
    value = pc.binary_join_element_wise(
        '{"id": ', key, ', "name": "customer ', key, '", "amount": ', noise, ', "paid": true}', ""
    )
    value = pc.utf8_slice_codeunits(pc.utf8_rpad(value, VALUE_BYTES, " "), 0, VALUE_BYTES)
    partition = pc.subtract(
        numbers, pc.multiply(pc.divide(numbers, PARTITION_COUNT), PARTITION_COUNT)
    )
    return pa.table(
        {
            "key": key.cast(pa.binary()),
            "value": value.cast(pa.binary()),
            "partition": partition.cast(pa.int32()),
        }
    )
