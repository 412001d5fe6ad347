"""The differences between tests on older and newer PySparks: tests that are skipped, and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_connector.versions import HAS_READ_LIMITS, PYSPARK

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TIMEOUT_S = 240
PLANS_ONCE = PYSPARK >= (4, 1)
"""Spark plans a frame once for all its actions, not once for each."""


def needs_pyspark(version: tuple[int, int], reason: str) -> pytest.MarkDecorator:
    """Skip a test on an older PySpark, with the reason."""
    return pytest.mark.skipif(
        version > PYSPARK,
        reason=f"PySpark {'.'.join(map(str, PYSPARK))}: {reason} ({'.'.join(map(str, version))})",
    )


def run_in_limited_batches(writer: DataStreamWriter) -> None:
    """Run a query until it has read what there is, in as many batches as its limit makes.

    PySpark before 4.2 runs the trigger availableNow as one batch, so there the query is stopped.

    Raises: `StreamingQueryException` where the query fails.
    """
    if HAS_READ_LIMITS:
        assert writer.trigger(availableNow=True).start().awaitTermination(TIMEOUT_S)
        return
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
