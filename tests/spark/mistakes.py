"""The mistakes of a first hour, and what the driver has to show of each one, near its first line.

They are made in classic Spark and on Spark Connect. ``python -m tests.spark.mistakes SERVERS TOPIC
FOLDER`` makes them on a server of Spark Connect that it starts; its last line is JSON, of the first
lines of each error.

Owner: none; it holds no state.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

QUERY_S: Final = 240
NO_ERROR: Final = "no error"


class Hour(NamedTuple):
    """A session, and the brokers, topic and folder of its mistakes."""

    spark: SparkSession
    servers: str
    topic: str
    folder: str

    def read(self, **options: str) -> None:
        """Read a batch. An option of None is left out."""
        self._load(options).count()

    def load_columns(self, columns: str) -> None:
        reader = self.spark.read.schema(columns).format("pykafka")
        reader.options(**self._given({"subscribe": self.topic})).load().count()

    def write(self, *columns: str, mode: str | None = "append", **options: str) -> None:
        """Write a row of these columns."""
        rows = self.spark.range(1).selectExpr(*columns)
        writer = rows.write.format("pykafka").options(**self._given(options))
        (writer if mode is None else writer.mode(mode)).save()

    def stream(self, output_mode: str = "append", **options: str) -> None:
        """Copy the topic to itself.

        Options that begin with "from." are the source's, others the sink's.
        """
        of_source = {name[5:]: one for name, one in options.items() if name.startswith("from.")}
        of_sink = {name: one for name, one in options.items() if not name.startswith("from.")}
        source = {"subscribe": self.topic, "startingOffsets": "earliest", **of_source}
        reader = self.spark.readStream.format("pykafka").options(**self._given(source))
        rows = reader.load().select("value")
        if output_mode == "update":
            rows = rows.groupBy().count().selectExpr("CAST(count AS STRING) AS value")
        writer = rows.writeStream.format("pykafka").outputMode(output_mode)
        writer = writer.options(**self._given({"topic": self.topic, **of_sink}))
        name = abs(hash(tuple(options)))
        writer = writer.option("checkpointLocation", f"{self.folder}/{name}")
        writer.trigger(availableNow=True).start().awaitTermination(QUERY_S)

    def _load(self, options: dict[str, str]) -> DataFrame:
        return self.spark.read.format("pykafka").options(**self._given(options)).load()

    def _given(self, options: dict[str, str]) -> dict[str, str]:
        given = {"kafka.bootstrap.servers": self.servers, **options}
        return {name: text.replace("$TOPIC", self.topic) for name, text in given.items() if text}


MISTAKES: Final[dict[str, tuple[Callable[[Hour], None], str]]] = {
    "an option is misspelt": (
        lambda hour: hour.read(subscrib="$TOPIC"),
        "Did you mean 'subscribe'",
    ),
    "no brokers are named": (
        lambda hour: hour.read(subscribe="$TOPIC", **{"kafka.bootstrap.servers": ""}),
        "kafka.bootstrap.servers",
    ),
    "an address has no port": (
        lambda hour: hour.read(subscribe="$TOPIC", **{"kafka.bootstrap.servers": "localhost"}),
        "localhost",
    ),
    "nothing is chosen": (
        lambda hour: hour.read(),
        "exactly one of the options subscribe, subscribePattern and assign",
    ),
    "topics are chosen twice": (
        lambda hour: hour.read(subscribe="$TOPIC", subscribePattern=".*"),
        "exactly one of the options subscribe, subscribePattern and assign",
    ),
    "a topic is misspelt": (
        lambda hour: hour.read(subscribe="$TOPICx"),
        "UNKNOWN_TOPIC_OR_PARTITION (error code 3): topic '$TOPICx'",
    ),
    "a partition does not exist": (
        lambda hour: hour.read(assign='{"$TOPIC":[7]}'),
        "$TOPIC-7",
    ),
    "a start is no word": (
        lambda hour: hour.read(subscribe="$TOPIC", startingOffsets="newest"),
        "startingOffsets",
    ),
    "a batch starts at latest": (
        lambda hour: hour.read(subscribe="$TOPIC", startingOffsets="latest"),
        "of a batch read cannot be latest",
    ),
    "offsets are no JSON": (
        lambda hour: hour.read(subscribe="$TOPIC", startingOffsets='{"$TOPIC":{0:1}}'),
        "startingOffsets",
    ),
    "offsets leave out a partition": (
        lambda hour: hour.read(subscribe="$TOPIC", startingOffsets='{"$TOPIC":{"0":0}}'),
        "$TOPIC-1",
    ),
    "a stream has an end": (
        lambda hour: hour.stream(**{"from.endingOffsets": "latest"}),
        "A streaming read has no end",
    ),
    "a setting of Java's consumer is given": (
        lambda hour: hour.read(subscribe="$TOPIC", **{"kafka.auto.offset.reset": "earliest"}),
        "Where to start is startingOffsets",
    ),
    "a deserializer is given": (
        lambda hour: hour.read(subscribe="$TOPIC", **{"kafka.value.deserializer": "Strings"}),
        "decode the column",
    ),
    "a setting of the client is misspelt": (
        lambda hour: hour.read(subscribe="$TOPIC", **{"kafka.fetch.min.byte": "1"}),
        "Did you mean 'fetch.min.bytes'",
    ),
    "a setting is no number": (
        lambda hour: hour.read(subscribe="$TOPIC", **{"kafka.fetch.max.bytes": "many"}),
        "must be an integer",
    ),
    "an option is neither true nor false": (
        lambda hour: hour.read(subscribe="$TOPIC", includeHeaders="maybe"),
        "must be true or false",
    ),
    "a column has another type": (
        lambda hour: hour.load_columns("value string"),
        "'value' of a Kafka record has type binary, not string",
    ),
    "rows have no value": (
        lambda hour: hour.write("CAST(id AS STRING) AS message", topic="$TOPIC"),
        "no column 'value'",
    ),
    "values are numbers": (
        lambda hour: hour.write("id AS value", topic="$TOPIC"),
        "cast it",
    ),
    "rows have no topic": (
        lambda hour: hour.write("CAST(id AS STRING) AS value"),
        "Give the option 'topic'",
    ),
    "a row's topic is null": (
        lambda hour: hour.write("CAST(id AS STRING) AS value", "CAST(NULL AS STRING) AS topic"),
        "Row 0 of this task has no topic",
    ),
    "rows go to a topic that is misspelt": (
        lambda hour: hour.write("CAST(id AS STRING) AS value", topic="$TOPIC:"),
        "$TOPIC:",
    ),
    "a row is too large": (
        lambda hour: hour.write("repeat('v', 2000000) AS value", topic="$TOPIC"),
        "Row 0 of this task",
    ),
    "a write has no mode": (
        lambda hour: hour.write("CAST(id AS STRING) AS value", mode=None, topic="$TOPIC"),
        '"Append"',
    ),
    "a topic is overwritten": (
        lambda hour: hour.write("CAST(id AS STRING) AS value", mode="overwrite", topic="$TOPIC"),
        "A topic cannot be overwritten",
    ),
    "an exactly-once batch has no name": (
        lambda hour: hour.write(
            "CAST(id AS STRING) AS value", topic="$TOPIC", delivery="exactly_once"
        ),
        "needs a name for the sink",
    ),
    "a delivery is no word": (
        lambda hour: hour.write("CAST(id AS STRING) AS value", topic="$TOPIC", delivery="exactly"),
        "Option 'delivery' must be",
    ),
    "a query reads a topic that is misspelt": (
        lambda hour: hour.stream(**{"from.subscribe": "$TOPICx"}),
        "Brokers do not list '$TOPICx'",
    ),
    "a sink's option is misspelt": (
        lambda hour: hour.stream(onRecordTooLarg="x"),
        "Did you mean 'onRecordTooLarge'",
    ),
}
"""Title of the mistake, and the words that the driver shows."""


def made(hour: Hour, name: str) -> str:
    """Make a mistake; return the error."""
    try:
        MISTAKES[name][0](hour)
    except PySparkException as error:
        return str(error)
    return NO_ERROR


def beginning(error: str) -> str:
    """Return the first lines of an error. Spark puts one before that of a task."""
    return "\n".join(error.strip().splitlines()[:2])


def main(servers: str, topic: str, folder: str) -> None:
    """Make all mistakes on Spark Connect."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    hour = Hour(spark, servers, topic, folder)
    sys.stdout.write(json.dumps({name: beginning(made(hour, name)) for name in MISTAKES}) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
