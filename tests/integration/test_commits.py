"""Commits stay committed, cover the processed records, and determine where reading resumes.

Method: consumers that assign partitions by hand and have a `group_id`, against brokers in this
process, whose groups can be looked into; and against real ones, beside Java and librdkafka.
"""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from contextlib import nullcontext
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from pykclient import Consumer, OffsetAndMetadata, Producer, TopicPartition
from pykclient.errors import (
    CommitFailedError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UsageError,
    WakeupError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake import faults
from tests.integration.confluent_tools import confluent_create_topic
from tests.integration.fake_group import wait_until
from tests.integration.java_tools import java_consume, java_group_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing import FakeKafka, KafkaCluster

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
COUNT = 100
TIMEOUT_S = 30.0
FETCH_WAIT_MS = 20_000
"""Longer than any call here may take: a call that waits for a fetch fails."""


def write(servers: str, topic: str, partition_count: int, count: int = COUNT) -> None:
    """Write records to the partitions in turn."""
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % partition_count)


def reader(servers: str, *partitions: TopicPartition, **settings: object) -> Consumer:
    """Return a consumer of group ``g`` that reads these partitions."""
    given = {"group_id": "g", "auto_offset_reset": "earliest", **settings}
    consumer = Consumer(given, bootstrap_servers=servers)
    consumer.assign(partitions)
    return consumer


def committed(servers: str, *partitions: TopicPartition) -> list[int | None]:
    """Return the committed offsets of group ``g``."""
    with reader(servers, enable_auto_commit=False) as consumer:
        found = consumer.committed(partitions or [P0, P1]).values()
    return [each and each.offset for each in found]


def read(consumer: Consumer, count: int) -> None:
    """Poll until this many records have arrived."""
    while count > 0:
        count -= len(consumer.poll(TIMEOUT_S, max_records=count))


@pytest.fixture
def servers(fake_kafka: FakeKafka) -> str:
    """Topic ``t`` with records in both partitions."""
    with fake_kafka.control() as cluster:
        cluster.create_topic("t", 2)
    write(fake_kafka.bootstrap_servers, "t", 2)
    return fake_kafka.bootstrap_servers


# Committing, and going on.


