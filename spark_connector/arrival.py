"""Unpickling of a reader or a writer in a task, whose Python may lack this package.

A task may run in another Python, or in another environment, than the driver. Spark would show the
name of a missing module below its own frames. One function is therefore sent by value, as Spark
sends a user's function, with the standard modules that it needs. It reports what is missing where.

Owner: none. Source: cloudpickle's ``register_pickle_by_value``.
"""

from __future__ import annotations

import os
import socket
import sys


def arrived(driver_version: str, pickled: bytes) -> object:
    """Unpickle an object from a driver of this version.

    Raises:
        ImportError: this Python cannot import the package.
        ConfigError: it has another version.
    """
    try:
        from spark_connector.sent_to_tasks import unpickled
    except ImportError as error:
        # Spark shows the error as the first line then.
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise ImportError(
            f"Tasks on {socket.gethostname()} run {sys.executable}, which cannot load format "
            f"'pykafka' ({error}): install pykclient {driver_version} there with the extra spark, "
            f"set PYSPARK_PYTHON (or spark.pyspark.python) to a Python that has it, or send it "
            f"along with spark.archives. The driver has it."
        ) from None
    return unpickled(driver_version, pickled)


def send_by_value() -> None:
    """Make Spark's pickler send `arrived` by value."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
