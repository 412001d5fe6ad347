"""A driver: a query from Kafka to Kafka over numbered records; its only argument is a job in JSON.

It runs to the end of its input; a live query runs until the file `stop` exists. A line is printed
after each batch. The options for reaching the brokers, including a password, are in a file.

Owner: the process itself.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

LOOK_S = 1


class Reporter(StreamingQueryListener):
    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        report("STARTED", event.runId)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        report("BATCH", event.progress.batchId)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass


def report(what: str, value: object) -> None:
    sys.stdout.write(f"{what} {value}\n")
    sys.stdout.flush()


def written(records: DataFrame, *, is_stateful: bool) -> DataFrame:
    """Return the rows to write: each number, to the partition it was read from, or the state."""
    number = F.col("value").cast("string")
    if not is_stateful:
        return records.select(number.alias("value"), "partition")
    # The state keeps all numbers read, so that a doubled one shows.
    numbers = records.groupBy("partition").agg(F.collect_list(number).alias("numbers"))
    return numbers.select(F.to_json("numbers").alias("value"), "partition")


def main() -> None:
    job: dict[str, Any] = json.loads(sys.argv[1])
    brokers: dict[str, str] = json.loads(Path(job["brokers"]).read_text())
    spark = SparkSession.builder.getOrCreate()
    spark.streams.addListener(Reporter())
    reader = spark.readStream.format(job["source"]).options(**brokers, **job["read"])
    records = reader.load()
    writer = (
        written(records, is_stateful=job["is_stateful"])
        .writeStream.format("pykafka")
        .options(**brokers, **job["write"])
        .option("checkpointLocation", job["checkpoint"])
        .outputMode("complete" if job["is_stateful"] else "append")
    )
    stop = Path(job["stop"])
    if not job["is_live"]:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        query.explain(True)
        return
    query = writer.start()
    while not stop.exists():
        query.awaitTermination(LOOK_S)
    query.processAllAvailable()
    query.stop()


if __name__ == "__main__":
    main()
