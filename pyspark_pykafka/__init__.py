"""Hands Spark the format "pykafka": Spark imports every top-level module called ``pyspark_...`` and
takes its ``DefaultSource``.

Importing this must never fail: one such module that raises makes Spark skip all of them. So without
a PySpark that has Python data sources there is no ``DefaultSource`` here, and Spark says that the
format is unknown; ``import spark_connector.source`` then tells why.
"""

from contextlib import suppress

with suppress(ImportError):
    from spark_connector.source import KafkaDataSource as DefaultSource

    __all__ = ["DefaultSource"]
