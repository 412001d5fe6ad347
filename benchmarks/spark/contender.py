"""Contender: one way to read Kafka from Spark, as it stands in the results.

Owner: none; contenders are immutable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.readwriter import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

VALUE_ONLY = "value BINARY"


@dataclass(frozen=True, slots=True)
class Contender:
    """A format with options; with a `schema` it reads only these columns."""

    name: str
    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None

    def reader(self, spark: SparkSession, servers: str, topic: str) -> DataFrameReader:
        """``spark.read`` with all options but those under test."""
        reader = spark.read.format(self.format).options(**self._options(servers, topic))
        return reader if self.schema is None else reader.schema(self.schema)

    def stream(self, spark: SparkSession, servers: str, topic: str) -> DataStreamReader:
        """``spark.readStream`` with all options but those under test."""
        return spark.readStream.format(self.format).options(**self._options(servers, topic))

    def _options(self, servers: str, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": servers, "subscribe": topic, **self.options}


OURS = Contender("pykclient", "pykafka")
OURS_VALUE = Contender("pykclient, value only", "pykafka", schema=VALUE_ONLY)
OURS_SHARED = Contender("pykclient, two tasks", "pykafka", {"maxPartitions": "2"})
OURS_ONCE = Contender("pykclient, exactly once", "pykafka", {"delivery": "exactly_once"})
"""A sink, whose rival is `OURS`."""
OFFICIAL = Contender("Spark's own", "kafka")
TUNED = Contender(
    "Spark's own, tuned",
    "kafka",
    {
        "kafka.max.poll.records": "10000",
        "kafka.max.partition.fetch.bytes": str(4 * 2**20),
        "kafka.receive.buffer.bytes": str(2**20),
    },
)
CEILING = Contender("ceiling", "ceiling")
CEILING_VALUE = Contender("ceiling, value only", "ceiling", schema=VALUE_ONLY)
