"""A stream through Spark's own Kafka source, and one through this connector, run by run.

The one here is planned and read by the calls that Spark makes, without its processes.

Owner: the test that makes them.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spark_connector.source import KafkaDataSource
from spark_connector.stream_reader import KafkaStreamReader
from spark_connector.worker_clients import close_waiting

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


TIMEOUT_S: Final = 200

Offsets = dict[str, dict[str, int]]
Row = dict[str, Any]


class Run(NamedTuple):
    """The records that a query read, the ends of its batches, and the number of tasks of each."""

    records: list[Row]
    ends: list[Offsets]
    task_counts: list[int]

    @property
    def places(self) -> list[tuple[str, int, int]]:
        return [_place(record) for record in self.records]


def _place(record: Row) -> tuple[str, int, int]:
    return record["topic"], record["partition"], record["offset"]


class OfficialStream:
    """A stream of Spark's own source, with its checkpoint in `folder`."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def copied(self, folder: Path) -> OfficialStream:
        """Return the same stream on a copy of its checkpoint."""
        shutil.copytree(self._folder, folder)
        return OfficialStream(self._spark, folder)

    def run(self, options: Mapping[str, str]) -> Run:
        """Read all available records. Raises: `StreamingQueryException`."""
        records: list[Row] = []
        task_counts: list[int] = []

        def keep(batch: DataFrame, _: int) -> None:
            task_counts.append(batch.rdd.getNumPartitions())
            records.extend(batch.toArrow().to_pylist())

        before = len(logged_ends(self._folder))
        query = (
            self._spark.readStream.format("kafka")
            .options(**options)
            .load()
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self._folder))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(TIMEOUT_S)
        ends = logged_ends(self._folder)[before:]
        return Run(sorted(records, key=_place), ends, task_counts)


class StreamHere:
    """A stream of this connector. `end` is where it has ended, as a checkpoint keeps it."""

    def __init__(self, end: Offsets | None = None) -> None:
        self.end = end

    def run(self, options: Mapping[str, str]) -> Run:
        """Read all available records with a new reader and consumer, as new Spark processes do."""
        records: list[Row] = []
        ends: list[Offsets] = []
        task_counts: list[int] = []
        source = KafkaDataSource(dict(options))
        reader = KafkaStreamReader(source.options, source.schema())
        try:
            reader.prepareForTriggerAvailableNow()
            begin = reader.initialOffset() if self.end is None else self.end
            while True:
                end = reader.latestOffset(begin, reader.getDefaultReadLimit())
                # The first batch of all is planned also where it is empty.
                if end == self.end:
                    return Run(sorted(records, key=_place), ends, task_counts)
                parts = reader.partitions(begin, end)
                task_counts.append(len(parts))
                for part in parts:
                    for batch in reader.read(part):
                        records.extend(batch.to_pylist())
                # Without the starts, which Spark's own source logs elsewhere.
                ends.append({topic: offsets for topic, offsets in end.items() if offsets})
                self.end = begin = end
        finally:
            reader.stop()
            close_waiting()


def logged_ends(checkpoint: Path) -> list[Offsets]:
    """Read the ends of the batches in the checkpoint of a query with one source."""
    files = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda one: int(one.name))
    return [json.loads(file.read_text().splitlines()[2]) for file in files]
