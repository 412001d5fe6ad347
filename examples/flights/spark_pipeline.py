"""SparkPipeline: a stream from Kafka through Spark into Kafka and Parquet, and what it has written.

A local Spark session is started on entry and stopped on leaving. The format is found by its name
alone, as any user of the installed package would find it.

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

from flights.weeks import AirlineWeek
from spark_connector import LagListener, foreach_batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from pyspark.sql import DataFrame

LOG_SETTINGS = Path(__file__).with_name("spark-log4j2.properties").as_uri()
FLIGHT_COLUMNS = "time_hour TIMESTAMP, carrier STRING, dep_delay INT"
"""The columns of the flights' JSON that the pipeline needs."""
WEEK_COLUMNS = (
    "begin DATE, carrier STRING, flight_count BIGINT, departed_count BIGINT, delay_minutes BIGINT"
)
WINDOW = "7 days"
WATERMARK = "14 days"
"""Partitions are read side by side, each an equal part of the year in a batch; one is up to five
days ahead of another, since airlines fly more in some months."""
BATCH_FLIGHTS = 50_000
QUERY_S_MAX = 900


class SparkPipeline:
    """A Spark session, and the stream that makes weeks of flights in it."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        self._servers = {"kafka.bootstrap.servers": bootstrap_servers}
        self._parquet = str(folder / "weeks")
        self._checkpoint = str(folder / "checkpoint")

    def __enter__(self) -> SparkPipeline:
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
            .config("spark.sql.session.timeZone", "UTC")
            # Python tasks take some 40 ms less than over loopback TCP.
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

    def run(self, source: str, target: str, on_lag: Callable[[LagListener], object]) -> LagListener:
        """Read all of topic `source`, and write its weeks to topic `target` and as Parquet.

        `on_lag` is called after each micro-batch. The result has the lag of the whole run.

        Raises:
            TimeoutError: the query did not end in `QUERY_S_MAX`.
        """
        given = self._servers | {
            "subscribe": source,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(BATCH_FLIGHTS),
        }
        listener = LagListener(given, on_lag=lambda _: on_lag(listener))
        self._spark.streams.addListener(listener)
        weeks = _weeks_of(self._spark.readStream.format("pykafka").options(**given).load())
        query = (
            weeks.writeStream.queryName("flights by week")
            # A week is written each time that flights are added to it: the last one counts.
            .outputMode("update")
            .foreachBatch(self._written_to(target))
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        if not query.awaitTermination(QUERY_S_MAX):
            raise TimeoutError(f"the query did not end in {QUERY_S_MAX} s")
        return listener

    def weeks_in_kafka(self, topic: str) -> list[AirlineWeek]:
        """Return the last value of each week in the topic that `run` has written."""
        read = self._spark.read.format("pykafka").options(subscribe=topic, **self._servers)
        text = sql.col("value").cast("string")
        frame = read.load().select("offset", sql.from_json(text, WEEK_COLUMNS).alias("week"))
        # Weeks have keys, so all values of one stand in the same partition, in order.
        return _last_weeks(frame.select(sql.col("offset").alias("place"), "week.*"))

    def weeks_in_parquet(self) -> list[AirlineWeek]:
        """Return the last value of each week in the files that `run` has written."""
        frame = self._spark.read.parquet(self._parquet)
        return _last_weeks(frame.withColumnRenamed("batch", "place"))

    def _written_to(self, topic: str) -> Callable[[DataFrame, int], None]:
        to_kafka = foreach_batch(self._servers | {"topic": topic})

        def write(batch: DataFrame, number: int) -> None:
            batch = batch.persist()
            columns = sql.struct(*batch.columns)
            key = sql.concat_ws(" ", "begin", "carrier")
            to_kafka(batch.select(key.alias("key"), sql.to_json(columns).alias("value")), number)
            batch.withColumn("batch", sql.lit(number)).write.mode("append").parquet(self._parquet)
            batch.unpersist()

        return write


def _weeks_of(records: DataFrame) -> DataFrame:
    """Flights of each airline in windows of a week, from the records' JSON."""
    text = sql.col("value").cast("string")
    flights = records.select(sql.from_json(text, FLIGHT_COLUMNS).alias("flight")).select("flight.*")
    return (
        flights.withWatermark("time_hour", WATERMARK)
        .groupBy(sql.window("time_hour", WINDOW), "carrier")
        .agg(
            sql.count("*").alias("flight_count"),
            sql.count("dep_delay").alias("departed_count"),
            sql.coalesce(sql.sum("dep_delay"), sql.lit(0)).alias("delay_minutes"),
        )
        .withColumn("begin", sql.to_date("window.start"))
        .select("begin", "carrier", "flight_count", "departed_count", "delay_minutes")
    )


def _last_weeks(frame: DataFrame) -> list[AirlineWeek]:
    """Return the weeks that were written last for each airline, by their `place`."""
    names = AirlineWeek._fields
    last = sql.max_by(sql.struct(*names[2:]), "place").alias("last")
    rows = frame.groupBy(*names[:2]).agg(last).select(*names[:2], "last.*").collect()
    return sorted(AirlineWeek(*row) for row in rows)
