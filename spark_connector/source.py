"""KafkaDataSource: the format "pykafka" of Spark's readers and writers, for batches and streams.

Made by Spark in driver processes, from the options of one ``load()`` or ``save()``; it checks them
and hands them to a reader or a sink. The module imports nothing heavy, because every lookup of an
unknown format imports it.

Owner: none, Spark makes one for each plan.
Source: PySpark's Python data source API (``DataSource``).
"""

from __future__ import annotations

import re
from copy import copy
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql.datasource import DataSource

from spark_connector.shown_errors import cause_first

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.types import StructType

    from spark_connector.batch_reader import KafkaBatchReader
    from spark_connector.stream_reader import KafkaStreamReader
    from spark_connector.writers import KafkaBatchWriter, KafkaStreamWriter

PYSPARK_VERSION_MIN: Final = (4, 2)
"""The first with what streams need, such as the limits of a micro-batch."""


class KafkaDataSource(DataSource):
    """Kafka topics as a source and a sink, with the options and columns of Spark's own.

    Raises: `UsageError` with an older PySpark. Spark makes a source before it does anything else
    with it, and shows what that raises.
    """

    @cause_first()
    def __init__(self, options: MutableMapping[str, str]) -> None:
        _check_pyspark()
        # Imported here: Spark looks at this module for the format's name alone.
        from spark_connector.options import of_spark

        given = copy(options)
        given.update(of_spark(options))
        super().__init__(given)

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
        """The reader of one batch query; `schema` may be a part of the record's.

        Raises: `ConfigError` for a bad option or a column that records do not have.
        """
        from spark_connector.batch_reader import KafkaBatchReader
        from spark_connector.options import KafkaOptions, Use

        return KafkaBatchReader(KafkaOptions.from_spark(self.options, Use.BATCH), schema)

    @cause_first()
    def streamReader(self, schema: StructType) -> KafkaStreamReader:
        """The reader of one stream. Its first call raises what is wrong with the options."""
        from spark_connector.stream_reader import KafkaStreamReader

        return KafkaStreamReader(self.options, schema)

    @cause_first()
    def writer(self, schema: StructType, overwrite: bool) -> KafkaBatchWriter:
        """The writer of one batch.

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
        """The writer of one micro-batch. Output mode complete appends the whole result each time.

        Raises: `ConfigError` for a bad option or column.
        """
        from spark_connector.sink import Sink
        from spark_connector.writers import KafkaStreamWriter

        return KafkaStreamWriter(Sink.from_spark(self.options, schema))


def _check_pyspark() -> None:
    found = re.match(r"(\d+)\.(\d+)", pyspark.__version__)
    if found is not None and tuple(map(int, found.groups())) < PYSPARK_VERSION_MIN:
        from pykclient.errors import UsageError

        raise UsageError(
            f"Format 'pykafka' needs PySpark {'.'.join(map(str, PYSPARK_VERSION_MIN))} or newer, "
            f"and this is {pyspark.__version__}: pip install --upgrade 'pyspark[connect]'"
        )
