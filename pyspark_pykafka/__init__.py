"""The format "pykafka" for Spark, which imports every top-level module ``pyspark_...``.

Spark takes the ``DefaultSource`` of each of these modules.

Importing this must never fail: if one of these modules raises, Spark skips all of them. So without
a PySpark that has Python data sources there is no ``DefaultSource`` here, and Spark reports an
unknown format; ``import spark_connector.source`` then says why. If PySpark has them but the package
cannot be imported, for example because of a user's file named ``spark_connector.py``, the format is
known, and its first use reports the error.
"""

try:
    from spark_connector.source import KafkaDataSource as DefaultSource

    __all__ = ["DefaultSource"]
except ImportError as error:
    from contextlib import suppress

    with suppress(ImportError):
        from pyspark_pykafka.unusable import unusable_source

        DefaultSource = unusable_source(error)  # type: ignore[misc, assignment]

        __all__ = ["DefaultSource"]
