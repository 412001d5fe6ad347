"""SparkQuestion: asks Spark for the delays per airline, from the topic through `pykafka`.

A local Spark session is started on entry and stopped on leaving. The data source is found by its
format name alone, as any user of the installed package would find it.

Owner: the thread that entered it.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from flights.delays import AirlineDelay

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

LOG_SETTINGS = Path(__file__).with_name("spark-log4j2.properties").as_uri()
# The columns of the JSON that the question needs.
FLIGHT_COLUMNS = "carrier STRING, dep_delay INT"


class SparkQuestion:
    """A Spark session that can answer the demo's question."""

    def __enter__(self) -> SparkQuestion:
        # Spark's workers run the interpreter that this names, by default whatever `python3` is.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # Everything stays on this machine; Spark would guess at an address of its own, and say so.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Spark says so whether or not pandas is used; here it is not.
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        self._spark = (
            SparkSession.builder.master("local[2]")
            .appName("pykclient flights demo")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={LOG_SETTINGS}")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            # Python tasks answer some 40 ms sooner than over loopback TCP.
            .config("spark.python.unix.domain.socket.enabled", "true")
            .getOrCreate()
        )
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._spark.stop()

    def ask(
        self, bootstrap_servers: str, topic: str, airlines: Mapping[str, str]
    ) -> list[AirlineDelay]:
        """Flights and mean departure delay of each airline in the topic, ordered by carrier."""
        records = (
            self._spark.read.format("pykafka")
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .option("subscribe", topic)
            .load()
        )
        flights = records.select(
            sql.from_json(sql.col("value").cast("string"), FLIGHT_COLUMNS).alias("flight")
        ).select("flight.*")
        answer = (
            flights.groupBy("carrier")
            .agg(
                sql.count("*").alias("flight_count"),
                sql.count("dep_delay").alias("departed_count"),
                sql.avg("dep_delay").alias("mean_delay_minutes"),
            )
            .orderBy("carrier")
        )
        return [
            AirlineDelay(
                row["carrier"],
                airlines[row["carrier"]],
                row["flight_count"],
                row["departed_count"],
                row["mean_delay_minutes"],
            )
            for row in answer.collect()
        ]
