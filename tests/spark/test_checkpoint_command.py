"""``pykclient spark checkpoint`` on checkpoints of real queries, which start again afterwards.

`tests/spark/test_checkpoint*.py` have every other case on directories that are made by hand.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.errors import StreamingQueryException

from pykclient import Admin, NewTopic, Producer
from pykclient.cli import main
from tests.spark.versions import run_in_limited_batches
from tests.testing.test_processes import await_true

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pykclient.testing import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

OURS: Final = "pykafka"
OFFICIAL: Final = "kafka"
TIMEOUT_S: Final = 200


class CutError(Exception):
    """The end of a query in the middle of a batch."""


class Story:
    """A query of one connector, run by run, and the command on its checkpoint."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: KafkaCluster,
        connector: str,
        folder: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self._spark = spark
        self.servers = kafka.bootstrap_servers
        self._connector = connector
        self.folder = folder
        self._capsys = capsys
        self.stderr = ""
        self.batches: list[int] = []
        self.is_cut = False

    def send(self, topic: str, *counts: int) -> None:
        """Send this many records to each partition."""
        with Producer(bootstrap_servers=self.servers) as producer:
            for partition, count in enumerate(counts):
                for _ in range(count):
                    producer.send(topic, b"v", partition=partition)

    def reads(
        self, *topics: str, has_state: bool = False, client_id: str = "", offsets_max: int = 100
    ) -> dict[str, int]:
        """Read what there is: the offsets of each partition, or with state the counts by topic.

        Raises: `StreamingQueryException`.
        """
        found = Counter[str]()
        self.batches = []

        def keep(batch: DataFrame, number: int) -> None:
            if self.is_cut:
                raise CutError
            self.batches.append(number)
            for topic, place in batch.collect():
                found[topic] = place if has_state else found[topic] | 1 << place

        reader = self._spark.readStream.format(self._connector).option(
            "subscribe", ",".join(topics)
        )
        reader = reader.option("kafka.bootstrap.servers", self.servers)
        if client_id:
            reader = reader.option("kafka.client.id", client_id)
        reader = reader.option("maxOffsetsPerTrigger", str(offsets_max))
        rows = reader.option("startingOffsets", "earliest").load()
        if has_state:
            writer = rows.groupBy("topic").count().writeStream.outputMode("update")
        else:
            place = "concat_ws('-', topic, partition)"
            writer = rows.selectExpr(place, "CAST(offset AS INT)").writeStream
        run_in_limited_batches(
            writer.foreachBatch(keep).option("checkpointLocation", str(self.folder))
        )
        return dict(found)

    def command(self, part: str, *arguments: str, status: int = 0) -> list[dict[str, Any]]:
        """Run the command and parse its JSON; `stderr` has its complaints."""
        self._capsys.readouterr()
        brokers = ("-b", self.servers) if part in ("check", "rewind") else ()
        words = ["spark", "checkpoint", part, str(self.folder), "-J", *brokers, *arguments]
        found = main(words)
        output, self.stderr = self._capsys.readouterr()
        assert found == status, self.stderr
        return [json.loads(line) for line in output.splitlines()]

    def problems(self) -> list[str]:
        """List the files with problems, as `check` prints them."""
        found = self.command("check", status=1)
        return [row["where"] for row in found if row["severity"] == "problem"]

    def tear_newest(self) -> int:
        """Empty the newest file of offsets, as a crash may, and return its number."""
        newest = max(int(file.name) for file in (self.folder / "offsets").glob("[0-9]*"))
        (self.folder / "offsets" / str(newest)).write_bytes(b"")
        return newest

    def delete(self, topic: str) -> None:
        with Admin(bootstrap_servers=self.servers) as admin:
            admin.delete_topics([topic])
            await_true(lambda: topic not in admin.list_topics(), "the topic is gone")

    def create(self, topic: str, partition_count: int) -> None:
        with Admin(bootstrap_servers=self.servers) as admin:
            admin.create_topics([NewTopic(topic, partition_count)])


def places(*offsets: int) -> int:
    """Return the offsets of a partition in the form of `Story.reads`."""
    return sum(1 << offset for offset in offsets)


