"""One life of a server of Spark Connect: ``SERVERS SOURCE GROUP TARGET FOLDER CUT``.

A query copies a topic to another, exactly once, from where a group has committed. `CUT` is "before"
or "after": the server is killed in the query's batch, before it is written or when it is written
and Spark has not noted it. Else the query ends by itself. The last line of output says how it
ended.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from pyspark import SparkContext
from pyspark.sql import SparkSession

from spark_connector import foreach_batch, register
from tests.spark.connect_query import start_query

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

LIFE_S = 360
KILLED, ENDED = "the server was killed", "the query has ended"


def cut_off(
    server: int, sink: Callable[[DataFrame, int], None], cut: str
) -> Callable[[DataFrame, int], None]:
    """Return the function of the query. Spark calls it in a process of the server."""

    def write(batch: DataFrame, number: int) -> None:
        if cut != "before":
            sink(batch, number)
        if cut in ("before", "after"):
            os.kill(server, signal.SIGKILL)
            raise SystemExit  # not one more step

    return write


def main(servers: str, source: str, group: str, target: str, folder: str, cut: str) -> None:
    spark = SparkSession.builder.remote("local[2, 4]").getOrCreate()
    gateway = SparkContext._gateway
    assert gateway is not None
    server = gateway.proc
    register(spark)
    sink = foreach_batch(
        {
            "kafka.bootstrap.servers": servers,
            "topic": target,
            "delivery": "exactly_once",
            "sinkId": target,
        }
    )
    query = start_query(
        spark.readStream.format("pykafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", f"group:{group}")
        .load()
        .select("value")
        .writeStream.foreachBatch(cut_off(server.pid, sink, cut))
        .option("checkpointLocation", folder)
        .trigger(availableNow=True)
    )
    if cut in ("before", "after"):
        server.wait(LIFE_S)
        end = KILLED
    else:
        assert query.awaitTermination(LIFE_S)
        end = ENDED
    sys.stdout.write(f"{end}\n")
    sys.stdout.flush()
    # The client of a server that is gone would look for it.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
