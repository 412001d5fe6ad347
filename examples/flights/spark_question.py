"""SparkQuestion: asks Spark for the delays per airline, from the topic through `pykafka`.

A local Spark session is started on entry and stopped on leaving. The data source is found by its
format name alone, as any user of the installed package would find it.

Owner: the thread that entered it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from flights.delays import AirlineDelay

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

__all__ = ["SparkQuestion"]

# The columns of the JSON that the question needs.
FLIGHT_COLUMNS = "carrier STRING, dep_delay INT"


class SparkQuestion:
    """A Spark session that can answer the demo's question."""

    def __enter__(self) -> SparkQuestion:
        # Spark's workers run the interpreter that this names, by default whatever `python3` is.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        self._spark = (
            SparkSession.builder.master("local[2]")
            .appName("pykclient flights demo")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            # Python tasks answer some 40 ms sooner than over loopback TCP.
            .config("spark.python.unix.domain.socket.enabled", "true")
            .getOrCreate()
        )
        self._spark.sparkContext.setLogLevel("ERROR")
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
        names = self._spark.createDataFrame(list(airlines.items()), "carrier STRING, name STRING")
        answer = (
            flights.groupBy("carrier")
            .agg(
                sql.count("*").alias("flight_count"),
                sql.count("dep_delay").alias("departed_count"),
                sql.avg("dep_delay").alias("mean_delay_minutes"),
            )
            .join(names, "carrier", "left")
            .orderBy("carrier")
        )
        return [
            AirlineDelay(
                row["carrier"],
                row["name"],
                row["flight_count"],
                row["departed_count"],
                row["mean_delay_minutes"],
            )
            for row in answer.collect()
        ]
