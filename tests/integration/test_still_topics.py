"""Topics of low traffic through a rolling restart of three real brokers, beside Java's consumer.

Method: one restart for all. Leaders move twice. The one in between writes nothing, so that nobody
but itself knows of its epoch, with which ends are looked up, and were committed by older versions
of ours; or it writes a transaction's marker and no record. After it all 100 records come.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from pykclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pykclient.types import OffsetAndMetadata
from tests.integration.confluent_tools import confluent_transaction
from tests.integration.java_tools import java_consume

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.network.cluster.cluster import PartitionInfo
    from pykclient.testing import KafkaCluster

pytestmark = [pytest.mark.soak, pytest.mark.kafka]

TIMEOUT_S = 30.0
POLL_S = 0.1
OLD = [b"old %d" % number for number in range(5)]
NEW = [b"new %d" % number for number in range(100)]
END = len(OLD)
STILL, MARKED, CLEANED, CUT = TOPICS = ("still", "marked", "cleaned", "cut")
CLEANED_CONFIG = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.001, "segment.ms": 10}
POLICIES = ("earliest", "latest", "none")
LEVELS = ("read_uncommitted", "read_committed")
FIRST, BETWEEN, LAST = range(3)
"""The leaders' epochs."""


class Living(NamedTuple):
    """A consumer that lives through the restart, and what it reads from then on."""

    name: str
    consumer: Consumer
    values: list[object]


