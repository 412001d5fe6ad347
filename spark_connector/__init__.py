"""Kafka for Apache Spark: the format "pykafka".

Spark finds the format by itself if this distribution is installed on the driver and on every
executor. If discovery is off, call `register` once per session. If Spark does not find the format
("DATA_SOURCE_NOT_FOUND ... pykafka"), its workers run another Python: see `PYSPARK_PYTHON`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from spark_connector.foreach_batch import foreach_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_connector.lag import LagListener

__all__ = ["LagListener", "foreach_batch", "register"]

LOOK_S_MAX: Final = 60.0


if not TYPE_CHECKING:  # a type checker would take it for a promise of any name

    def __getattr__(name: str) -> object:
        # Spark looks at this module for the format's name alone: what is heavy waits for its use.
        if name == "LagListener":
            from spark_connector.lag import LagListener

            return LagListener
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def register(spark: SparkSession) -> None:
    """Make format "pykafka" known to one session, classic or of Spark Connect.

    It may be called again. It is needed only where Spark does not find the format by itself.

    Raises:
        UsageError: the Python that Spark's workers run on this machine does not have this package.
    """
    # Imported here: Spark looks at this module for the format's name alone.
    from spark_connector.source import KafkaDataSource
    from spark_connector.versions import register_source

    _check_worker_python(spark)
    register_source(spark, KafkaDataSource)


def _check_worker_python(spark: SparkSession) -> None:
    """Refuse workers that cannot load the format: Spark would only say that it does not exist."""
    try:
        name: str = spark.sparkContext.pythonExec
    except Exception:  # noqa: BLE001 - Spark Connect has no context; its server has the workers
        return
    python = shutil.which(name)
    # One that is not here comes with the job, to where the executors are.
    if python is None or python == sys.executable:
        return
    looked = subprocess.run(  # noqa: S603 - the Python that Spark runs
        [python, "-c", "import spark_connector.source"],
        capture_output=True,
        text=True,
        timeout=LOOK_S_MAX,
        check=False,
    )
    if looked.returncode != 0:
        reason = looked.stderr.strip().rpartition("\n")[2]
        from pykclient.errors import UsageError

        raise UsageError(
            f"Spark's workers run {python}, which cannot load format 'pykafka' ({reason}): set "
            f"PYSPARK_PYTHON (or spark.pyspark.python) to a Python that has this package, such as "
            f"{sys.executable}, before the session starts"
        )
