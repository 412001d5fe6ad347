"""Commits and seeks by records and timestamps, on fake and real brokers."""

from __future__ import annotations

import threading
import time
import uuid
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from pykclient.errors import CorruptRecordError, RecordDeserializationError, UsageError
from tests.consumer.serving_port import KeepEven

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


def topic_of_two_partitions(servers: str) -> str:
    """Each has ten records that are a second apart."""
    name = f"records-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name, 2, 1)])
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(20):
            partition, second = number % 2, number // 2
            producer.send(name, b"v", partition=partition, timestamp_ms=START_MS + second * 1_000)
    return name


@pytest.fixture
def topic(servers: str) -> str:
    return topic_of_two_partitions(servers)


def member(servers: str, topic: str, **settings: object) -> Consumer:
    return Consumer(
        {"enable_auto_commit": False} | settings,
        bootstrap_servers=servers,
        group_id=f"group-{topic}",
        auto_offset_reset="earliest",
    )


def partitions_of(topic: str) -> tuple[TopicPartition, TopicPartition]:
    return TopicPartition(topic, 0), TopicPartition(topic, 1)


def read(consumer: Consumer, count: int) -> Sequence[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while len(records) < count:
        records += consumer.poll(10.0)
    return records


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


OWN_OFFSETS: dict[str, object] = {"enable_auto_commit": True, "enable_auto_offset_store": False}


def place_of_one_partition(fake_kafka: FakeKafka, count: int) -> TopicPartition:
    """Return a topic with one partition and as many records, a batch each."""
    name = f"one-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=fake_kafka.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, 1, 1)])
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(name, b"%d" % number).result(TIMEOUT_S)
    return TopicPartition(name, 0)


def committed_offset(consumer: Consumer, place: TopicPartition) -> int:
    """Commit the stored offsets; return the one of a partition."""
    consumer.commit()
    found = consumer.committed([place])[place]
    assert found is not None
    return found.offset


def refuse_threes(value: bytes) -> bytes:
    if value == b"3":
        raise ValueError("no threes")
    return value


@pytest.mark.parametrize("count", [4, 6], ids=["the bad one is the last", "more follow"])
@pytest.mark.parametrize("is_damaged", [False, True], ids=["not deserialized", "damaged"])
def test_what_is_in_hand_is_not_passed_over_by_a_seek_past_a_bad_record(
    fake_kafka: FakeKafka, count: int, *, is_damaged: bool
) -> None:
    place = place_of_one_partition(fake_kafka, count)
    settings = OWN_OFFSETS | ({} if is_damaged else {"value_deserializer": refuse_threes})
    if is_damaged:
        with fake_kafka.control() as cluster:
            cluster.partition(place).log.damage(3)
    with member(fake_kafka.bootstrap_servers, place.topic, **settings) as consumer:
        consumer.assign([place])
        in_hand = read(consumer, 3)
        with pytest.raises((CorruptRecordError, RecordDeserializationError)) as raised:
            consumer.poll(TIMEOUT_S)
        bad = raised.value
        assert isinstance(bad, CorruptRecordError | RecordDeserializationError)
        assert bad.next_offset == 4
        consumer.seek(place, 4)
        assert committed_offset(consumer, place) == 0
        rest = read(consumer, count - 4)
        for record in in_hand[1:]:
            consumer.store_offset(record)
        assert committed_offset(consumer, place) == 0
        consumer.store_offset(in_hand[0])
        assert committed_offset(consumer, place) == 4
        for record in rest:
            consumer.store_offset(record)
        assert committed_offset(consumer, place) == count


def test_a_function_for_bad_records_may_seek_past_them_as_well(fake_kafka: FakeKafka) -> None:
    place = place_of_one_partition(fake_kafka, 5)
    consumers: list[Consumer] = []
    settings = {
        "value_deserializer": refuse_threes,
        "on_record_error": lambda error: consumers[0].seek(place, 4),
    }
    with member(fake_kafka.bootstrap_servers, place.topic, **OWN_OFFSETS, **settings) as consumer:
        consumers.append(consumer)
        consumer.assign([place])
        assert [record.offset for record in read(consumer, 4)] == [0, 1, 2, 4]
        assert committed_offset(consumer, place) == 0


@pytest.mark.parametrize(
    ("seek", "offset"),
    [
        (lambda consumer, place: consumer.seek(place, 2), 2),
        (lambda consumer, place: consumer.seek(place, 5), 5),
        (lambda consumer, place: consumer.seek_to_end([place]), 6),
    ],
    ids=["back", "ahead", "to the end"],
)
def test_any_other_seek_gives_up_what_is_not_stored(
    fake_kafka: FakeKafka, seek: Callable[[Consumer, TopicPartition], None], offset: int
) -> None:
    place = place_of_one_partition(fake_kafka, 6)
    with member(fake_kafka.bootstrap_servers, place.topic, **OWN_OFFSETS) as consumer:
        consumer.assign([place])
        read(consumer, 4)
        seek(consumer, place)
        assert consumer.position(place) == offset
        assert committed_offset(consumer, place) == offset


@pytest.mark.parametrize("is_iterated", [False, True], ids=["polled", "iterated"])
def test_what_an_interceptor_takes_out_holds_up_no_commit(
    fake_kafka: FakeKafka, *, is_iterated: bool
) -> None:
    place = place_of_one_partition(fake_kafka, 6)
    settings = OWN_OFFSETS | {"interceptors": [KeepEven]}
    with member(fake_kafka.bootstrap_servers, place.topic, **settings) as consumer:
        consumer.assign([place])
        records = list(islice(consumer, 3)) if is_iterated else read(consumer, 3)
        assert [record.offset for record in records] == [0, 2, 4]
        assert committed_offset(consumer, place) == 0
        consumer.store_offset(records[1])
        consumer.store_offset(records[0])
        assert committed_offset(consumer, place) == 4
        consumer.store_offset(records[2])
        consumer.poll(0)  # an iteration moves past what is taken out when it goes on
        assert committed_offset(consumer, place) == 6


def test_offsets_are_stored_as_they_are_committed(fake_kafka: FakeKafka) -> None:
    """A batch of `poll_arrow` has no records; all offsets before the given one are stored."""
    place = place_of_one_partition(fake_kafka, 6)
    with member(fake_kafka.bootstrap_servers, place.topic, **OWN_OFFSETS) as consumer:
        consumer.assign([place])
        while consumer.position(place) < 6:
            consumer.poll_arrow(TIMEOUT_S)
        assert committed_offset(consumer, place) == 0
        consumer.store_offset({place: 3})
        assert committed_offset(consumer, place) == 3
        consumer.store_offset({place: OffsetAndMetadata(5)})
        assert committed_offset(consumer, place) == 5
        consumer.commit({place: 6})
        assert committed_offset(consumer, place) == 6


def test_storing_is_refused_where_it_has_no_effect(fake_kafka: FakeKafka) -> None:
    with (
        member(fake_kafka.bootstrap_servers, "t") as consumer,
        pytest.raises(UsageError, match="enable_auto_offset_store=False"),
    ):
        consumer.store_offset(None)  # type: ignore[arg-type]
    with (
        member(fake_kafka.bootstrap_servers, "t", enable_auto_offset_store=False) as consumer,
        pytest.raises(UsageError, match="store_offset"),
    ):
        consumer.store_offset(5)  # type: ignore[arg-type]


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
