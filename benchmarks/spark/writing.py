"""The sinks: rows a second of a cached frame, with equal settings on both sides.

Owner: the thread that measures.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from measuring.contest import in_turns
from measuring.measurement import Measurement
from spark.contender import OFFICIAL, OURS
from spark.reading import CODECS, check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from spark.arena import Settings, SparkArena
    from spark.contender import Contender

CLIENT = {"kafka.linger.ms": "20", "kafka.batch.size": "262144"}
COLUMNS = (
    "cast(lpad(id, 8, '0') as binary) as key",
    'cast(rpad(concat(\'{"id": \', id, \', "name": "customer \', id, \'", "amount": \', '
    "substr(md5(cast(id as string)), 1, 15), ', \"paid\": true}'), 100, ' ') as binary) as value",
)


def write(arena: SparkArena, settings: Settings) -> Iterator[Measurement]:
    """Measure writes of a frame of two partitions into a new topic of six."""
    row_count = settings.written_count
    frame = arena.spark.range(0, row_count, 1, 2).selectExpr(*COLUMNS).cache()
    check("rows", frame.count(), row_count)
    for codec in CODECS:
        for contender in (OFFICIAL, OURS):  # The first write compiles, and starts workers.
            _written(arena, frame, contender, codec, row_count)
        for contender in in_turns((OFFICIAL, OURS), settings.turn_count):
            figures = _written(arena, frame, contender, codec, row_count)
            yield Measurement(
                "write",
                codec,
                contender.name,
                {
                    "records_per_second": row_count / figures["seconds"],
                    "spark_cpu_s": figures["spark_cpu_s"],
                    "broker_cpu_s": figures["other_cpu_s"],
                },
            )
    frame.unpersist()


def _written(
    arena: SparkArena, frame: DataFrame, contender: Contender, codec: str, row_count: int
) -> dict[str, float]:
    with arena.topic() as topic:
        writer = (
            frame.write.format(contender.format)
            .mode("append")
            .options(**CLIENT)
            .option("kafka.compression.type", codec)
            .option("kafka.bootstrap.servers", arena.servers)
            .option("topic", topic)
        )
        figures = arena.timed(partial(writer.save))
        check("records", arena.record_count(topic), row_count)
    return figures
