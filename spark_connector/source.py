"""KafkaDataSource: the format "pykafka" of ``spark.read``.

Made by Spark in driver processes, from the options of one ``load()``; it checks them and hands them
to a reader. Streams and writes are refused until they are built. The module imports nothing heavy,
because every lookup of an unknown format imports it.

Owner: none, Spark makes one for each plan.
Source: PySpark's Python data source API (``DataSource``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pyspark.errors import PySparkNotImplementedError
from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_connector.batch_reader import KafkaBatchReader

__all__ = ["KafkaDataSource"]


class KafkaDataSource(DataSource):
    """Kafka topics as a Spark source, with the options and columns of Spark's own."""

    @classmethod
    def name(cls) -> str:
        return "pykafka"

    def schema(self) -> StructType:
        """Columns when the user names none. Raises: `ConfigError` for a bad option."""
        from spark_connector.options import KafkaOptions
        from spark_connector.schema import record_schema

        options = KafkaOptions.from_spark(self.options)
        return record_schema(include_headers=options.include_headers)

    def reader(self, schema: StructType) -> KafkaBatchReader:
        """The reader of one batch query; `schema` may be a part of the record's.

        Raises: `ConfigError` for a bad option or a column that records do not have.
        """
        from spark_connector.batch_reader import KafkaBatchReader
        from spark_connector.options import KafkaOptions

        return KafkaBatchReader(KafkaOptions.from_spark(self.options), schema)

    def streamReader(self, schema: StructType) -> NoReturn:
        self._refuse("spark.readStream", "read with spark.read")

    def simpleStreamReader(self, schema: StructType) -> NoReturn:
        self._refuse("spark.readStream", "read with spark.read")

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        self._refuse("DataFrame.write", "send with pykclient.Producer in foreachPartition")

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        self._refuse("DataFrame.writeStream", "send with pykclient.Producer in foreachBatch")

    def _refuse(self, feature: str, advice: str) -> NoReturn:
        raise PySparkNotImplementedError(
            errorClass="NOT_IMPLEMENTED",
            messageParameters={
                "feature": f"{feature} with format 'pykafka' (until it is built, {advice})"
            },
        )
