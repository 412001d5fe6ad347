"""Members that are slow, in their own code or in a deserializer: who stays and who must go.

Goal: heartbeats go on whatever the application does, and `max_poll_interval_ms` counts all the
same. Method: real consumers and threads over the loopback, in groups of both protocols, with short
sessions; the group is looked at in the broker.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer, Producer
from pykclient.errors import RecordDeserializationError
from pykclient.testing import FakeKafka
from pykclient.testing.fake.groups.group import GroupSettings
from tests.integration.fake_group import (
    GROUP,
    PARTITIONS,
    POLL_S,
    TIMEOUT_S,
    TOPIC,
    Diary,
    member_count,
    poll_until,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SESSION_MS = 1_000
INTERVAL_MS = 50
COUNT = 8
SLOW_S = 2.5 * SESSION_MS / 1_000 / COUNT
"""For each record: for all of them longer than two sessions."""

PROTOCOLS = ["classic", "consumer"]


@pytest.fixture
def fake() -> Iterator[FakeKafka]:
    """A broker with topic ``t``, whose coordinator gives members up after a second."""
    settings = GroupSettings(
        group_min_session_timeout_ms=SESSION_MS,
        group_consumer_session_timeout_ms=SESSION_MS,
        group_consumer_heartbeat_interval_ms=INTERVAL_MS,
        group_consumer_assignment_interval_ms=0,
    )
    with FakeKafka(1, group_settings=settings) as fake:
        with fake.control() as cluster:
            cluster.create_topic(TOPIC, len(PARTITIONS))
        yield fake


def member(fake: FakeKafka, protocol: str, **settings: object) -> Consumer:
    timing: dict[str, object] = {}
    if protocol == "classic":
        timing = {"heartbeat_interval_ms": INTERVAL_MS, "session_timeout_ms": SESSION_MS}
    return Consumer(
        bootstrap_servers=fake.bootstrap_servers,
        **{
            "group_id": GROUP,
            "group_protocol": protocol,
            "auto_offset_reset": "earliest",
            **timing,
            **settings,
        },
    )


def write(fake: FakeKafka, count: int = COUNT) -> None:
    """Write so many records to the first partition."""
    with Producer(bootstrap_servers=fake.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(TOPIC, b"%d" % number, partition=0)


def polled(consumer: Consumer, count: int) -> list[object]:
    values: list[object] = []
    while len(values) < count:
        values += [record.value for record in consumer.poll(TIMEOUT_S)]
    return values


def iterated(consumer: Consumer, count: int) -> list[object]:
    values: list[object] = []
    for record in consumer:
        values.append(record.value)
        if len(values) == count:
            break
    return values


READERS = [polled, iterated]


@pytest.mark.promise("a slow deserializer keeps its membership; `max_poll_interval_ms` covers it")
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_slow_deserializer_keeps_its_membership(
    protocol: str, read: Callable[[Consumer, int], list[object]], fake: FakeKafka
) -> None:
    """All records of the batch together take longer than two sessions."""
    write(fake)
    diary = Diary()

    def slow(data: bytes) -> int:
        time.sleep(SLOW_S)
        return int(data)

    with member(fake, protocol, value_deserializer=slow) as consumer:
        consumer.subscribe([TOPIC], listener=diary.listener)
        assert read(consumer, COUNT) == list(range(COUNT))
        consumer.commit()
        assert diary.lines == [("assigned", [0, 1, 2, 3])]


@pytest.mark.promise("a slow deserializer keeps its membership; `max_poll_interval_ms` covers it")
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_deserializer_that_takes_longer_than_the_poll_interval_is_given_up(
    protocol: str, read: Callable[[Consumer, int], list[object]], fake: FakeKafka
) -> None:
    write(fake)
    diary = Diary()
    member_counts: list[int] = []

    def wait_until_given_up(data: bytes) -> int:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not member_counts and (count := member_count(fake)):
            assert count == 1
            assert time.monotonic() < deadline_s
            time.sleep(POLL_S)
        member_counts.append(0)
        return int(data)

    with member(
        fake, protocol, value_deserializer=wait_until_given_up, max_poll_interval_ms=400
    ) as consumer:
        consumer.subscribe([TOPIC], listener=diary.listener)
        read(consumer, COUNT)
        poll_until(lambda: len(diary.lines) >= 3, consumer)
    assert [what for what, _ in diary.lines[:3]] == ["assigned", "lost", "assigned"]


@pytest.mark.promise("a slow deserializer keeps its membership; `max_poll_interval_ms` covers it")
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_always_finds_records_at_hand_is_not_late(
    protocol: str, read: Callable[[Consumer, int], list[object]], fake: FakeKafka
) -> None:
    """One record a call, all of which are there after the first: each call counts as a poll."""
    interval_ms = 1_000
    count = 40
    write(fake, count)
    diary = Diary()
    with member(fake, protocol, max_poll_interval_ms=interval_ms, max_poll_records=1) as consumer:
        consumer.subscribe([TOPIC], listener=diary.listener)
        values = read(consumer, 1)
        started_s = time.monotonic()
        while len(values) < count:
            time.sleep(3 * interval_ms / 1_000 / count)
            values += read(consumer, 1)
        assert time.monotonic() - started_s > 2 * interval_ms / 1_000
        assert values == [b"%d" % number for number in range(count)]
        assert diary.lines == [("assigned", [0, 1, 2, 3])]


@pytest.mark.promise(
    "a deserializer may call the consumer and be interrupted; nothing is lost or committed by it"
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_deserializer_commits_leaves_out_what_it_has_in_hand(
    protocol: str, fake: FakeKafka
) -> None:
    """And an automatic commit that becomes due meanwhile does so, too."""
    partitions = PARTITIONS[:2]
    with Producer(bootstrap_servers=fake.bootstrap_servers) as producer:
        for partition in (0, 1):
            for number in range(3):
                producer.send(TOPIC, b"%d" % number, partition=partition)
    got: list[object] = []
    counts: list[tuple[int, int]] = []

    def committed_count() -> int:
        offsets = consumer.committed(partitions).values()
        return sum(each.offset for each in offsets if each is not None)

    def commit(data: bytes) -> int:
        counts.append((committed_count(), len(got)))  # which takes long enough for what is due
        consumer.commit()
        counts.append((committed_count(), len(got)))
        return int(data)

    with member(fake, protocol, value_deserializer=commit, auto_commit_interval_ms=1) as consumer:
        consumer.subscribe([TOPIC])
        while len(got) < 6:
            got += [record.value for record in consumer.poll(TIMEOUT_S)]
        assert len(counts) == 12
        for commit_count, got_count in counts:
            assert commit_count <= got_count, "what no poll has returned was committed"
        consumer.commit()
        assert committed_count() == 6


def test_a_deserializer_cannot_read_what_it_is_called_for(fake: FakeKafka) -> None:
    write(fake)

    def read(data: bytes) -> None:
        consumer.poll(POLL_S)

    with member(fake, "classic", value_deserializer=read) as consumer:
        consumer.subscribe([TOPIC])
        with pytest.raises(RecordDeserializationError, match="cannot read records"):
            polled(consumer, 1)
        assert consumer.position(PARTITIONS[0]) == 0


@pytest.mark.promise(
    "a deserializer may call the consumer and be interrupted; nothing is lost or committed by it"
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_deserializer_may_have_the_consumer_leave(protocol: str, fake: FakeKafka) -> None:
    """What it was called for is not handed out: it is for whoever has the partition next."""
    write(fake)
    values: list[bytes] = []

    def leave(data: bytes) -> bytes:
        if not values:
            consumer.unsubscribe()
        values.append(data)
        return data

    with member(fake, protocol, value_deserializer=leave) as consumer:
        consumer.subscribe([TOPIC])
        while not values:
            assert not consumer.poll(POLL_S)
        assert not consumer.assignment()
        consumer.subscribe([TOPIC])
        assert polled(consumer, COUNT) == [b"%d" % number for number in range(COUNT)]
