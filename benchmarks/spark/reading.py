"""Batch reads: rows a second, and how long a topic of 300 records takes.

Owner: the thread that measures.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from measuring.arena import PARTITION_COUNT, VALUE_BYTES
from measuring.contest import in_turns
from measuring.measurement import Measurement
from spark.contender import (
    CEILING,
    CEILING_VALUE,
    OFFICIAL,
    OURS,
    OURS_VALUE,
    TUNED,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from spark.arena import Settings, SparkArena
    from spark.contender import Contender

CODECS = ("none", "lz4")
SMALL_COUNT = 300
SMALL_TURNS_PER_TURN = 4


def noop(frame: DataFrame, _: int) -> None:
    """Every column becomes a row of Spark's and is thrown away."""
    frame.write.format("noop").mode("overwrite").save()


def count(frame: DataFrame, wanted: int) -> None:
    """``count()``, and whether it is right."""
    check("rows", frame.count(), wanted)


def sum_of_lengths(frame: DataFrame, wanted: int) -> None:
    """Compute ``sum(length(value))`` and check it."""
    [[total]] = frame.selectExpr("sum(length(value))").collect()
    check("bytes", total, wanted * VALUE_BYTES)


QUERIES: dict[str, Callable[[DataFrame, int], None]] = {
    "noop": noop,
    "count": count,
    "sum": sum_of_lengths,
}


def check(what: str, found: int, wanted: int) -> None:
    """Raise unless a query has read everything."""
    if found != wanted:
        raise RuntimeError(f"{found} {what} were read, not {wanted}")


def read(arena: SparkArena, settings: Settings) -> Iterator[Measurement]:
    """All columns and only the values, beside Spark's own source and the ceiling."""
    size = {"rows": str(settings.record_count), "partitions": str(PARTITION_COUNT)}
    contenders = [
        *(OFFICIAL, TUNED, OURS, OURS_VALUE),
        *(replace(one, options=size) for one in (CEILING, CEILING_VALUE)),
    ]
    for codec in CODECS:
        with arena.filled_topic(settings.record_count, codec) as topic:
            for contender in contenders:  # The first reading compiles, and starts workers.
                _run(arena, contender, topic, "noop", settings.record_count)
            for query in QUERIES:
                for contender in in_turns(contenders, settings.turn_count):
                    job = partial(_run, arena, contender, topic, query, settings.record_count)
                    figures = arena.timed(job)
                    yield Measurement(
                        "read",
                        f"{codec}, {query}",
                        contender.name,
                        {
                            "records_per_second": settings.record_count / figures["seconds"],
                            "spark_cpu_s": figures["spark_cpu_s"],
                            "broker_cpu_s": figures["other_cpu_s"],
                        },
                    )


def small_topic(arena: SparkArena, settings: Settings) -> Iterator[Measurement]:
    """Measure reads of a topic of 300 records in a warm session."""
    with arena.filled_topic(SMALL_COUNT) as topic:
        contenders = (OFFICIAL, OURS)
        for contender in in_turns(contenders, 2):
            _run(arena, contender, topic, "count", SMALL_COUNT)
        for contender in in_turns(contenders, settings.turn_count * SMALL_TURNS_PER_TURN):
            figures = arena.timed(partial(_run, arena, contender, topic, "count", SMALL_COUNT))
            yield Measurement(
                "small topic",
                "300 records, count",
                contender.name,
                {"wall_ms": figures["seconds"] * 1_000, "spark_cpu_s": figures["spark_cpu_s"]},
            )


def _run(arena: SparkArena, contender: Contender, topic: str, query: str, wanted: int) -> None:
    """One query with a frame of its own: planning counts."""
    QUERIES[query](contender.reader(arena.spark, arena.servers, topic).load(), wanted)
