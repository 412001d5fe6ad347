"""Kafka for Apache Spark: the format "pykafka".

Spark finds the format by itself where this distribution is installed, on the driver and on every
executor. Where discovery is off, call `register` once for each session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make format "pykafka" known to one session."""
    from spark_connector.source import KafkaDataSource

    spark.dataSource.register(KafkaDataSource)
