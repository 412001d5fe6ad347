"""The Python that Spark's workers run: whether it can load the format.

Owner: none.
Source: ``SparkContext.pythonExec``; the variable ``PYSPARK_PYTHON``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from pykclient.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_worker_python"]

LOOK_S_MAX: Final = 60.0


def check_worker_python(spark: SparkSession) -> None:
    """Refuse workers that could not load the format: Spark would say only that there is none.

    Raises:
        UsageError: the Python that they run on this machine does not have this package.
    """
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
        raise UsageError(
            f"Spark's workers run {python}, which cannot load format 'pykafka' ({reason}): set "
            f"PYSPARK_PYTHON (or spark.pyspark.python) to a Python that has this package, such as "
            f"{sys.executable}, before the session starts"
        )
