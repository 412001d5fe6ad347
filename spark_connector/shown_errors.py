"""Errors of ours shown without the Python traceback when they end a Spark worker process.

Spark sends the text of such an error to the driver, behind a traceback of its own frames: the line
that helps comes last, after a hundred that do not. Spark leaves the traceback out if the variable
`HIDDEN` is set, which is what spark.sql.execution.pyspark.udf.hideTraceback.enabled does. The
process ends with the error, so the variable affects no other. The traceback is still logged, and
errors that are not ours keep it.

Owner: the process, in which Spark runs one call at a time. Source: PySpark's
``handle_worker_exception``.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOG = logging.getLogger(__name__)

HIDDEN: Final = "SPARK_HIDE_TRACEBACK"

WORKER: Final = "pyspark.worker_util"
"""Spark's module that each of its Python processes has, and an application does not."""


@contextmanager
def cause_first() -> Iterator[None]:
    """Hide the traceback of a `KafkaError` that leaves the block. It works as a decorator, too."""
    try:
        yield
    except Exception as error:
        # Imported here: Spark looks for formats with a module that imports this one.
        from pykclient.errors import KafkaError

        if WORKER in sys.modules and isinstance(error, KafkaError):
            os.environ[HIDDEN] = "1"
            _LOG.info("Spark shows this error without its traceback: %s", error, exc_info=True)
        raise
