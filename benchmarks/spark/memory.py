"""Peaks of memory while large records are read, as `spark_memory.py` measures them.

Owner: the thread that measures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from measuring.measurement import Measurement
from spark.targets import MEMORY
from spark_memory import measure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark.arena import Settings


def memory(settings: Settings) -> Iterator[Measurement]:
    """Measure the memory for a gigabyte in each case.

    Each turn has new processes, since the kernel keeps a process's peak.
    """
    for peaks in measure(turn_count=settings.turn_count):
        figures = {"worker_mb": peaks.worker_bytes / 1e6, "direct_mb": peaks.direct_bytes / 1e6}
        yield Measurement(MEMORY, peaks.case, "pykclient", figures)