class Story:
    """A cluster whose brokers restart one by one while its topics change."""

    def __init__(self, cluster: KafkaCluster, stack: ExitStack) -> None:
        self.cluster = cluster
        self.servers = cluster.bootstrap_servers
        self.living: list[Living] = []
        self._stack = stack
        self._admin = stack.enter_context(Admin(bootstrap_servers=self.servers))

    def run(self) -> None:
        self._create_topics()
        with confluent_transaction(self.cluster, MARKED, OLD) as end_transaction:
            self.cluster.stop(1)
            self._wait_for_epoch(BETWEEN)
            end_transaction()
        self._change_heads()
        self._begin_reading()
        self._commit_offsets()
        self.cluster.start(1)
        for broker in (2, 3):
            self._wait(lambda: all(len(self._info(t).in_sync_replica_ids) == 3 for t in TOPICS))
            self.cluster.stop(broker)
            self._wait_for_epoch(LAST)
            self._look()
            self.cluster.start(broker)
        for topic in TOPICS:
            self._write(topic, NEW, has_keys=topic == CLEANED)

    def consumer(self, topic: str, **settings: str) -> Consumer:
        """Make a consumer, which goes on where its group has committed."""
        consumer = Consumer(settings, bootstrap_servers=self.servers)
        self._stack.enter_context(consumer)
        consumer.assign([TopicPartition(topic, 0)])
        return consumer

    def _create_topics(self) -> None:
        """Write five records to each topic, or what compaction will leave of them."""
        self._admin.create_topics(
            NewTopic(
                topic,
                replica_assignments={0: [1, 2, 3]},
                config=CLEANED_CONFIG if topic == CLEANED else {},
            )
            for topic in TOPICS
        )
        for topic in (STILL, CUT):
            self._write(topic, OLD)
        self._write(CLEANED, OLD[:3], key=b"key")

    def _write(
        self, topic: str, values: list[bytes], *, key: bytes | None = None, has_keys: bool = False
    ) -> None:
        with Producer(bootstrap_servers=self.servers) as producer:
            for value in values:
                producer.send(topic, value, value if has_keys else key, partition=0)

    def _info(self, topic: str) -> PartitionInfo:
        return self._admin.describe_topics([topic])[topic].partitions[0]

    def _wait(self, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not is_so():
            assert time.monotonic() < deadline_s
            time.sleep(POLL_S)

    def _wait_for_epoch(self, epoch: int) -> None:
        self._wait(lambda: all(self._info(topic).leader_epoch == epoch for topic in TOPICS))

    def _change_heads(self) -> None:
        """Delete one topic's records, and have another one's compacted."""
        client = AdminClient({"bootstrap.servers": self.servers})
        deletion = confluent_kafka.TopicPartition(CUT, 0, END)
        for done in client.delete_records([deletion]).values():
            done.result(TIMEOUT_S)
        for value in OLD[3:]:  # each is in a segment of its own; what is before the last is cleaned
            self._write(CLEANED, [value], key=b"key")
        consumer = self.consumer(CLEANED)

        def is_cleaned() -> bool:
            consumer.seek_to_beginning()
            return next(iter(consumer.poll(TIMEOUT_S))).offset > 0

        self._wait(is_cleaned)

    def _begin_reading(self) -> None:
        """Set consumers to the end offsets, which were looked up or reached by reading."""
        still, marked = TopicPartition(STILL, 0), TopicPartition(MARKED, 0)
        for policy in POLICIES:
            consumer = self.consumer(STILL, auto_offset_reset=policy)
            consumer.seek_to_end()
            self.living.append(Living(f"sought, {policy}", consumer, []))
        self.living.append(Living("reset", self.consumer(STILL, auto_offset_reset="latest"), []))
        for living in self.living:
            assert living.consumer.position(still) == END
        for level in LEVELS:
            consumer = self.consumer(MARKED, auto_offset_reset="none", isolation_level=level)
            consumer.seek(marked, 0)
            assert len(read(consumer, END)) == END
            self._wait(lambda consumer=consumer: is_past_marker(consumer))  # type: ignore[misc]
            self.living.append(Living(level, consumer, []))

    def _commit_offsets(self) -> None:
        """Commit as older versions of ours did after a look-up, and what is right."""
        for group in (*POLICIES, "java"):
            self._commit(group, STILL, END, BETWEEN)
        for level in LEVELS:
            self._commit(level, MARKED, END + 1, BETWEEN)
        for group, offset, epoch in (("in the hole", 1, FIRST), ("at its end", END, BETWEEN)):
            self._commit(group, CLEANED, offset, epoch)
            self._commit(group, CUT, offset, FIRST)

    def _commit(self, group: str, topic: str, offset: int, leader_epoch: int) -> None:
        committed = OffsetAndMetadata(offset, leader_epoch=leader_epoch)
        self._admin.alter_group_offsets(group, {TopicPartition(topic, 0): committed})

    def _look(self) -> None:
        """Poll every consumer, so that it finds the other leader; no new records are expected."""
        for living in self.living:
            living.values.extend(record.value for record in living.consumer.poll(POLL_S))


def is_past_marker(consumer: Consumer) -> bool:
    assert not consumer.poll(POLL_S)
    return consumer.position(TopicPartition(MARKED, 0)) == END + 1


def read(consumer: Consumer, count: int) -> list[tuple[int, object]]:
    found: list[tuple[int, object]] = []
    while len(found) < count:
        records = consumer.poll(TIMEOUT_S)
        assert records, f"only {found} came"
        found += [(record.offset, record.value) for record in records]
    return found


@pytest.fixture(scope="module")
def story(three_kafka_brokers: KafkaCluster) -> Iterator[Story]:
    with ExitStack() as stack:
        story = Story(three_kafka_brokers, stack)
        story.run()
        yield story


def new_from(first_offset: int) -> list[tuple[int, object]]:
    return list(enumerate(NEW, first_offset))


@pytest.mark.parametrize("policy", POLICIES)
def test_what_came_while_it_was_away_is_read_whatever_the_policy(story: Story, policy: str) -> None:
    consumer = story.consumer(STILL, group_id=policy, auto_offset_reset=policy)
    (first, *_) = records = consumer.poll(TIMEOUT_S)
    assert first.leader_epoch == LAST, "another producer wrote in between"
    found = [(record.offset, record.value) for record in records]
    assert found + read(consumer, len(NEW) - len(found)) == new_from(END)


def test_java_reads_the_same_from_the_same_commit(story: Story) -> None:
    records = java_consume(
        story.cluster, STILL, len(NEW), settings={"group.id": "java"}, is_from_beginning=False
    )
    assert [(record.offset, record.value) for record in records] == new_from(END)


def test_a_consumer_that_never_left_skips_nothing_and_reads_nothing_again(story: Story) -> None:
    for name, consumer, values in story.living:
        while len(values) < len(NEW):
            records = consumer.poll(TIMEOUT_S)
            assert records, f"{name}: only {values} came"
            values.extend(record.value for record in records)
        assert values == NEW, name


@pytest.mark.parametrize("level", LEVELS)
def test_behind_a_marker_of_the_leader_in_between_reading_goes_on(story: Story, level: str) -> None:
    consumer = story.consumer(
        MARKED, group_id=level, isolation_level=level, auto_offset_reset="none"
    )
    assert read(consumer, len(NEW)) == new_from(END + 1)


@pytest.mark.parametrize("group", ["in the hole", "at its end"])
def test_what_is_left_of_a_head_is_read(story: Story, group: str) -> None:
    settings = {"group_id": group, "auto_offset_reset": "earliest"}
    assert read(story.consumer(CUT, **settings), len(NEW)) == new_from(END)
    left = [(END - 1, OLD[-1])] if group == "in the hole" else []
    expected = [*left, *new_from(END)]
    assert read(story.consumer(CLEANED, **settings), len(expected)) == expected
