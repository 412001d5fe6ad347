"""Two executors of one core beside one executor of two: how well a read scales out.

Executors run on a standalone cluster, each a process of its own with Python workers. Sessions take
turns, since a session cannot change its executors.

Owner: the thread that measures.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from measuring.measurement import Measurement
from pykclient.testing.spark_cluster.cluster import SparkCluster
from spark.arena import IMPORT_PATH, SparkArena, session
from spark.contender import OURS
from spark.reading import noop
from spark.targets import EXECUTORS, ONE_EXECUTOR, TWO_EXECUTORS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing import KafkaCluster
    from spark.arena import Settings

CORES = {ONE_EXECUTOR: 2, TWO_EXECUTORS: 1}
ORDER = (ONE_EXECUTOR, TWO_EXECUTORS, TWO_EXECUTORS, ONE_EXECUTOR)
WARM_UPS = 2


def executors(kafka: KafkaCluster, settings: Settings) -> Iterator[Measurement]:
    """All columns, `noop`, half of the turns in each of an executor's two sessions."""
    count = settings.record_count
    environment = {"PYTHONPATH": IMPORT_PATH}
    with SparkCluster(cores=2, memory="2g", environment=environment) as cluster:
        for name in ORDER:
            config = {
                "spark.executor.cores": str(CORES[name]),
                "spark.cores.max": "2",
                "spark.executor.memory": "1g",
            }
            with (
                session(cluster.master_url, config) as spark,
                (arena := SparkArena(spark, kafka)).filled_topic(count) as topic,
            ):
                for turn in range(WARM_UPS + (settings.turn_count + 1) // 2):
                    frame = OURS.reader(spark, arena.servers, topic).load()
                    figures = arena.timed(partial(noop, frame, count))
                    if turn >= WARM_UPS:
                        rate = count / figures["seconds"]
                        yield Measurement(*EXECUTORS, name, {"records_per_second": rate})
