"""`foreach_batch`: a function for `DataStreamWriter.foreachBatch` that writes to Kafka.

Spark refuses output mode update for a Python sink; in `foreachBatch` it is there.

A sink that writes exactly once belongs to one query. Classic Spark says in a local property of the
thread which query a batch is of. On Spark Connect the function runs in a client of its own, where
no such property exists: the query is the only active one of the session that has started it. Spark
unpickles the function in that session, and calls it in a clone of it.

Owner: the query. Spark calls its function from one thread.
Source: Spark's Structured Streaming Programming Guide (`foreachBatch`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

EXACTLY_ONCE: Final = "exactly_once"

QUERY_PROPERTY: Final = "sql.streaming.queryId"
"""The local property of classic Spark that has the id of a micro-batch's query."""


def foreach_batch(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Return a function that writes a micro-batch with these options, for `foreachBatch`.

    The options are those of a write (docs/spark.md); names are not case-sensitive. It works with
    every output mode, update too. It delivers at least once: a batch that Spark repeats is written
    again. With `delivery` ``exactly_once`` and a `sinkId`, a batch that is repeated is written
    once, by the number that Spark passes; each function needs a `sinkId` of its own. The function
    returns when every row is acknowledged, and committed.

    Raises: nothing here. The function raises what ``DataFrameWriter.save`` does, PySpark's
    exceptions with the connector's reason: a bad option or column (`ConfigError`), or the first row
    that failed, which ends the query. It raises `ConfigError` where rows are to be written exactly
    once, and Spark does not tell the query.
    """
    return _ForeachBatch(options)


class _ForeachBatch:
    """The function. Spark Connect pickles it to a process that runs the batches of one query."""

    def __init__(self, options: Mapping[str, str], started_in: SparkSession | None = None) -> None:
        self._options = dict(options)
        self._started_in = started_in
        """The session that has started the query, where this is a copy for Spark Connect."""
        self._owner = ""
        """The query, once it is known: another query that starts later changes nothing."""

    def __reduce__(self) -> tuple[Callable[[dict[str, str]], _ForeachBatch], tuple[dict[str, str]]]:
        return _unpickled, (self._options,)

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write one micro-batch."""
        options = dict(self._options)
        given = {name.lower(): value for name, value in options.items()}
        # Rows that are written at least once have no use for a number.
        if given.get("delivery", "").strip().lower() == EXACTLY_ONCE:
            options = {name: options[name] for name in options if name.lower() != "batchid"}
            options["batchId"] = str(number)
            if "sinkowner" not in given:
                self._owner = self._owner or _query_of(batch, self._started_in)
                options["sinkOwner"] = self._owner
        batch.write.format("pykafka").mode("append").options(**options).save()


def _unpickled(options: dict[str, str]) -> _ForeachBatch:
    return _ForeachBatch(options, _connect_session())


def _connect_session() -> SparkSession | None:
    """Return this thread's session of Spark Connect; None in classic Spark."""
    from pyspark.sql.utils import is_remote

    if not is_remote():
        return None
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    # Its methods are those of the classic session.
    return cast("SparkSession | None", ConnectSession.getActiveSession())


def _query_of(batch: DataFrame, started_in: SparkSession | None) -> str:
    """Return the id of the query that a batch is of.

    Raises: `ConfigError` where Spark does not tell it.
    """
    found = _local_property(batch)
    if found:
        return found
    session = started_in or batch.sparkSession
    active = [query.id for query in session.streams.active]
    if len(active) == 1:
        return active[0]
    from pykclient.errors import ConfigError

    raise ConfigError(
        f"delivery=exactly_once in foreachBatch needs to know the query, and Spark does not tell "
        f"it here: {len(active)} queries are active in the session. Give the option 'sinkOwner', "
        f"a name of the query: the same at each start, and another one for another checkpoint. "
        f"Or start each query in a session of its own."
    )


def _local_property(batch: DataFrame) -> str:
    """Return what classic Spark says in this thread; empty on Spark Connect."""
    try:
        context = batch.sparkSession.sparkContext
    except Exception:  # noqa: BLE001 - Spark Connect raises one of several
        return ""
    return context.getLocalProperty(QUERY_PROPERTY) or ""
