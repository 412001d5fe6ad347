"""Kafka for Apache Spark: the format "pykafka".

Spark finds the format by itself where this distribution is installed, on the driver and on every
executor. Where discovery is off, call `register` once for each session. Where Spark does not find
it ("DATA_SOURCE_NOT_FOUND ... pykafka"), its workers run another Python: see `PYSPARK_PYTHON`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make format "pykafka" known to one session.

    Raises:
        UsageError: the Python that Spark's workers run on this machine does not have this package.
    """
    # Imported here: Spark looks at this module for the format's name alone.
    from spark_connector.source import KafkaDataSource
    from spark_connector.worker_python import check_worker_python

    check_worker_python(spark)
    spark.dataSource.register(KafkaDataSource)
