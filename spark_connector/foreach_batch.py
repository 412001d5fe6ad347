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
    every output mode, update too. It delivers at least once: a batch that Spark repeats is written
    again. With `delivery` ``exactly_once`` and a `sinkId`, a batch that is repeated is written
    once, by the number that Spark passes; each function needs a `sinkId` of its own. The function
    returns when every row is acknowledged, and committed.

    Raises: nothing here. The function raises what ``DataFrameWriter.save`` does, PySpark's
    exceptions with the connector's reason: a bad option or column (`ConfigError`), or the first row
    that failed, which ends the query.
    """
    given = dict(options)

    def write(batch: DataFrame, number: int) -> None:
        delivery = [value for name, value in given.items() if name.lower() == "delivery"]
        # Rows that are written at least once have no use for a number.
        numbered = {"batchId": str(number)} if delivery[-1:] not in ([], ["at_least_once"]) else {}
        batch.write.format("pykafka").mode("append").options(**{**given, **numbered}).save()

    return write
