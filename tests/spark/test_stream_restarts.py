"""Every kind of start, and everything that may change until a query starts again.

Each cell runs a query in its own process, which ends in its first batch or behind it; then
something changes, and the query starts again from its log. It reads every record once; or it fails
before it logs anything, and reads every record once when what was wrong is mended. `failOnDataLoss`
is true, until records are gone.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack, suppress
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from pykclient import Consumer, Producer, TopicPartition
from pykclient.errors import (
    BrokerError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import FakeKafka
from pykclient.testing.fake.faults import fail_with
from tests.spark.logged_stream import CrashError, LoggedStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from _pytest.mark.structures import ParameterSet

READ, BESIDE, ADDED = "flights", "gates", "trains"
R0, R1, B0 = TopicPartition(READ, 0), TopicPartition(READ, 1), TopicPartition(BESIDE, 0)
LOST: Final = {"failOnDataLoss": "false"}
SUBSCRIBED: Final = {"subscribe": f"{READ},{BESIDE}"}
HOUR_MS: Final = 3_600_000


class World:
    """A cluster with the topics `READ`, of two partitions, and `BESIDE`, and the query over them.

    It knows the values that the query has to read.
    """

    def __init__(self, kafka: FakeKafka, start: Mapping[str, str]) -> None:
        self.kafka = kafka
        self.stream = LoggedStream()
        self.opened = ExitStack()
        self._started_at_ms = round(time.time() * 1_000)
        self._numbers = Counter[TopicPartition]()
        self.wanted: set[str] = set()
        self.may_be_read: set[str] = set()
        with kafka.control() as cluster:
            cluster.create_topic(READ, 2)
            cluster.create_topic(BESIDE, 1)
        # Before the query starts; a start at a time or an offset leaves out the first two of R0.
        old, young = self._started_at_ms - HOUR_MS, self._started_at_ms - 1_000
        self.before = [*self.send(R0, 2, old), *self.send(R0, 3, young), *self.send(R1, 3, young)]
        self.before += self.send(B0, 1, young)
        with Consumer(
            bootstrap_servers=kafka.bootstrap_servers, group_id="apps", enable_auto_commit=False
        ) as app:
            app.assign([R0, R1, B0])
            app.commit({R0: 2, R1: 0, B0: 0})
        self.options = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            **({} if start.keys() & {"subscribePattern", "assign"} else SUBSCRIBED),
            "fetchOffset.retryIntervalMs": "1",
            "offsetPollIntervalMs": "0",
            "kafkaConsumer.pollTimeoutMs": "5000",
            "kafka.default.api.timeout.ms": "3000",
            **{name: text.replace("$BEFORE", str(young)) for name, text in start.items()},
        }

    def send(self, partition: TopicPartition, count: int, time_ms: int | None = None) -> list[str]:
        sent = []
        with Producer(bootstrap_servers=self.kafka.bootstrap_servers) as producer:
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
        """Send the records that the query has to read after the change."""
        for partition in (R0, R1, B0):
            self.wanted.update(self.send(partition, 2))

    def run(self, changed: Mapping[str, str] | None = None, *, crashes: bool = False) -> None:
        self.stream.run({**self.options, **(changed or {})}, crashes=crashes)

    def forget(self, partition: TopicPartition) -> None:
        """Accept the values of this removed partition as read or not."""
        gone = {value for value in self.wanted if value.startswith(f"{partition} ")}
        self.wanted -= gone
        self.may_be_read |= gone


# What changes. Each returns the options of the second start, and those of the third, which cures
# it; None where the second start works.


class Second(NamedTuple):
    options: Mapping[str, str]
    mend: Callable[[], Mapping[str, str]] | None = None


def nothing(world: World) -> Second:
    world.send_more()
    return Second({})


def partition_added(world: World) -> Second:
    with world.kafka.control() as cluster:
        cluster.add_partitions(READ, 3)
    world.wanted.update(world.send(TopicPartition(READ, 2), 2))
    world.send_more()
    return Second({})


def topic_added(world: World) -> Second:
    with world.kafka.control() as cluster:
        cluster.create_topic(ADDED, 1)
    world.wanted.update(world.send(TopicPartition(ADDED, 0), 2))
    world.send_more()
    if "subscribe" in world.options:
        world.options["subscribe"] += f",{ADDED}"
    return Second({})


def topic_misspelt(world: World) -> Second:
    world.send_more()
    return Second({"subscribe": f"flihgts,{BESIDE}"}, dict)


def topic_misspelt_where_losses_are_allowed(world: World) -> Second:
    world.send_more()
    return Second({"subscribe": f"flihgts,{BESIDE}", **LOST}, dict)


def other_topic_named(world: World) -> Second:
    """Rename the topic to a misspelt name that exists."""
    with world.kafka.control() as cluster:
        cluster.create_topic(ADDED, 1)
    world.send_more()
    return Second({"subscribe": f"{ADDED},{BESIDE}"}, dict)


def refused_once(error: type[BrokerError]) -> Callable[[World], Second]:
    def change(world: World) -> Second:
        world.send_more()
        with world.kafka.control() as cluster:
            cluster.faults.add(fail_with(error), ApiKey.METADATA, when=names(READ))
        return Second({})

    return change


def not_listed_for_long(world: World) -> Second:
    world.send_more()
    with world.kafka.control() as cluster:
        handle = cluster.faults.add(
            fail_with(UnknownTopicOrPartitionError), ApiKey.METADATA, times=None
        )

    def mend() -> Mapping[str, str]:
        with world.kafka.control():
            handle.remove()
        return {}

    return Second({}, mend)


def topic_removed(world: World) -> Second:
    with world.kafka.control() as cluster:
        cluster.delete_topic(READ)
    world.forget(R0)
    world.forget(R1)
    world.wanted.update(world.send(B0, 2))
    return Second({}, lambda: LOST)


def recreated_with_less(world: World) -> Second:
    with world.kafka.control() as cluster:
        cluster.delete_topic(READ)
        cluster.create_topic(READ, 2)
    world.forget(R0)
    world.forget(R1)
    world.may_be_read.update([*world.send(R0, 1), *world.send(R1, 1)])
    world.wanted.update(world.send(B0, 2))
    return Second({}, lambda: LOST)


def recreated_with_more(world: World) -> Second:
    """Recreate the topic with more records; the log has the ids of topics."""
    with world.kafka.control() as cluster:
        cluster.delete_topic(READ)
        cluster.create_topic(READ, 2)
    world.forget(R0)
    world.forget(R1)
    world.wanted.update([*world.send(R0, 9), *world.send(R1, 9), *world.send(B0, 2)])
    return Second({}, lambda: LOST)


def aged_out(world: World) -> Second:
    """Delete all but one of the records of R0 from before the query started."""
    with world.kafka.control() as cluster:
        cluster.partition(R0).log.delete_records(4)
    gone = {f"{R0} {number}" for number in range(4)}
    world.may_be_read |= world.wanted & gone
    world.wanted -= gone
    world.send_more()
    is_lost = len(world.stream.log) > len(world.stream.batches) and bool(world.may_be_read)
    return Second({}, (lambda: LOST) if is_lost else None)


def cluster_replaced(world: World) -> Second:
    """Another cluster, without the topics."""
    other = world.opened.enter_context(FakeKafka(brokers=1, auto_create_topics=False))
    world.send_more()
    return Second({"kafka.bootstrap.servers": other.bootstrap_servers}, dict)


def cluster_replaced_by_one_with_less(world: World) -> Second:
    """Another cluster, with younger topics of the same names."""
    other = world.opened.enter_context(FakeKafka(brokers=1))
    with other.control() as cluster:
        cluster.create_topic(READ, 2)
        cluster.create_topic(BESIDE, 1)
    world.send_more()
    return Second({"kafka.bootstrap.servers": other.bootstrap_servers}, dict)


def names(topic: str) -> Callable[[object], bool]:
    """Fit requests that name a topic, or all."""

    def fits(request: object) -> bool:
        topics = getattr(request, "topics", None)
        return topics is None or any(one.name == topic for one in topics)

    return fits


CHANGES: Final = {
    "nothing": nothing,
    "partition added": partition_added,
    "topic added": topic_added,
    "topic misspelt": topic_misspelt,
    "topic misspelt, losses allowed": topic_misspelt_where_losses_are_allowed,
    "another topic named": other_topic_named,
    "topic unauthorized for one response": refused_once(TopicAuthorizationFailedError),
    "topic unknown for one response": refused_once(UnknownTopicOrPartitionError),
    "topic unknown for long": not_listed_for_long,
    "topic removed": topic_removed,
    "topic recreated with less": recreated_with_less,
    "topic recreated with more": recreated_with_more,
    "aged out": aged_out,
    "cluster replaced": cluster_replaced,
    "cluster replaced by one with less": cluster_replaced_by_one_with_less,
}


class Start(NamedTuple):
    """Options, and how many of the first records of R0, R1 and B0 they leave out."""

    options: Mapping[str, str]
    left_out: tuple[int, int, int] = (2, 0, 0)


OFFSETS: Final = f'{{"{READ}":{{"0":2,"1":-2}},"{BESIDE}":{{"0":0}}}}'
STARTS: Final = {
    "earliest": Start({"startingOffsets": "earliest"}, (0, 0, 0)),
    "latest": Start({}, (5, 3, 1)),
    "offsets": Start({"startingOffsets": OFFSETS}),
    "offsets and latest": Start({"startingOffsets": OFFSETS.replace("-2", "-1")}, (2, 3, 0)),
    "time": Start({"startingTimestamp": "$BEFORE"}),
    "duration": Start({"startingTimestamp": "-PT30M"}),
    "times": Start(
        {
            "startingOffsetsByTimestamp": f'{{"{READ}":{{"0":$BEFORE,"1":$BEFORE}},'
            f'"{BESIDE}":{{"0":$BEFORE}}}}'
        }
    ),
    "group": Start({"startingOffsets": "group:apps"}),
    "duration, by a pattern": Start(
        {"startingTimestamp": "-PT30M", "subscribePattern": f"^({READ}|{BESIDE}|{ADDED})$"}
    ),
    "group, assigned": Start(
        {"startingOffsets": "group:apps", "assign": f'{{"{READ}":[0,1],"{BESIDE}":[0]}}'}
    ),
}


def is_possible(start: str, change: str) -> bool:
    """Tell whether the change affects a query that chooses its topics in this way."""
    options = STARTS[start].options
    if change in ("topic misspelt", "topic misspelt, losses allowed", "another topic named"):
        return not options.keys() & {"subscribePattern", "assign"}
    return "assign" not in options or change not in ("partition added", "topic added")


def cells() -> Iterator[ParameterSet]:
    """Every cell; those of one kind of start in each state are in every run."""
    for start, change, is_finished in product(STARTS, CHANGES, (False, True)):
        if not is_possible(start, change):
            continue
        is_short = (start, is_finished) in (("duration", False), ("earliest", True))
        state = "finished" if is_finished else "in its first batch"
        yield pytest.param(
            start,
            change,
            is_finished,
            marks=() if is_short else pytest.mark.soak,
            id=f"{start}, {state}, {change}",
        )


@pytest.fixture
def make_world(fake_kafka: FakeKafka) -> Iterator[Callable[[Start], World]]:
    with ExitStack() as opened:

        def make(start: Start) -> World:
            world = World(fake_kafka, start.options)
            opened.push(world.opened)
            skipped = {
                f"{partition} {number}"
                for partition, count in zip((R0, R1, B0), start.left_out, strict=True)
                for number in range(count)
            }
            world.wanted.update(value for value in world.before if value not in skipped)
            return world

        yield make


@pytest.mark.promise("A stream restarts from its checkpoint once the problem is fixed")
@pytest.mark.parametrize(("start", "change", "is_finished"), [*cells()])
def test_a_query_that_starts_again_reads_each_record_once(
    make_world: Callable[[Start], World], start: str, change: str, *, is_finished: bool
) -> None:
    world = make_world(STARTS[start])
    with suppress(CrashError):
        world.run(crashes=not is_finished)
    assert len(world.stream.log) >= 1
    # What the crashed process was to read is what there was. A group or a time says otherwise now.
    if not is_finished and start.startswith("group"):
        with Consumer(bootstrap_servers=world.kafka.bootstrap_servers, group_id="apps") as app:
            app.assign([R0, R1, B0])
            app.commit({R0: 5, R1: 3, B0: 1})
    if start.startswith("duration"):
        world.options["startingTimestamp"] = "-PT0.001S"
    second = CHANGES[change](world)
    before = list(world.stream.log)
    if second.mend is None:
        world.run(second.options)
    else:
        with pytest.raises(KafkaError):
            world.run(second.options)
        assert world.stream.log == before
        world.run(second.mend())
    found = Counter(world.stream.values)
    assert [value for value, count in found.items() if count > 1] == []
    assert world.wanted - found.keys() == set()
    assert found.keys() - world.wanted - world.may_be_read == set()
    # The log can be used again.
    world.wanted.update(world.send(B0, 1))
    world.run(LOST if second.mend is not None and second.mend() == LOST else {})
    assert world.wanted - {*world.stream.values} == set()
