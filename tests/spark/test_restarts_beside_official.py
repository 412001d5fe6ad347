"""Starts and changes between two of them, through Spark's own Kafka source and this one.

Each cell runs a query of each source in Spark, on the same topics. The query ends in its first
batch or behind it; then something changes, and it starts again from its checkpoint. This source
reads every record once, or fails before it logs anything and reads every record once when what was
wrong is mended. Spark's own source is never the better one: where it goes on and this one does not,
it has passed over records, or read some twice. A log line has each cell.

`test_stream_restarts.py` has more changes, on fake brokers and without Spark: responses that lack
a topic, other clusters, mistakes of several kinds.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from confluent_kafka import TopicPartition as WitnessPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException

from pykclient import Admin, NewPartitions, NewTopic, Producer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from _pytest.mark.structures import ParameterSet
    from pyspark.sql import DataFrame, SparkSession

    from pykclient.testing import KafkaCluster

pytestmark = [
    pytest.mark.soak,
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.usefixtures("official_connector"),
]

_LOG = logging.getLogger(__name__)

OURS, OFFICIAL = "pykafka", "kafka"
TIMEOUT_S: Final = 200
HOUR_MS: Final = 3_600_000
LOST: Final = {"failOnDataLoss": "false"}
GROUP: Final = "apps-$READ"


class CutError(Exception):
    """The end of a query in its first batch."""


class Query:
    """A query of one source, run by run, and the values that its finished batches have."""

    def __init__(self, spark: SparkSession, source: str, folder: Path) -> None:
        self._spark = spark
        self._source = source
        self._folder = folder
        self.values = Counter[str]()

    def runs(self, options: Mapping[str, str], *, is_cut: bool = False) -> bool:
        """Read all available records; return False if the query fails."""

        def keep(batch: DataFrame, _: int) -> None:
            found = [bytes(row["value"]).decode() for row in batch.collect()]
            if is_cut:
                raise CutError
            self.values.update(found)

        writer = (
            self._spark.readStream.format(self._source)
            .options(**options)
            .load()
            .select("value")
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self._folder))
            .trigger(availableNow=True)
        )
        try:
            assert writer.start().awaitTermination(TIMEOUT_S)
        except StreamingQueryException:
            return False
        return True


class World:
    """A topic of two partitions, one beside it, and the values that a query has to read."""

    def __init__(self, kafka: KafkaCluster, new_topic: Callable[[int], str], start: Start) -> None:
        self.servers = kafka.bootstrap_servers
        self.read, self.beside = new_topic(2), new_topic(1)
        self.new_topic = new_topic
        self._numbers = Counter[TopicPartition]()
        self.wanted: set[str] = set()
        self.may_be_read: set[str] = set()
        self.r0, self.r1 = TopicPartition(self.read, 0), TopicPartition(self.read, 1)
        self.b0 = TopicPartition(self.beside, 0)
        young = round(time.time() * 1_000) - 1_000
        sent = [
            self.send(self.r0, 2, young - HOUR_MS) + self.send(self.r0, 3, young),
            self.send(self.r1, 3, young),
            self.send(self.b0, 1, young),
        ]
        for values, left_out in zip(sent, start.left_out, strict=True):
            self.wanted.update(values[left_out:])
        words = {"$READ": self.read, "$BESIDE": self.beside, "$BEFORE": str(young)}
        self.options = {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": f"{self.read},{self.beside}",
            "fetchOffset.retryIntervalMs": "1",
            **{name: _filled(text, words) for name, text in start.options.items()},
        }
        with self.admin() as admin:
            at = {self.r0: 2, self.r1: 0, self.b0: 0}
            admin.alter_group_offsets(_filled(GROUP, words), at)

    def admin(self) -> Admin:
        return Admin(bootstrap_servers=self.servers)

    def send(self, partition: TopicPartition, count: int, time_ms: int | None = None) -> list[str]:
        sent = []
        with Producer(bootstrap_servers=self.servers) as producer:
            for _ in range(count):
                number = self._numbers[partition]
                self._numbers[partition] += 1
                sent.append(f"{partition} {number}")
                producer.send(
                    partition.topic,
                    sent[-1].encode(),
                    partition=partition.partition,
                    timestamp_ms=time_ms,
                )
        return sent

    def send_more(self) -> None:
        for partition in (self.r0, self.r1, self.b0):
            self.wanted.update(self.send(partition, 2))

    def forget(self, *partitions: TopicPartition) -> None:
        """Accept the values of these removed partitions as read or not."""
        gone = {
            value
            for value in self.wanted
            if any(value.startswith(f"{partition} ") for partition in partitions)
        }
        self.wanted -= gone
        self.may_be_read |= gone

    def delete(self) -> None:
        """Delete the topic that is read."""
        with self.admin() as admin:
            admin.delete_topics([self.read])
        self.forget(self.r0, self.r1)

    def recreate(self, count: int) -> None:
        """Create a topic of the same name, with `count` records in each partition."""
        self.delete()
        with self.admin() as admin:
            admin.create_topics([NewTopic(self.read, 2, 1)])
        self.wanted.update([*self.send(self.r0, count), *self.send(self.r1, count)])
        self.wanted.update(self.send(self.b0, 2))


def _filled(text: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text


class Start(NamedTuple):
    """A start of a query: its options, and how many first records of a partition they leave out.

    It also says whether only this source has it.
    """

    options: Mapping[str, str]
    left_out: tuple[int, int, int] = (2, 0, 0)
    is_ours: bool = False


STARTS: Final = {
    "earliest": Start({"startingOffsets": "earliest"}, (0, 0, 0)),
    "latest": Start({}, (5, 3, 1)),
    "offsets": Start({"startingOffsets": '{"$READ":{"0":2,"1":-2},"$BESIDE":{"0":0}}'}),
    "time": Start({"startingTimestamp": "$BEFORE"}),
    "duration": Start({"startingTimestamp": "-PT30M"}, is_ours=True),
    "group": Start({"startingOffsets": f"group:{GROUP}"}, is_ours=True),
}


class Second(NamedTuple):
    """The options of the second start; and those of the third, where the second is to fail."""

    options: Mapping[str, str]
    third: Mapping[str, str] | None = None


def nothing(world: World, *, is_finished: bool) -> Second:
    world.send_more()
    return Second({})


def partition_added(world: World, *, is_finished: bool) -> Second:
    with world.admin() as admin:
        admin.create_partitions({world.read: NewPartitions(3)})
    world.wanted.update(world.send(TopicPartition(world.read, 2), 2))
    world.send_more()
    return Second({})


def topic_added(world: World, *, is_finished: bool) -> Second:
    added = world.new_topic(1)
    world.wanted.update(world.send(TopicPartition(added, 0), 2))
    world.send_more()
    world.options["subscribe"] += f",{added}"
    return Second({})


def topic_misspelt(world: World, *, is_finished: bool) -> Second:
    world.send_more()
    return Second({"subscribe": f"{world.read}x,{world.beside}"}, {})


def topic_removed(world: World, *, is_finished: bool) -> Second:
    world.delete()
    world.wanted.update(world.send(world.b0, 2))
    return Second({}, LOST)


def recreated_with_less(world: World, *, is_finished: bool) -> Second:
    world.recreate(1)
    return Second({}, LOST)


def recreated_with_more(world: World, *, is_finished: bool) -> Second:
    world.recreate(9)
    return Second({}, LOST)


def aged_out(world: World, *, is_finished: bool) -> Second:
    """Delete all but one of the records of the first partition from before the query started."""
    admin = AdminClient({"bootstrap.servers": world.servers})
    for deletion in admin.delete_records([WitnessPartition(world.read, 0, 4)]).values():
        deletion.result(TIMEOUT_S)
    gone = world.wanted & {f"{world.r0} {number}" for number in range(4)}
    world.wanted -= gone
    world.may_be_read |= gone
    world.send_more()
    return Second({}, LOST if gone and not is_finished else None)


CHANGES: Final = {
    "nothing": nothing,
    "a partition is added": partition_added,
    "a topic is added": topic_added,
    "a topic is misspelt": topic_misspelt,
    "the topic is removed": topic_removed,
    "the topic is recreated with less": recreated_with_less,
    "the topic is recreated with more": recreated_with_more,
    "records are aged out": aged_out,
}


class Outcome(NamedTuple):
    """The outcome of a query: whether its restarts failed, and how many values it lost or doubled.

    `fails` is of the second start, `is_dead` of the last one.
    """

    fails: bool
    is_dead: bool
    lost_count: int
    doubled_count: int

    @property
    def is_clean(self) -> bool:
        return not (self.is_dead or self.lost_count or self.doubled_count)

    def __str__(self) -> str:
        words = ["fails" if self.fails else "goes on"]
        words += [f"{self.lost_count} lost"] * bool(self.lost_count)
        words += [f"{self.doubled_count} twice"] * bool(self.doubled_count)
        words += ["cannot start again"] * self.is_dead
        return ", ".join(words)


def cells() -> Iterator[ParameterSet]:
    for start, change, is_finished in product(STARTS, CHANGES, (False, True)):
        state = "finished" if is_finished else "in its first batch"
        yield pytest.param(start, change, is_finished, id=f"{start}, {state}, {change}")


@pytest.mark.promise("A stream restarts from its checkpoint once the problem is fixed")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("start", "change", "is_finished"), [*cells()])
def test_a_query_that_starts_again_is_no_worse_than_one_of_sparks_own_source(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    new_topic: Callable[[int], str],
    tmp_path: Path,
    *,
    start: str,
    change: str,
    is_finished: bool,
) -> None:
    world = World(kafka_cluster, new_topic, STARTS[start])
    sources = [OURS] if STARTS[start].is_ours else [OURS, OFFICIAL]
    queries = {name: Query(spark, name, tmp_path / name) for name in sources}
    for query in queries.values():
        assert query.runs(world.options, is_cut=not is_finished) == is_finished
    second = CHANGES[change](world, is_finished=is_finished)
    went_on = {
        name: query.runs({**world.options, **second.options}) for name, query in queries.items()
    }
    third = {**world.options, **(second.third or {})}
    for name, query in queries.items():
        if not went_on[name]:
            query.runs(third)
    # The log can be used again.
    world.wanted.update(world.send(world.b0, 1))
    found = {
        name: outcome(world, query, went_on=went_on[name], is_dead=not query.runs(third))
        for name, query in queries.items()
    }
    state = "finished" if is_finished else "in its first batch"
    _LOG.info("%s | %s | %s | %s", start, state, change, " | ".join(map(str, found.values())))
    here = found[OURS]
    assert here.is_clean
    assert here.fails == (second.third is not None)
    there = found.get(OFFICIAL)
    assert there is None or not (there.is_clean and here.fails and not there.fails)


def outcome(world: World, query: Query, *, went_on: bool, is_dead: bool) -> Outcome:
    lost = world.wanted - query.values.keys()
    doubled = [value for value, count in query.values.items() if count > 1]
    assert query.values.keys() <= world.wanted | world.may_be_read
    return Outcome(not went_on, is_dead, len(lost), len(doubled))