@pytest.mark.promise(
    "a consumer starts at its group's committed offsets, or else as `auto_offset_reset` says"
)
def test_a_consumer_goes_on_where_its_group_has_committed(servers: str) -> None:
    with reader(servers, P0, P1, enable_auto_commit=False) as consumer:
        assert consumer.committed([P0, P1]) == {P0: None, P1: None}
        read(consumer, COUNT)
        consumer.seek(P1, 7)
        consumer.commit()
        assert consumer.committed([P0, P1]) == {
            P0: OffsetAndMetadata(COUNT // 2, leader_epoch=0),
            P1: OffsetAndMetadata(7),
        }
    with reader(servers, P0, P1) as consumer:
        assert (consumer.position(P0), consumer.position(P1)) == (COUNT // 2, 7)


def test_callbacks_that_are_still_due_are_called_by_close(servers: str) -> None:
    errors: list[KafkaError | None] = []
    with reader(servers, enable_auto_commit=False) as consumer:
        consumer.commit_async({P0: 1}, lambda _, error: errors.append(error))
        consumer.commit_async({P0: 2}, lambda _, error: errors.append(error))
    assert errors == [None, None]
    assert committed(servers, P0) == [2]


@pytest.mark.promise("automatic commits cover processed records and nothing else")
def test_a_callback_that_commits_does_not_commit_what_poll_is_about_to_return(
    servers: str,
) -> None:
    write(servers, "t", 1)
    with reader(servers, P0, enable_auto_commit=False) as consumer:
        consumer.commit({P0: 0})
        read(consumer, 10)
        called_at: list[int] = []

        def callback(_: object, __: object) -> None:
            called_at.append(consumer.position(P0))
            consumer.commit()

        consumer.commit_async({P0: 1}, callback)
        while not called_at:
            (record,) = consumer.poll(TIMEOUT_S, max_records=1)
            if record.offset == COUNT - 1 and not called_at:
                consumer.seek(P0, 10)  # there is a record to return whenever the response comes
        assert called_at == [record.offset]
    assert committed(servers, P0) == called_at


def test_the_next_offsets_are_the_positions_and_can_be_committed(servers: str) -> None:
    """Also when what a poll returned has gone through another process."""
    with reader(servers, P0) as consumer:
        records = consumer.poll(TIMEOUT_S, max_records=2)
        assert records.next_offsets == {P0: OffsetAndMetadata(2, leader_epoch=0)}
        consumer.commit(records.next_offsets)
        assert consumer.committed([P0]) == records.next_offsets
        sent = pickle.loads(pickle.dumps(records))
        assert [record.value for record in sent[P0]] == [b"0", b"2"]
        assert sent.next_offsets == records.next_offsets


def test_a_commit_without_waiting_is_sent_before_anything_else_is_called(
    fake_kafka: FakeKafka, servers: str
) -> None:
    with reader(servers, P0, enable_auto_commit=False) as consumer:
        consumer.committed([P0])  # which finds the coordinator
        consumer.commit_async({P0: 1})
        wait_until(lambda: offset_of(fake_kafka, P0) == 1)
        consumer.commit_async({P0: 2})
        wait_until(lambda: offset_of(fake_kafka, P0) == 2)


# Automatic commits.


def stop_at_record_12(consumer: Consumer) -> None:
    for record in consumer:
        if record.offset == 12:
            return


def read_twice(consumer: Consumer) -> None:
    read(consumer, 10)
    read(consumer, 7)


def seek_behind(consumer: Consumer) -> None:
    read(consumer, 10)
    consumer.seek(P0, 4)


@pytest.mark.promise("automatic commits cover processed records and nothing else")
@pytest.mark.parametrize(
    ("work", "is_failure", "is_automatic", "offset"),
    [
        (read_twice, False, True, 17),
        (read_twice, True, True, 10),
        (read_twice, False, False, None),
        (stop_at_record_12, False, True, 12),
        (stop_at_record_12, True, True, 12),
        (seek_behind, True, True, 4),
    ],
)
def test_leaving_commits_what_was_processed(
    work: Callable[[Consumer], None],
    is_failure: bool,
    is_automatic: bool,
    offset: int | None,
    servers: str,
) -> None:
    def use() -> None:
        with reader(servers, P0, enable_auto_commit=is_automatic) as consumer:
            work(consumer)
            if is_failure:
                raise LookupError

    with pytest.raises(LookupError) if is_failure else nullcontext():
        use()
    assert committed(servers, P0) == [offset]


def test_assigning_others_commits_what_is_finished_if_the_interval_is_over(
    fake_kafka: FakeKafka, servers: str
) -> None:
    interval_ms = 200
    with reader(servers, P0, auto_commit_interval_ms=interval_ms) as consumer:
        read(consumer, 10)
        finished = 0
        while not finished:
            finished = consumer.position(P0)
            read(consumer, 1)
        over_s = time.monotonic() + interval_ms / 1_000
        wait_until(lambda: time.monotonic() >= over_s)  # the interval is real time
        consumer.assign([P1])
        wait_until(lambda: offset_of(fake_kafka, P0) == finished)


@pytest.mark.promise(
    "a refused commit says what, where and the cure; `poll` raises errors that are not retriable"
)
def test_a_refusal_is_raised_though_there_are_records_at_hand(
    fake_kafka: FakeKafka, servers: str
) -> None:
    with fake_kafka.control() as cluster:
        refusal = faults.fail_with(TopicAuthorizationFailedError)
        cluster.faults.add(refusal, ApiKey.OFFSET_COMMIT, times=None)
    with reader(servers, P0, auto_commit_interval_ms=1, max_poll_records=1) as consumer:

        def read_half() -> None:
            for _ in range(COUNT // 2):
                assert consumer.poll(TIMEOUT_S)
                consumer.committed([P0])  # responded to after what was sent before

        with pytest.raises(TopicAuthorizationFailedError, match="t-0 in group 'g'"):
            read_half()
        with fake_kafka.control() as cluster:
            cluster.faults.clear()


def offset_of(fake_kafka: FakeKafka, partition: TopicPartition) -> int | None:
    """Return the broker's committed offset of group ``g``."""
    with fake_kafka.control() as cluster:
        found = cluster.groups.offsets("g").get(partition)
    return None if found is None else found.offset


# Errors.


@pytest.mark.promise(
    "a refused commit says what, where and the cure; `poll` raises errors that are not retriable"
)
def test_a_group_whose_members_subscribed_takes_no_offsets_from_others(
    fake_kafka: FakeKafka, servers: str
) -> None:
    with Consumer(bootstrap_servers=servers, group_id="g") as member:
        member.subscribe(["t"])
        while not member.assignment():
            member.poll(TIMEOUT_S / 20)
        with (
            reader(servers, P0, enable_auto_commit=False) as consumer,
            pytest.raises(CommitFailedError, match="needs a group_id of its own"),
        ):
            consumer.commit({P0: 1})


def test_a_commit_can_be_woken(fake_kafka: FakeKafka, servers: str) -> None:
    with fake_kafka.control() as cluster:
        cluster.faults.add(faults.drop(), ApiKey.OFFSET_COMMIT)
    with reader(servers, enable_auto_commit=False) as consumer:
        waker = threading.Timer(0.2, consumer.wakeup)
        waker.start()
        with pytest.raises(WakeupError):
            consumer.commit({P0: 1}, timeout=TIMEOUT_S)
        waker.join()


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.commit(),
        lambda consumer: consumer.commit_async(),
        lambda consumer: consumer.committed([P0]),
    ],
    ids=["commit", "commit_async", "committed"],
)
def test_without_a_group_there_is_nowhere_to_commit_to(call: Callable[[Consumer], None]) -> None:
    with (
        Consumer(bootstrap_servers="127.0.0.1:1") as consumer,
        pytest.raises(UsageError, match="set group_id"),
    ):
        call(consumer)


def test_close_ends_in_time_when_the_last_commit_gets_no_response(
    fake_kafka: FakeKafka, servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    with fake_kafka.control() as cluster:
        cluster.faults.add(faults.drop(), ApiKey.OFFSET_COMMIT, times=None)
    consumer = reader(servers, P0)
    read(consumer, 10)
    started_s = time.monotonic()
    consumer.close(timeout=0.5)
    assert time.monotonic() - started_s < 1.5
    text = "closed without the last commit; the group continues at its earlier offsets: "
    (line,) = (each.getMessage() for each in caplog.records if text in each.getMessage())
    assert "as coordinator) has not responded to OffsetCommit yet" in line
    assert "time" not in line.partition(text)[2].replace("in time", "")


@pytest.mark.parametrize("is_member", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_close_without_time_reports_only_what_is_lost(
    fake_kafka: FakeKafka,
    servers: str,
    caplog: pytest.LogCaptureFixture,
    *,
    is_member: bool,
    commits: bool,
) -> None:
    """Goal: nothing is read again after `commit`, so `close` must not say so."""
    consumer = reader(servers, *([] if is_member else [P0]))
    if is_member:
        consumer.subscribe(["t"])
    read(consumer, 10)
    consumer.poll(0)
    if commits:
        consumer.commit()
    consumer.close(timeout=0)
    lines = [each.getMessage() for each in caplog.records if each.levelname != "INFO"]
    if commits:
        assert lines == []
        assert committed(servers) != [None, None]
    else:
        (line,) = lines
        assert "there was no time to send them" in line


def test_close_of_a_consumer_that_has_read_nothing_reports_nothing(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    with reader(servers, P0, enable_auto_commit=False) as consumer:
        read(consumer, 10)
        consumer.commit()
    consumer = reader(servers, P0)
    assert consumer.position(P0) == 10
    consumer.close(timeout=0)
    assert [each for each in caplog.records if each.levelname != "INFO"] == []


# Real brokers.


@pytest.fixture
def topic(kafka_cluster: KafkaCluster) -> str:
    """Provide a topic of two partitions with records."""
    name = confluent_create_topic(kafka_cluster, "commits", partition_count=2)
    write(kafka_cluster.bootstrap_servers, name, 2)
    return name


@pytest.mark.kafka
@pytest.mark.promise("this client and Java see each other's commits")
def test_javas_tool_reads_what_is_committed_here(kafka_cluster: KafkaCluster, topic: str) -> None:
    group = uuid.uuid4().hex
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with reader(
        kafka_cluster.bootstrap_servers, first, second, group_id=group, enable_auto_commit=False
    ) as consumer:
        read(consumer, COUNT)
        consumer.commit()
        consumer.commit({second: OffsetAndMetadata(7, "a note", 0)})
        kept_offsets = consumer.committed([first, second])
    assert kept_offsets == {
        first: OffsetAndMetadata(COUNT // 2, leader_epoch=0),
        second: OffsetAndMetadata(7, "a note", 0),
    }
    rows = java_group_rows(kafka_cluster, "--describe", "--group", group)
    seen = {(row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in rows}
    assert seen == {("0", str(COUNT // 2), "0"), ("1", "7", str(COUNT // 2 - 7))}


@pytest.mark.kafka
@pytest.mark.promise("this client and Java see each other's commits")
def test_it_goes_on_where_javas_consumer_has_committed(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    group = uuid.uuid4().hex
    settings = {"group.id": group, "enable.auto.commit": "true"}
    records = java_consume(kafka_cluster, topic, 30, settings=settings)
    ends = dict.fromkeys(range(2), 0)
    for record in records:
        assert record.partition is not None
        assert record.offset is not None
        ends[record.partition] = record.offset + 1
    partitions = [TopicPartition(topic, number) for number in ends]
    with reader(kafka_cluster.bootstrap_servers, *partitions, group_id=group) as consumer:
        assert [consumer.position(each) for each in partitions] == list(ends.values())


@pytest.mark.kafka
def test_offsets_are_kept_by_old_brokers_too(old_kafka_cluster: KafkaCluster) -> None:
    servers, group = old_kafka_cluster.bootstrap_servers, uuid.uuid4().hex
    name = confluent_create_topic(old_kafka_cluster, "commits")
    partition = TopicPartition(name, 0)
    write(servers, name, 1)
    with reader(servers, partition, group_id=group) as consumer:
        read(consumer, 10)
    with reader(servers, partition, group_id=group) as consumer:
        assert consumer.position(partition) == 10


@pytest.mark.kafka
def test_a_commit_does_not_wait_behind_a_fetch_of_a_real_broker(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    with reader(
        kafka_cluster.bootstrap_servers,
        TopicPartition(topic, 0),
        group_id=uuid.uuid4().hex,
        enable_auto_commit=False,
        fetch_max_wait_ms=FETCH_WAIT_MS,
    ) as consumer:
        read(consumer, COUNT // 2)
        started_s = time.monotonic()
        consumer.commit()
        assert time.monotonic() - started_s < FETCH_WAIT_MS / 1_000 / 2


@pytest.mark.kafka
def test_offsets_of_an_open_transaction_are_waited_for(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    group, partition = uuid.uuid4().hex, TopicPartition(topic, 0)
    servers = kafka_cluster.bootstrap_servers
    reading = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
    writing = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": group})
    writing.init_transactions(TIMEOUT_S)
    writing.begin_transaction()
    offsets = [confluent_kafka.TopicPartition(topic, 0, 5)]
    writing.send_offsets_to_transaction(offsets, reading.consumer_group_metadata(), TIMEOUT_S)
    with reader(servers, group_id=group, enable_auto_commit=False) as consumer:
        with pytest.raises(KafkaTimeoutError, match="UNSTABLE_OFFSET_COMMIT"):
            consumer.committed([partition], timeout=1.0)
        writing.commit_transaction(TIMEOUT_S)
        assert consumer.committed([partition])[partition] == OffsetAndMetadata(5)
    reading.close()
