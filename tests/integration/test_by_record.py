"""What is committed and sought by records and times, on fake and on real brokers."""

from __future__ import annotations

import threading
import time
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from pykclient.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient import ConsumerRecord
    from pykclient.testing import FakeKafka, KafkaCluster

START_MS = 1_700_000_000_000
TIMEOUT_S = 20.0


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> str:
    if request.param == "fake":
        fake: FakeKafka = request.getfixturevalue("fake_kafka")
        return fake.bootstrap_servers
    real: KafkaCluster = request.getfixturevalue("kafka_cluster")
    return real.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    """A topic of two partitions, each with ten records that are a second apart."""
    name = f"records-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name, 2, 1)])
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(20):
            partition, second = number % 2, number // 2
            producer.send(name, b"v", partition=partition, timestamp_ms=START_MS + second * 1_000)
    return name


def member(servers: str, topic: str, **settings: object) -> Consumer:
    return Consumer(
        bootstrap_servers=servers,
        group_id=f"group-{topic}",
        auto_offset_reset="earliest",
        **{"enable_auto_commit": False} | settings,
    )


def partitions_of(topic: str) -> tuple[TopicPartition, TopicPartition]:
    return TopicPartition(topic, 0), TopicPartition(topic, 1)


def read(consumer: Consumer, count: int) -> Sequence[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while len(records) < count:
        records += consumer.poll(10.0)
    return records


@pytest.mark.promise("a record commits itself and what is before it")
def test_records_are_committed_by_one_of_them_and_by_what_a_poll_returned(
    servers: str, topic: str
) -> None:
    one, two = partitions_of(topic)
    with member(servers, topic) as consumer:
        consumer.assign([one, two])
        assert consumer.committed() == {one: None, two: None}
        record = next(each for each in read(consumer, 20) if each.offset == 4)
        consumer.commit(record)
        committed = consumer.committed()
        assert committed.pop(record.topic_partition) == OffsetAndMetadata(
            5, leader_epoch=record.leader_epoch
        )
        assert list(committed.values()) == [None]
        consumer.seek_to_beginning()
        records = consumer.poll(10.0)
        reported: list[object] = []
        consumer.commit_async(records, lambda offsets, error: reported.append((offsets, error)))
        consumer.commit({})  # behind it
        assert reported == [(records.next_offsets, None)]


@pytest.mark.promise("commits go up to the first record that is not stored")
def test_automatic_commits_cover_what_is_stored_without_a_gap(servers: str, topic: str) -> None:
    one, two = partitions_of(topic)
    settings = {"enable_auto_commit": True, "enable_auto_offset_store": False}
    with member(servers, topic, **settings, auto_commit_interval_ms=0) as consumer:
        consumer.subscribe([topic])
        by_place = {(each.partition, each.offset): each for each in read(consumer, 20)}

        def store(*places: tuple[int, int]) -> None:
            for place in places:
                consumer.store_offset(by_place[place])

        worker = threading.Thread(target=store, args=((0, 2), (0, 0), (0, 1), (0, 5), (1, 3)))
        worker.start()
        worker.join()
        expected = {one: 3, two: 0}
        deadline_s = time.monotonic() + TIMEOUT_S
        while {each: found and found.offset for each, found in consumer.committed().items()} != (
            expected
        ):
            assert time.monotonic() < deadline_s
            consumer.poll(0.1)
        store((0, 3), (0, 4))
        consumer.commit()
        store((1, 0), (1, 1))
    with member(servers, topic, **settings) as consumer:
        consumer.assign([one, two])
        assert consumer.position() == {one: 6, two: 2}


def test_storing_is_refused_where_it_has_no_effect(fake_kafka: FakeKafka) -> None:
    with (
        member(fake_kafka.bootstrap_servers, "t") as consumer,
        pytest.raises(UsageError, match="enable_auto_offset_store=False"),
    ):
        consumer.store_offset(None)  # type: ignore[arg-type]
    with (
        member(fake_kafka.bootstrap_servers, "t", enable_auto_offset_store=False) as consumer,
        pytest.raises(UsageError, match="store_offset takes a record, not 5"),
    ):
        consumer.store_offset(5)  # type: ignore[arg-type]


@pytest.mark.promise("a consumer can begin at a time")
def test_reading_begins_at_a_time_or_at_the_end_where_nothing_is_so_late(
    servers: str, topic: str
) -> None:
    one, two = partitions_of(topic)
    with member(servers, topic) as consumer:
        consumer.assign([one, two])
        consumer.seek_to_time(START_MS + 7_001)
        assert consumer.position() == {one: 8, two: 8}
        records = read(consumer, 4)
        assert sorted((each.partition, each.offset) for each in records) == [
            (0, 8),
            (0, 9),
            (1, 8),
            (1, 9),
        ]
        consumer.seek_to_time(datetime(2023, 11, 14, 22, 13, 23, tzinfo=UTC), [two])
        assert consumer.position() == {one: 10, two: 3}
        consumer.seek_to_time(START_MS + 60_000)
        assert consumer.position() == {one: 10, two: 10}
        with pytest.raises(UsageError, match=r"seek_to_time: time is 1\.5"):
            consumer.seek_to_time(1.5)  # type: ignore[arg-type]
