"""Hands Spark the format "pykafka": Spark imports every top-level module called ``pyspark_...`` and
takes its ``DefaultSource``.

Importing this must never fail: one such module that raises makes Spark skip all of them. So without
a PySpark that has Python data sources there is no ``DefaultSource`` here, and Spark says that the
format is unknown; ``import spark_connector.source`` then tells why. Where PySpark has them and the
package cannot be imported, such as behind a file of the user's called ``spark_connector.py``, the
format is known, and its first use says what is wrong.
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
