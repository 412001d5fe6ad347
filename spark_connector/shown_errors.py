"""Have Spark show the cause first, where one of our errors ends a Python process of Spark's.

Spark sends the text of such an error to the driver, behind a traceback of its own frames: the line
that helps comes last, after a hundred of no use. It leaves the traceback out where the variable
`HIDDEN` is set, which is what spark.sql.execution.pyspark.udf.hideTraceback.enabled does. A
process that fails ends then, so the variable changes no other error. The traceback is logged, and
errors that are not ours keep it.

Owner: the process, in which Spark runs one call at a time.
Source: PySpark's ``handle_worker_exception``.
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
    """Have Spark show a `KafkaError` of the block without its traceback. It decorates functions."""
    try:
        yield
    except Exception as error:
        # Imported here: Spark looks for formats with a module that imports this one.
        from pykclient.errors import KafkaError

        if WORKER in sys.modules and isinstance(error, KafkaError):
            os.environ[HIDDEN] = "1"
            _LOG.info("Spark shows this error without its traceback: %s", error, exc_info=True)
        raise