@pytest.mark.promise("A Spark checkpoint can be checked and repaired at the command line")
@pytest.mark.parametrize("connector", [OURS, pytest.param(OFFICIAL, marks=pytest.mark.soak)])
def test_a_query_starts_again_from_a_checkpoint_that_is_mended(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    official_connector: None,
    new_topic: Callable[[int], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    connector: str,
) -> None:
    story = Story(spark, kafka_cluster, connector, tmp_path / "checkpoint", capsys)
    kept, deleted = new_topic(2), new_topic(1)
    story.send(kept, 6, 4)
    story.send(deleted, 2)
    story.reads(kept, deleted, offsets_max=4)
    story.command("check")
    query, first, *others = story.command("show")
    assert query["query_id"]
    assert {batch["state"] for batch in (first, *others)} == {"finished"}
    source = first["sources"]["0"]
    assert source["connector"] == connector

    # Back to a batch, with numbers that no sink has seen.
    story.command("rewind", "--to-batch", "0", "--execute")
    ends = {
        f"{topic}-{partition}": end
        for topic, partitions in source["offsets"].items()
        for partition, end in partitions.items()
    }
    counts = {f"{kept}-0": 6, f"{kept}-1": 4, f"{deleted}-0": 2}
    wanted = {place: places(*range(ends.get(place, 0), counts[place])) for place in counts}
    assert story.reads(kept, deleted) == {place: read for place, read in wanted.items() if read}
    assert min(story.batches) > max(batch["batch"] for batch in others)

    # A topic that is gone, while the newest file is torn, too.
    story.delete(deleted)
    newest = story.tear_newest()
    problems = story.problems()
    assert f"offsets/{newest}" in problems
    assert f"source 0, {deleted}" in problems
    offsets = json.dumps({kept: {"0": 4, "1": 4}})
    story.command("rewind", "--to", offsets, status=1)
    assert "forget-topic" in story.stderr
    story.command("rewind", "--to-batch", str(newest - 1), "--execute")
    story.command("forget-topic", deleted, "--execute")
    story.command("rewind", "--to", offsets, "--execute")
    story.command("check")
    assert story.reads(kept) == {f"{kept}-0": places(4, 5)}


@pytest.mark.soak
@pytest.mark.parametrize("connector", [OURS, OFFICIAL])
def test_a_batch_that_was_cut_is_passed_over_or_read_again(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    official_connector: None,
    new_topic: Callable[[int], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    connector: str,
) -> None:
    story = Story(spark, kafka_cluster, connector, tmp_path / "checkpoint", capsys)
    topic = new_topic(1)
    place = f"{topic}-0"
    story.send(topic, 4)
    story.is_cut = True
    with pytest.raises(StreamingQueryException):
        story.reads(topic)
    (batch,) = story.command("show")[1:]
    assert batch["state"] == "planned"
    # The first batch of all: its start is known, and it may end anywhere.
    story.command("rewind", "--to", json.dumps({topic: {"0": 2}}), "--execute")
    story.is_cut = False
    assert story.reads(topic) == {place: places(2, 3)}
    story.send(topic, 2)
    story.is_cut = True
    with pytest.raises(StreamingQueryException):
        story.reads(topic)
    planned = story.command("show")[-1]
    assert planned["state"] == "planned"
    story.is_cut = False
    story.command("rewind", "--to-batch", str(planned["batch"]), "--execute")
    assert story.reads(topic) == {}
    story.command("rewind", "--to", "earliest", "--execute")
    assert story.reads(topic) == {place: places(0, 1, 2, 3, 4, 5)}
    newest = story.tear_newest()
    with pytest.raises(StreamingQueryException):
        story.reads(topic)
    assert story.problems() == [f"offsets/{newest}"]
    story.command("rewind", "--to-batch", str(newest - 1), "--execute")
    assert story.reads(topic) == {place: places(0, 1, 2, 3, 4, 5)}
    # The only topic, recreated with more records than were read.
    story.delete(topic)
    story.create(topic, 2)
    story.send(topic, 7, 1)
    assert story.command("check")[0]["severity"] == "note"
    story.command("forget-topic", topic, "--execute")
    # With other clients in the workers: those from before take a recreated topic for a loss.
    again = story.reads(topic, client_id="again")
    assert again == {place: places(*range(7)), f"{topic}-1": places(0)}


@pytest.mark.soak
@pytest.mark.parametrize("connector", [OURS, OFFICIAL])
def test_a_query_with_state_goes_forward_alone(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    official_connector: None,
    new_topic: Callable[[int], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    connector: str,
) -> None:
    story = Story(spark, kafka_cluster, connector, tmp_path / "checkpoint", capsys)
    topic = new_topic(1)
    story.send(topic, 4)
    assert story.reads(topic, has_state=True) == {topic: 4}
    story.send(topic, 2)
    assert story.reads(topic, has_state=True) == {topic: 6}
    last = story.batches[-1]
    story.command("rewind", "--to-batch", str(last - 1), "--execute", status=1)
    assert "counted twice" in story.stderr
    story.send(topic, 3)
    story.command("rewind", "--to", json.dumps({topic: {"0": 7}}), "--execute")
    assert story.reads(topic, has_state=True) == {topic: 8}
    story.send(topic, 1)
    story.command("rewind", "--to", "latest", "--execute")
    story.send(topic, 1)
    assert story.reads(topic, has_state=True) == {topic: 9}


@pytest.mark.soak
def test_an_exactly_once_sink_writes_again_what_is_read_again(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    new_topic: Callable[[int], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    story = Story(spark, kafka_cluster, OURS, tmp_path / "checkpoint", capsys)
    topic, copies = new_topic(1), new_topic(1)
    read = {"kafka.bootstrap.servers": story.servers, "subscribe": topic}

    def copy() -> None:
        rows = spark.readStream.format(OURS).options(startingOffsets="earliest", **read).load()
        writer = rows.select("value").writeStream.format(OURS).option("topic", copies)
        writer = writer.option("kafka.bootstrap.servers", story.servers)
        writer = writer.option("delivery", "exactly_once").option("sinkId", copies)
        writer = writer.option("checkpointLocation", str(story.folder))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(TIMEOUT_S)

    def count() -> int:
        rows = spark.read.format(OURS).option("kafka.isolation.level", "read_committed")
        return rows.options(**{**read, "subscribe": copies}).load().count()

    story.send(topic, 3)
    copy()
    story.send(topic, 2)
    copy()
    assert count() == 5
    story.command("rewind", "--to-batch", "0", "--execute")
    assert "exactly-once sinks" in story.stderr
    copy()
    assert count() == 7
