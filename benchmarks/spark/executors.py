"""Two executors of one core beside one executor of two: how well a read scales out.

Executors are processes of their own, each with a JVM and Python workers. Sessions take turns,
since a session cannot change its executors.

Owner: the thread that asks.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from measuring.measurement import Measurement
from spark.contender import OURS
from spark.reading import noop
from spark.targets import EXECUTORS, ONE_EXECUTOR, TWO_EXECUTORS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark.arena import Settings, SparkArena

MASTERS = {ONE_EXECUTOR: "local-cluster[1,2,1024]", TWO_EXECUTORS: "local-cluster[2,1,1024]"}
WARM_UPS = 2


def executors(arena: SparkArena, settings: Settings, name: str) -> Iterator[Measurement]:
    """One session's turns, all columns, `noop`."""
    count = settings.record_count
    with arena.filled_topic(count) as topic:
        for turn in range(WARM_UPS + settings.turn_count):
            frame = OURS.reader(arena.spark, arena.servers, topic).load()
            figures = arena.timed(partial(noop, frame, count))
            if turn >= WARM_UPS:
                rate = count / figures["seconds"]
                yield Measurement(*EXECUTORS, name, {"records_per_second": rate})
