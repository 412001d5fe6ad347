"""A member that stalls, is removed from its group, and goes on with a transaction of what it read.

Goal: another member has read and committed the same records meanwhile, so brokers must refuse the
offsets of the first one, in the calls that the documentation shows. Method: the output counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import pytest

from pykclient import Admin, Consumer, ConsumerRecords, NewTopic, Producer, TopicPartition
from pykclient.errors import CommitFailedError, TransactionAbortableError, UsageError
from pykclient.testing import FakeKafka, GroupSettings
from tests.integration.group_members import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pykclient.testing import KafkaCluster

POLL_S = 0.02
COUNT = 10
LATE_MS = 400
GROUP = "copiers"
each_protocol = pytest.mark.parametrize("protocol", ["classic", "consumer"])


class Copier:
    """One process of a service: it copies a topic to another one with the raw calls."""

    def __init__(self, servers: str, topic: str, protocol: str, **settings: object) -> None:
        self.topic, self.sink = topic, f"{topic}-out"
        timing = {"heartbeat_interval_ms": 100} if protocol == "classic" else {}
        self.consumer = Consumer(
            {
                "bootstrap_servers": servers,
                "group_id": f"{GROUP}-{topic}",
                "group_protocol": protocol,
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                "isolation_level": "read_committed",
            }
            | timing
            | settings
        )
        self.producer = Producer(
            bootstrap_servers=servers,
            transactional_id=f"{topic}-{id(self)}",
            linger_ms=0,
        )
        self.consumer.subscribe([topic])
        self.producer.init_transactions()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close()
        self.producer.close()

    @property
    def is_removed(self) -> bool:
        """True if the consumer knows that it is no longer a member."""
        try:
            self.consumer.commit({TopicPartition(self.topic, 0): 0})
        except CommitFailedError:
            return True
        return False

    def read(self) -> ConsumerRecords:
        """Return the records of the first poll that has some; there are ten."""
        found: list[ConsumerRecords] = []

        def has_some() -> bool:
            found[:] = [self.consumer.poll(POLL_S)]
            return bool(found[0])

        wait_until(has_some, "records")
        assert len(found[0]) == COUNT
        return found[0]

    def copy(self, records: ConsumerRecords) -> None:
        self.producer.begin_transaction()
        for record in records:
            self.producer.send(self.sink, record.value)
        self.producer.send_offsets_to_transaction(
            records.next_offsets, self.consumer.group_metadata()
        )
        self.producer.commit_transaction()

    def fail_to_copy(self, records: ConsumerRecords) -> None:
        with pytest.raises(TransactionAbortableError) as caught:
            self.copy(records)
        assert isinstance(caught.value.__cause__, CommitFailedError)
        self.producer.abort_transaction()


def output_count(servers: str, topic: str) -> int:
    sink = TopicPartition(f"{topic}-out", 0)
    with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        consumer.assign([sink])
        end = consumer.end_offsets([sink])[sink]
        consumer.seek_to_beginning([sink])
        count = 0
        while consumer.position(sink) < end:
            count += len(consumer.poll(POLL_S))
    return count


def fill(servers: str, topic: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, 1), NewTopic(f"{topic}-out", 1)])
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(COUNT):
            producer.send(topic, b"%d" % number)


@pytest.fixture
def fake() -> Iterator[FakeKafka]:
    settings = GroupSettings(
        group_consumer_heartbeat_interval_ms=50, group_consumer_assignment_interval_ms=0
    )
    with FakeKafka(1, group_settings=settings) as fake:
        fill(fake.bootstrap_servers, "t")
        yield fake


def tell_the_story(servers: str, topic: str, protocol: str) -> None:
    with (
        Copier(servers, topic, protocol, max_poll_interval_ms=LATE_MS) as stalled,
        Copier(servers, topic, protocol) as next_owner,
    ):
        records = stalled.read()
        next_owner.copy(next_owner.read())
        stalled.fail_to_copy(records)
        assert stalled.consumer.poll(POLL_S).next_offsets == {}
    assert output_count(servers, topic) == COUNT


@each_protocol
def test_what_the_next_owner_has_committed_is_not_doubled(fake: FakeKafka, protocol: str) -> None:
    tell_the_story(fake.bootstrap_servers, "t", protocol)


def test_a_member_whose_pattern_brokers_match_is_refused_too(fake: FakeKafka) -> None:
    servers = fake.bootstrap_servers
    with Copier(servers, "t", "consumer", max_poll_interval_ms=LATE_MS) as stalled:
        stalled.consumer.unsubscribe()
        stalled.consumer.subscribe(pattern="t")
        records = stalled.read()
        assert stalled.consumer.subscription() == {"t"}
        with Copier(servers, "t", "consumer") as next_owner:
            next_owner.copy(next_owner.read())
            stalled.fail_to_copy(records)
    assert output_count(servers, "t") == COUNT


@pytest.mark.kafka
@each_protocol
def test_kafka_refuses_the_offsets_of_a_member_that_stalled(
    kafka_cluster: KafkaCluster, tmp_path: Path, protocol: str
) -> None:
    topic = tmp_path.name
    fill(kafka_cluster.bootstrap_servers, topic)
    tell_the_story(kafka_cluster.bootstrap_servers, topic, protocol)


@each_protocol
def test_a_group_that_is_empty_again_takes_no_offsets_of_the_one_that_stalled(
    fake: FakeKafka, protocol: str
) -> None:
    servers = fake.bootstrap_servers
    with Copier(servers, "t", protocol, max_poll_interval_ms=LATE_MS) as stalled:
        records = stalled.read()
        with Copier(servers, "t", protocol) as next_owner:
            next_owner.copy(next_owner.read())
        stalled.fail_to_copy(records)
    assert output_count(servers, "t") == COUNT


@each_protocol
def test_a_member_whose_session_ended_is_refused(fake: FakeKafka, protocol: str) -> None:
    """The session ends so when a native call holds the GIL; the next heartbeat learns of it."""
    servers = fake.bootstrap_servers
    with Copier(servers, "t", protocol) as stalled:
        records = stalled.read()
        with fake.control() as cluster:
            cluster.expire_member(f"{GROUP}-t", stalled.consumer.group_metadata().member_id)
        wait_until(lambda: stalled.is_removed, "the consumer learns that it was removed")
        with Copier(servers, "t", protocol) as next_owner:
            next_owner.copy(next_owner.read())
            stalled.fail_to_copy(records)
    assert output_count(servers, "t") == COUNT


@each_protocol
def test_a_static_member_that_another_one_replaced_is_refused(
    fake: FakeKafka, protocol: str
) -> None:
    servers = fake.bootstrap_servers
    static = {"group_instance_id": "i", "max_poll_interval_ms": LATE_MS}
    with Copier(servers, "t", protocol, **static) as stalled:
        records = stalled.read()
        wait_until(lambda: stalled.is_removed, "the member is late")
        with Copier(servers, "t", protocol, group_instance_id="i") as next_owner:
            next_owner.copy(next_owner.read())
            stalled.fail_to_copy(records)
    assert output_count(servers, "t") == COUNT


@each_protocol
def test_records_of_a_subscription_that_has_ended_are_refused(
    fake: FakeKafka, protocol: str
) -> None:
    servers = fake.bootstrap_servers
    with Copier(servers, "t", protocol) as left:
        records = left.read()
        left.consumer.unsubscribe()
        with Copier(servers, "t", protocol) as next_owner:
            next_owner.copy(next_owner.read())
            left.fail_to_copy(records)
            left.consumer.subscribe(["t"])
            left.fail_to_copy(records)
    assert output_count(servers, "t") == COUNT


@each_protocol
def test_a_subscriber_without_a_completed_rebalance_is_refused_before_anything_is_sent(
    fake: FakeKafka, protocol: str
) -> None:
    with Copier(fake.bootstrap_servers, "t", protocol) as copier:
        copier.producer.begin_transaction()
        with pytest.raises(UsageError, match="poll until the group has assigned"):
            copier.producer.send_offsets_to_transaction(
                {TopicPartition("t", 0): 1}, copier.consumer.group_metadata()
            )
        copier.producer.abort_transaction()


def test_offsets_of_a_consumer_that_commits_automatically_are_refused(fake: FakeKafka) -> None:
    """An aborted transaction would lose its records: their offsets are committed without it."""
    with Copier(fake.bootstrap_servers, "t", "consumer", enable_auto_commit=True) as copier:
        records = copier.read()
        copier.producer.begin_transaction()
        with pytest.raises(UsageError, match="enable_auto_commit=False"):
            copier.producer.send_offsets_to_transaction(
                records.next_offsets, copier.consumer.group_metadata()
            )
        copier.producer.abort_transaction()


@each_protocol
def test_assigned_partitions_are_committed_without_a_member(fake: FakeKafka, protocol: str) -> None:
    servers = fake.bootstrap_servers
    with Copier(servers, "t", protocol) as copier:
        copier.read()
        copier.consumer.unsubscribe()
        copier.consumer.assign([TopicPartition("t", 0)])
        copier.copy(copier.read())
    assert output_count(servers, "t") == COUNT
