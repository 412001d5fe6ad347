"""The same batch reads through Spark's own Kafka connector and this one: equal rows, or errors.

Spark reads every topic through both. The cases of single options are read here by the calls that
Spark makes, without its processes, each of which takes longer than such a read.
"""

from __future__ import annotations

import re
from string import Template
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from pykclient.errors import KafkaError
from spark_connector.java_pattern import python_pattern
from spark_connector.source import KafkaDataSource
from spark_connector.versions import PYSPARK, arrow_schema
from tests.spark.batch_cases import (
    EQUAL,
    PLAIN,
    REFUSED,
    STRICTER,
    WIDER,
)
from tests.spark.every_topic import RECORD_COUNT, EveryTopic, TopicMaker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from pykclient.testing import KafkaCluster

pytestmark = [
    pytest.mark.soak,
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.usefixtures("official_connector"),
]

OFFICIAL: Final = "kafka"
OURS: Final = "pykafka"
PLACE: Final = [(name, "ascending") for name in ("topic", "partition", "offset")]

BASE: Final = {
    "includeHeaders": "true",
    # What makes the official one wait.
    "fetchOffset.numRetries": "1",
    "fetchOffset.retryIntervalMs": "1",
    "kafka.fetch.max.wait.ms": "10",
}


class Oracle:
    """Both connectors over the same topics.

    Records are in the order of topic, partition and offset, not in that of the tasks.
    """

    def __init__(self, spark: SparkSession, servers: str, topics: EveryTopic) -> None:
        self._spark = spark
        self._servers = servers
        self._names = {**topics._asdict(), "run": topics.plain[-4:]}

    def written(self, text: str) -> str:
        """Return the text with the names of the topics."""
        return Template(text).substitute(self._names)

    def options(self, given: Mapping[str, str]) -> dict[str, str]:
        return {
            **BASE,
            "kafka.bootstrap.servers": self._servers,
            **{name: self.written(value) for name, value in given.items()},
        }

    def frame(self, source: str, given: Mapping[str, str]) -> DataFrame:
        return self._spark.read.format(source).options(**self.options(given)).load()

    def read_by_spark(self, source: str, given: Mapping[str, str]) -> pa.Table:
        return self.frame(source, given).toArrow().sort_by(PLACE)

    def read_here(self, given: Mapping[str, str]) -> pa.Table:
        """Read with this connector, by the calls that Spark makes."""
        source = KafkaDataSource(self.options(given))
        schema = source.schema()
        reader = source.reader(schema)
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        return pa.Table.from_batches(batches, arrow_schema(schema)).sort_by(PLACE)

    def official_failure(self, given: Mapping[str, str]) -> str:
        with pytest.raises((Py4JJavaError, PySparkException)) as caught:
            self.frame(OFFICIAL, given).count()
        return str(caught.value)

    def failure_here(self, given: Mapping[str, str]) -> str:
        with pytest.raises(KafkaError) as caught:
            self.read_here(given)
        return str(caught.value)


@pytest.fixture(scope="module")
def oracle(spark: SparkSession, kafka_cluster: KafkaCluster) -> Iterator[Oracle]:
    maker = TopicMaker(kafka_cluster)
    yield Oracle(spark, kafka_cluster.bootstrap_servers, maker.every_topic())
    maker.open_producers.clear()


@pytest.mark.promise("Spark reads the same rows as with its own Kafka source")
def test_spark_reads_every_topic_as_through_the_official_source(oracle: Oracle) -> None:
    given = {
        "subscribe": ",".join(f"${name}" for name in EveryTopic._fields),
        "minPartitions": "20",
    }
    rows = oracle.read_by_spark(OURS, given)
    assert rows.equals(oracle.read_by_spark(OFFICIAL, given))
    assert {*rows["topic"].to_pylist()} == {
        oracle.written(f"${name}") for name in EveryTopic._fields
    }


@pytest.mark.promise("Spark reads the same rows as with its own Kafka source")
@pytest.mark.parametrize("name", EQUAL)
def test_a_query_finds_what_it_finds_through_the_official_source(oracle: Oracle, name: str) -> None:
    given, row_count = EQUAL[name]
    rows = oracle.read_here(given).to_pylist()
    assert rows == oracle.read_by_spark(OFFICIAL, given).to_pylist()
    assert len(rows) == row_count


@pytest.mark.parametrize("headers", ["true", "False"])
def test_the_schema_is_that_of_the_official_source(oracle: Oracle, headers: str) -> None:
    given = {**PLAIN, "includeHeaders": headers}
    assert oracle.frame(OURS, given).schema == oracle.frame(OFFICIAL, given).schema


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_official_source_refuses_is_refused(oracle: Oracle, name: str) -> None:
    given, complaint = REFUSED[name]
    # Spark's own source before 4.2 reads on without a retry.
    is_taken_there = name == "no retries" and PYSPARK < (4, 2)
    assert is_taken_there or oracle.official_failure(given)
    assert re.search(oracle.written(complaint), oracle.failure_here(given))


@pytest.mark.parametrize("name", STRICTER)
def test_what_is_refused_here_only_is_listed(oracle: Oracle, name: str) -> None:
    given, complaint, reason = STRICTER[name]
    assert oracle.frame(OFFICIAL, given).count() >= 0, reason
    assert oracle.written(complaint) in oracle.failure_here(given)


@pytest.mark.parametrize("name", WIDER)
def test_what_is_read_here_only_is_listed(oracle: Oracle, name: str) -> None:
    given, complaint, reason = WIDER[name]
    assert complaint in oracle.official_failure(given), reason
    assert oracle.read_here(given).num_rows == 2 * RECORD_COUNT, reason


PATTERNS: Final = (
    *("a.c", r"^a\.c$", r"\p{Alpha}+", r"^\P{Digit}+$", r"^[\p{Lower}_]+$", r"\pL\d", r"\PN$"),
    *(r"(?<x>b)\k<x>", r"\Qa.c\E", r"^\p{IsAlphabetic}+$", r"[^\p{Punct}]{4}"),
)
NAMES: Final = ("a.c", "abc", "abbc", "A1", "a1", "_x", "a-b", "9", "trains-2026", "B_b.b")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_finds_what_java_finds(spark: SparkSession, pattern: str) -> None:
    java = spark._jvm.java.util.regex.Pattern.compile(pattern)  # type: ignore[union-attr]
    assert [name for name in NAMES if re.search(python_pattern(pattern), name)] == [
        name for name in NAMES if java.matcher(name).find()
    ]
