"""Peaks of memory while large records are read, as `spark_memory.py` measures them, once.

Owner: the thread that measures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from measuring.measurement import Measurement
from spark.targets import MEMORY
from spark_memory import measure

if TYPE_CHECKING:
    from collections.abc import Iterator


def memory() -> Iterator[Measurement]:
    """A gigabyte in each case, whatever the settings: the peak is that of a run."""
    for peaks in measure():
        figures = {"worker_mb": peaks.worker_bytes / 1e6, "direct_mb": peaks.direct_bytes / 1e6}
        yield Measurement(MEMORY, peaks.case, "pykclient", figures)
