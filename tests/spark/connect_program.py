"""An application that uses Spark Connect, in a process of its own.

Its arguments are `SERVERS TOPIC FOLDER`, and `true` if Spark sends rows through a Unix socket, else
`false`.

A server and the classic session of other tests cannot live in one process. PySpark 4.0.0 sometimes
loses a Python process (its SPARK-52642), so there a task is repeated, as on a cluster. If the
server does not find the format by itself, the application registers it. It writes what it found as
one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_connector import LagListener, foreach_batch, register
from spark_connector.versions import PYSPARK
from tests.spark.connect_query import start_query
from tests.spark.small_sources import Calls, NotedSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

LAG_S = 60.0
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
NO_ERROR = "no error"


def main(servers: str, topic: str, folder: str, has_unix_sockets: str) -> None:
    master = "local[2]" if PYSPARK >= (4, 1) else "local[2, 4]"
    builder = SparkSession.builder.remote(master).config(UNIX_SOCKETS, has_unix_sockets)
    spark = builder.getOrCreate()
    options = {"kafka.bootstrap.servers": servers}
    found: dict[str, object] = {"session": type(spark).__module__}
    found["unix sockets"] = spark.conf.get(UNIX_SOCKETS)
    records = spark.read.format("pykafka").options(subscribe=topic, **options).load()
    found["discovery"] = message_of(lambda: records.columns)
    if found["discovery"] != NO_ERROR:
        register(spark)
    found["columns"] = records.columns
    found["empty"] = records.count()
    numbers = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
    numbers.write.format("pykafka").mode("append").options(topic=topic, **options).save()
    found["written"] = records.count()

    listener = LagListener({"subscribe": topic, **options})
    spark.streams.addListener(listener)
    stream = spark.readStream.format("pykafka").option("startingOffsets", "earliest")
    counts = stream.options(subscribe=topic, **options).load().groupBy().count()
    copy = counts.selectExpr("concat('count ', count) AS value").writeStream.outputMode("update")
    query = start_query(
        copy.foreachBatch(foreach_batch({"topic": topic, **options}))
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
    )
    found["ended"] = query.awaitTermination(120)
    found["copied"] = records.where("value LIKE 'count%'").count()
    deadline_s = time.monotonic() + LAG_S
    while not listener.history and time.monotonic() < deadline_s:
        time.sleep(0.05)
    found["lag"] = [lag.metrics()["maxOffsetsBehindLatest"] for lag in listener.history]
    spark.streams.removeListener(listener)

    found |= written_once(spark, servers, topic, folder)

    spark.dataSource.register(NotedSource)
    noted = f"{folder}/noted"
    frame = spark.read.format("noted").option("calls", noted).load()
    frame.createOrReplaceTempView("planned_once")
    found["rows"] = [frame.count(), frame.count(), spark.table("planned_once").count()]
    found["plans"] = len(Calls(noted).of("partitions"))

    wrong = spark.read.format("pykafka").options(subscrib=topic, **options)
    found["option"] = message_of(lambda: wrong.load().columns)
    found["mode"] = message_of(numbers.write.format("pykafka").options(topic=topic).save)
    missing = spark.read.format("pykafka").options(subscribe="no-such-topic", **options).load()
    found["topic"] = message_of(missing.count)
    sys.stdout.write(f"{json.dumps(found)}\n")
    spark.stop()


def written_once(spark: SparkSession, servers: str, topic: str, folder: str) -> dict[str, object]:
    """Write exactly once in foreachBatch.

    It runs a query, repeats it, and runs it with another checkpoint; then it runs two queries at a
    time, whose owner Spark does not tell.
    """
    source = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    sink = {"kafka.bootstrap.servers": servers, "topic": topic, "delivery": "exactly_once"}
    rows = spark.readStream.format("pykafka").options(**source).load().selectExpr("value")

    def run(checkpoint: str, **more: str) -> str:
        return run_function(checkpoint, foreach_batch({**sink, "sinkId": topic, **more}))

    def run_function(checkpoint: str, function: Callable[[DataFrame, int], None]) -> str:
        writer = rows.where("value NOT LIKE 'once%'").selectExpr("concat('once ', value) AS value")
        query = start_query(
            writer.writeStream.foreachBatch(function)
            .option("checkpointLocation", f"{folder}/{checkpoint}")
            .trigger(availableNow=True)
        )
        return message_of(lambda: query.awaitTermination(120))

    found: dict[str, object] = {"first": run("first")}
    written = spark.read.format("pykafka").options(**source).load().where("value LIKE 'once%'")
    found["once"] = written.count()
    found["repeated"] = repeat_last_batch(f"{folder}/first") and run("first")
    found["once again"] = written.count()
    found["other checkpoint"] = run("other")

    def own(batch: DataFrame, _: int) -> None:
        options = {**sink, "sinkId": f"{topic}-own"}
        batch.write.format("pykafka").mode("append").options(**options).save()

    def own_numbered(batch: DataFrame, number: int) -> None:
        options = {**sink, "sinkId": f"{topic}-own", "batchId": str(number)}
        batch.write.format("pykafka").mode("append").options(**options).save()

    found["own"] = run_function("own", own)
    found["own with a number"] = run_function("own-2", own_numbered)
    beside = (
        rows.writeStream.format("noop").option("checkpointLocation", f"{folder}/beside").start()
    )
    found["beside"] = run("beside-2", sinkId=f"{topic}-2")
    found["named"] = run("beside-3", sinkId=f"{topic}-3", sinkOwner="orders")
    beside.stop()
    return found


def repeat_last_batch(checkpoint: str) -> bool:
    """Remove the last commit so that Spark repeats the batch, as after a crash."""
    commits = Path(checkpoint, "commits")
    last = max(int(each.name) for each in commits.glob("[0-9]*"))
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink()
    return True


def message_of(action: Callable[[], object]) -> str:
    try:
        action()
    except PySparkException as error:
        return str(error)
    return NO_ERROR


if __name__ == "__main__":
    main(*sys.argv[1:])
