"""KafkaDataSource: the format "pykafka" of Spark's readers and writers, for batches and streams.

Made by Spark in driver processes, from the options of one ``load()`` or ``save()``; it checks them
and hands them to a reader or a sink. The module imports nothing heavy, because every lookup of an
unknown format imports it.

Owner: none, Spark makes one for each plan.
Source: PySpark's Python data source API (``DataSource``).
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from spark_connector.shown_errors import cause_first
from spark_connector.versions import DataSource, stream_reader_for_spark

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

    from spark_connector.batch_reader import KafkaBatchReader
    from spark_connector.writers import KafkaBatchWriter, KafkaStreamWriter


class KafkaDataSource(DataSource):
    """Kafka topics as a source and a sink, with the options and columns of Spark's own."""

    @cause_first()
    def __init__(self, options: MutableMapping[str, str]) -> None:
        # Imported here: Spark looks at this module for the format's name alone.
        from spark_connector.options import of_spark

        given = copy(options)
        given.update(of_spark(options))
        super().__init__(given)

    def __reduce__(self) -> tuple[Callable[[str, bytes], object], tuple[str, bytes]]:
        # Spark sends it along with a reader or a writer.
        from spark_connector.sent_to_tasks import reduced

        return reduced(self)

    @classmethod
    def name(cls) -> str:
        return "pykafka"

    @cause_first()
    def schema(self) -> StructType:
        """Columns when the user names none, of a batch or a stream: Spark does not say which.

        Raises: `ConfigError` for an option that neither takes.
        """
        from spark_connector.options import includes_headers
        from spark_connector.schema import record_schema

        return record_schema(include_headers=includes_headers(self.options))

    @cause_first()
    def reader(self, schema: StructType) -> KafkaBatchReader:
        """Return the reader of one batch query; `schema` may be a part of the record's.

        Raises: `ConfigError` for a bad option or a column that records do not have.
        """
        from spark_connector.batch_reader import KafkaBatchReader
        from spark_connector.options import KafkaOptions, Use

        return KafkaBatchReader(KafkaOptions.from_spark(self.options, Use.BATCH), schema)

    @cause_first()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of one stream; its first call raises errors in the options."""
        from spark_connector.stream_reader import KafkaStreamReader

        return stream_reader_for_spark(KafkaStreamReader(self.options, schema))

    @cause_first()
    def writer(self, schema: StructType, overwrite: bool) -> KafkaBatchWriter:
        """Return the writer of one batch.

        Raises: `ConfigError` for a bad option or column, and for mode "overwrite".
        """
        from spark_connector.sink import Sink
        from spark_connector.writers import KafkaBatchWriter

        if overwrite:
            from pykclient.errors import ConfigError

            raise ConfigError('A topic cannot be overwritten: write with mode("append").')
        return KafkaBatchWriter(Sink.from_spark(self.options, schema))

    @cause_first()
    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:
        """Return the writer of one micro-batch. Output mode complete appends the whole result.

        Raises: `ConfigError` for a bad option or column.
        """
        from spark_connector.sink import Sink
        from spark_connector.writers import KafkaStreamWriter

        return KafkaStreamWriter(Sink.from_spark(self.options, schema))
