"""`foreach_batch`: what `DataStreamWriter.foreachBatch` calls to write each micro-batch to Kafka.

Spark refuses output mode update for a Python sink; in `foreachBatch` it is there.

Source: Spark's Structured Streaming Programming Guide (`foreachBatch`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame


def foreach_batch(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Return a function that writes a micro-batch with these options, for `foreachBatch`.

    The options are those of a write (docs/spark.md); names are not case-sensitive. It works with
    every output mode, update too, and delivers at least once: a batch that Spark repeats is written
    again. The function returns when every row is acknowledged. It takes the batch's number, as
    Spark passes it, and does not use it.

    Raises: nothing here. The function raises what ``DataFrameWriter.save`` does, PySpark's
    exceptions with the connector's reason: a bad option or column (`ConfigError`), or the first row
    that failed, which ends the query.
    """
    given = dict(options)

    def write(batch: DataFrame, number: int) -> None:
        batch.write.format("pykafka").mode("append").options(**given).save()

    return write
