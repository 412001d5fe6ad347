"""Streams that move between Spark's own Kafka source and this one, on one checkpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from pykclient import Producer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pykclient.testing import KafkaCluster

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.usefixtures("official_connector"),
]

TIMEOUT_S: Final = 200
OFFICIAL: Final = "kafka"
OURS: Final = "pykafka"


class MovingQuery:
    """A query that keeps the offsets of all records of each partition in its state.

    `state` is what it has put out last, `row_counts` has the size of each batch.
    """

    def __init__(self, spark: SparkSession, kafka: KafkaCluster, topic: str, path: Path) -> None:
        self._spark = spark
        self._servers = kafka.bootstrap_servers
        self._topic = topic
        self._checkpoint = path
        self._sent = [0, 0, 0]
        self.state: dict[int, list[int]] = {}

    def send(self, *counts: int) -> None:
        """Send so many records to each partition."""
        with Producer(bootstrap_servers=self._servers) as producer:
            for partition, count in enumerate(counts):
                self._sent[partition] += count
                for _ in range(count):
                    producer.send(self._topic, b"v", partition=partition)

    @property
    def all_sent(self) -> dict[int, list[int]]:
        return {partition: [*range(count)] for partition, count in enumerate(self._sent) if count}

    def run(self, source: str, **options: object) -> list[int]:
        """Read what there is, and return how many partitions each batch has found records in."""
        sizes = []

        def keep(changed: DataFrame, _: int) -> None:
            rows = changed.collect()
            sizes.append(len(rows))
            self.state |= {row["partition"]: row["offsets"] for row in rows}

        reader = self._spark.readStream.format(source).option("subscribe", self._topic)
        reader = reader.option("kafka.bootstrap.servers", self._servers)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        offsets = reader.load().groupBy("partition").agg({"offset": "collect_list"})
        named = offsets.selectExpr("partition", "sort_array(`collect_list(offset)`) AS offsets")
        query = (
            named.writeStream.outputMode("update")
            .foreachBatch(keep)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(TIMEOUT_S)
        return sizes

    def ends(self) -> list[Any]:
        """Where each batch ends, without those that end where the one before does."""
        files = sorted((self._checkpoint / "offsets").glob("[0-9]*"), key=lambda one: int(one.name))
        found: list[Any] = []
        for file in files:
            end = json.loads(file.read_text().splitlines()[2])
            if end not in found[-1:]:
                found.append(end)
        return found


@pytest.mark.promise("A stream moves between Spark's own Kafka source and this one, and back")
def test_a_query_moves_between_both_sources_and_reads_each_record_once(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    new_topic: Callable[[int], str],
    tmp_path: Path,
) -> None:
    query = MovingQuery(spark, kafka_cluster, new_topic(3), tmp_path)
    query.send(20, 5, 0)
    moves = [OFFICIAL, OURS, OFFICIAL, OURS]
    for source in moves:
        sizes = query.run(source, startingOffsets="earliest", maxOffsetsPerTrigger=12)
        assert query.state == query.all_sent
        # Both write the offsets in another order, which Spark takes for a batch.
        assert sizes.count(0) <= 1
        assert len(sizes) - sizes.count(0) >= 2
        query.send(11, 2, 5)


def test_a_rate_gives_the_batches_of_the_official_source(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    new_topic: Callable[[int], str],
    tmp_path: Path,
) -> None:
    topic = new_topic(3)
    ends: list[list[Any]] = []
    for source in (OFFICIAL, OURS):
        query = MovingQuery(spark, kafka_cluster, topic, tmp_path / source)
        if not ends:
            query.send(58, 142)
        query.run(source, startingOffsets="earliest", maxOffsetsPerTrigger=100, minPartitions=5)
        ends.append(query.ends())
    assert len(ends[0]) == 3
    assert ends[0] == ends[1]
