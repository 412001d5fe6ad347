"""Start of a query on Spark Connect, also where its process is slow to start.

A server gives the process of ``foreachBatch`` ten seconds to connect; a busy machine may need more.
The query has not begun by then, so an application may start it again.

Owner: none; it holds no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

START_COUNT_MAX: Final = 6
SLOW_PROCESS: Final = "Python worker failed to connect back"


def start_query(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query, again each time Spark gives up on its process."""
    for _ in range(START_COUNT_MAX - 1):
        try:
            return writer.start()
        except PySparkException as error:
            if SLOW_PROCESS not in str(error):
                raise
    return writer.start()
