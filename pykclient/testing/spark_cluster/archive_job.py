"""A driver that makes a JVM load a Spark cluster's classes, for `spark_classes`.

Its argument is a checkpoint folder.

Owner: the process itself.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    counts = rows.mapInArrow(unchanged, rows.schema).groupBy("value").count()
    query = (
        counts.writeStream.format("noop")
        .outputMode("complete")
        .option("checkpointLocation", sys.argv[1])
        .start()
    )
    while query.lastProgress is None:
        query.awaitTermination(1)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
